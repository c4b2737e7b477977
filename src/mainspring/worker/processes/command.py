"""A ward: one command and everything that it starts, in the keeping of the watchdog. Made by `WatchdogClient.spawn`."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress

import msgspec

from mainspring.domain.durations import format_duration
from mainspring.domain.sizes import format_size
from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock, Timer
from mainspring.wire.execution import ResourceLimits
from mainspring.worker.processes.supervisor_channel import SupervisorChannel

# A kill takes milliseconds.
_INSIST_AFTER = 2.0
_NO_LIMITS = ResourceLimits()


class SpawnOrder(msgspec.Struct, frozen=True):
    """What to start. `argv` is looked up on the PATH in `env`, which is the whole environment; a program that cannot be
    executed says so on the output and exits with 127 (not found) or 126, as in a shell. `wrapper` names processes of
    the tree that are to be spared by `terminate`: a sandbox that ends takes what is in it along."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    limits: ResourceLimits | None = None
    wrapper: str = ""


class Usage(msgspec.Struct, frozen=True):
    """What a tree has used: all of it together, and the most memory that was seen in use at once."""

    cpu_seconds: float
    peak_bytes: int


class Command:
    """`exited` is set when the command itself has ended; what it left behind is then killed, unless it was told to
    terminate before. `gone` is set when the last process of the tree is no more, and not a moment before: it is what an
    attempt waits for. `exit_code` is that of the command, -N when signal N ended it. `breach` tells of a limit that was
    exceeded; the tree is being killed for it. `unheard` means that the supervisor was gone before it had read all that
    it was told.
    """

    def __init__(
        self,
        line: SupervisorChannel,
        order: SpawnOrder,
        descriptors: list[int],
        clock: LoopClock = SYSTEM_CLOCK,
    ) -> None:
        """Hands the order to the supervisor at the other end of `line`, which must be free."""
        self._clock = clock
        self.pid = 0
        self.exit_code: int | None = None
        self.breach: str | None = None
        self.unheard = False
        self.usage: Usage | None = None
        self.started = asyncio.Event()
        self.exited = asyncio.Event()
        self.gone = asyncio.Event()
        self._limits = order.limits or _NO_LIMITS
        self._line: SupervisorChannel | None = line
        self._on_news: Callable[[], None] | None = None
        self._supervisor = 0
        self._insisting: Timer | None = None
        self._unheard_limits = 0
        self._limited = asyncio.Event()
        limits = _as_dict(self._limits)
        what = {"argv": order.argv, "env": order.env, "cwd": order.cwd, "wrapper": order.wrapper, "limits": limits}
        line.start(what, descriptors, self)

    def terminate(self) -> None:
        """TERM for every process of the tree; all of them may take their time from now on."""
        if self._line is not None:
            self._line.say("term")

    def kill(self) -> None:
        """KILL for every process of the tree. There is no way out of it; `gone` follows."""
        if self._line is not None:
            self._line.say("kill")
            if self._insisting is None:
                self._insisting = self._clock.call_later(_INSIST_AFTER, self._insist)

    def limit(self, limits: ResourceLimits | None) -> None:
        """Hold the whole tree to these from now on (CPU seconds count from now), or to none. Limits on single processes
        are set once, by the order."""
        self._limits = limits or _NO_LIMITS
        if self._line is not None:
            self._unheard_limits += 1
            self._limited.clear()
            self._line.say("limits", _as_dict(self._limits))

    async def limited(self) -> None:
        """Returns when the supervisor goes by what it was told last; a breach that it saw before is known by then."""
        if self._unheard_limits and self._line is not None:
            await self._limited.wait()

    def on_news(self, callback: Callable[[], None] | None) -> None:
        """Have `callback` called when the command has exited, and when all is gone."""
        self._on_news = callback

    async def bury(self) -> None:
        """Kill what is left of it; returns when it is gone."""
        self.kill()
        await self.gone.wait()

    def close(self) -> None:
        """Want no more of it: whatever lives is killed, and nobody hears when it is gone."""
        if self._line is not None:
            self._line.close()

    # -- what the supervisor says

    def hear(self, word: str, value: str) -> None:
        match word:
            case "started":
                self.pid, self._supervisor = map(int, value.split())
                self.started.set()
            case "exited":
                self.exit_code = int(value)
                self.exited.set()
                self._tell()
            case "limited":
                self._unheard_limits -= 1
                if not self._unheard_limits:
                    self._limited.set()
            case "breach":
                self.breach = self.breach or _breach(value, self._limits)
            case "gone":
                cpu, _, peak = value.partition(" ")
                self.usage = Usage(float(cpu), int(peak))
                self.lose()

    def lose(self, *, unheard: bool = False) -> None:
        self.unheard = unheard
        self._line = None
        if self._insisting is not None:
            self._insisting.cancel()
        if self.exit_code is None:
            self.exit_code = -signal.SIGKILL  # with its supervisor
        for event in (self.started, self.exited, self.gone, self._limited):
            event.set()
        self._tell()

    def _insist(self) -> None:
        """The supervisor does not do it: a command may have stopped it. Without it the tree falls to the watchdog."""
        if self._line is not None and self._supervisor:
            with suppress(ProcessLookupError):
                os.kill(self._supervisor, signal.SIGKILL)

    def _tell(self) -> None:
        if self._on_news is not None:
            self._on_news()


def _as_dict(limits: ResourceLimits) -> dict[str, float | None]:
    return {"memory": limits.memory, "cpu": limits.cpu, "processes": limits.processes, "files": limits.files}


def _breach(kind: str, limits: ResourceLimits) -> str:
    match kind:
        case "memory" if limits.memory is not None:
            return f"memory limit of {format_size(limits.memory)} exceeded"
        case "cpu" if limits.cpu is not None:
            return f"CPU limit of {format_duration(limits.cpu)} exceeded"
        case "processes" if limits.processes is not None:
            return f"limit of {limits.processes} processes exceeded"
        case _:
            return f"{kind} limit exceeded"
