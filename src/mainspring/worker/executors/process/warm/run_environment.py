"""The folder, environment variables and limits of one run in a warm child, all restored after the run."""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

from mainspring.wire.execution import ResourceLimits
from mainspring.worker.execution.tree_removal import TreeRemoval
from mainspring.worker.executors.process.warm.frames import Begin

_PAGE = resource.getpagesize()
_STATM = Path("/proc/self/statm")
_RESTORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGIO, signal.SIGXCPU, signal.SIGALRM, signal.SIGCHLD)


def resident_bytes(pid: int | str = "self") -> int:
    """The resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def _state(folder: str) -> tuple[int, ...]:
    found = os.stat(folder)  # noqa: PTH116 - as above
    return found.st_dev, found.st_ino, found.st_mode, found.st_uid, found.st_gid


class RunEnvironment:
    """Created once, after the application is loaded. Every run starts with the state of that moment."""

    def __init__(self) -> None:
        self._home = Path.cwd()
        self._environ = dict(os.environ)
        self._streams = (sys.stdin, sys.stdout, sys.stderr)
        self._handlers = {number: signal.getsignal(number) for number in _RESTORED}
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._folder = ""
        self._fresh: tuple[int, ...] = ()
        self._limited: list[tuple[int, tuple[int, int]]] = []

    def enter(self, begin: Begin) -> None:
        if begin.folder and self._folder != begin.folder:
            os.mkdir(begin.folder, 0o700)  # noqa: PTH102 - a single system call, as below
            self._folder, self._fresh = begin.folder, _state(begin.folder)
        os.chdir(begin.folder or self._home)
        if begin.env:
            os.environ.update(begin.env)
        if begin.limits is not None:
            self._limit(begin.limits)

    def leave(self) -> None:
        """Undo what `enter` did, and what the run has changed."""
        for kind, before in self._limited:
            resource.setrlimit(kind, before)
        self._limited.clear()
        os.chdir(self._home)
        self._renew_folder()
        if dict(os.environ) != self._environ:
            os.environ.clear()
            os.environ.update(self._environ)
        sys.stdin, sys.stdout, sys.stderr = self._streams
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)  # otherwise the next run could not be asked to end
        os.umask(self._umask)

    def _renew_folder(self) -> None:
        """A folder that is empty and unchanged is used again: that saves a write to a disk that PostgreSQL may be
        syncing at this moment. Any other folder is removed. OSError if that fails; then the worker removes it."""
        folder = self._folder
        try:
            if not folder or (not os.listdir(folder) and _state(folder) == self._fresh):  # noqa: PTH208
                return
        except OSError:  # the run removed it, or changed its permissions
            pass
        self._folder = ""
        with suppress(FileNotFoundError):
            TreeRemoval(Path(folder)).run()

    def _limit(self, limits: ResourceLimits) -> None:
        """Set the limits of this process; the supervisor checks the run as a whole. The limit of memory is added to
        what the loaded interpreter has mapped already. Without /proc there is only the supervisor."""
        if limits.memory is not None and _STATM.exists():
            self._lower(resource.RLIMIT_AS, int(_STATM.read_text().split()[0]) * _PAGE + limits.memory)
        if limits.files is not None:
            self._lower(resource.RLIMIT_NOFILE, limits.files)
        if limits.disk is not None:
            self._lower(resource.RLIMIT_FSIZE, limits.disk)

    def _lower(self, kind: int, value: int) -> None:
        """Lower the soft limit, which can be raised again."""
        before = resource.getrlimit(kind)
        hard = before[1]
        self._limited.append((kind, before))
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
