"""Server-sent events: builds the requests, splits the bytes into events, and says when to connect again after a broken
connection. No I/O."""

from __future__ import annotations

from math import inf
from typing import Generic, TypeVar

from mainspring.kernel.clock import Clock
from mainspring.sdk.client.core import Call, NoAnswer, Patience, RetryingCall, ServerAnswer

E = TypeVar("E")


class ServerEvents(Generic[E]):
    """A reader of one stream. It uses several connections if one breaks. `broke_off`: what a connection that ends
    early means."""

    broke_off: NoAnswer

    def __init__(
        self,
        path: str,
        params: tuple[tuple[str, str], ...],
        *,
        url: str,
        clock: Clock,
        patience: Patience,
        seen: str = "",
    ) -> None:
        self.ended = False
        self._path = path
        self._params = params
        self._url = url
        self._clock = clock
        self._patience = patience
        self._retrying: RetryingCall[None] | None = None
        self._seen = seen  # the id of the last event that was returned
        self._rest = b""
        self._fields: dict[bytes, bytes] = {}

    def call(self) -> Call[None]:
        """The request for the events after the last one."""
        self._rest, self._fields = b"", {}
        headers = (("accept", "text/event-stream"), *((("last-event-id", self._seen),) if self._seen else ()))
        return Call("GET", self._path, lambda _: None, params=self._params, headers=headers)

    def feed(self, data: bytes) -> list[E]:
        """The events that these bytes complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        events = []
        for line in lines:
            if line:
                field, _, value = line.partition(b": ")
                self._fields[field] = value
                continue
            if (event := self._event(self._fields.get(b"event", b""), self._fields.get(b"data", b""))) is not None:
                self._seen = self._fields.get(b"id", b"").decode()
                self._retrying = None  # the connection works, so the retries start over
                events.append(event)
            self._fields = {}
        return events

    def pause(self, outcome: ServerAnswer | NoAnswer, *, elsewhere: bool = False) -> float:
        """Seconds to wait before the next connection. Raises the error if there are no more retries."""
        if self._retrying is None:
            patience = self._patience.at_most(inf, persist=bool(self._seen))
            self._retrying = RetryingCall(self.call(), url=self._url, clock=self._clock, patience=patience)
        seconds = self._retrying.next_delay(outcome, elsewhere=elsewhere)
        if seconds is None:
            self._retrying.result()
            raise AssertionError("a successful response was treated as an error")
        return seconds

    def _event(self, name: bytes, data: bytes) -> E | None:
        """The event, or None for comments and for unknown events of a newer server. The last one sets `ended`."""
        raise NotImplementedError
