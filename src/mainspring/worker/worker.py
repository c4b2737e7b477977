"""The worker: ties link, ledger and runner together, keeps the lease, and leaves in good order.

When the lease has passed, the runs in our hands are about to be given to others, so they end here: process groups by
SIGKILL, and coroutines and threads, which nobody can end from outside, with the whole process. While only the database
is away, lease_keeper.py ends the exclusive ones first and the others live on for a while. The watchdog does the same a
moment later for a worker that is stopped or stuck.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

import msgspec

from mainspring.kernel.config import DEFAULT_TIMING, Timing
from mainspring.kernel.ids import uuid7
from mainspring.kernel.logs import get_logger
from mainspring.wire.exchange import ExchangeReply, Progress, WorkerHello
from mainspring.worker.exchange.exchange_timing import ExchangeTiming
from mainspring.worker.exchange.held_runs import Flight, HeldRuns
from mainspring.worker.exchange.preferred_server import PreferredServer
from mainspring.worker.exchange.prefetch import WINDOW
from mainspring.worker.exchange.queue_weights import QueueWeights
from mainspring.worker.exchange.server_client import AnswerLost, IncarnationLost, Refused, ServerClient, StoreDown
from mainspring.worker.execution.attempt import Attempt, Ending, Executor, Stop
from mainspring.worker.execution.runner import Runner
from mainspring.worker.lease_enforcer import EXIT_FENCED, LeaseEnforcer
from mainspring.worker.output.progress import ProgressReports
from mainspring.worker.processes.watchdog_client import WatchdogClient

_TIDY_EVERY = 0.25
# A run that waits here for longer than this, beyond what the pace of completions justifies, goes back to the server.
_MOST_WAITING = 0.5
_LAST_BREATH = 1.0
_FAREWELL = 2.0
_WAIT_MARGIN_MS = 200

log = get_logger("worker")


class Worker:
    def __init__(
        self,
        server_client: ServerClient,
        watchdog: WatchdogClient,
        executors: Iterable[Executor],
        *,
        name: str,
        queues: Sequence[str],
        slots: int,
        weights: Mapping[str, int] | None = None,
        labels: Mapping[str, str] | None = None,
        limits: Mapping[str, int] | None = None,
        progress: ProgressReports | None = None,
        version: str = "",
        signatures: Mapping[str, msgspec.Raw] | None = None,
        timing: Timing = DEFAULT_TIMING,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`weights` divide the slots among the queues; `limits` say of which tasks only so many may run at a time."""
        self._server_client = server_client
        self._preferred_server = PreferredServer(server_client, timing, chance)
        self._watchdog = watchdog
        self._timing = timing
        self._limits = dict(limits or {})
        self._queue_weights = None if weights is None else QueueWeights(slots, weights)
        self._progress = progress or ProgressReports()
        self._runner = Runner(
            slots, executors, kill_grace=timing.kill_grace, report=self._report, tell=self._consider_soon,
            limits=self._limits,
        )  # fmt: skip
        self._hello = WorkerHello(
            name=name, queues=list(queues), tasks=self._runner.tasks, slots=slots, version=version,
            labels=dict(labels or {}), signatures=dict(signatures or {}),
        )  # fmt: skip
        self._wait_ms = int(max(timing.beat * 500, timing.beat * 1000 - _WAIT_MARGIN_MS))
        self._held_runs, self._exchange_timing = self._new_incarnation()
        self._lease = LeaseEnforcer(self._runner, watchdog, timing)
        self._talks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._considering = False
        self._draining: asyncio.Task[None] | None = None
        self._leaving = False
        self._hurry = asyncio.Event()
        self._left = asyncio.Event()

    @property
    def worker_id(self) -> UUID:
        """Of the present incarnation."""
        return self._held_runs.worker_id

    async def run(self) -> bool:
        """Serve until `stop` has been called and everything is finished or handed back. False when runs were left
        behind that only the end of the process ends."""
        self._watchdog.start()
        self._progress.open(self._consider_soon)
        log.info("worker starts", name=self._hello.name, queues=self._hello.queues, slots=self._hello.slots)
        tidying = asyncio.create_task(self._keep_tidy())
        preferred_server_check = asyncio.create_task(self._preferred_server.run())
        leaving = asyncio.create_task(self._left.wait())
        try:
            self._consider()
            await asyncio.wait({tidying, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not leaving.done():
                tidying.result()  # raises: better to end and be started again than to limp
        finally:
            self._left.set()
            for task in (tidying, preferred_server_check, leaving, *self._talks):
                task.cancel()
            await asyncio.gather(tidying, preferred_server_check, leaving, *self._talks, return_exceptions=True)
            self._server_client.close()
            self._watchdog.stop()
        return not self._runner.active

    def stop(self) -> None:
        """Drain: take no more, hand back what has not started, let the rest finish. A second call ends it at once."""
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        else:
            self._hurry.set()

    # -- exchanges

    def _consider(self) -> None:
        """Start an exchange if it is time for one, and see to it that we look again when it will be."""
        self._considering = False
        if self._left.is_set():
            return
        now = time.monotonic()
        if (reason := self._lease.heed(now)) is not None:
            self._fence_off(reason)
        at = self._next_start(now)
        if at <= now:
            self._start_exchange(now)
            at = self._next_start(now)
        self._look_again_at(min(at, self._lease.next_look), now)

    def _next_start(self, now: float) -> float:
        hungry, news = self._draining is None, self._progress.due()
        if self._forecasting:
            covered = self._runner.unstarted
            news = min(news, self._held_runs.forecast.ask_at(self._runner.active, now, covered))
        several = self._server_client.servers > 1
        return self._exchange_timing.next_start(
            self._held_runs, self._runner.holding, now, hungry=hungry, news=news, several=several
        )

    @property
    def _forecasting(self) -> bool:
        """Slots that are divided are not overbooked; and who has asked already gets what there is."""
        return self._draining is None and self._queue_weights is None and not self._held_runs.asked

    def _consider_soon(self) -> None:
        """Once for all that happens in this turn of the loop."""
        if not self._considering:
            self._considering = True
            asyncio.get_running_loop().call_soon(self._consider)

    def _look_again_at(self, at: float, now: float) -> None:
        if now < self._timer_at <= at:
            return  # it looks earlier than needed, which costs less than setting the timer anew each time
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        delay = min(at - now, self._timing.beat)
        self._timer = asyncio.get_running_loop().call_later(delay, self._time_to_look)

    def _time_to_look(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        self._consider()

    def _start_exchange(self, now: float) -> None:
        if self._preferred_server.wish is not None and not self._held_runs.flights:
            self._preferred_server.move()
            self._held_runs.rejected_outcomes.doubt()
        late = self._server_client.late
        if late:
            self._held_runs.rejected_outcomes.doubt()  # this one goes to another server
        flight = self._held_runs.compose(
            now,
            holding=self._runner.holding,
            soon=self._held_runs.forecast.soon(self._runner.active, now) if self._forecasting else 0,
            hands=self._runner.hands(),
            # While an answer is late, one is needed soon: a long poll elsewhere would outlast the lease.
            wait_ms=0 if late else self._wait_ms,
            draining=self._draining is not None,
            # Who says that he has stopped has nothing in his hands.
            stopping=self._leaving and not self._runner.holds_exclusive(),
        )
        flight.request.unstarted = self._runner.unstarted
        if self._server_client.hello_outdated:
            flight.request.hello = self._hello
        if not flight.trial and self._progress.due() <= now:
            flight.request.progress = self._progress.take(now)
        self._exchange_timing.started(now)
        talk = asyncio.create_task(self._talk(self._held_runs, flight))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, held_runs: HeldRuns, flight: Flight) -> None:
        try:
            reply = await self._server_client.exchange(flight.request)
        except (AnswerLost, Refused) as error:
            if held_runs is self._held_runs:
                self._exchange_failed(flight, error)
        except IncarnationLost as error:
            if held_runs is self._held_runs:
                self._lease.store_answers(flight.sent, time.monotonic())
                self._fence_off(str(error))
        except Exception as error:
            if held_runs is self._held_runs:
                log.error("the exchange failed", exc_info=error)
                self._exchange_failed(flight, AnswerLost(repr(error)))
        else:
            if held_runs is self._held_runs:
                self._landed(flight, reply)
        self._consider()

    def _exchange_failed(self, flight: Flight, error: AnswerLost | Refused) -> None:
        now = time.monotonic()
        if isinstance(error, Refused) and error.contents:
            if self._find_rejected(flight, error, now):
                return
        else:
            self._held_runs.lost(flight, now, answered=isinstance(error, Refused))
            self._put_progress_back(() if flight.trial else flight.request.progress)
        if isinstance(error, Refused):
            self._lease.store_answers(flight.sent, now)
            self._exchange_timing.refused(now, elsewhere=self._server_client.untried, holding=self._runner.holding)
            log.error("the server refuses this worker", error=str(error), hint="check the token and the address")
            if self._leaving and not self._server_client.untried:
                self._left.set()
        elif isinstance(error, StoreDown):
            self._exchange_timing.failed(now, elsewhere=self._server_client.untried)
            self._lease.hear_store_down(flight.sent, now)
        else:
            self._exchange_timing.failed(now, elsewhere=self._server_client.untried)
            failures = self._exchange_timing.failures
            if failures & (failures - 1) == 0:  # the 1st, 2nd, 4th, 8th...: an outage must not fill the log
                log.warning("no answer from the server", error=str(error), failures=failures)

    def _find_rejected(self, flight: Flight, error: Refused, now: float) -> bool:
        """Find out what in this exchange the server will not take, and do without it. False when it is nothing in
        particular: the server refuses us."""
        verdict = self._held_runs.refused(flight, error.problem, now)
        if verdict.accepted:
            self._put_progress_back(verdict.returned.words)
            return False
        self._lease.store_answers(flight.sent, now)
        rejected = verdict.rejected
        if rejected is None:
            log.warning("an exchange was refused; looking for what it is", error=str(error), parts=len(flight.carries))
        elif isinstance(rejected, Progress):
            log.warning("a word of progress was refused; it is dropped", run=str(rejected.run_id), error=str(error))
            if (attempt := self._held_runs.held.get((rejected.run_id.int, rejected.fence))) is not None:
                self._progress.refused(attempt, now)
        elif verdict.let_go:
            log.error(
                "not even a plain outcome is taken; the run is given to others when this worker ends",
                run=str(rejected.run_id), error=str(error),
            )  # fmt: skip
        else:
            log.error("an outcome was refused; reporting that", run=str(rejected.run_id), error=str(error))
        return True

    def _landed(self, flight: Flight, reply: ExchangeReply) -> None:
        now = time.monotonic()
        if now >= flight.sent + self._timing.kill:
            # We were stopped for so long that what this answer brings may be somebody else's by now.
            self._held_runs.lost(flight, now)
            self._put_progress_back(() if flight.trial else flight.request.progress)
            return
        if self._lease.store_away:
            self._lease.store_answers(flight.sent, now)
        elif not self._held_runs.known or self._exchange_timing.failures:
            failures, server = self._exchange_timing.failures, self._server_client.server
            log.info("connected", worker=str(self._held_runs.worker_id), server=server, failures=failures)
        landing = self._held_runs.landed(flight, reply, now)
        self._lease.acknowledge(flight.sent)
        useful = bool(landing.taken or landing.stop or reply.superseded or reply.recall)
        self._exchange_timing.landed(flight, now, useful=useful)
        for run_id in landing.fenced:
            log.warning("a report was refused: the run has changed hands", run=str(run_id))
        self._take(landing.taken)
        for attempt in landing.stop:
            self._runner.stop(attempt, Stop.CANCEL)
        if reply.recall:
            self._give_back(reply.recall, now)
        if reply.drain and self._draining is None:
            log.info("told to drain")
            self.stop()
        if flight.request.stopped and not reply.superseded:
            self._left.set()

    def _take(self, attempts: list[Attempt]) -> None:
        if not attempts:
            return
        if self._draining is None:
            self._runner.take(attempts)
        else:  # claimed for an exchange from before the drain
            self._runner.queue.extend(attempts)
            self._runner.return_unstarted()
        self._lease.guard()

    def _give_back(self, wanted: int, now: float) -> None:
        """Others are idle: hand back what they could start before us, and ask for no more than we can start."""
        self._held_runs.observe_rate(now)
        keep = 0 if self._runner.stuck_for(now) > WINDOW else self._held_runs.prefetch.prefetch
        returned = self._runner.return_unstarted(keep=max(keep, self._runner.unstarted - wanted))
        if returned:
            self._held_runs.prefetch.rest()
            log.info("gave runs back to idle workers", runs=returned)

    def _put_progress_back(self, words: Iterable[Progress]) -> None:
        held = self._held_runs.held
        keys = [(word.run_id.int, word.fence) for word in words]
        self._progress.put_back(held[key] for key in keys if key in held)

    def _report(self, attempt: Attempt, ending: Ending) -> None:
        if attempt.progress is not None:
            self._progress.forget(attempt)
        if attempt.fenced:
            return
        self._held_runs.record(attempt, ending, time.monotonic())
        if ending.status == "FAILED":
            order = attempt.order
            error = (ending.error or "").partition("\n")[0]
            log.info(
                "attempt failed", job=order.job_id, run=str(order.run_id), attempt=order.attempt, task=order.task,
                error=error,
            )  # fmt: skip

    # -- the lease

    def _new_incarnation(self) -> tuple[HeldRuns, ExchangeTiming]:
        now = time.monotonic()
        held_runs = HeldRuns(uuid7(), self._hello, now, shares=self._queue_weights, limits=self._limits)
        return held_runs, ExchangeTiming(self._timing.beat, now)

    def _fence_off(self, reason: str) -> None:
        """This incarnation is over: kill what it runs, forget what it held, and begin anew."""
        log.error("lease lost: killing all runs", reason=reason, runs=self._runner.holding)
        if not self._runner.fence_off():
            os._exit(EXIT_FENCED)
        for talk in self._talks:
            if talk is not asyncio.current_task():
                talk.cancel()
        self._held_runs, self._exchange_timing = self._new_incarnation()
        self._lease.reset()
        if self._draining is not None:
            self._left.set()

    async def _keep_tidy(self) -> None:
        """What need not be exact: hand back runs that wait here in vain, and keep the watchdog's deadline right."""
        while True:
            await asyncio.sleep(_TIDY_EVERY)
            now = time.monotonic()
            if self._runner.longest_wait(now) > _MOST_WAITING:
                self._held_runs.observe_rate(now)
                returned = self._runner.return_unstarted(keep=self._held_runs.prefetch.prefetch)
                if returned:
                    log.info("handed back runs that waited for a slot", runs=returned)
            self._lease.guard()

    # -- leaving

    async def _drain(self) -> None:
        try:
            returned = self._runner.return_unstarted()
            log.info("draining", returned=returned, running=self._runner.holding)
            self._exchange_timing.hurry(time.monotonic())
            self._consider()
            await self._end_runs()
            await self._say_farewell()
            log.info("worker stopped")
        finally:
            self._left.set()

    async def _end_runs(self) -> None:
        if await self._quiet_within(self._timing.drain_grace):
            return
        log.warning("stopping what still runs", runs=self._runner.holding)
        self._runner.stop_all(Stop.DRAIN)
        if not await self._quiet_within(self._timing.kill_grace + 0.5):
            self._runner.kill_all()
            self._hurry.clear()
            await self._quiet_within(_LAST_BREATH)
        self._runner.abandon_all("worker stopped")

    async def _say_farewell(self) -> None:
        """Report what is left, and that we are gone."""
        if not self._held_runs.known and not self._held_runs.pending:
            return
        self._leaving = True
        self._exchange_timing.hurry(time.monotonic())
        self._consider()
        with suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await self._left.wait()
        if left := self._held_runs.unreported:
            log.warning("outcomes could not be reported; the runs will be rescued", outcomes=left)

    async def _quiet_within(self, seconds: float) -> bool:
        """True when all runs have ended within `seconds`; False after them, or when we are told to hurry."""
        quiet = asyncio.create_task(self._runner.wait_quiet())
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({quiet, hurry}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in (quiet, hurry):
            task.cancel()
        return quiet.done() and not quiet.cancelled()
