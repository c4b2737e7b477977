"""Publishes changes that requests have made to the event streams of their tenant."""

from __future__ import annotations

from mainspring.api.web import Scope
from mainspring.operations.access.permissions import VIEWER
from mainspring.operations.live.change_publisher import ChangePublisher
from mainspring.operations.live.topics import changed_by

_READS = ("GET", "HEAD")


def publish_change(scope: Scope) -> None:
    """Count the change that this request has made, if it made one. Without open streams nothing is counted."""
    if scope["method"] in _READS or "caller" not in scope:
        return
    changes: ChangePublisher = scope["app"].state.services.streams.changes
    handler = scope["handler"]
    if changes.wanted and VIEWER not in handler.roles:  # what viewers may call changes nothing
        lists = changed_by(handler.operation)
        if lists:
            changes.add(scope["caller"].tenant, lists)
