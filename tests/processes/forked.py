"""Starts Mainspring's processes faster: by fork, from a process that has imported its modules.

To import a server takes a second of CPU time, and the tests start hundreds. A forked process has its own pid, memory,
environment, folder and output, and from its command line on it does what a process does that was started in the usual
way. What it cannot show is that the modules are imported as they should be: the tests of `up`, of upgrades and of the
documentation start processes in the usual way, and so does everything with MAINSPRING_TEST_FORK=0.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from mainspring.kernel.parent_death import die_with_parent

ENABLED = sys.platform == "linux" and os.environ.get("MAINSPRING_TEST_FORK") != "0"
ROOT = Path(__file__).resolve().parents[2]

# By verb, because a worker has no modules of a server.
MODULES = {
    "server": ("mainspring.cli.main", "mainspring.cli.server", "mainspring.roles.server"),
    "scheduler": ("mainspring.cli.main", "mainspring.cli.server", "mainspring.roles.server"),
    "worker": ("mainspring.cli.main", "mainspring.cli.worker", "mainspring.roles.worker"),
}
_LONGEST = 1 << 20
_parents: dict[str, _Parent] = {}
_turn = threading.Lock()


def start(
    arguments: Sequence[str],
    output: IO[bytes],
    environment: dict[str, str],
    folder: Path | None = None,
    *,
    module: str = "mainspring",
    with_us: bool = False,
) -> subprocess.Popen[bytes]:
    """Start `python -m module` with these arguments. `with_us`: it is killed when this process ends."""
    verb = arguments[0]
    if ENABLED and verb in MODULES and "--reload" not in arguments:
        with _turn:
            if verb not in _parents:
                _parents[verb] = _Parent(verb)
            return _parents[verb].fork(module, arguments, output, environment, folder, with_us)
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        preexec_fn=die_with_parent(signal.SIGKILL) if with_us else None,
    )


class _Parent:
    """The process that has imported what one verb needs."""

    def __init__(self, verb: str) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.processes.forked", verb, str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._close)

    def fork(
        self,
        module: str,
        arguments: Sequence[str],
        output: IO[bytes],
        environment: dict[str, str],
        folder: Path | None,
        with_us: bool,
    ) -> subprocess.Popen[bytes]:
        ends, theirs = os.pipe()
        request = {
            "module": module,
            "arguments": list(arguments),
            "environment": environment,
            "folder": str(folder or Path.cwd()),
            "with_us": with_us,
        }
        socket.send_fds(self._socket, [json.dumps(request).encode()], [output.fileno(), theirs])
        os.close(theirs)
        pid = int(self._socket.recv(_LONGEST))
        return Forked(pid, ends, arguments)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


class Forked(subprocess.Popen[bytes]):
    """A process that is no child of ours. Its parent writes into the pipe `ends` how it has ended."""

    def __init__(self, pid: int, ends: int, arguments: Sequence[str]) -> None:
        self.pid = pid
        self.args = list(arguments)
        self.returncode: int | None = None
        self.stdin = self.stdout = self.stderr = None
        self._child_created = False  # for Popen.__del__
        self._ends = ends
        self._reading = threading.Lock()

    def poll(self) -> int | None:
        self._read(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._read(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def _read(self, timeout: float | None) -> None:
        with self._reading:
            if self.returncode is None and select.select([self._ends], [], [], timeout)[0]:
                said = os.read(self._ends, _LONGEST)
                self.returncode = int(said) if said else -signal.SIGKILL  # nothing: its parent was killed
                os.close(self._ends)

    def __del__(self) -> None:
        if self.returncode is None:
            os.close(self._ends)


# -- in the other process


def main(verb: str, number: int) -> None:
    for name in MODULES[verb]:
        import_module(name)
    gc.collect()
    gc.freeze()
    request = _serve(socket.socket(fileno=number))
    if request is not None:  # this is a forked process
        _become(request)
        with suppress(KeyboardInterrupt):
            runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork for each request. Returns the request in the forked process, and None when nobody can ask any more."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    die_with_us = die_with_parent(signal.SIGKILL)
    ends: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, wake], [], [])
        if wake in ready:
            os.read(wake, _LONGEST)
            _report(ends)
        if requests not in ready:
            continue
        text, files, _, _ = socket.recv_fds(requests, _LONGEST, 2)
        if not text:
            return None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(files[0], 1)
            os.dup2(files[0], 2)
            requests.detach()
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            request: dict[str, Any] = json.loads(text)
            if request["with_us"] and die_with_us is not None:
                die_with_us()
            return request
        ends[pid] = files[1]
        os.close(files[0])
        requests.send(b"%d" % pid)


def _report(ends: dict[int, int]) -> None:
    """Say how processes have ended."""
    while ends:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with suppress(BrokenPipeError):  # nobody wants to know
            os.write(ends[pid], b"%d" % os.waitstatus_to_exitcode(status))
        os.close(ends.pop(pid))


def _become(request: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["folder"])
    sys.path[0] = request["folder"]
    sys.argv = [request["module"], *request["arguments"]]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
