"""Starts the worker as three processes, so that a death of any of them is known at once.

    launcher          the process that the user started: passes signals on, and ends as the worker ends
    parent watchdog   in a session of its own: sees the worker and the launcher die (parent_watchdog.py)
    worker            in a process group of its own: Ctrl-C arrives once, through the launcher

They are forked before the worker's modules are imported, so the start takes hardly longer. The launcher is a subreaper
too: if the parent watchdog is killed, the worker becomes its child and goes on, without death notices.

Linux only. On other systems, and if a process cannot be forked, the worker is the process that the user started.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from mainspring.kernel.parent_death import supervisor_pidfd
from mainspring.worker.processes.death_record import DeathRecord, shared_memory
from mainspring.worker.processes.orphans import OrphanRequests
from mainspring.worker.processes.parent_watchdog import ParentWatchdog
from mainspring.worker.processes.watchdog import tree

# How long the launcher of a worker that died waits for the death notice. A container ends with its first process, which
# is the launcher.
_NOTICE_SECONDS = 2.0
# How long the worker may take to end when the launcher's supervisor was killed, and with it the server of `up`.
_ORPHANED_SECONDS = 5.0
_DRAINING = (signal.SIGTERM, signal.SIGINT)
_PASSED_ON = (*_DRAINING, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_EXIT_UNKNOWN = 70
_CHUNK = 4096


class LaunchedWorker:
    """What the worker process knows of the two others. `launcher` is the pid that the user knows."""

    def __init__(self, launcher: int, memory: mmap.mmap, requests: socket.socket) -> None:
        self.launcher = launcher
        self.record = DeathRecord(memory)
        self.orphans = OrphanRequests(memory)
        self._requests = requests
        self._asked = {"directly": 0, "launcher": 0}

    def on_stop(self, stop: Callable[[], None]) -> None:
        """Call `stop` for each SIGTERM and SIGINT. A signal that was sent to all processes (systemd, pkill) arrives
        twice, directly and through the launcher, and counts once."""

        def asked(way: str) -> None:
            before = max(self._asked.values())
            self._asked[way] += 1
            if max(self._asked.values()) > before:
                stop()

        def read() -> None:
            try:
                numbers = self._requests.recv(_CHUNK)
            except ConnectionResetError:  # the launcher had not read that this process listens
                numbers = b""
            for _ in numbers:
                asked("launcher")
            if not numbers:  # the launcher was killed; the parent watchdog does the same, unless it was killed before
                os.kill(os.getpid(), signal.SIGKILL)

        loop = asyncio.get_running_loop()
        for number in _DRAINING:
            loop.add_signal_handler(number, asked, "directly")
        loop.add_reader(self._requests, read)
        self._requests.send(b"r")  # from now on the launcher sends requests instead of signals


def launch() -> LaunchedWorker | None:
    """Returns in the worker process, or None in the process that was started if there are no others. The launcher never
    returns. Call it while there are no threads."""
    if not tree.LINUX or not hasattr(os, "pidfd_open") or not tree.become_subreaper():
        return None
    tree.hide_memory()  # its environment may hold a token
    sys.stdout.flush()
    sys.stderr.flush()
    ours, watchdogs = socket.socketpair()
    requests, workers = socket.socketpair()
    launcher, supervisor = os.getpid(), supervisor_pidfd()
    others = tree.children_of(launcher)  # of a shell that has become this process
    # A signal that arrives before the worker exists waits until there is a process to pass it on to.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    try:
        pid = os.fork()
    except OSError:
        pid = -1
    if pid == 0:
        ours.close()
        requests.close()
        memory = _become_watchdog(launcher, supervisor, watchdogs, workers)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return LaunchedWorker(launcher, memory, workers)
    watchdogs.close()
    workers.close()
    worker = _pid_of_worker(ours) if pid > 0 else 0
    if worker:
        _Launcher(worker, pid, ours, requests, mask, supervisor).run()
    requests.close()
    if supervisor is not None:
        os.close(supervisor)
    if pid > 0:
        _end_worker_of(pid, others)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return None


def _end_worker_of(watchdog: int, others: list[int]) -> None:
    """The parent watchdog was killed at its start. It may have forked the worker, which is then a child of ours."""
    os.waitpid(watchdog, 0)
    for pid in set(tree.children_of(os.getpid())) - set(others):
        tree.kill_below(pid)
        tree.signal_all([pid], signal.SIGKILL)
        os.waitpid(pid, 0)


def _become_watchdog(
    launcher: int, supervisor: int | None, control: socket.socket, requests: socket.socket
) -> mmap.mmap:
    """Returns only in the worker process."""
    try:
        os.setsid()
        tree.become_subreaper()
        memory = shared_memory()
        us = os.getpid()
        worker = os.fork()
        if worker == 0:
            control.close()
            if supervisor is not None:
                os.close(supervisor)
            os.setpgid(0, 0)
            # If the parent watchdog stopped this process to kill it, and was killed itself before it did.
            tree.signal_at_parents_death(signal.SIGCONT)
            if os.getppid() != us:
                os._exit(_EXIT_UNKNOWN)
            return memory
        requests.close()
        with suppress(OSError):  # a launcher that was killed meanwhile is noticed below
            control.send(b"worker %d\n" % worker)
        ParentWatchdog(worker, launcher, control, memory, supervisor).run()
    except BaseException:  # noqa: BLE001 - this process must not go on as a copy of the launcher
        tree.kill_below(os.getpid())
        os._exit(1)


def _pid_of_worker(control: socket.socket) -> int:
    """0 if there is none."""
    line = control.recv(_CHUNK)
    return int(line.split()[1]) if line else 0


class _Launcher:
    def __init__(
        self,
        worker: int,
        watchdog: int,
        control: socket.socket,
        requests: socket.socket,
        mask: set[int | signal.Signals],
        supervisor: int | None,
    ) -> None:
        self._worker = worker
        self._watchdog = watchdog
        self._pidfd = os.pidfd_open(worker)
        self._control = control
        self._requests = requests
        self._mask = mask
        self._supervisor = supervisor
        self._listens = False

    def run(self) -> NoReturn:
        """Pass signals on until the worker has ended; then end in the same way."""
        for number in _PASSED_ON:
            # nohup ignores SIGHUP. A worker has always obeyed SIGTERM and SIGINT, even if they were ignored.
            if number in _DRAINING or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._pass_on)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        status = self._until_ended()
        if status is None:
            status = self._after_watchdog()
        self._end_as(os.waitstatus_to_exitcode(status))

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        with suppress(OSError):
            self._listens = self._listens or bool(self._requests.recv(1, socket.MSG_DONTWAIT))
        with suppress(OSError):
            if self._listens and number in _DRAINING:
                self._requests.send(bytes([number]))
            else:
                signal.pidfd_send_signal(self._pidfd, number)

    def _until_ended(self) -> int | None:
        """The wait status of the worker, from the parent watchdog. None if that has died."""
        self._wait_for(self._control.fileno())
        line = self._control.recv(_CHUNK)
        if not line:
            return None
        status = int(line.split()[1])
        if status != 0:  # a worker that ends in order has told the server itself
            self._control.settimeout(_NOTICE_SECONDS)
            with suppress(OSError):  # the end of input follows the notice
                self._control.recv(_CHUNK)
        return status

    def _wait_for(self, descriptor: int) -> None:
        """Returns when there is something to read. If the supervisor dies before, the worker is told to end its runs
        at once. It is killed if it does not end: no other process would."""
        if self._supervisor is not None:
            ready, _, _ = select.select([descriptor, self._supervisor], [], [])
            if descriptor in ready:
                return
            self._supervisor = None
            self._pass_on(signal.SIGTERM, None)  # after that of the kernel it is the second one
            if not select.select([descriptor], [], [], _ORPHANED_SECONDS)[0]:
                with suppress(OSError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        select.select([descriptor], [], [])

    def _after_watchdog(self) -> int:
        """The parent watchdog was killed, and the worker is a child of this process."""
        try:
            os.waitpid(self._watchdog, 0)  # its socket closes before its children get another parent
            self._wait_for(self._pidfd)
            _, status = os.waitpid(self._worker, 0)
        except ChildProcessError:
            status = _EXIT_UNKNOWN << 8
        tree.kill_below(os.getpid())  # what Python tasks started
        return status

    def _end_as(self, code: int) -> NoReturn:
        if code < 0:
            with suppress(OSError, ValueError):
                signal.signal(-code, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.kill(os.getpid(), -code)
            code = 128 - code  # the first process of a container is not killed by its own signals
        os._exit(code)
