"""Follows a run's log: builds the requests, parses the events, and resumes after a broken connection. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

import msgspec

from mainspring.kernel.clock import Clock
from mainspring.sdk.client.core import Answer, Call, NoAnswer, Patience, RetryingCall, segment
from mainspring.wire.logs import LogAttempt, LogEnd, LogOutput

BROKE_OFF = NoAnswer("the connection ended before the log", reached=True)
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


class LogStream:
    """A reader of one log. It uses several connections if one breaks."""

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
        self.ended = False
        self._path = f"/v1/runs/{segment(run_id)}/logs"
        self._params = (("follow", "true"), *((("attempt", str(attempt)),) if attempt is not None else ()))
        self._url = url
        self._clock = clock
        self._patience = patience
        self._retrying: RetryingCall[None] | None = None
        self._seen = after or ""  # the id of the last event that was returned
        self._rest = b""
        self._fields: dict[bytes, bytes] = {}

    def call(self) -> Call[None]:
        """The request for the events after the last one."""
        self._rest, self._fields = b"", {}
        headers = (("accept", "text/event-stream"), *((("last-event-id", self._seen),) if self._seen else ()))
        return Call("GET", self._path, lambda _: None, params=self._params, headers=headers)

    def feed(self, data: bytes) -> list[LogEvent]:
        """The events that these bytes complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        events = []
        for line in lines:
            if line:
                field, _, value = line.partition(b": ")
                self._fields[field] = value
                continue
            if (event := _event(self._fields)) is not None:
                self._seen = self._fields.get(b"id", b"").decode()
                self._retrying = None  # the connection works, so the retries start over
                self.ended = event.kind == "end"
                events.append(event)
            self._fields = {}
        return events

    def pause(self, outcome: Answer | NoAnswer, *, elsewhere: bool = False) -> float:
        """Seconds to wait before the next connection. Raises the error if there are no more retries."""
        if self._retrying is None:
            patience = self._patience.at_most(inf, persist=bool(self._seen))
            self._retrying = RetryingCall(self.call(), url=self._url, clock=self._clock, patience=patience)
        seconds = self._retrying.next_delay(outcome, elsewhere=elsewhere)
        if seconds is None:
            self._retrying.result()
            raise AssertionError("a successful response was treated as an error")
        return seconds


def _event(fields: dict[bytes, bytes]) -> LogEvent | None:
    """The event, or None for comments and for unknown events of a newer server."""
    data = fields.get(b"data", b"")
    match fields.get(b"event"):
        case b"output":
            output = _decode_output(data)
            return LogEvent("output", output.attempt, output.text)
        case b"truncated":
            output = _decode_output(data)
            return LogEvent("truncated", output.attempt, output.text)
        case b"attempt":
            return LogEvent("attempt", _decode_attempt(data).attempt)
        case b"end":
            return LogEvent("end", status=_decode_end(data).status)
        case _:
            return None
