"""One command and all processes that it starts, under a supervisor. Created by `WatchdogClient.spawn`."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock, Timer
from mainspring.wire.execution import ResourceLimits
from mainspring.worker.processes.accounts import Account
from mainspring.worker.processes.caps import NO_CAPS, Caps, breach_in_words
from mainspring.worker.processes.supervisor_channel import SupervisorChannel

# A kill takes milliseconds.
_INSIST_AFTER = 2.0


class SpawnOrder(msgspec.Struct, frozen=True):
    """What to start.

    argv: the program is searched on the PATH of `env`. If it cannot be executed, the output says so, and the exit code
    is 127 (not found) or 126, as in a shell. env: the whole environment. wrapper: the name of processes that
    `terminate` spares, because a sandbox that ends kills everything in it. inputs: contents that the program reads from
    the descriptors 4, 5, and so on. isolated: it has a pid namespace of its own. own_root: if it is isolated, no list
    of mounts names `cwd`. account: None for that of the worker. caps: those of the worker. limits: those that the job
    asks for.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: str
    limits: ResourceLimits | None = None
    wrapper: str = ""
    inputs: list[bytes] = []
    isolated: bool = False
    own_root: bool = False
    account: Account | None = None
    caps: Caps = NO_CAPS

    def message(self) -> dict[str, Any]:
        """What the supervisor is sent."""
        account = None if self.account is None else self.account.for_child()
        message = {**msgspec.structs.asdict(self), "account": account}
        del message["caps"]
        return {**message, "limits": _as_dict(self.caps.applied(self.limits), self.cwd)}


class ProcessUsage(msgspec.Struct, frozen=True):
    """What a process tree has used: CPU time in all, and the largest memory use that was seen."""

    cpu_seconds: float
    peak_bytes: int


class Command:
    """exited: set when the command itself has ended; the processes it left behind are then killed, unless it was asked
    to terminate before. gone: set when the last process of the tree is gone, and not earlier; an attempt waits for it.
    pid: of an isolated command, the one inside its namespace. supervisor: the pid of its supervisor. exit_code: that of
    the command, -N if signal N ended it. breach: a limit that was exceeded; the tree is being killed for it. unread:
    the supervisor died before it had read everything it was sent. on_sample: called with CPU seconds and resident bytes
    after `sample`. spared: bytes of memory that do not count, of limits that are set later.
    """

    def __init__(
        self,
        channel: SupervisorChannel,
        order: SpawnOrder,
        descriptors: list[int],
        clock: LoopClock = SYSTEM_CLOCK,
    ) -> None:
        """Sends the order to the supervisor at the other end of `channel`, which must be idle."""
        self._clock = clock
        self.pid = 0
        self.supervisor = 0
        self.exit_code: int | None = None
        self.breach: str | None = None
        self.unread = False
        self.usage: ProcessUsage | None = None
        self.on_sample: Callable[[float, int], None] | None = None
        self.started = asyncio.Event()
        self.exited = asyncio.Event()
        self.gone = asyncio.Event()
        self._own_caps = self._caps = order.caps
        self.spared = 0
        self._limits = order.caps.applied(order.limits)
        self._channel: SupervisorChannel | None = channel
        self._on_news: Callable[[], None] | None = None
        self._insisting: Timer | None = None
        self._pending_limits = 0
        self._limited = asyncio.Event()
        channel.start(order.message(), descriptors, self)

    def terminate(self) -> None:
        """Send SIGTERM to every process of the tree. They may go on until `kill`."""
        if self._channel is not None:
            self._channel.say("term")

    def kill(self) -> None:
        """Send SIGKILL to every process of the tree. No process can escape; `gone` follows."""
        if self._channel is not None:
            self._channel.say("kill")
            if self._insisting is None:
                self._insisting = self._clock.call_later(_INSIST_AFTER, self._insist)

    def limit(self, limits: ResourceLimits | None, folder: str = "", caps: Caps | None = None) -> None:
        """Enforce these limits and caps on the whole tree from now on; by default no limits and the caps of the order.
        CPU seconds count from now. `folder` is what the limit of disk space applies to. Limits of single processes are
        set once, by the order."""
        self._caps = self._own_caps if caps is None else caps
        self._limits = self._caps.applied(limits)
        if self._channel is not None:
            self._pending_limits += 1
            self._limited.clear()
            self._channel.say("limits", _as_dict(self._limits, folder, self.spared))

    async def limited(self) -> None:
        """Returns when the supervisor applies the last limits. A breach that it saw before is known by then."""
        if self._pending_limits and self._channel is not None:
            await self._limited.wait()

    def sample(self) -> None:
        """Ask what the tree uses now. The answer goes to `on_sample`."""
        if self._channel is not None:
            self._channel.say("look")

    def on_news(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` when the command has exited, and when the tree is gone."""
        self._on_news = callback

    async def kill_and_wait(self) -> None:
        """Kill the tree; returns when it is gone."""
        self.kill()
        await self.gone.wait()

    def close(self) -> None:
        """Give the command up: the supervisor kills the tree, and does not report when it is gone."""
        if self._channel is not None:
            self._channel.close()

    # -- news from the supervisor

    def hear(self, word: str, value: str) -> None:
        match word:
            case "started":
                self.pid = int(value)
                self.supervisor = 0 if self._channel is None else self._channel.supervisor
                self.started.set()
            case "exited":
                self.exit_code = int(value)
                self.exited.set()
                self._tell()
            case "limited":
                self._pending_limits -= 1
                if not self._pending_limits:
                    self._limited.set()
            case "breach":
                self.breach = self.breach or breach_in_words(value, self._limits, self._caps)
            case "usage":
                if self.on_sample is not None:
                    cpu, _, resident = value.partition(" ")
                    self.on_sample(float(cpu), int(resident))
            case "gone":
                cpu, _, peak = value.partition(" ")
                self.usage = ProcessUsage(float(cpu), int(peak))
                self.lose()

    def lose(self, *, unread: bool = False) -> None:
        self.unread = unread
        self._channel = None
        if self._insisting is not None:
            self._insisting.cancel()
        if self.exit_code is None:
            self.exit_code = -signal.SIGKILL  # killed together with its supervisor
        for event in (self.started, self.exited, self.gone, self._limited):
            event.set()
        self._tell()

    def _insist(self) -> None:
        """The supervisor does not react; a command may have stopped it. Once it is killed, the watchdog kills the
        tree."""
        if self._channel is not None and self.supervisor:
            with suppress(ProcessLookupError):
                os.kill(self.supervisor, signal.SIGKILL)

    def _tell(self) -> None:
        if self._on_news is not None:
            self._on_news()


def _as_dict(limits: ResourceLimits, folder: str, spared: int = 0) -> dict[str, float | str | None]:
    memory = None if limits.memory is None else limits.memory + spared
    return {
        "memory": memory, "cpu": limits.cpu, "processes": limits.processes, "files": limits.files,
        "disk": limits.disk if folder else None, "folder": folder,
    }  # fmt: skip
