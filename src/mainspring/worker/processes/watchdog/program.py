"""The main loop of the watchdog. Its arguments are the pid of the worker, and files and folders that isolated commands
must not see. Its stdin is a socket with these lines:

    supervisor    with a descriptor, the supervisor's end of its control socket: fork a supervisor
    supervisor isolated    the same, in a pid namespace of its own
    caps ...      what runs may use, before the first supervisor (all_runs.py)
    deadline T    kill everything at T (CLOCK_MONOTONIC, the same for all processes), unless another deadline arrives
    deadline -    the worker holds nothing, and there is no deadline

When the worker closes its end of a control socket, it gives the supervisor up. One that does not exit soon, because a
command has stopped it, is killed with everything that it runs.

When the worker dies (end of input, or its pidfd), everything below the watchdog is killed. When a deadline passes, the
worker is killed as well: it is stopped or stuck, and its runs are about to be given to others.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from . import cgroup, namespaces, tree
from .all_runs import AllRuns, read_caps
from .covers import Covers, open_all
from .supervisor import CommandSupervisor, Parent, wake_on_signals

_INPUT = 0
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_CHUNK = 1 << 16
_KILL_PAUSE = 0.01
# A process that cannot be killed (it sleeps in the kernel) must not keep a stuck worker alive for longer.
_KILL_SECONDS = 0.5
# How long a supervisor that was given up may take to end its command and exit.
_EXIT_SECONDS = 2.0


class Watchdog:
    def __init__(self, worker: int, hidden: Sequence[str] = ()) -> None:
        self._worker = worker
        self._hidden = hidden
        self._hidden_places = open_all(hidden)
        self._input = socket.socket(fileno=_INPUT)
        self._input.setblocking(False)
        self._partial = b""
        self._deadline: float | None = None
        self._worker_lives = True
        # The watchdog keeps a copy of each supervisor's control socket. So the worker sees it close only when the whole
        # tree is gone, even if the supervisor was killed and its children were reparented to the watchdog.
        self._supervisors: dict[int, int] = {}
        self._notices: dict[int, int] = {}  # by supervisor: a pipe that no other process can write to
        self._orphaned: list[int] = []
        self._given_up: dict[int, float] = {}  # supervisors, and when to kill them
        self._all_runs = AllRuns(worker)
        self._poll = select.poll()
        self._poll.register(_INPUT, select.POLLIN)
        self._alarm = wake_on_signals(signal.SIGCHLD)
        self._poll.register(self._alarm, select.POLLIN)
        self._pidfd = -1
        # A child that the worker forked may keep the input open after the worker's death. The pidfd is reliable.
        if hasattr(os, "pidfd_open"):
            try:
                self._pidfd = os.pidfd_open(worker)
                self._poll.register(self._pidfd, select.POLLIN)
            except ProcessLookupError:
                self._worker_lives = False

    def watch(self) -> None:
        """Returns when the worker is gone and no process is left below the watchdog."""
        while self._worker_lives:
            ready = {fd for fd, _ in self._poll.poll(self._poll_timeout())}
            if self._alarm in ready:
                os.read(self._alarm, _CHUNK)
            self._notice_given_up(ready)
            self._reap()
            self._worker_lives = self._listen() and self._pidfd not in ready
            if self._watches_all and time.monotonic() >= self._all_runs.look_at:
                self._end_the_largest()
            if self._worker_lives and self._deadline is not None and time.monotonic() >= self._deadline:
                self._enforce()
                break
        self._end_everything(None)
        cgroup.remove_all(self._worker)

    def _poll_timeout(self) -> float | None:
        if self._orphaned:
            return _KILL_PAUSE * 1000.0
        moments = [*self._given_up.values()]
        if self._watches_all:
            moments.append(self._all_runs.look_at)
        if self._deadline is not None:
            moments.append(self._deadline)
        return max(0.0, min(moments) - time.monotonic()) * 1000.0 + 1.0 if moments else None

    def _listen(self) -> bool:
        """Read all input that is available; False at the end of input."""
        while True:
            try:
                chunk, descriptors, _, _ = socket.recv_fds(self._input, _CHUNK, 1)
            except BlockingIOError:
                return True
            except ConnectionResetError:
                return False
            if not chunk:
                return False
            *lines, self._partial = (self._partial + chunk).split(b"\n")
            for line in lines:
                self._obey(line, descriptors)

    def _obey(self, line: bytes, descriptors: list[int]) -> None:
        word, _, value = line.partition(b" ")
        if word == b"supervisor" and descriptors:
            # The kernel returns the descriptors of one message at a time, so at most one such line was read.
            self._fork_supervisor(descriptors[0], isolated=value == b"isolated")
        elif word == b"caps":
            self._all_runs = AllRuns(self._worker, read_caps(value.split()))
        elif word == b"deadline":
            self._deadline = None if value == b"-" else float(value)

    @property
    def _watches_all(self) -> bool:
        return self._all_runs.active and bool(self._supervisors)

    def _end_the_largest(self) -> None:
        """If all runs together use more than they may: let the supervisor of the largest one end it."""
        found = self._all_runs.measure(self._supervisors)
        if found is not None:
            supervisor, breach = found
            with suppress(OSError):  # it has just ended, or is stopped
                os.write(self._notices[supervisor], f"{breach}\n".encode())

    def _fork_supervisor(self, control: int, *, isolated: bool) -> None:
        opened = [control]
        pid = -1
        try:
            opened += os.pipe()
            _, notices, notice = opened
            os.set_blocking(notice, False)
            pidfd = os.pidfd_open(os.getpid()) if isolated else -1
            opened += [pidfd] if isolated else []
            us = Parent(os.getpid(), os.getuid(), os.getgid(), pidfd, notices)
            pid = namespaces.fork_first_process() if isolated else os.fork()
            if pid == 0:
                _supervise(control, us, self._worker, Covers(self._hidden, self._hidden_places), self._all_runs)
            self._supervisors[pid] = control
            self._notices[pid] = notice
            self._poll.register(control, 0)  # POLLHUP is always reported: the worker has closed its end
        except OSError as error:
            _log(f"no supervisor could be forked: {error.strerror}")
        kept = (control, notice) if pid > 0 else ()
        for descriptor in opened:
            if descriptor not in kept:
                os.close(descriptor)

    def _notice_given_up(self, ready: set[int]) -> None:
        now = time.monotonic()
        for pid, control in self._supervisors.items():
            if control in ready:
                self._poll.unregister(control)
                self._given_up[pid] = now + _EXIT_SECONDS
        late = [pid for pid, kill_at in self._given_up.items() if now >= kill_at]
        tree.signal_all(late, signal.SIGKILL)  # none was reaped, so these are their pids
        for pid in late:
            del self._given_up[pid]

    def _reap(self) -> None:
        """Reap supervisors. If one was killed, its orphans are children of the watchdog now, and are killed."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                control = self._supervisors.pop(pid, None)
                if control is None:
                    continue
                self._all_runs.dismiss(pid)
                os.close(self._notices.pop(pid))
                if self._given_up.pop(pid, None) is None:
                    with suppress(KeyError):  # it was killed because it was given up
                        self._poll.unregister(control)
                if status == 0:
                    os.close(control)
                else:
                    self._orphaned.append(control)
        if self._orphaned and not self._kill_orphans():
            for control in self._orphaned:
                with suppress(OSError):  # the worker does not listen any more
                    os.write(control, b"cleared\n")
                os.close(control)
            self._orphaned.clear()

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
            self._end_everything(_KILL_SECONDS)
        _log(
            f"worker {self._worker} was not acknowledged in time and did not act on it "
            f"(stopped, or blocked by a task); killed it and what it ran"
        )
        if os.getppid() == self._worker:  # otherwise it is gone, and its pid may be in use again
            os.kill(self._worker, signal.SIGKILL)

    def _end_everything(self, seconds: float | None) -> None:
        """Kill all processes below the watchdog, supervisors included, until none is left or `seconds` have passed. On
        a system without /proc, the supervisors notice the end of the worker themselves."""
        deadline = None if seconds is None else time.monotonic() + seconds
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


def _supervise(control: int, watchdog: Parent, worker: int, covers: Covers, all_runs: AllRuns) -> NoReturn:
    """Runs in the forked process, which must never return to the loop of the watchdog."""
    status = 1
    try:
        CommandSupervisor(control, watchdog, worker, covers, all_runs).run()
        status = 0
    except Exception as error:  # noqa: BLE001 - the watchdog sees the exit status and kills what is left
        _log(f"a supervisor failed: {error!r}")
    finally:
        os._exit(status)


def _log(text: str) -> None:
    sys.stderr.write(f"mainspring watchdog: {text}\n")
    sys.stderr.flush()


def main() -> None:
    tree.hide_memory()  # and its descriptors, with which a command of the same user could speak for it
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    tree.become_subreaper()
    # If the parent watchdog stopped this process to kill it, and was killed itself before it did.
    tree.signal_at_parents_death(signal.SIGCONT)
    gc.freeze()  # so that the garbage collector does not copy pages in forked supervisors
    _, _, worker, *hidden = sys.argv
    Watchdog(int(worker), hidden).watch()
