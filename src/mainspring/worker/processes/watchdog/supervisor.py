"""A command supervisor: forked by the watchdog, in its own session. It runs one command after the other.

Its control socket carries frames: four bytes of length and a marshalled (word, value).

    start ORDER      argv, env, cwd, limits, wrapper, inputs, account; with descriptors: output, errors, and
                     maybe a channel
    limits LIMITS    enforce these limits from now on, and answer `limited`
    look             answer with `usage`
    term, kill       send this signal to every process of the tree
    (end of input)   the worker is gone, or gives up the command: kill the tree, and exit

It says `supervisor PID` first. It answers with lines: `started PID`, `exited CODE` (of the command itself), `breach
LIMIT`, `limited`, `usage CPU_SECONDS BYTES`, and `gone CPU_SECONDS PEAK_BYTES` when the last process of the tree is
gone. Then it is ready for another command, unless it has said `tampered` before (own_state.py). Its last line is
`cleared`: it exits, and nothing is left of its tree. If it was killed, the watchdog writes this line. `started PID`
comes twice: the new process says it too, because its command may stop the supervisor at once.

An isolated supervisor is the first process of a pid namespace (namespaces.py). Pids in `started` are those inside.
"""

from __future__ import annotations

import marshal
import os
import select
import signal
import socket
import time
from typing import Any, NamedTuple

from . import namespaces, own_root, tree
from .all_runs import AllRuns
from .covers import Covers
from .own_state import own_state
from .supervised_command import SupervisedCommand

_CHUNK = 1 << 18
_LENGTH = 4
_MOST_DESCRIPTORS = 3
_NEVER = float("inf")


class Parent(NamedTuple):
    """The watchdog, as it knew itself before the fork. pidfd: -1 if the supervisor is not isolated. notices: a pipe
    from the watchdog, with a line when all runs together use more than they may and this command has to end."""

    pid: int
    user: int
    group: int
    pidfd: int
    notices: int


class CommandSupervisor:
    def __init__(self, control: int, watchdog: Parent, worker: int, covers: Covers, all_runs: AllRuns) -> None:
        """`covers`: what isolated commands must not see."""
        self._covers = covers
        self._watchdog = watchdog.pid
        self._worker = worker
        self._isolated = watchdog.pidfd >= 0
        self._shared_memory: int | None = None
        self._overlay: str | None = None  # the working folder, if it has one
        self._pid = os.getpid()
        if self._isolated:
            self._pid = namespaces.enter(watchdog.pidfd, watchdog.user, watchdog.group)
        self._group = all_runs.admit(self._pid)
        tree.hide_memory()  # it has seen the environments of all its commands
        os.setsid()
        tree.close_all_but({1, 2, control, watchdog.notices, *covers.opened})
        os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)  # becomes 0, which was the socket of the watchdog
        os.set_inheritable(control, False)
        self._control = socket.socket(fileno=control)
        self._control.setblocking(False)
        self._notices = watchdog.notices
        # SIGCONT also reaches a supervisor that the watchdog had stopped to kill it, before it was killed itself. A
        # command may send both: they only wake this process.
        self._alarm = wake_on_signals(signal.SIGCHLD, signal.SIGCONT)
        if not self._isolated:
            tree.become_subreaper()
            tree.signal_at_parents_death(signal.SIGCONT)
        self._received = bytearray()
        self._descriptors: list[int] = []
        self._command: SupervisedCommand | None = None
        self._leaving = False
        self._state = own_state()
        self._say(f"supervisor {self._pid}")

    def run(self) -> None:
        """Returns when the worker or the watchdog is gone and no process is left."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._alarm, select.POLLIN)
        poll.register(self._notices, select.POLLIN)
        while not self._leaving or self._command is not None:
            ready = dict(poll.poll(self._poll_timeout()))
            if self._alarm in ready:
                os.read(self._alarm, _CHUNK)
            if self._notices in ready and not self._read_notices():
                poll.unregister(self._notices)
            orphaned = not self._isolated and os.getppid() != self._watchdog
            if not self._leaving and (orphaned or (self._control.fileno() in ready and not self._listen())):
                self._leaving = True
                poll.unregister(self._control)
                if self._command is not None:
                    self._command.kill()
            self._check_command()
        self._say("cleared")

    def _poll_timeout(self) -> float | None:
        check_at = _NEVER if self._command is None else self._command.next_check
        return None if check_at == _NEVER else max(0.0, check_at - time.monotonic()) * 1000.0 + 1.0

    def _read_notices(self) -> bool:
        """False if the watchdog is gone."""
        notices = os.read(self._notices, _CHUNK).decode().split()
        if notices and self._command is not None:
            self._command.end_for(notices[0])
        return bool(notices)

    def _listen(self) -> bool:
        """Read and obey the frames that are available; False at the end of input."""
        try:
            chunk, descriptors, _, _ = socket.recv_fds(self._control, _CHUNK, _MOST_DESCRIPTORS)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        self._received += chunk
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self._descriptors += descriptors
        while len(self._received) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self._received[:_LENGTH])
            if len(self._received) < end:
                break
            word, value = marshal.loads(self._received[_LENGTH:end])
            del self._received[:end]
            self._obey(word, value)
        return bool(chunk)

    def _obey(self, word: str, value: Any) -> None:
        if word == "start":
            self._start(value)
        elif self._command is None:
            return  # sent before the worker had read that the command is gone
        elif word == "limits":
            self._command.limit(value)
            self._say("limited")
        elif word == "look":
            self._say(self._command.sample())
        elif word == "term":
            self._command.terminate()
        elif word == "kill":
            self._command.kill()

    def _start(self, order: dict[str, Any]) -> None:
        descriptors, self._descriptors = self._descriptors, []
        try:
            if self._isolated:
                self._shared_memory = namespaces.renew_shared_memory(order["limits"], self._shared_memory)
                self._covers.renew(order["cwd"])
                if order["own_root"] and own_root.give(order["cwd"], order["account"]):
                    self._overlay = order["cwd"]
            self._command = SupervisedCommand(
                order,
                descriptors[0],
                descriptors[1],
                descriptors[2] if descriptors[2:] else None,
                control=self._control.fileno(),
                worker=self._worker,
                supervisor=self._pid,
                isolated=self._isolated,
                group=self._group,
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._say(f"started {self._command.command}")

    def _check_command(self) -> None:
        if self._command is None:
            return
        news, over = self._command.check()
        if over:
            self._command = None
            self._remove_overlay()
            if own_state() != self._state:
                news.insert(0, "tampered")
        # A supervisor that exits says nothing more, or it would be given another command.
        if news and not self._leaving:
            self._say("\n".join(news))

    def _remove_overlay(self) -> None:
        if self._overlay is not None:
            own_root.take(self._overlay)
            self._overlay = None

    def _say(self, text: str) -> None:
        try:
            self._control.send(f"{text}\n".encode())
        except OSError:  # the worker is gone: the end of input follows
            return


def wake_on_signals(*numbers: signal.Signals) -> int:
    """A descriptor that becomes readable after one of these signals."""
    alarm, wake = os.pipe()
    os.set_blocking(alarm, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, _heard)
    return alarm


def _heard(number: int, _frame: object) -> None:
    """Signals wake the descriptor only if they have a handler."""
