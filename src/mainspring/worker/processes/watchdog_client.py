"""The worker's client of the watchdog: starts it, lets it start commands, and restarts it if it dies."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.config import WATCHDOG_HEAD_START
from mainspring.kernel.descriptors import give_back
from mainspring.kernel.logs import get_logger
from mainspring.worker.processes.caps import NO_CAPS, Caps
from mainspring.worker.processes.command import Command, SpawnOrder
from mainspring.worker.processes.orphans import OrphanRequests, process_ended
from mainspring.worker.processes.supervisor_channel import SupervisorChannel

# The package is imported alone, without Mainspring: its docstring says why.
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from watchdog.program import main; main()"
_FOLDER = Path(__file__).parent
HEAD_START = WATCHDOG_HEAD_START
# A deadline that moves by less is not passed on: under load it moves a hundred times a second.
_LEAST_MOVE = 0.2
_POLITE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# The environment of the watchdog. Commands can read it: supervisors are their parents and run as the same user.
_NEEDED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
# More would wait in the socket, which holds about 200, and their descriptors count against the limit of the user.
_MOST_STARTING = 32
# Idle supervisors that are kept. They save the next command a fork and two turns of the watchdog.
_MOST_FREE = 32
# A supervisor that is about to exit, or dies with the watchdog, may be given a command that it never reads.
_MOST_TRIES = 3
# A start takes milliseconds. If it takes this long, the watchdog is stopped and guards nothing any more. It is
# replaced, although that ends all running commands.
_LONGEST_START = 30.0

log = get_logger("watchdog")


class WatchdogClient:
    """When a call returns, its message is in the socket of the watchdog, where it survives the worker. `orphans` asks
    the parent watchdog, if there is one, to end what the watchdog could not. `hidden` are files and folders that
    isolated commands must not see. `caps`: what runs may use."""

    def __init__(
        self,
        clock: LoopClock = SYSTEM_CLOCK,
        *,
        orphans: OrphanRequests | None = None,
        hidden: Sequence[Path] = (),
        caps: Caps = NO_CAPS,
    ) -> None:
        self._caps = caps
        self._hidden = [str(path) for path in hidden]
        self._clock = clock
        self._orphans = orphans
        self._deadline: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._stopped = False
        self._starting = asyncio.Semaphore(_MOST_STARTING)
        self._channels: set[SupervisorChannel] = set()
        self._free: dict[bool, list[SupervisorChannel]] = {False: [], True: []}  # by `isolated`

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        ours, theirs = socket.socketpair()
        # The watchdog inherits the mask: a signal that arrives before it ignores signals does not end it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _POLITE)
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    "-X",
                    "utf8",
                    "-c",
                    _PROGRAM,
                    str(_FOLDER),
                    str(os.getpid()),
                    *self._hidden,
                ],
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
        give_back(self._process.pid)  # before it starts anything: commands get the limit that the user set
        ours.setblocking(False)
        self._socket = ours
        if self._caps != NO_CAPS:
            self._send(self._caps.for_watchdog())  # before its first supervisor

    async def spawn(
        self, order: SpawnOrder, *, output: int, errors: int | None = None, channel: int | None = None
    ) -> Command:
        """Start a command as a process tree that dies with the worker; returns when it has a pid.

        `output` becomes its stdout, `errors` its stderr (None: `output` too), and `channel` its descriptor 3. Its
        stdin is empty, and all other descriptors are closed. The caller keeps its copies and closes them. Raises
        OSError if the command could not be started. A cancelled call leaves nothing behind.
        """
        descriptors = [output, output if errors is None else errors]
        if channel is not None:
            descriptors.append(channel)
        async with self._starting:
            for _ in range(_MOST_TRIES):
                command = await self._started(order, descriptors)
                if command.pid:
                    return command
                if not command.unread:
                    break
        raise OSError("no process could be started")

    async def _started(self, order: SpawnOrder, descriptors: list[int]) -> Command:
        """A command that has a pid, or is gone already."""
        anew = not self._free[order.isolated]
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
        """When the lease of the worker ends (monotonic), or None while it holds nothing."""
        old = self._deadline
        if deadline == old or (deadline is not None and old is not None and 0 <= deadline - old < _LEAST_MOVE):
            return
        self._deadline = deadline
        try:
            self._say(self._deadline_line())
        except OSError as error:  # the next message tries again, and a restart repeats the deadline
            log.error("the watchdog cannot be started", error=str(error))

    def stop(self) -> None:
        """End the watchdog and all its commands."""
        self._stopped = True
        self._end()
        for channel in list(self._channels):
            channel.close()

    def _hand_over(self, order: SpawnOrder, descriptors: list[int]) -> Command:
        free = self._free[order.isolated]
        while free:
            channel = free.pop()
            try:
                return Command(channel, order, descriptors, self._clock)
            except OSError:  # it was killed, and the news has not arrived yet
                channel.close()
        channel = self._new_channel(isolated=order.isolated)
        try:
            return Command(channel, order, descriptors, self._clock)
        except BaseException:
            channel.close()
            raise

    def _new_channel(self, *, isolated: bool) -> SupervisorChannel:
        ours, theirs = socket.socketpair()
        try:
            self._say(b"supervisor isolated\n" if isolated else b"supervisor\n", theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        channel = SupervisorChannel(
            ours,
            when_free=self._freed,
            when_lost=self._lost,
            until_cleared=partial(self._until_cleared, self._process),
            isolated=isolated,
        )
        self._channels.add(channel)
        return channel

    def _freed(self, channel: SupervisorChannel) -> None:
        free = self._free[channel.isolated]
        if len(free) < _MOST_FREE and not self._stopped:
            free.append(channel)
        else:
            channel.close()

    def _lost(self, channel: SupervisorChannel) -> None:
        self._channels.discard(channel)
        free = self._free[channel.isolated]
        if channel in free:
            free.remove(channel)

    async def _until_cleared(self, watchdog: subprocess.Popen[bytes] | None, channel: SupervisorChannel) -> None:
        """The supervisor of this channel and its watchdog were killed: wait until nothing is left of the command."""
        await process_ended(channel.supervisor)
        if channel.isolated or self._orphans is None:
            return  # the kernel has ended a namespace before its first process counts as ended
        if watchdog is not None and watchdog.poll() is None:
            await process_ended(watchdog.pid)
        log.warning("a supervisor and the watchdog were killed; the parent watchdog ends what they left")
        await self._orphans.end_all(self._clock)

    def _end(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # not connected any more
                self._socket.shutdown(socket.SHUT_RDWR)  # a process that a task forked may have a copy
            self._socket.close()
            self._socket = None
        if self._process is None:
            return
        try:
            self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:  # it waits for a process that cannot be killed; the supervisor goes on
            self._process.kill()
            self._process.wait()
        self._process = None

    def _deadline_line(self) -> bytes:
        return b"deadline -\n" if self._deadline is None else b"deadline %.6f\n" % (self._deadline + HEAD_START)

    def _say(self, line: bytes, control: socket.socket | None = None) -> None:
        """Send a line. It is short enough to be sent completely or not at all."""
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
        if self._socket is None:
            raise BrokenPipeError
        if control is None:
            self._socket.send(line)
        else:
            socket.send_fds(self._socket, [line], [control.fileno()])

    def _restart(self, why: str) -> None:
        """Its commands die with it: the supervisors kill them. The new watchdog first receives the deadline."""
        log.warning(f"the watchdog {why}; starting another")
        if self._process is not None:
            self._process.kill()
        self._end()
        self.start()
        self._send(self._deadline_line())
