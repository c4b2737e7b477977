"""The worker's end of the watchdog: starts it, tells it what to guard, and starts it again when it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from mainspring.kernel.logs import get_logger

_PROGRAM = Path(__file__).with_name("watchdog.py")
# The worker acts on its own deadline first when it can; this is the head start it gets.
HEAD_START = 0.5
# A deadline that moves by less is not passed on: at full speed it moves a hundred times a second.
_LEAST_MOVE = 0.2
_POLITE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

log = get_logger("watchdog")


class WatchdogLink:
    """What is said here has reached the watchdog's pipe when the call returns, and outlives the worker there."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._deadline: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._stopped = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        listen, speak = os.pipe()
        # It inherits the mask, so a signal that comes before it has learned to ignore it does not end it either.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _POLITE)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM), str(os.getpid())],
                stdin=listen,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            os.close(speak)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(listen)
        os.set_blocking(speak, False)
        self._pipe = speak

    def guard(self, group: int) -> None:
        """From now on this process group dies with the worker; raises OSError when there can be no watchdog."""
        self._groups.add(group)
        self._say(f"+ {group}")

    def release(self, group: int) -> None:
        """The group is gone; its number may be given to others."""
        self._groups.discard(group)
        self._try_to_say(f"- {group}")

    def set_deadline(self, deadline: float | None) -> None:
        """When the worker's lease ends (monotonic), or None while it holds nothing."""
        old = self._deadline
        if deadline == old or (deadline is not None and old is not None and 0 <= deadline - old < _LEAST_MOVE):
            return
        self._deadline = deadline
        self._try_to_say(self._deadline_line())

    def stop(self) -> None:
        self._stopped = True
        self._end()

    def _end(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        if self._process is None:
            return
        try:
            self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:  # a process that a task forked still holds the pipe open
            self._process.kill()
            self._process.wait()
        self._process = None

    def _deadline_line(self) -> str:
        return "deadline -" if self._deadline is None else f"deadline {self._deadline + HEAD_START:.6f}"

    def _say(self, line: str) -> None:
        if self._stopped:
            return
        try:
            # Shorter than PIPE_BUF, so it is written whole or not at all.
            os.write(self._pipe, line.encode() + b"\n")
        except OSError:
            self._restart()

    def _try_to_say(self, line: str) -> None:
        """For what can wait: the next word tries again, and a restart repeats everything."""
        try:
            self._say(line)
        except OSError as error:
            log.error("the watchdog cannot be started", error=str(error))

    def _restart(self) -> None:
        """It died, or stopped listening. The new one is told everything before anything else happens."""
        log.warning("the watchdog is gone; starting another")
        if self._process is not None:
            self._process.kill()
        self._end()
        self.start()
        os.set_blocking(self._pipe, True)
        lines = [f"+ {group}" for group in sorted(self._groups)] + [self._deadline_line(), ""]
        os.write(self._pipe, "\n".join(lines).encode())
        os.set_blocking(self._pipe, False)
