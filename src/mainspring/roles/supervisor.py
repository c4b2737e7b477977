"""Supervises the processes of one machine: starts them, restarts those that end, and stops them in order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field

from mainspring.domain.errors import MainspringError
from mainspring.kernel.clock import Clock, SystemClock
from mainspring.kernel.held_start import held_start
from mainspring.kernel.logs import get_logger
from mainspring.kernel.parent_death import die_with_parent
from mainspring.store.embedded import POLL_SECONDS, EmbeddedPostgres

log = get_logger("supervisor")

_STDERR = 2  # children write to it directly; stdout is only for messages of this process


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run. `grace` is the time between SIGTERM and SIGKILL. A program that `may_exit` is not restarted
    when it exits with 0, because it was asked to stop. `before_start` is called before each start. The program inherits
    the `descriptors`."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    grace: float = 30.0
    may_exit: bool = False
    descriptors: tuple[int, ...] = ()
    before_start: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class RestartBackoff:
    """The delay before a restart. It doubles with each failure until the process has run for `settled_after`."""

    first: float = 0.2
    longest: float = 5.0
    settled_after: float = 10.0

    def after(self, failures: int) -> float:
        """The delay after the nth consecutive failure."""
        return min(self.longest, self.first * 2.0 ** (min(failures, 20) - 1))


@dataclass(slots=True)
class _Child:
    program: Program
    held: bool = False
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    process: asyncio.subprocess.Process | None = None
    task: asyncio.Task[None] | None = None
    exit_code: int | None = None

    def close_input(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, not to its group: a worker's watchdog must survive to end the runs."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    """Runs children in their own sessions. Ctrl-C in a terminal reaches only this process, which stops them in order.

    The children write to the stderr of this process. The kernel ends them if this process is killed with -9.
    """

    def __init__(
        self, *, backoff: RestartBackoff | None = None, clock: Clock | None = None, watch_every: float = 0.25
    ) -> None:
        self._backoff = backoff or RestartBackoff()
        self._clock = clock or SystemClock()
        self._watch_every = watch_every
        self._children: list[_Child] = []
        self._postgres: EmbeddedPostgres | None = None
        self._postgres_task: asyncio.Task[None] | None = None
        self._killed = False

    def start(self, program: Program, *, held: bool = False) -> None:
        """Run a program and restart it when it ends. Programs are stopped in the reverse order of their start. A held
        one loads its modules, and goes on when it is released (kernel/held_start.py)."""
        child = _Child(program, held)
        child.task = asyncio.create_task(self._supervise(child), name=f"supervise {program.name}")
        self._children.append(child)

    def release(self, name: str) -> None:
        """Let a program go on that was started held."""
        for child in self._children:
            if child.program.name == name:
                child.held = False
                child.close_input()

    def pid(self, name: str) -> int | None:
        """The process id of a program, or None if it is not running."""
        for child in self._children:
            if child.program.name == name and child.process is not None and child.process.returncode is None:
                return child.process.pid
        return None

    def exit_code(self, name: str) -> int | None:
        """How the process of a program has ended the last time. None if it has not ended yet."""
        return next((child.exit_code for child in self._children if child.program.name == name), None)

    async def end(self, name: str) -> None:
        """Stop one program."""
        for child in [child for child in self._children if child.program.name == name]:
            child.stopping.set()
            await self._end(child)
            self._children.remove(child)

    def watch(self, postgres: EmbeddedPostgres) -> None:
        """Restart this PostgreSQL whenever it ends. It is stopped after all children."""
        self._postgres = postgres
        self._postgres_task = asyncio.create_task(self._supervise_postgres(postgres), name="supervise PostgreSQL")

    async def stop(self, *, together: bool = False) -> None:
        """Stop the children in the reverse order of their start or all at a time, each within its grace, then
        PostgreSQL."""
        for child in self._children:
            child.stopping.set()  # prevents restarts
        if together:
            await asyncio.gather(*(self._end(child) for child in self._children))
        else:
            for child in reversed(self._children):
                await self._end(child)
        self._children.clear()
        await self._end_postgres()

    def kill(self) -> None:
        """Kill everything at once. Acknowledged writes are safe: PostgreSQL recovers as after a crash."""
        self._killed = True
        for child in self._children:
            child.stopping.set()
            child.signal(signal.SIGKILL)
        if self._postgres_task is not None:
            self._postgres_task.cancel()
        if self._postgres is not None and self._postgres.alive() and self._postgres.pid is not None:
            os.kill(self._postgres.pid, signal.SIGQUIT)

    # -- children

    async def _supervise(self, child: _Child) -> None:
        failures = 0
        while not child.stopping.is_set():
            began = self._clock.monotonic()
            code = child.exit_code = await self._run(child)
            if child.stopping.is_set():
                return
            if code == 0 and child.program.may_exit:
                log.info("process exited as requested, not restarting it", process=child.program.name)
                return
            lived = self._clock.monotonic() - began
            failures = 1 if lived >= self._backoff.settled_after else failures + 1
            pause = self._backoff.after(failures)
            log.warning("process ended, restarting it", process=child.program.name, exit_code=code, pause=pause)
            with suppress(TimeoutError):
                await asyncio.wait_for(child.stopping.wait(), pause)

    async def _run(self, child: _Child) -> int | None:
        """Run the child once. Returns its exit code, or None if it could not be started."""
        program = child.program
        if program.before_start is not None:
            program.before_start()
        try:
            child.process = await asyncio.create_subprocess_exec(
                *program.argv,
                env={**program.env, **held_start(child.held)},
                stdin=asyncio.subprocess.PIPE if child.held else asyncio.subprocess.DEVNULL,
                stdout=_STDERR,
                start_new_session=True,
                pass_fds=program.descriptors,
                preexec_fn=die_with_parent(signal.SIGTERM),
            )
        except OSError as error:
            log.error("process could not be started", process=program.name, error=str(error))
            return None
        if not child.held:  # perhaps released during the start
            child.close_input()
        if child.stopping.is_set():  # the stop was requested during the start
            child.signal(signal.SIGKILL if self._killed else signal.SIGTERM)
        return await child.process.wait()

    async def _end(self, child: _Child) -> None:
        assert child.task is not None
        child.signal(signal.SIGKILL if self._killed else signal.SIGTERM)
        ended, _ = await asyncio.wait({child.task}, timeout=child.program.grace)
        if not ended:
            log.warning("process did not end in time, killing it", process=child.program.name)
            child.signal(signal.SIGKILL)
        await child.task

    # -- PostgreSQL

    async def _supervise_postgres(self, postgres: EmbeddedPostgres) -> None:
        failures = 0
        began = self._clock.monotonic()
        while True:
            await asyncio.sleep(self._watch_every)
            if postgres.alive():
                continue
            lived = self._clock.monotonic() - began
            failures = 1 if lived >= self._backoff.settled_after else failures + 1
            log.error("PostgreSQL ended, restarting it", failures=failures)
            await asyncio.sleep(self._backoff.after(failures) if failures > 1 else 0)
            began = self._clock.monotonic()
            try:
                await start_postgres(postgres)
                log.info("PostgreSQL is back", seconds=round(self._clock.monotonic() - began, 2))
            except (MainspringError, OSError) as error:
                log.error("PostgreSQL could not be started", error=str(error))

    async def _end_postgres(self) -> None:
        if self._postgres_task is not None:
            self._postgres_task.cancel()
            await asyncio.wait({self._postgres_task})
        if self._postgres is not None:
            await asyncio.to_thread(self._postgres.stop, "immediate" if self._killed else "fast")
            self._postgres = None


async def start_postgres(postgres: EmbeddedPostgres) -> None:
    """`postgres.start()` without blocking the event loop. It runs in this thread, as `die_with_parent` requires."""
    with closing(postgres.starting()) as steps:
        for _ in steps:
            await asyncio.sleep(POLL_SECONDS)
