"""Follows what changes: the events of `GET /v1/stream`. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from mainspring.kernel.clock import Clock
from mainspring.sdk.client.core import Call, NoAnswer, Patience
from mainspring.sdk.client.server_events import ServerEvents
from mainspring.wire.live import Change

_decode_change = msgspec.json.Decoder(Change).decode


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """`open`: the stream has begun, or has begun again; read what you show once more. `missed`: it has begun again, and
    changes meanwhile were not sent. `change`: something of a topic has changed."""

    kind: Literal["open", "change"]
    change: Change | None = None
    missed: bool = False


class ChangeStream(ServerEvents[ChangeEvent]):
    """A reader that does not end: the connection is opened again whatever ends it, unless the token is no longer
    valid."""

    broke_off = NoAnswer("the stream was cut off", reached=True)

    def __init__(self, topics: Sequence[str], *, url: str, clock: Clock, patience: Patience) -> None:
        super().__init__("/v1/stream", (("topics", ",".join(topics)),), url=url, clock=clock, patience=patience)

    def call(self) -> Call[None]:
        """The call does not send the id of the last event: there is no replay, and another server does not know the
        id."""
        return replace(super().call(), headers=(("accept", "text/event-stream"),))

    def _event(self, name: bytes, data: bytes) -> ChangeEvent | None:
        match name:
            case b"open":
                return ChangeEvent("open", missed=bool(self._seen))
            case b"change":
                return ChangeEvent("change", _decode_change(data))
            case _:
                return None
