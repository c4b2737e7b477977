"""Keeps the processes of one machine alive: starts them, starts again what dies, and ends them in order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field

from mainspring.domain.errors import MainspringError
from mainspring.kernel.clock import Clock, SystemClock
from mainspring.kernel.logs import get_logger
from mainspring.kernel.parent_death import die_with_parent
from mainspring.store.embedded import POLL_SECONDS, EmbeddedPostgres

log = get_logger("supervisor")

_STDERR = 2  # children write there, unchanged; our stdout is for what we say to people


@dataclass(frozen=True, slots=True)
class Program:
    """What to run, and how long it gets to end by itself after SIGTERM. One that `may_leave` is not started again when
    it ends with 0: somebody has told it to go."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    grace: float = 30.0
    may_leave: bool = False


@dataclass(frozen=True, slots=True)
class Pauses:
    """How long to wait before starting again what died: doubling, until it has lived for a while."""

    first: float = 0.2
    longest: float = 5.0
    settled_after: float = 10.0

    def after(self, deaths: int) -> float:
        """The pause after the nth death in a row."""
        return min(self.longest, self.first * 2.0 ** (min(deaths, 20) - 1))


@dataclass(slots=True)
class _Child:
    program: Program
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    process: asyncio.subprocess.Process | None = None
    keeper: asyncio.Task[None] | None = None

    def signal(self, number: signal.Signals) -> None:
        """To the process alone, not its group: a worker's watchdog must outlive it to end its runs."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    """Children in their own sessions, so that a terminal's Ctrl-C reaches only us and we end them in our order.

    They write to our stderr, and the kernel ends them when we are killed with -9.
    """

    def __init__(self, *, pauses: Pauses | None = None, clock: Clock | None = None, watch_every: float = 0.25) -> None:
        self._pauses = pauses or Pauses()
        self._clock = clock or SystemClock()
        self._watch_every = watch_every
        self._children: list[_Child] = []
        self._postgres: EmbeddedPostgres | None = None
        self._postgres_keeper: asyncio.Task[None] | None = None
        self._killed = False

    def start(self, program: Program) -> None:
        """Run a program from now on. Those started last are stopped first."""
        child = _Child(program)
        child.keeper = asyncio.create_task(self._keep(child), name=f"keep {program.name}")
        self._children.append(child)

    def pid(self, name: str) -> int | None:
        """The process id of a program that runs right now."""
        for child in self._children:
            if child.program.name == name and child.process is not None and child.process.returncode is None:
                return child.process.pid
        return None

    def watch(self, postgres: EmbeddedPostgres) -> None:
        """Start this PostgreSQL again whenever it dies, and stop it last, after all children."""
        self._postgres = postgres
        self._postgres_keeper = asyncio.create_task(self._keep_postgres(postgres), name="keep PostgreSQL")

    async def stop(self) -> None:
        """End the children, last started first, each within its grace; then PostgreSQL."""
        for child in self._children:
            child.stopping.set()  # from here on nothing is started again
        for child in reversed(self._children):
            await self._end(child)
        self._children.clear()
        await self._end_postgres()

    def kill(self) -> None:
        """End everything at once. What was acknowledged is safe: PostgreSQL recovers as after a crash."""
        self._killed = True
        for child in self._children:
            child.stopping.set()
            child.signal(signal.SIGKILL)
        if self._postgres_keeper is not None:
            self._postgres_keeper.cancel()
        if self._postgres is not None and self._postgres.alive() and self._postgres.pid is not None:
            os.kill(self._postgres.pid, signal.SIGQUIT)

    # -- children

    async def _keep(self, child: _Child) -> None:
        deaths = 0
        while not child.stopping.is_set():
            began = self._clock.monotonic()
            code = await self._run(child)
            if child.stopping.is_set():
                return
            if code == 0 and child.program.may_leave:
                log.info("process left as it was asked to; it is not started again", process=child.program.name)
                return
            lived = self._clock.monotonic() - began
            deaths = 1 if lived >= self._pauses.settled_after else deaths + 1
            pause = self._pauses.after(deaths)
            log.warning("process ended, starting it again", process=child.program.name, exit_code=code, pause=pause)
            with suppress(TimeoutError):
                await asyncio.wait_for(child.stopping.wait(), pause)

    async def _run(self, child: _Child) -> int | None:
        """One life of the child; its exit code, or None when it could not be started at all."""
        program = child.program
        try:
            child.process = await asyncio.create_subprocess_exec(
                *program.argv,
                env=dict(program.env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=_STDERR,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGTERM),
            )
        except OSError as error:
            log.error("process could not be started", process=program.name, error=str(error))
            return None
        if child.stopping.is_set():  # asked to stop while it was being started
            child.signal(signal.SIGKILL if self._killed else signal.SIGTERM)
        return await child.process.wait()

    async def _end(self, child: _Child) -> None:
        assert child.keeper is not None
        child.signal(signal.SIGKILL if self._killed else signal.SIGTERM)
        ended, _ = await asyncio.wait({child.keeper}, timeout=child.program.grace)
        if not ended:
            log.warning("process did not end in time, killing it", process=child.program.name)
            child.signal(signal.SIGKILL)
        await child.keeper

    # -- PostgreSQL

    async def _keep_postgres(self, postgres: EmbeddedPostgres) -> None:
        deaths = 0
        began = self._clock.monotonic()
        while True:
            await asyncio.sleep(self._watch_every)
            if postgres.alive():
                continue
            lived = self._clock.monotonic() - began
            deaths = 1 if lived >= self._pauses.settled_after else deaths + 1
            log.error("PostgreSQL ended, starting it again", deaths=deaths)
            await asyncio.sleep(self._pauses.after(deaths) if deaths > 1 else 0)
            began = self._clock.monotonic()
            try:
                await start_postgres(postgres)
                log.info("PostgreSQL is back", seconds=round(self._clock.monotonic() - began, 2))
            except (MainspringError, OSError) as error:
                log.error("PostgreSQL could not be started", error=str(error))

    async def _end_postgres(self) -> None:
        if self._postgres_keeper is not None:
            self._postgres_keeper.cancel()
            await asyncio.wait({self._postgres_keeper})
        if self._postgres is not None:
            await asyncio.to_thread(self._postgres.stop, "immediate" if self._killed else "fast")
            self._postgres = None


async def start_postgres(postgres: EmbeddedPostgres) -> None:
    """`postgres.start()` without holding up the event loop. It stays in this thread, for `die_with_parent`'s sake."""
    with closing(postgres.starting()) as steps:
        for _ in steps:
            await asyncio.sleep(POLL_SECONDS)
