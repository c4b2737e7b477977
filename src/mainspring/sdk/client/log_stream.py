"""Follows a run's log: the events, and where to go on after a broken connection. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from mainspring.kernel.clock import Clock
from mainspring.sdk.client.core import NoAnswer, Patience, segment
from mainspring.sdk.client.server_events import ServerEvents
from mainspring.wire.logs import LogAttempt, LogEnd, LogOutput

_decode_output = msgspec.json.Decoder(LogOutput).decode
_decode_attempt = msgspec.json.Decoder(LogAttempt).decode
_decode_end = msgspec.json.Decoder(LogEnd).decode


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One event: `output` and `truncated` have a `text`; `attempt` means that the next attempt begins; `end` has the
    `status` and is the last event."""

    kind: Literal["output", "truncated", "attempt", "end"]
    attempt: int = 0
    text: str = ""
    status: str = ""


class LogStream(ServerEvents[LogEvent]):
    """A reader of one log, until its end."""

    broke_off = NoAnswer("the connection ended before the log", reached=True)

    def __init__(
        self,
        run_id: str,
        attempt: int | None,
        *,
        url: str,
        clock: Clock,
        patience: Patience,
        after: str | None = None,
    ) -> None:
        params = (("follow", "true"), *((("attempt", str(attempt)),) if attempt is not None else ()))
        path = f"/v1/runs/{segment(run_id)}/logs"
        super().__init__(path, params, url=url, clock=clock, patience=patience, seen=after or "")

    def _event(self, name: bytes, data: bytes) -> LogEvent | None:
        match name:
            case b"output":
                output = _decode_output(data)
                return LogEvent("output", output.attempt, output.text)
            case b"truncated":
                output = _decode_output(data)
                return LogEvent("truncated", output.attempt, output.text)
            case b"attempt":
                return LogEvent("attempt", _decode_attempt(data).attempt)
            case b"end":
                self.ended = True
                return LogEvent("end", status=_decode_end(data).status)
            case _:
                return None
