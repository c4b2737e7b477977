"""The output of the processes of an attempt: stdout and stderr, sent to one log. The last part of it is kept."""

from __future__ import annotations

import asyncio

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.worker.execution.attempt import Attempt, LogSink, OpenLog
from mainspring.worker.output.two_streams import TwoStreams

OUTPUT_KEPT = 8 * 1024
# What a pipe may still contain when all writers are gone. More can only come from a process outside the tree.
_MOST_LEFT = 2 * 1024 * 1024


class Output:
    """Pass `writers` (stdout, stderr) to the processes."""

    def __init__(self, attempt: Attempt, open_log: OpenLog | None, clock: LoopClock = SYSTEM_CLOCK) -> None:
        self.size = 0
        self.kept = _kept_of(attempt)
        self._attempt = attempt
        self._open_log = open_log
        self._sink: LogSink | None = None
        self._tail, self._error_tail = bytearray(), bytearray()
        self._waiting: asyncio.Task[None] | None = None
        redactor = attempt.redactor  # a value may come in two pieces with pieces of the other stream in between
        self._hidden = None if redactor is None else (redactor.stream(), redactor.stream())
        self._hidden_both = None if redactor is None else redactor.stream()
        self._loop = asyncio.get_running_loop()
        self._streams = TwoStreams(self._take, self._pause_if_full, clock)
        self.writers = self._streams.writers

    @property
    def text(self) -> str:
        """The last `kept` bytes of both streams, as text that JSON and PostgreSQL accept."""
        return _text(self._tail, self.kept)

    @property
    def error_text(self) -> str:
        """The last `kept` bytes of stderr, or of both streams if nothing but blanks was written to it."""
        errors = _text(self._error_tail, self.kept)
        return errors if errors.strip() else self.text

    async def finish(self) -> None:
        """When no process is left: read the rest, and wait until the log is stored."""
        self._streams.read_rest(_MOST_LEFT)
        if self._hidden is not None:
            for is_error, stream in enumerate(self._hidden):
                self._keep(stream.end(), bool(is_error))
        if self._hidden_both is not None:
            _append(self._tail, self._hidden_both.end())
        self.close()
        if self._sink is not None:
            await self._sink.finish()

    def close(self) -> None:
        self._streams.close()
        if self._waiting is not None:
            self._waiting.cancel()

    def _pause_if_full(self) -> None:
        if self._sink is not None and self._sink.full:
            # The pipes fill up and the writers wait, so memory stays bounded.
            self._streams.pause()
            self._waiting = self._loop.create_task(self._wait_for_room(self._sink))

    async def _wait_for_room(self, sink: LogSink) -> None:
        await sink.room()
        self._streams.resume()

    def _take(self, chunk: bytes, is_error: bool) -> None:
        self.size += len(chunk)
        if self._hidden is not None:
            chunk = self._hidden[is_error].feed(chunk)
        self._keep(chunk, is_error)

    def _keep(self, chunk: bytes, is_error: bool) -> None:
        if not chunk:
            return
        _append(self._tail, chunk if self._hidden_both is None else self._hidden_both.feed(chunk))
        if is_error:
            _append(self._error_tail, chunk)
        if self._sink is None and self._open_log is not None:
            self._sink = self._open_log(self._attempt)
        if self._sink is not None:
            self._sink.write(chunk)


def _append(tail: bytearray, chunk: bytes) -> None:
    tail += chunk[-OUTPUT_KEPT:]
    if len(tail) > 8 * OUTPUT_KEPT:
        del tail[:-OUTPUT_KEPT]


def _text(tail: bytearray, kept: int) -> str:
    return tail[len(tail) - min(kept, len(tail)) :].decode("utf-8", "replace").replace("\x00", "\ufffd")


def _kept_of(attempt: Attempt) -> int:
    """`limits.output` also limits what a result or an error quotes."""
    setup = attempt.order.setup
    limit = setup.limits.output if setup is not None and setup.limits is not None else None
    return OUTPUT_KEPT if limit is None else min(OUTPUT_KEPT, limit)
