"""Publishes changes that requests have made to the event streams of their tenant."""

from __future__ import annotations

from typing import Any

from litestar.types import Message, Send

from mainspring.api.handlers import operation_of, roles_of
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.permissions import VIEWER
from mainspring.operations.live.change_publisher import ChangePublisher
from mainspring.operations.live.topics import changed_by

_READS = ("GET", "HEAD")


def publish_changes(scope: Any, send: Send) -> Send:
    """Return a `send` that counts the change if the answer says that it was made. Without open streams, return `send`
    itself."""
    if scope["method"] in _READS or "caller" not in scope:
        return send
    changes: ChangePublisher = scope["app"].state.services.streams.changes
    handler = scope["route_handler"]
    if not changes.wanted or VIEWER in roles_of(handler):  # what viewers may call changes nothing
        return send
    lists = changed_by(operation_of(handler))
    if not lists:
        return send
    caller: Caller = scope["caller"]

    async def counted(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] < 400:
            changes.add(caller.tenant, lists)
        await send(message)

    return counted
