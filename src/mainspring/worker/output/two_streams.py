"""stdout and stderr of a command in two pipes, read in the order in which they were written.

The kernel does not tell which of two pipes was written to first, unless each holds at most one write: then the order of
the events is the order of the writes. So the pipes are narrow, with room for one write. A command that writes much, or
that would be held up too long by a busy worker, gets wide pipes, which are read as they fill up
(docs/decisions/0035-stderr-has-its-own-pipe.md).
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import select
import termios
from collections.abc import Callable
from contextlib import suppress

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock, Timer

_CHUNK = 256 * 1024
_NARROW, _WIDE = 4096, 65536
# After so many writes to one stream in a row the pipes become wide, until the other stream is written to or a pause.
_MANY, _PAUSE = 32, 0.02
# A command is held up for at most about this part of its time, and at most for so many seconds at once.
_PART_HELD, _MOST_HELD = 0.1, 0.5

# The events by `narrow`. An event of a narrow pipe is reported once. Otherwise a pipe that was read would stay before
# the other.
_EVENTS = {False: select.EPOLLIN, True: select.EPOLLIN | select.EPOLLET} if hasattr(select, "epoll") else {}

# With wide pipes, an incomplete line waits for its end for so many seconds, and up to so many bytes.
_LINE_WAITS, _LONGEST_LINE = 0.05, 64 * 1024

Deliver = Callable[[bytes, bool], None]


class TwoStreams:
    """`deliver` gets each chunk, and whether it is from stderr. Pass `writers` to the command. They stay open here,
    because the mode of a pipe is set at its writing end. So there is no end of file: call `read_rest` when the command
    is gone."""

    def __init__(self, deliver: Deliver, after_read: Callable[[], None], clock: LoopClock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._deliver = deliver
        self._after_read = after_read
        self._loop = asyncio.get_running_loop()
        self._readers: list[int] = []
        self._writers: list[int] = []
        self._epoll: select.epoll | None = None
        try:
            for _ in range(2):
                reader, writer = os.pipe()
                self._readers.append(reader)
                self._writers.append(writer)
                os.set_blocking(reader, False)
            self._narrow = self._open_narrow()
        except OSError:
            self.close()
            raise
        # What narrow pipes contain is in order, once they were empty: before, it was written while they were wide.
        self._in_order = self._narrow
        self._begun = [b"", b""]
        self._flush: Timer | None = None
        self._blocking = True
        self._last, self._in_a_row = -1, 0
        self._held, self._read_at = 0.0, self._clock.monotonic()
        self.resume()

    @property
    def writers(self) -> tuple[int, int]:
        return self._writers[0], self._writers[1]

    def pause(self) -> None:
        for descriptor in self._watched():
            self._loop.remove_reader(descriptor)

    def resume(self) -> None:
        for descriptor in self._watched():
            self._loop.add_reader(descriptor, self._read)

    def read_rest(self, most: int) -> None:
        """Deliver what is left in the pipes, about `most` bytes."""
        while most > 0 and (taken := self._take_ready()):
            most -= taken
        self._deliver_begun()

    def close(self) -> None:
        self.pause()
        if self._flush is not None:
            self._flush.cancel()
        if self._epoll is not None:
            self._epoll.close()
            self._epoll = None
        for descriptor in (*self._readers, *self._writers):
            os.close(descriptor)
        self._readers.clear()
        self._writers.clear()

    def _open_narrow(self) -> bool:
        if not hasattr(select, "epoll"):  # the pipes are wide, and stdout is read first
            return False
        self._epoll = select.epoll(2)
        narrow = self._resize(_NARROW)
        for reader, writer in zip(self._readers, self._writers, strict=True):
            _keep_writes_apart(writer, os.O_WRONLY, apart=narrow)
            self._epoll.register(reader, _EVENTS[narrow])
        return narrow

    def _watched(self) -> list[int]:
        return self._readers if self._epoll is None else [self._epoll.fileno()]

    def _read(self) -> None:
        self._take_ready()
        self._after_read()

    def _take_ready(self) -> int:
        """Take one chunk of each pipe that has data. The pipe that was written to first comes first."""
        ready = self._readers if self._epoll is None else [reader for reader, _ in self._epoll.poll(0)]
        return sum([self._take(self._readers.index(reader)) for reader in ready])

    def _take(self, stream: int) -> int:
        try:
            chunk = os.read(self._readers[stream], _CHUNK)
        except BlockingIOError:
            return 0
        in_order = self._in_order
        self._choose_width(stream, len(chunk))
        # A chunk that fills a narrow pipe may end within a line: the rest of it comes through a wide one.
        self._deliver_lines(stream, chunk, in_order=in_order and self._narrow)
        self._in_order = self._narrow and (in_order or self._are_empty())
        return len(chunk)

    def _deliver_lines(self, stream: int, chunk: bytes, *, in_order: bool) -> None:
        """Deliver whole lines if the order of the chunks is not known, or if the other stream has begun a line."""
        whole, self._begun[stream] = self._begun[stream] + chunk, b""
        end = whole.rfind(b"\n") + 1
        if (not in_order or self._begun[1 - stream]) and len(whole) - end < _LONGEST_LINE:
            whole, self._begun[stream] = whole[:end], whole[end:]
        if any(self._begun) and self._flush is None:
            self._flush = self._clock.call_later(_LINE_WAITS, self._deliver_begun)
        if whole:
            self._deliver(whole, stream == 1)

    def _are_empty(self) -> bool:
        waiting = array.array("i", [0])
        for reader in self._readers:
            fcntl.ioctl(reader, termios.FIONREAD, waiting)
            if waiting[0]:
                return False
        return True

    def _deliver_begun(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        for stream, begun in enumerate(self._begun):
            if begun:
                self._begun[stream] = b""
                self._deliver(begun, stream == 1)

    def _choose_width(self, stream: int, size: int) -> None:
        now = self._clock.monotonic()
        gap, self._read_at = now - self._read_at, now
        self._in_a_row = self._in_a_row + 1 if stream == self._last and gap < _PAUSE else 0
        self._last = stream
        self._held = max(0.0, self._held - _PART_HELD * gap)
        if self._narrow:
            self._loop.call_soon(self._count_turn, now)
        # The pipes become narrow again when half of the time is available again, so that they do not change all the
        # time.
        most = _MOST_HELD if self._narrow else _MOST_HELD / 2
        self._set_narrow(
            narrow=size < _NARROW and self._in_a_row < _MANY and self._held < most and self._is_blocking(stream)
        )

    def _count_turn(self, read_at: float) -> None:
        """Called in the next turn of the event loop: the command can have waited for as long as this one took."""
        self._held += self._clock.monotonic() - read_at

    def _is_blocking(self, stream: int) -> bool:
        """False after a command has made a stream non-blocking: it would get an error instead of waiting for room."""
        if self._blocking and not os.get_blocking(self._writers[stream]):
            self._blocking = False
        return self._blocking

    def _set_narrow(self, *, narrow: bool) -> None:
        if narrow == self._narrow or self._epoll is None:
            return
        self._narrow = narrow and self._resize(_NARROW)
        if not self._narrow:
            self._resize(_WIDE)
        for reader, writer in zip(self._readers, self._writers, strict=True):
            _keep_writes_apart(writer, fcntl.fcntl(writer, fcntl.F_GETFL), apart=self._narrow)
            self._epoll.modify(reader, _EVENTS[self._narrow])

    def _resize(self, size: int) -> bool:
        """False if a pipe contains more, or the user has too many pipes."""
        try:
            for reader in self._readers:
                fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, size)
        except OSError:
            return False
        return True


def _keep_writes_apart(writer: int, flags: int, *, apart: bool) -> None:
    with suppress(OSError):  # not every kernel can
        fcntl.fcntl(writer, fcntl.F_SETFL, flags | os.O_DIRECT if apart else flags & ~os.O_DIRECT)
