"""The worker's end of the watchdog: starts it, has it start commands, and starts it again when it dies."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.logs import get_logger
from mainspring.worker.processes.command import Command, SpawnOrder
from mainspring.worker.processes.supervisor_channel import SupervisorChannel

# The package is imported by itself, without Mainspring around it: see there why.
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from watchdog.program import main; main()"
_FOLDER = Path(__file__).parent
# The worker acts on its own deadline first when it can; this is the head start it gets.
HEAD_START = 0.5
# A deadline that moves by less is not passed on: at full speed it moves a hundred times a second.
_LEAST_MOVE = 0.2
_POLITE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# All that it needs of our environment. Commands can read it: its supervisors are their parents, and of the same user.
_NEEDED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
# More would wait in the watchdog's socket, which holds 200 or so, and their descriptors count against the user's limit.
_MOST_STARTING = 32
# Supervisors that have nothing to do, and spare the next command a fork and two turns of the watchdog.
_MOST_FREE = 32
# A supervisor that was about to leave, or died with the watchdog, may be handed a command that it never reads.
_MOST_TRIES = 3
# It takes milliseconds. One that has not come about for so long is a sign that the watchdog is stopped, and guards
# nothing any more: it is replaced, although that costs what runs.
_LONGEST_START = 30.0

log = get_logger("watchdog")


class WatchdogClient:
    """What is said here has reached the watchdog's socket when the call returns, and outlives the worker there."""

    def __init__(self, clock: LoopClock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._deadline: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._stopped = False
        self._starting = asyncio.Semaphore(_MOST_STARTING)
        self._lines: set[SupervisorChannel] = set()
        self._free: list[SupervisorChannel] = []

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        ours, theirs = socket.socketpair()
        # It inherits the mask, so a signal that comes before it has learned to ignore it does not end it either.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _POLITE)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM, str(_FOLDER), str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _NEEDED if name in os.environ},
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            theirs.close()
        ours.setblocking(False)
        self._link = ours

    async def spawn(self, order: SpawnOrder, *, output: int, channel: int | None = None) -> Command:
        """Start a command as a tree of its own that dies with us; returns when it has a pid.

        `output` becomes its stdout and stderr and `channel` its descriptor 3; stdin is empty and all else is closed.
        The caller keeps its own copies of both, and closes them. Raises OSError when nothing could be started; a
        cancelled call leaves nothing behind.
        """
        descriptors = [output] if channel is None else [output, channel]
        async with self._starting:
            for _ in range(_MOST_TRIES):
                command = await self._started(order, descriptors)
                if command.pid:
                    return command
                if not command.unheard:
                    break
        raise OSError("no process could be started")

    async def _started(self, order: SpawnOrder, descriptors: list[int]) -> Command:
        """With a pid, or gone already."""
        anew = not self._free
        command = self._hand_over(order, descriptors)
        try:
            async with self._clock.timeout(_LONGEST_START):
                await command.started.wait()
        except TimeoutError:
            command.close()
            if anew:
                self._restart("does not answer")
            raise OSError("no process could be started in time") from None
        except BaseException:
            command.close()
            raise
        return command

    def set_deadline(self, deadline: float | None) -> None:
        """When the worker's lease ends (monotonic), or None while it holds nothing."""
        old = self._deadline
        if deadline == old or (deadline is not None and old is not None and 0 <= deadline - old < _LEAST_MOVE):
            return
        self._deadline = deadline
        try:
            self._say(self._deadline_line())
        except OSError as error:  # it can wait: the next word tries again, and a restart repeats it
            log.error("the watchdog cannot be started", error=str(error))

    def stop(self) -> None:
        """End the watchdog, and with it all that it keeps."""
        self._stopped = True
        self._end()
        for line in list(self._lines):
            line.close()

    def _hand_over(self, order: SpawnOrder, descriptors: list[int]) -> Command:
        while self._free:
            line = self._free.pop()
            try:
                return Command(line, order, descriptors, self._clock)
            except OSError:  # it was killed, and we have not heard of it yet
                line.close()
        line = self._new_line()
        try:
            return Command(line, order, descriptors, self._clock)
        except BaseException:
            line.close()
            raise

    def _new_line(self) -> SupervisorChannel:
        ours, theirs = socket.socketpair()
        try:
            self._say(b"supervisor\n", theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        line = SupervisorChannel(ours, when_free=self._freed, when_lost=self._lost)
        self._lines.add(line)
        return line

    def _freed(self, line: SupervisorChannel) -> None:
        if len(self._free) < _MOST_FREE and not self._stopped:
            self._free.append(line)
        else:
            line.close()

    def _lost(self, line: SupervisorChannel) -> None:
        self._lines.discard(line)
        if line in self._free:
            self._free.remove(line)

    def _end(self) -> None:
        if self._link is not None:
            with suppress(OSError):  # not connected any more
                self._link.shutdown(socket.SHUT_RDWR)  # a process that a task forked may hold it open, too
            self._link.close()
            self._link = None
        if self._process is None:
            return
        try:
            self._process.wait(timeout=1.0)
        except (
            subprocess.TimeoutExpired
        ):  # a process that cannot be killed keeps it; its supervisor lives on to see to it
            self._process.kill()
            self._process.wait()
        self._process = None

    def _deadline_line(self) -> bytes:
        return b"deadline -\n" if self._deadline is None else b"deadline %.6f\n" % (self._deadline + HEAD_START)

    def _say(self, line: bytes, control: socket.socket | None = None) -> None:
        """Short enough to be sent whole or not at all."""
        if self._stopped:
            if control is not None:
                raise OSError("the watchdog has been stopped")
            return
        try:
            self._send(line, control)
        except BlockingIOError:
            self._restart("does not listen")
            self._send(line, control)
        except (BrokenPipeError, ConnectionResetError):
            self._restart("is gone")
            self._send(line, control)

    def _send(self, line: bytes, control: socket.socket | None = None) -> None:
        if self._link is None:
            raise BrokenPipeError
        if control is None:
            self._link.send(line)
        else:
            socket.send_fds(self._link, [line], [control.fileno()])

    def _restart(self, why: str) -> None:
        """What it kept dies with it: the supervisors see to that. The new one is told the deadline first of all."""
        log.warning(f"the watchdog {why}; starting another")
        if self._process is not None:
            self._process.kill()
        self._end()
        self.start()
        self._send(self._deadline_line())
