"""The watchdog: a process of its own that ends a worker's children when the worker cannot.

It is started as a plain file with nothing but the standard library, so that it is there in about 15 ms and stays small.
Its argument is the worker's pid; on its stdin it hears, a line each:

    + PGID        this process group belongs to a run
    - PGID        it is gone
    deadline T    without a later word by T (CLOCK_MONOTONIC, which is the same for all processes) all must end
    deadline -    nothing is held, nothing must end

The worker's death (end of input, or its pidfd) means: kill all groups. A deadline that passes means: kill them and the
worker too, for it is stopped or stuck, and its runs are about to be given to others.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

_INPUT = 0


class Watchdog:
    def __init__(self, worker: int) -> None:
        self._worker = worker
        self._groups: set[int] = set()
        self._deadline: float | None = None
        self._partial = b""
        self._worker_lives = True
        self._poll = select.poll()
        self._poll.register(_INPUT, select.POLLIN)
        os.set_blocking(_INPUT, False)
        # A child that the worker forked may hold our input open after the worker's death; the pidfd is not fooled.
        if hasattr(os, "pidfd_open"):
            try:
                self._poll.register(os.pidfd_open(worker), select.POLLIN)
            except ProcessLookupError:
                self._worker_lives = False

    def watch(self) -> None:
        """Returns when the worker is gone and everything registered has been killed."""
        while self._worker_lives:
            ready = self._poll.poll(self._patience())
            self._worker_lives = self._listen() and all(fd == _INPUT for fd, _ in ready)
            if self._worker_lives and self._deadline is not None and time.monotonic() >= self._deadline:
                self._kill_groups()
                self._kill_worker()
                break
        self._listen()  # what it said last counts
        self._kill_groups()

    def _patience(self) -> float | None:
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - time.monotonic()) * 1000.0 + 1.0

    def _listen(self) -> bool:
        """Read all there is; False at the end of input."""
        while True:
            try:
                chunk = os.read(_INPUT, 65536)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            *lines, self._partial = (self._partial + chunk).split(b"\n")
            for line in lines:
                self._heed(line)

    def _heed(self, line: bytes) -> None:
        word, _, value = line.partition(b" ")
        if word == b"+":
            self._groups.add(int(value))
        elif word == b"-":
            self._groups.discard(int(value))
        elif word == b"deadline":
            self._deadline = None if value == b"-" else float(value)

    def _kill_groups(self) -> None:
        for group in self._groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue

    def _kill_worker(self) -> None:
        sys.stderr.write(
            f"mainspring watchdog: worker {self._worker} was not acknowledged in time and did not act on it "
            f"(stopped, or blocked by a task); killed it and {len(self._groups)} process group(s)\n"
        )
        sys.stderr.flush()
        if os.getppid() == self._worker:  # else it is gone, and its number may be somebody else's
            os.kill(self._worker, signal.SIGKILL)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    Watchdog(int(sys.argv[1])).watch()
