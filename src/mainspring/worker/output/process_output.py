"""The output of the processes of an attempt: read from one pipe and sent to the log. The last part is kept."""

from __future__ import annotations

import asyncio
import os

from mainspring.worker.execution.attempt import Attempt, LogSink, OpenLog

OUTPUT_KEPT = 8 * 1024
_CHUNK = 256 * 1024
# What a pipe may still contain when all writers are gone. More can only come from a process outside the tree.
_MOST_LEFT = 2 * 1024 * 1024


class Output:
    """Pass `writer` to the processes, then close it with `close_writer`."""

    def __init__(self, attempt: Attempt, open_log: OpenLog | None) -> None:
        self.size = 0
        self.kept = _kept_of(attempt)
        self._attempt = attempt
        self._open_log = open_log
        self._sink: LogSink | None = None
        self._tail = bytearray()
        self._waiting: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._read)

    @property
    def text(self) -> str:
        """The last `kept` bytes, as text that JSON and PostgreSQL accept."""
        return (
            self._tail[len(self._tail) - min(self.kept, len(self._tail)) :]
            .decode("utf-8", "replace")
            .replace("\x00", "\ufffd")
        )

    def close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    async def finish(self) -> None:
        """When no process is left: read the rest, and wait until the log is stored."""
        left = _MOST_LEFT
        while self._reader >= 0 and left > 0:
            before = self.size
            if not self._take():
                break
            left -= self.size - before
        self.close()
        if self._sink is not None:
            await self._sink.finish()

    def close(self) -> None:
        self.close_writer()
        self._stop_reading()
        if self._waiting is not None:
            self._waiting.cancel()

    def _read(self) -> None:
        self._take()
        if self._sink is not None and self._sink.full and self._reader >= 0:
            # The pipe fills up and the writers wait, so memory stays bounded.
            self._loop.remove_reader(self._reader)
            self._waiting = self._loop.create_task(self._wait_for_room(self._sink))

    async def _wait_for_room(self, sink: LogSink) -> None:
        await sink.room()
        if self._reader >= 0:
            self._loop.add_reader(self._reader, self._read)

    def _take(self) -> bool:
        """Read one chunk; False if there is none now."""
        try:
            chunk = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._stop_reading()
            return False
        self.size += len(chunk)
        self._tail += chunk[-OUTPUT_KEPT:]
        if len(self._tail) > 8 * OUTPUT_KEPT:
            del self._tail[:-OUTPUT_KEPT]
        if self._sink is None and self._open_log is not None:
            self._sink = self._open_log(self._attempt)
        if self._sink is not None:
            self._sink.write(chunk)
        return True

    def _stop_reading(self) -> None:
        if self._reader >= 0:
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1


def _kept_of(attempt: Attempt) -> int:
    """`limits.output` also limits what a result or an error quotes."""
    setup = attempt.order.setup
    limit = setup.limits.output if setup is not None and setup.limits is not None else None
    return OUTPUT_KEPT if limit is None else min(OUTPUT_KEPT, limit)
