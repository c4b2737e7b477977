"""Following a run's log: what to ask for, how the events read, and where to go on after a broken connection. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

import msgspec

from mainspring.kernel.clock import Clock
from mainspring.sdk.client.core import Answer, Call, Conversation, NoAnswer
from mainspring.wire.logs import LogAttempt, LogEnd, LogOutput

BROKE_OFF = NoAnswer("the log broke off", reached=True)
_decode_output = msgspec.json.Decoder(LogOutput).decode
_decode_attempt = msgspec.json.Decoder(LogAttempt).decode
_decode_end = msgspec.json.Decoder(LogEnd).decode


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One piece of news: `output` and `truncated` bring `text`; `attempt` says that a further attempt begins; `end`
    brings the `status` and is the last."""

    kind: Literal["output", "truncated", "attempt", "end"]
    attempt: int = 0
    text: str = ""
    status: str = ""


class LogStream:
    """One reader of one log, over as many connections as it takes."""

    def __init__(self, run_id: str, attempt: int | None, *, url: str, clock: Clock, patience: float) -> None:
        self.ended = False
        self._path = f"/v1/runs/{quote(run_id, safe='')}/logs"
        self._params = (("follow", "true"), *((("attempt", str(attempt)),) if attempt is not None else ()))
        self._url = url
        self._clock = clock
        self._patience = patience
        self._talk: Conversation[None] | None = None
        self._seen = ""  # the id of the last event that was given out
        self._rest = b""
        self._fields: dict[bytes, bytes] = {}

    def call(self) -> Call[None]:
        """The request for what has not been seen yet."""
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
                self._talk = None  # it speaks: what went wrong before is forgotten
                self.ended = event.kind == "end"
                events.append(event)
            self._fields = {}
        return events

    def pause(self, outcome: Answer | NoAnswer, *, elsewhere: bool = False) -> float:
        """Seconds to wait before the next connection; raises when it is not worth trying, or not any more."""
        if self._talk is None:
            self._talk = Conversation(self.call(), url=self._url, clock=self._clock, patience=self._patience)
        seconds = self._talk.take(outcome, elsewhere=elsewhere)
        if seconds is None:
            self._talk.result()
            raise AssertionError("an answer that is no refusal was taken for one")
        return seconds


def _event(fields: dict[bytes, bytes]) -> LogEvent | None:
    """None for comments, and for events of a newer server."""
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
