"""Process tasks: Python functions in warm child processes, so that a crash, a leak or a blocked interpreter affects one
run only. An attempt ends when its child is clean and free again, or is gone with all its processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock, Timer
from mainspring.kernel.logs import get_logger
from mainspring.kernel.trust import CA_VARIABLE, INSECURE_VARIABLE
from mainspring.sdk.tasks.task import Task
from mainspring.wire.exchange import RunOrder
from mainspring.wire.execution import Cause, ResourceLimits
from mainspring.worker.about_order import about
from mainspring.worker.execution.attempt import (
    RETURNED,
    Attempt,
    AttemptEnding,
    Execute,
    NoteProgress,
    OpenLog,
    StopSupport,
    ending_after_stop,
    failed,
    grace_of,
)
from mainspring.worker.execution.attempt_usage import AttemptUsage
from mainspring.worker.execution.run_secrets import MissingSecret, variables_of
from mainspring.worker.execution.work_folders import WorkFolders
from mainspring.worker.executors.process.child import ChildOrigin, Unfit, WarmChild, in_words, start_child
from mainspring.worker.executors.process.pool import RUNS_EACH, ProcessPool
from mainspring.worker.executors.process.warm.frames import Begin, Ended, Hello
from mainspring.worker.processes.caps import NO_CAPS, Caps, log_capped
from mainspring.worker.processes.environment import base_environment
from mainspring.worker.processes.watchdog_client import WatchdogClient

PASS_ENV = "MAINSPRING_PASS_ENV"
# A run that finds this many children dead goes back to the server: something is wrong on this machine.
_MOST_CHILDREN = 5

log = get_logger("process")


class ProcessExecutor:
    """`app` is the application as `module:attribute`, which children load themselves. Its tasks submit jobs to `server`
    with `token`."""

    killable = True
    isolates = True
    has_processes = True

    def __init__(
        self,
        tasks: Mapping[str, Task[Any, Any]],
        slots: int,
        *,
        app: str | None,
        watchdog: WatchdogClient,
        kill_grace: float,
        server: str = "",
        token: str = "",
        note_progress: NoteProgress | None = None,
        open_log: OpenLog | None = None,
        folders: WorkFolders | None = None,
        environ: Mapping[str, str] | None = None,
        runs_each: int = RUNS_EACH,
        stop_seconds: float = 0.0,
        caps: Caps = NO_CAPS,
        clock: LoopClock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._caps = caps
        self._tasks = [name for name, task in tasks.items() if task.kind == "process"]
        if self._tasks and app is None:
            raise ValueError(
                f"the process task {self._tasks[0]} needs an application that a child can load: "
                "name it as module:attribute"
            )
        self._kill_grace = kill_grace
        origin = ChildOrigin(
            watchdog,
            app or "",
            children_environment(os.environ if environ is None else environ),
            Hello(server, token),
            folders or WorkFolders(),
            note_progress,
            open_log,
            clock,
            stop_seconds,
            caps,
        )
        warm = min(slots, os.cpu_count() or 1)
        start = partial(start_child, origin)
        self._pool = ProcessPool(start, most=slots, warm=warm, runs_each=runs_each, clock=clock)
        # For async and thread runs that were lost before: each has a child of its own. They are used to the environment
        # of the worker.
        like_us = msgspec.structs.replace(origin, environ=dict(os.environ if environ is None else environ))
        self._apart = ProcessPool(partial(start_child, like_us), most=slots, warm=0, runs_each=1, clock=clock)

    def offers(self) -> dict[str, Execute]:
        return dict.fromkeys(self._tasks, self.execute)

    def warm_up(self) -> None:
        """Start the first children, so that the first runs need not wait for them. The watchdog must have been
        started."""
        if self._tasks:
            self._pool.warm_up()

    def kill_all(self) -> None:
        self._pool.kill_busy()
        self._apart.kill_busy()

    async def dismiss(self) -> None:
        """After the last run: end the children, which run their stop hooks."""
        await asyncio.gather(self._pool.dismiss_all(), self._apart.dismiss_all())

    def close(self) -> None:
        """Close the executor at the end of the worker."""
        self._pool.close()
        self._apart.close()

    async def execute(self, attempt: Attempt) -> AttemptEnding:
        try:
            return await self._execute(attempt, self._pool)
        except Unfit as error:
            return failed(str(error))

    async def execute_apart(self, attempt: Attempt) -> AttemptEnding:
        """Run an async or thread task in a child of its own, with the environment and in the folder of the worker.
        Raises Unfit if no child can load the application."""
        return await self._execute(attempt, self._apart)

    async def _execute(self, attempt: Attempt, pool: ProcessPool) -> AttemptEnding:
        attempt.stops_by = StopSupport.REQUEST
        setup = attempt.order.setup
        log_capped(attempt.order, self._caps)
        if setup is not None and setup.sandbox is not None:
            return failed("sandbox: a process task runs in a warm interpreter and cannot run in a sandbox", retry=False)
        if setup is not None and setup.run_as is not None:
            return failed(
                "run_as: a process task runs as the user of its worker; only commands have another", retry=False
            )
        try:
            variables_of(attempt.order)
        except MissingSecret as error:
            return failed(str(error), retry=False)
        ending = None
        for _ in range(_MOST_CHILDREN):
            child = pool.take_idle()
            if child is None:
                waiting = pool.wait_for_one()
                attempt.on_stop = partial(_give_up, waiting)
                try:
                    child = await waiting
                except asyncio.CancelledError:
                    if attempt.stopping is None:
                        raise
                    return ending_after_stop(attempt)
            if attempt.stopping is not None or attempt.fenced:
                pool.give_back(child, fit=True)
                return ending_after_stop(attempt)
            if (ending := await self._run_in(child, attempt, pool)) is not None:
                break
        if attempt.log is not None:
            await attempt.log.finish()
        return RETURNED if ending is None else ending

    async def _run_in(self, child: WarmChild, attempt: Attempt, pool: ProcessPool) -> AttemptEnding | None:
        """None if the child died before it had read the run; then the run has not started."""
        order = attempt.order
        begin = _begin(order, "" if pool is self._apart else str(child.folder), self._caps)
        attempt.kill = child.command.kill
        attempt.usage = used = AttemptUsage(child.command.sample, child.cpu)
        child.command.on_sample = used.sampled
        stopping = _Stopping(child, begin.run_id, grace_of(order, self._kill_grace), self._clock)
        attempt.on_stop = stopping.ask
        if begin.limits is not None:
            child.command.limit(_for_the_tree(begin.limits), begin.folder, self._caps)
        ended, fit = None, False
        try:
            ended = await child.begin(begin, attempt)
            fit = ended is not None and ended.unfit is None
            if fit and begin.limits is not None:
                child.command.limit(None)
                await child.command.limited()
                fit = child.command.breach is None  # otherwise it is being killed, and must not get the next run
            if not fit:
                await self._end_child(child, order, ended)
        finally:
            stopping.over()
            child.count(used, ended)
            attempt.kill = attempt.on_stop = None  # from here on the child belongs to another run
            child.end_run()
            pool.give_back(child, fit=fit)
        if ended is None and child.unread and attempt.stopping is None:
            log.warning("a child process was dead when it was given a run", pid=child.command.pid, **about(order))
            return None
        return _ending(attempt, child, ended)

    async def _end_child(self, child: WarmChild, order: RunOrder, ended: Ended | None) -> None:
        if ended is not None:
            reason = ended.unfit or child.command.breach
            log.info("a child process is replaced", **about(order), task=order.task, reason=reason)
        await child.kill_and_wait()


def children_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of children: that of a shell command, the variables that MAINSPRING_PASS_ENV names, for
    applications that read their settings when they are loaded, and how the worker's server is reached."""
    named = [name.strip() for name in environ.get(PASS_ENV, "").split(",")]
    passed = (*named, CA_VARIABLE, INSECURE_VARIABLE)
    return base_environment(environ) | {name: environ[name] for name in passed if name in environ}


