"""The watchdog's main loop. Its argument is the worker's pid; on its stdin, a socket, it hears a line each:

    supervisor        with a descriptor, the supervisor's end of its control socket: fork one
    deadline T    without a later word by T (CLOCK_MONOTONIC, which is the same for all processes) all must end
    deadline -    nothing is held, nothing must end

The worker's death (end of input, or its pidfd) means: kill everything below us. A deadline that passes means the same,
and the worker's end too, for it is stopped or stuck, and its runs are about to be given to others.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import NoReturn

from . import cgroup, tree
from .supervisor import CommandSupervisor, ring_on_signals

_INPUT = 0
_CHUNK = 1 << 16
_KILL_PAUSE = 0.01
# What cannot be killed (it sleeps in the kernel) must not keep a stuck worker alive for longer.
_MOST_PATIENCE = 0.5


class Watchdog:
    def __init__(self, worker: int) -> None:
        self._worker = worker
        self._link = socket.socket(fileno=_INPUT)
        self._link.setblocking(False)
        self._partial = b""
        self._deadline: float | None = None
        self._worker_lives = True
        # The watchdog also holds each supervisor's end of its control socket: so the worker sees it close only when the
        # whole tree is gone, also when the supervisor was killed and its orphans came to us.
        self._supervisors: dict[int, int] = {}
        self._bereaved: list[int] = []
        self._poll = select.poll()
        self._poll.register(_INPUT, select.POLLIN)
        self._alarm = ring_on_signals(signal.SIGCHLD)
        self._poll.register(self._alarm, select.POLLIN)
        # A child that the worker forked may hold our input open after the worker's death; the pidfd is not fooled.
        if hasattr(os, "pidfd_open"):
            try:
                self._poll.register(os.pidfd_open(worker), select.POLLIN)
            except ProcessLookupError:
                self._worker_lives = False

    def watch(self) -> None:
        """Returns when the worker is gone and nothing is left below us."""
        while self._worker_lives:
            ready = self._poll.poll(self._patience())
            if any(fd == self._alarm for fd, _ in ready):
                os.read(self._alarm, _CHUNK)
            self._reap()
            self._worker_lives = self._listen() and all(fd in (_INPUT, self._alarm) for fd, _ in ready)
            if self._worker_lives and self._deadline is not None and time.monotonic() >= self._deadline:
                self._enforce()
                break
        self._end_everything(None)
        cgroup.remove_all(self._worker)

    def _patience(self) -> float | None:
        if self._bereaved:
            return _KILL_PAUSE * 1000.0
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - time.monotonic()) * 1000.0 + 1.0

    def _listen(self) -> bool:
        """Read all there is; False at the end of input."""
        while True:
            try:
                chunk, descriptors, _, _ = socket.recv_fds(self._link, _CHUNK, 1)
            except BlockingIOError:
                return True
            except ConnectionResetError:
                return False
            if not chunk:
                return False
            *lines, self._partial = (self._partial + chunk).split(b"\n")
            for line in lines:
                self._heed(line, descriptors)

    def _heed(self, line: bytes, descriptors: list[int]) -> None:
        word, _, value = line.partition(b" ")
        if word == b"supervisor" and descriptors:
            # The kernel gives the descriptors of one message at a time, so there is one such line in what was read.
            self._fork_supervisor(*descriptors)
        elif word == b"deadline":
            self._deadline = None if value == b"-" else float(value)

    def _fork_supervisor(self, control: int) -> None:
        us = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            _complain(f"no supervisor could be forked: {error.strerror}")
            os.close(control)
            return
        if pid == 0:
            _keep(control, us, self._worker)
        self._supervisors[pid] = control

    def _reap(self) -> None:
        """Close the books on supervisors. The orphans of one that was killed are ours, and are killed."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                control = self._supervisors.pop(pid, None)
                if control is not None and status == 0:
                    os.close(control)
                elif control is not None:
                    self._bereaved.append(control)
        if self._bereaved and not self._kill_orphans():
            for control in self._bereaved:
                os.close(control)
            self._bereaved.clear()

    def _kill_orphans(self) -> bool:
        orphans = [pid for pid in tree.children_of(os.getpid()) if pid not in self._supervisors]
        for pid in orphans:
            tree.signal_all([pid], signal.SIGSTOP)
            tree.kill_below(pid)
            tree.signal_all([pid], signal.SIGKILL)
        return bool(orphans)

    def _enforce(self) -> None:
        """The deadline has passed."""
        if tree.LINUX:
            self._end_everything(_MOST_PATIENCE)
        _complain(
            f"worker {self._worker} was not acknowledged in time and did not act on it "
            f"(stopped, or blocked by a task); killed it and what it ran"
        )
        if os.getppid() == self._worker:  # else it is gone, and its number may be somebody else's
            os.kill(self._worker, signal.SIGKILL)

    def _end_everything(self, patience: float | None) -> None:
        """Kill all below us, supervisors too, until nothing is left, or for `patience` seconds. Where there is no /proc
        the supervisors see the worker's end themselves."""
        deadline = None if patience is None else time.monotonic() + patience
        while True:
            tree.kill_below(os.getpid())
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            if deadline is not None and time.monotonic() >= deadline:
                return
            select.select([self._alarm], [], [], _KILL_PAUSE)
            with suppress(BlockingIOError):
                os.read(self._alarm, _CHUNK)


def _keep(control: int, watchdog: int, worker: int) -> NoReturn:
    """In the forked process, which must never come back to the watchdog's loop."""
    status = 1
    try:
        CommandSupervisor(control, watchdog, worker).keep()
        status = 0
    except Exception as error:  # noqa: BLE001 - it ends here; the watchdog sees the status and kills what is left
        _complain(f"a supervisor failed: {error!r}")
    finally:
        os._exit(status)


def _complain(text: str) -> None:
    sys.stderr.write(f"mainspring watchdog: {text}\n")
    sys.stderr.flush()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    tree.become_subreaper()
    gc.freeze()  # so that forked supervisors do not copy what they only look at
    Watchdog(int(sys.argv[-1])).watch()
