"""The parent watchdog: the parent of the worker process. It knows at once when the worker dies, and tells a server.

It is the subreaper of everything below the worker: processes that Python tasks started, and that forked twice or called
setsid, become its children. When the worker has ended it kills them. When waitpid says that no child is left, nothing
of the worker is left, and it sends the death notice. There is no time limit after which it would send it anyway.

While the worker lives, it ends its orphans only if the worker asks for it (orphans.py).

It runs no code of tasks, has no threads, and is a fork of the process that the user started. The watchdog that starts
commands (watchdog/) is another process, below the worker.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import time
from contextlib import suppress
from typing import NoReturn

from mainspring.worker.processes.death_record import (
    EXIT_FENCED,
    has_stopped,
    longest_silence,
    read_record,
    was_asked_to_stop,
)
from mainspring.worker.processes.orphans import OrphanRequests
from mainspring.worker.processes.watchdog import cgroup, tree

_LOOK_EVERY = 0.25
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.25
# The notice is useless when a server has found the silence itself. That takes one lease, or two if it holds its
# judgement. The worker tells its lease when it is granted; until then it holds nothing.
_SHORTEST, _ONCE = 75.0, 0.0
_LEASES = 2.0
# A worker that has lost its lease, and signals that the launcher passes on to it.
_EXCUSED = (
    EXIT_FENCED, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGQUIT, -signal.SIGUSR1, -signal.SIGUSR2,
)  # fmt: skip
# If `mainspring up` was killed, its server has died with it. The notice helps only the next one, if that follows soon.
_AFTER_SUPERVISOR = 10.0
_IGNORED = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP,
    signal.SIGTTIN, signal.SIGTTOU, signal.SIGPIPE,
)  # fmt: skip


class ParentWatchdog:
    """`launcher` is the process that the user started, `control` the socket to it. `supervisor` is a pidfd of the
    process that restarts the launcher, if there is one."""

    def __init__(
        self, worker: int, launcher: int, control: socket.socket, memory: mmap.mmap, supervisor: int | None = None
    ) -> None:
        self._worker = worker
        self._launcher = launcher
        self._control = control
        self._memory = memory
        self._supervisor = supervisor
        self._orphans = OrphanRequests(memory)
        self._pidfd = os.pidfd_open(worker)
        self._stopped = False
        self._status: int | None = None
        self._launcher_killed = False

    def run(self) -> NoReturn:
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self._watch()
        ended = time.monotonic()
        useful = max(_SHORTEST, _LEASES * longest_silence(self._memory))
        nothing_left = self._end_everything(ended + useful)
        cgroup.remove_all(self._worker)
        notice = read_record(self._memory)
        if nothing_left and notice is not None:
            from mainspring.worker.processes.death_notice import send

            self._detach()
            notice["cause"] = self._cause()
            useful = _ONCE if has_stopped(self._memory) else useful
            send(notice, _in_words(self._status), lambda: ended + self._worth(useful))
        os._exit(0)

    def _worth(self, useful: float) -> float:
        """For how many seconds the notice is worth sending. The supervisor may end while it is sent."""
        gone = self._supervisor is not None and bool(select.select([self._supervisor], [], [], 0)[0])
        return min(useful, _AFTER_SUPERVISOR) if gone else useful

    def _watch(self) -> None:
        """Returns when the worker has ended, or the launcher has."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._pidfd, select.POLLIN)
        while True:
            ready = poll.poll((_FIRST_PAUSE if self._orphans.open else _LOOK_EVERY) * 1000.0)
            self._reap()
            if self._status is not None:
                # A worker whose launcher is killed kills itself (launch.py).
                self._launcher_killed = os.getppid() != self._launcher
                self._tell_launcher()
                return
            if any(fd == self._control.fileno() for fd, _ in ready):
                self._launcher_killed = True
                return  # end of input: the launcher never sends anything
            self._mirror_stop()
            if self._orphans.open:
                self._end_orphans()

    def _end_orphans(self) -> None:
        """Kill what has become a child of this process while the worker lives. Called until none is left."""
        asked = self._orphans.asked
        orphans = [pid for pid in tree.children_of(os.getpid()) if pid != self._worker]
        for pid in orphans:
            tree.signal_all([pid], signal.SIGSTOP)
            tree.kill_below(pid)
            tree.signal_all([pid], signal.SIGKILL)
        if not orphans:
            self._orphans.answer(asked)

    def _reap(self) -> bool:
        """Reap everything that has ended; False if no child is left."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._worker:
                    self._status = status
        except ChildProcessError:
            return False

    def _mirror_stop(self) -> None:
        """Stop the worker while the launcher is stopped: the user knows only the pid of the launcher."""
        try:
            stopped = tree.stat_of(self._launcher)[0] == b"T"
        except OSError:  # it has just ended
            return
        if stopped != self._stopped:
            self._stopped = stopped
            with suppress(ProcessLookupError):
                os.kill(self._worker, signal.SIGSTOP if stopped else signal.SIGCONT)

    def _tell_launcher(self) -> None:
        with suppress(OSError):
            self._control.send(b"ended %d\n" % (self._status or 0))
        if os.getppid() == self._launcher:  # otherwise its pid may be in use again
            os.kill(self._launcher, signal.SIGCONT)

    def _end_everything(self, until: float) -> bool:
        """Kill all processes below. False if some are left at `until`: they cannot be killed."""
        pause = _FIRST_PAUSE
        while self._reap():
            if time.monotonic() >= until:
                return False
            tree.kill_below(os.getpid())
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        return True

    def _cause(self) -> str | None:
        """Whether the runs of the worker can be the reason that it ended, or it was killed from outside. None if
        neither: it was asked to stop, was stopped, or ended because its servers did not hear it."""
        if was_asked_to_stop(self._memory) or self._stopped:
            return None
        if self._launcher_killed or self._status is None:
            return "killed"
        return None if os.waitstatus_to_exitcode(self._status) in _EXCUSED else "crashed"

    def _detach(self) -> None:
        """Keep nothing open that others wait for, and end when a service manager asks for it: the notice may take as
        long as the servers are away."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.chdir("/")
        tree.close_all_but({self._control.fileno(), *(() if self._supervisor is None else (self._supervisor,))})
        for _ in range(3):
            os.open(os.devnull, os.O_RDWR)


def _in_words(status: int | None) -> str:
    if status is None:
        return "killed, because the process that was started has ended"
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
