"""Follows a log: existing output, new output and retries, until the run ends.

The log watch tells a follower what there is to read; it queries the database for all followers together. Nothing is
buffered for a slow reader: the next bytes are read when the reader has taken the previous ones.
"""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from uuid import UUID

import msgspec

from mainspring.domain.errors import InvalidInput, Unavailable
from mainspring.domain.transitions import StoredState
from mainspring.kernel.clock import Clock
from mainspring.operations.access.caller import Caller
from mainspring.operations.logs.log_service import LogService, truncation_mark
from mainspring.store.log_files import folder_of
from mainspring.store.logs import LogState
from mainspring.wire.logs import LogAttempt, LogEnd, LogOutput

KEEP_ALIVE = 15.0
_RETRY_DELAY = 0.5
_MOST_TEXT = 64 * 1024
_POSITION = re.compile(r"(\d{1,5}):(\d{1,15})")


class LogPosition(msgspec.Struct, frozen=True):
    """The position of a reader. It is sent as `id` and comes back as `Last-Event-ID`."""

    attempt: int
    offset: int

    def __str__(self) -> str:
        return f"{self.attempt}:{self.offset}"


class FollowedEvent(msgspec.Struct, frozen=True):
    name: str
    data: LogOutput | LogAttempt | LogEnd
    position: LogPosition


def parse_position(text: str) -> LogPosition:
    found = _POSITION.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(
            "the event id is not valid", field="Last-Event-ID", expected="attempt and offset, such as 1:2048"
        )
    return LogPosition(int(found[1]), int(found[2]))


class LogFollower:
    """One reader. Without `attempt` it begins with the newest attempt and continues through all later ones."""

    def __init__(
        self,
        logs: LogService,
        clock: Clock,
        caller: Caller,
        run_id: UUID,
        state: LogState,
        *,
        attempt: int | None = None,
        resume: LogPosition | None = None,
    ) -> None:
        self._logs = logs
        self._clock = clock
        self._caller = caller
        self._tenant = caller.tenant
        self._run_id = run_id
        self._state = state
        self._only = attempt
        self._attempt = attempt or max(1, state.attempt)
        self._offset = 0
        if resume is not None and attempt in (None, resume.attempt):
            self._attempt, self._offset = resume.attempt, resume.offset
        self._closed = False
        self._left = False  # another tenant needs the place
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def events(self) -> AsyncIterator[FollowedEvent | None]:
        """The events. None means that there was no event for a while, and a keep-alive is due."""
        watch = self._logs.watch

        def leave() -> None:
            self._left = True
            news.set()

        with (
            watch.following(self._tenant, self._run_id, self._state) as (followed, news),
            watch.quota.hold(self._caller, leave),
        ):
            said = self._clock.monotonic()
            while not watch.closed and not self._left and followed.state is not None:
                news.clear()
                self._state = followed.state
                patience = KEEP_ALIVE
                try:
                    async for event in self._available():
                        yield event
                        said = self._clock.monotonic()
                        if event.name == "end" or self._left:
                            return
                except Unavailable:  # the log store is unavailable
                    patience = _RETRY_DELAY
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), patience)
                if self._clock.monotonic() - said >= KEEP_ALIVE:
                    yield None
                    said = self._clock.monotonic()

    async def _available(self) -> AsyncIterator[FollowedEvent]:
        while True:
            async for event in self._output():
                yield event
            state = self._state
            if not state.has_ended(self._attempt):
                return
            for event in self._close_attempt():
                yield event
            if self._only is not None or (state.over and state.attempt <= self._attempt):
                yield self._event("end", LogEnd(_status(state, self._attempt)))
                return
            if state.attempt <= self._attempt:
                return
            self._begin_attempt(self._attempt + 1)
            yield self._event("attempt", LogAttempt(self._attempt))

    async def _output(self) -> AsyncIterator[FollowedEvent]:
        log = self._state.logs.get(self._attempt)
        if log is None or self._offset + self._undecoded >= log.bytes:
            return
        folder = folder_of(self._tenant, self._run_id, log.attempt, log.fence)
        async for piece in self._logs.bytes.read(folder, self._offset + self._undecoded, log.bytes):
            before = piece.end - len(piece.data)
            for start in range(0, len(piece.data), _MOST_TEXT):
                data = piece.data[start : start + _MOST_TEXT]
                text = self._decoder.decode(data)
                # The line for missing bytes can be longer than these bytes, so the position is counted from the end.
                self._offset = max(self._offset, min(before + start + len(data), piece.end) - self._undecoded)
                if text:
                    yield self._event("output", LogOutput(self._attempt, text))
            self._offset = piece.end - self._undecoded

    @property
    def _undecoded(self) -> int:
        """Bytes of an incomplete character: they were read but not sent yet."""
        return len(self._decoder.getstate()[0])

    def _close_attempt(self) -> list[FollowedEvent]:
        """The last events of an attempt that prints nothing more. They are returned once."""
        if self._closed:
            return []
        self._closed = True
        events = []
        self._offset += self._undecoded
        if rest := self._decoder.decode(b"", final=True):
            events.append(self._event("output", LogOutput(self._attempt, rest)))
        log = self._state.logs.get(self._attempt)
        if log is not None and log.truncated:
            events.append(self._event("truncated", LogOutput(self._attempt, truncation_mark(log))))
        return events

    def _begin_attempt(self, attempt: int) -> None:
        self._attempt, self._offset, self._closed = attempt, 0, False
        self._decoder.reset()

    def _event(self, name: str, data: LogOutput | LogAttempt | LogEnd) -> FollowedEvent:
        return FollowedEvent(name, data, LogPosition(self._attempt, self._offset))


def _status(state: LogState, attempt: int) -> str:
    """The status of the ended run, or of an attempt that was followed by another one."""
    return StoredState(state.state).name if state.over and state.attempt <= attempt else "FAILED"
