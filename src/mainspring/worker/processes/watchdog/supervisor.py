"""A command supervisor: forked by the watchdog, in its own session; runs one command after the other, each to its end.

On its control socket it hears frames, four bytes of length and a marshalled (word, value):

    start ORDER      argv, env, cwd, limits, wrapper; with one descriptor or two: output, channel
    limits LIMITS    hold the tree to these from now on, and say that it is so
    term, kill       a signal for every process of the tree
    (the end)        the worker is gone, or wants no more of it: kill, and leave

and says lines: `started PID KEEPERS_PID`, `exited CODE` (of the command itself), `breach LIMIT`, `limited`, and
`gone CPU_SECONDS PEAK_BYTES` when the last process of the tree is no more; then it is ready for another command.
"""

from __future__ import annotations

import marshal
import os
import select
import signal
import socket
import time
from typing import Any

from . import tree
from .supervised_command import SupervisedCommand

_CHUNK = 1 << 18
_LENGTH = 4
_MOST_DESCRIPTORS = 2
_NEVER = float("inf")


class CommandSupervisor:
    def __init__(self, control: int, watchdog: int, worker: int) -> None:
        self._watchdog = watchdog
        self._worker = worker
        os.setsid()
        tree.close_all_but({1, 2, control})
        os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)  # 0, which was the watchdog's own socket
        os.set_inheritable(control, False)
        self._control = socket.socket(fileno=control)
        self._control.setblocking(False)
        self._alarm = ring_on_signals(signal.SIGCHLD, signal.SIGUSR1)
        tree.become_subreaper()
        tree.signal_at_parents_death(signal.SIGUSR1)
        self._received = bytearray()
        self._descriptors: list[int] = []
        self._command: SupervisedCommand | None = None
        self._leaving = False

    def keep(self) -> None:
        """Returns when the worker or the watchdog is gone and no process is left."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._alarm, select.POLLIN)
        while not self._leaving or self._command is not None:
            ready = dict(poll.poll(self._patience()))
            if self._alarm in ready:
                os.read(self._alarm, _CHUNK)
            orphaned = os.getppid() != self._watchdog
            if not self._leaving and (orphaned or (self._control.fileno() in ready and not self._listen())):
                self._leaving = True
                poll.unregister(self._control)
                if self._command is not None:
                    self._command.kill()
            self._attend()

    def _patience(self) -> float | None:
        look_at = _NEVER if self._command is None else self._command.next_look
        return None if look_at == _NEVER else max(0.0, look_at - time.monotonic()) * 1000.0 + 1.0

    def _listen(self) -> bool:
        """Read what there is and do it; False at the end."""
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
            self._heed(word, value)
        return bool(chunk)

    def _heed(self, word: str, value: Any) -> None:
        if word == "start":
            self._start(value)
        elif self._command is None:
            return  # said before the news of its end had been read
        elif word == "limits":
            self._command.limit(value)
            self._say("limited")
        elif word == "term":
            self._command.terminate()
        elif word == "kill":
            self._command.kill()

    def _start(self, order: dict[str, Any]) -> None:
        descriptors, self._descriptors = self._descriptors, []
        try:
            self._command = SupervisedCommand(
                order, descriptors[0], descriptors[1] if descriptors[1:] else None, self._worker
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._say(f"started {self._command.command} {os.getpid()}")

    def _attend(self) -> None:
        if self._command is None:
            return
        news, over = self._command.heed()
        if over:
            self._command = None
        # One that leaves says nothing more: it would be given another command. The end of the socket says enough.
        if news and not self._leaving:
            self._say("\n".join(news))

    def _say(self, text: str) -> None:
        try:
            self._control.send(f"{text}\n".encode())
        except OSError:  # nobody listens: the end of the socket follows, and says so
            return


def ring_on_signals(*numbers: signal.Signals) -> int:
    """A descriptor that has something to read after one of these signals."""
    alarm, bell = os.pipe()
    os.set_blocking(alarm, False)
    os.set_blocking(bell, False)
    signal.set_wakeup_fd(bell, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, _heard)
    return alarm


def _heard(number: int, _frame: object) -> None:
    """A handler must be there for the alarm to ring."""
