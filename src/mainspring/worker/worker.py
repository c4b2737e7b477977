"""The main loop of the worker: starts exchanges, acts on the answers, keeps the lease, and drains.

When the lease has ended, the server is about to give the runs to others, so they end here: processes by SIGKILL, and
coroutines and threads, which cannot be ended from outside, together with the worker's process. Ordinary and exclusive
runs have leases of different lengths (lease_enforcer.py). The watchdog does the same a moment later for a worker that
is stopped or stuck.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

import msgspec

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.config import DEFAULT_TIMING, Timing, rescue_for
from mainspring.kernel.ids import uuid7
from mainspring.kernel.logs import get_logger
from mainspring.wire.exchange import ExchangeReply, WorkerHello
from mainspring.wire.execution import Cause
from mainspring.wire.protocol import PROTOCOL, TAKES_USAGE, TELLS_STARTS
from mainspring.worker.about_order import about
from mainspring.worker.drain import Drain
from mainspring.worker.earliest_timer import EarliestTimer
from mainspring.worker.exchange.exchange_timing import ExchangeTiming, pause_after
from mainspring.worker.exchange.failed_exchanges import FailedExchanges
from mainspring.worker.exchange.flight import Flight
from mainspring.worker.exchange.held_runs import HeldRuns
from mainspring.worker.exchange.preferred_server import PreferredServer
from mainspring.worker.exchange.progress import ProgressReports
from mainspring.worker.exchange.queue_weights import QueueWeights
from mainspring.worker.exchange.returned_runs import return_overdue, return_paused, return_recalled
from mainspring.worker.exchange.server_client import AnswerLost, ExchangeRefused, IncarnationLost, ServerClient
from mainspring.worker.exchange.starts import StartReports
from mainspring.worker.execution.attempt import Attempt, AttemptEnding, Executor, Stop
from mainspring.worker.execution.runner import Runner
from mainspring.worker.incarnation import Incarnation, new_secret
from mainspring.worker.lease_enforcer import EXIT_FENCED, LeaseEnforcer
from mainspring.worker.output.run_lines import RunLines
from mainspring.worker.processes.death_record import DeathRecord
from mainspring.worker.processes.watchdog_client import WatchdogClient

_HOUSEKEEPING_EVERY = 0.25
_FAREWELL = 2.0
_WAIT_MARGIN_MS = 200
_ANY_NUMBER = 10_000

log = get_logger("worker")
_NO_CAUSE = Cause()


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
        task_limits: Mapping[str, int] | None = None,
        progress: ProgressReports | None = None,
        run_lines: RunLines | None = None,
        version: str = "",
        signatures: Mapping[str, msgspec.Raw] | None = None,
        death_record: DeathRecord | None = None,
        timing: Timing = DEFAULT_TIMING,
        lease: float | None = None,
        takes_all_tenants: bool = True,
        after_last_run: Callable[[], Awaitable[None]] | None = None,
        chance: Callable[[], float] = random.random,
        clock: LoopClock = SYSTEM_CLOCK,
    ) -> None:
        """`weights` divide the slots among the queues. `task_limits` say how many runs of a task may be active at a
        time. `death_record`: for the parent watchdog, if this process has one. `lease`: ask the server for another
        lease than that of the timing. `run_lines`: for a person who watches. `takes_all_tenants`: a token that belongs
        to no tenant is welcome. `after_last_run` is awaited when a drain has ended the last run, while the lease is
        still kept."""
        self._clock = clock
        self._now = clock.monotonic
        self._server_client = server_client
        self._preferred_server = PreferredServer(server_client, timing, chance, clock)
        self._watchdog = watchdog
        self._death_record = death_record
        self._timing = timing
        self._task_limits = dict(task_limits or {})
        self._queue_weights = None if weights is None else QueueWeights(slots, weights)
        self._progress = progress or ProgressReports()
        self._run_lines = run_lines
        self._starts = StartReports()
        self._runner = Runner(
            slots, executors, kill_grace=timing.kill_grace, report=self._report, notify=self._consider_soon,
            record_start=None if death_record is None else self._record_start, task_limits=self._task_limits,
            clock=clock, say_start=None if run_lines is None else run_lines.started,
        )  # fmt: skip
        self._hello = WorkerHello(
            name=name, queues=list(queues), tasks=self._runner.tasks, slots=slots, version=version,
            labels=dict(labels or {}), signatures=dict(signatures or {}), lease=lease or timing.rescue,
            protocol=PROTOCOL.number,
        )  # fmt: skip
        self._wait_ms = int(max(timing.beat * 500, timing.beat * 1000 - _WAIT_MARGIN_MS))
        self._held_runs, self._exchange_timing = self._new_incarnation()
        self._lease = LeaseEnforcer(self._runner, watchdog, timing, clock)
        self._failed_exchanges = FailedExchanges(
            server_client, self._lease, self._progress, self._starts, holding=lambda: self._runner.holding
        )
        self._exchanges: set[asyncio.Task[None]] = set()
        self._timer = EarliestTimer(clock, self._consider, longest=timing.beat)
        self._considering = False
        self._draining: asyncio.Task[None] | None = None
        self._leaving = False
        self._drain = Drain(self._runner, timing, clock)
        self._after_last_run = after_last_run
        self._left = asyncio.Event()
        self._takes_all_tenants = takes_all_tenants
        self.refused_token = False  # it takes runs of all tenants, and this worker must not

    @property
    def worker_id(self) -> UUID:
        """The id of the present incarnation."""
        return self._held_runs.worker_id

    @property
    def draining(self) -> bool:
        return self._draining is not None

    @property
    def incarnation(self) -> Incarnation:
        return Incarnation(self._held_runs.worker_id, self._secret)

    async def run(self) -> bool:
        """Serve until `stop` is called and every run has ended or gone back to the server. False if runs are left that
        only the end of the process ends."""
        self._watchdog.start()
        self._progress.open(self._consider_soon)
        log.info("worker starts", name=self._hello.name, queues=self._hello.queues, slots=self._hello.slots)
        housekeeping = asyncio.create_task(self._keep_house())
        preferred_server_check = asyncio.create_task(self._preferred_server.run())
        leaving = asyncio.create_task(self._left.wait())
        try:
            self._consider()
            await asyncio.wait({housekeeping, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not leaving.done():
                housekeeping.result()  # raises: a worker that ends and is started again is better than a broken one
        finally:
            self._left.set()
            self._runner.drop_unstarted()  # there are none, unless the worker breaks
            for task in (housekeeping, preferred_server_check, leaving, *self._exchanges):
                task.cancel()
            await asyncio.gather(
                housekeeping, preferred_server_check, leaving, *self._exchanges, return_exceptions=True
            )
            self._server_client.close()
            self._watchdog.stop()
        return not self._runner.active

    def stop(self) -> None:
        """Drain: take no more runs, return the unstarted ones, let the others finish. A second call ends them at
        once."""
        if self._death_record is not None:
            self._death_record.record_asked()
        if self._draining is None:
            self._draining = asyncio.create_task(self._leave())
        else:
            self._drain.hurry()

    # -- exchanges

    def _consider(self) -> None:
        """Start an exchange if it is time for one, and set the timer for the next."""
        self._considering = False
        if self._left.is_set():
            return
        now = self._now()
        if (reason := self._lease.enforce(now)) is not None:
            self._fence_off(reason)
        if self._runner.quarantine.waiting is not None:
            self._clear_the_way(now)
        at = self._next_start(now)
        if at <= now:
            self._start_exchange(now)
            at = self._next_start(now)
        self._timer.set(min(at, self._lease.next_check), now)

    def _next_start(self, now: float) -> float:
        wants_runs = self._draining is None and not self._runner.quarantine.wanted
        news = now if self._tells_starts else self._progress.due()
        if self._forecasting:
            covered = self._runner.unstarted
            news = min(news, self._held_runs.forecast.ask_at(self._runner.active, now, covered))
        several = self._server_client.servers > 1
        return self._exchange_timing.next_start(
            self._held_runs, self._runner.holding, now, wants_runs=wants_runs, news=news, several=several
        )

    @property
    def _forecasting(self) -> bool:
        """Slots that are divided by weight are not overbooked, and an exchange in flight that asks for runs is
        enough."""
        quiet = self._draining is None and not self._runner.quarantine.wanted
        return quiet and self._queue_weights is None and not self._held_runs.asked

    @property
    def _tells_starts(self) -> bool:
        """There are starts to tell, and the server takes them."""
        return bool(self._starts) and self._server_client.protocol >= TELLS_STARTS

    def _clear_the_way(self, now: float) -> None:
        """A run waits to run alone. Start it if nothing else is left, or if it has waited for too long; end a long poll
        that could bring more."""
        lone = self._runner.quarantine.waiting
        if lone is not None and (self._held_runs.holds_only(lone) or self._runner.quarantine.overdue):
            self._runner.start_lone()
        elif len(self._held_runs.flights) == 1 and self._held_runs.asked:
            self._exchange_timing.hurry(now)

    def _consider_soon(self) -> None:
        """Call `_consider` once for everything that happens in this turn of the loop."""
        if not self._considering:
            self._considering = True
            asyncio.get_running_loop().call_soon(self._consider)

    def _start_exchange(self, now: float) -> None:
        if self._preferred_server.target is not None and not self._held_runs.flights:
            self._preferred_server.move()
            self._held_runs.rejected_outcomes.doubt()
        late = self._server_client.late
        if late:
            self._held_runs.rejected_outcomes.doubt()  # this exchange goes to another server
        flight = self._held_runs.compose(
            now,
            holding=self._runner.holding,
            soon=self._held_runs.forecast.soon(self._runner.active, now) if self._forecasting else 0,
            attempts=self._runner.held(),
            # While one answer is late, another is needed soon: a long poll at the next server would outlast the lease.
            wait_ms=0 if late else self._wait_ms,
            draining=self._draining is not None,
            # A worker that reports itself stopped holds no exclusive run.
            stopping=self._leaving and not self._runner.holds_exclusive(),
            most=self._most_wanted,
        )
        flight.request.unstarted = self._runner.unstarted
        if self._death_record is not None and not self._held_runs.known:
            flight.ask_for_nothing()  # a worker that ends before the first answer loses no run
        if self._server_client.hello_outdated:
            flight.request.hello = self._hello
            flight.request.wait_ms = 0  # the answer grants a lease
        if not flight.trial and self._progress.waiting:
            flight.request.progress = self._progress.take(now)
        if not flight.trial and self._tells_starts:
            flight.request.started = self._starts.take(now)
        self._exchange_timing.started(now)
        exchange = asyncio.create_task(self._exchange(self._held_runs, self._secret, flight))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)

    @property
    def _most_wanted(self) -> int:
        """How many runs to ask for at most."""
        quarantine = self._runner.quarantine
        if quarantine.wanted:
            return 0
        return 1 if quarantine.careful else _ANY_NUMBER

    async def _exchange(self, held_runs: HeldRuns, secret: str, flight: Flight) -> None:
        try:
            reply = await self._server_client.exchange(flight.request, secret)
        except (AnswerLost, ExchangeRefused) as error:
            if held_runs is self._held_runs:
                self._exchange_failed(flight, error)
        except IncarnationLost as error:
            if held_runs is self._held_runs:
                self._lease.store_answers(flight.sent, self._now())
                self._fence_off(str(error))
        except Exception as error:
            if held_runs is self._held_runs:
                log.error("the exchange failed", exc_info=error)
                self._exchange_failed(flight, AnswerLost(repr(error)))
        else:
            if held_runs is self._held_runs:
                self._landed(flight, reply)
        self._consider()

    def _exchange_failed(self, flight: Flight, error: AnswerLost | ExchangeRefused) -> None:
        refused = self._failed_exchanges.failed(flight, error, self._held_runs, self._exchange_timing, self._now())
        if refused and self._leaving:
            self._left.set()

    def _landed(self, flight: Flight, reply: ExchangeReply) -> None:
        now = self._now()
        if now >= flight.sent + self._lease.kill:
            # The process was suspended for so long that the runs of this answer may belong to others by now.
            self._failed_exchanges.lost(flight, self._held_runs, now)
            return
        if self._lease.store_away:
            self._lease.store_answers(flight.sent, now)
        elif not self._held_runs.known or self._exchange_timing.failures:
            failures, server = self._exchange_timing.failures, self._server_client.server
            log.detail("connected", worker=str(self._held_runs.worker_id), server=server, failures=failures)
        fenced = [self._held_runs.about(run_id) for run_id in reply.fenced]
        landing = self._held_runs.landed(flight, reply, now)
        if reply.lease is not None:
            self._lease.grant(reply.lease)
            if self._death_record is not None:
                self._death_record.record_longest_silence(rescue_for(reply.lease.exclusive_kill))
        self._lease.acknowledge(flight.sent)
        if reply.all_tenants and not self._takes_all_tenants and not self.refused_token:
            self._refuse_token()
        useful = bool(landing.taken or landing.stop or reply.superseded or reply.recall or reply.give_back)
        pause = pause_after(flight, reply, newest=self._held_runs.is_newest(flight))
        self._exchange_timing.landed(flight, now, useful=useful, pause=pause)
        for run in fenced:
            log.warning("a report was fenced: the run belongs to another worker", **run)
        if flight.request.free and self._runner.quarantine.careful and not any(a.order.losses for a in landing.taken):
            self._runner.quarantine.over()
        self._take([attempt for attempt in landing.taken if attempt.order.run_id not in reply.give_back])
        if reply.give_back:
            return_paused(self._runner, landing.taken, frozenset(reply.give_back))
        for attempt in landing.stop:
            self._runner.stop(attempt, Stop.CANCEL)
        if reply.recall:
            return_recalled(self._runner, self._held_runs, reply.recall, now)
        if reply.drain and self._draining is None:
            log.info("told to drain")
            self.stop()
        if flight.request.stopped and not reply.superseded:
            if self._death_record is not None:
                self._death_record.record_stopped()
            self._left.set()

    def _refuse_token(self) -> None:
        """End before anything has started: a command could read the token, and with it the runs of all tenants."""
        log.error(
            "the token of this worker takes runs of all tenants, so every command must run in the sandbox",
            hint="start the worker with --sandbox bubblewrap, or use a token of one tenant",
        )
        self.refused_token = True
        self.stop()

    def _take(self, attempts: list[Attempt]) -> None:
        if not attempts:
            return
        if self._draining is None:
            self._runner.take(attempts)
        else:  # claimed by an exchange from before the drain
            self._runner.queue.extend(attempts)
            self._runner.return_unstarted()
        self._lease.guard()

    def _report(self, attempt: Attempt, ending: AttemptEnding) -> None:
        if attempt.progress_sent or attempt.progress is not None or attempt.usage is not None:
            self._progress.forget(attempt)
        if attempt.start_told:
            self._starts.forget(attempt)
        if attempt.fenced:
            return
        if attempt.redactor is not None:
            ending = attempt.redactor.ending(ending)
        self._held_runs.record(attempt, ending, self._now())
        if self._run_lines is not None:
            self._run_lines.ended(attempt, ending)
        elif ending.status == "FAILED" and ending.snooze is None and not ending.callback:
            # Without the error: it contains the output of a command or data of a task.
            order, cause = attempt.order, ending.cause or _NO_CAUSE
            log.info(
                "attempt failed", **about(order), task=order.task, exit_code=cause.exit_code,
                http_status=cause.http_status, error=next(iter(cause.errors), None),
            )  # fmt: skip

    def _record_start(self, attempt: Attempt) -> None:
        """The parent watchdog must know of an exclusive run before it starts."""
        if self._death_record is not None:
            self._death_record.record_start(attempt.key, self._held_runs.held)

    # -- the lease

    def _new_incarnation(self) -> tuple[HeldRuns, ExchangeTiming]:
        now = self._now()
        worker_id = uuid7()
        self._secret = new_secret() if self._death_record is None else self._death_record.begin_incarnation(worker_id)
        held_runs = HeldRuns(
            worker_id, self._hello, now, queue_weights=self._queue_weights, task_limits=self._task_limits
        )
        return held_runs, ExchangeTiming(self._timing.beat, now)

    def _fence_off(self, reason: str) -> None:
        """This incarnation is over: kill its runs, forget what it held, and start a new one."""
        log.error("lease lost: killing all runs", reason=reason, runs=self._runner.holding)
        if not self._runner.fence_off():
            os._exit(EXIT_FENCED)
        for exchange in self._exchanges:
            if exchange is not asyncio.current_task():
                exchange.cancel()
        self._held_runs, self._exchange_timing = self._new_incarnation()
        self._lease.new_incarnation()
        if self._draining is not None:
            self._left.set()

    async def _keep_house(self) -> None:
        """Housekeeping: return prefetched runs that wait too long, and keep the deadline of the watchdog up to date."""
        while True:
            await self._clock.sleep(_HOUSEKEEPING_EVERY)
            now = self._now()
            if self._starts.collect(self._runner.active, now, self._server_client.server):
                self._consider_soon()
            self._progress.sample(self._runner.active, now, report=self._server_client.protocol >= TAKES_USAGE)
            if self._runner.quarantine.bounded:
                self._consider_soon()  # its time may be over
            return_overdue(self._runner, self._held_runs, now)
            self._lease.guard()
            if self._death_record is not None:
                self._death_record.keep_only(self._held_runs.held)

    # -- leaving

    async def _leave(self) -> None:
        try:
            returned = self._runner.return_unstarted()
            log.info("draining", returned=returned, running=self._runner.holding)
            self._exchange_timing.hurry(self._now())
            self._consider()
            await self._drain.end_runs()
            if self._after_last_run is not None:
                await self._after_last_run()
            await self._say_farewell()
            log.info("worker stopped")
        finally:
            self._left.set()

    async def _say_farewell(self) -> None:
        """Report the remaining outcomes, and that this worker has stopped."""
        if not self._held_runs.known and not self._held_runs.pending:
            return
        self._leaving = True
        self._exchange_timing.hurry(self._now())
        self._consider()
        with suppress(TimeoutError):
            async with self._clock.timeout(_FAREWELL):
                await self._left.wait()
        if left := self._held_runs.unreported:
            log.warning("outcomes could not be reported; the runs will be rescued", outcomes=left)