class _Stopping:
    """Ends a run: asks first, and kills when the grace is over."""

    def __init__(self, child: WarmChild, run_id: str, grace: float, clock: LoopClock) -> None:
        self._clock = clock
        self._child = child
        self._run_id = run_id
        self._grace = grace
        self._timer: Timer | None = None

    def ask(self) -> None:
        """Ask the run to stop. Only the first call counts. It must not be called after `over`."""
        if self._timer is None:
            self._child.halt(self._run_id)
            self._timer = self._clock.call_later(self._grace, self._child.command.kill)

    def over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _begin(order: RunOrder, folder: str, caps: Caps) -> Begin:
    setup = order.setup
    limits = None if setup is None else setup.limits
    return Begin(
        run_id=str(order.run_id),
        job_id=order.job_id,
        attempt=order.attempt,
        scheduled_for=order.scheduled_for,
        task=order.task,
        name=order.name,
        payload=bytes(memoryview(order.payload)),
        folder=folder,
        env=variables_of(order) or None,
        limits=caps.applied(limits) if limits is not None or caps.counts_in_runs else None,
        max_attempts=order.max_attempts,
        snoozes=order.snoozes,
        at_most_once=order.at_most_once,
        idempotency_key=order.idempotency_key,
        generation=order.generation,
        secrets=None if order.secrets is None else order.secrets.values,
        fence=order.fence,
    )


def _give_up(waiting: asyncio.Future[WarmChild]) -> None:
    waiting.cancel()


def _for_the_tree(limits: ResourceLimits) -> ResourceLimits:
    """The limits that the supervisor enforces for all processes of the run together. The limit of open files is per
    process, and the child sets it itself."""
    return msgspec.structs.replace(limits, files=None)


def _ending(attempt: Attempt, child: WarmChild, ended: Ended | None) -> AttemptEnding:
    if attempt.stopping is not None:
        return ending_after_stop(attempt)
    if ended is not None and ended.status == "FAILED" and child.command.breach is not None:
        # The kernel told the task that there is no more, for example no process.
        return failed(f"{child.command.breach}: {ended.error}", retry=ended.retry, cause=ended.cause)
    if ended is not None:
        result = None if ended.result is None else msgspec.Raw(ended.result)
        return AttemptEnding(
            ended.status, ended.error, ended.retry, result, ended.cause, ended.retry_after, ended.snooze
        )
    cause = Cause(exit_code=child.command.exit_code)
    if child.nonsense is not None:
        return failed(f"the task wrote to descriptor 3, which the worker uses: {child.nonsense}", cause=cause)
    if child.command.breach is not None:
        return failed(child.command.breach, cause=cause)
    return failed(f"the task's process ended with {in_words(child)}", cause=cause)
