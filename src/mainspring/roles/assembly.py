"""Builds a server from its parts. The server process and the tests use the same assembly."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from litestar import Litestar

from mainspring.api.app import create_app
from mainspring.api.auth import TokenRegistry, hosts_for
from mainspring.api.load_shedding import LoadShedder
from mainspring.api.page import Page
from mainspring.api.readiness import ReadinessCheck
from mainspring.api.services import Services
from mainspring.kernel.clock import Clock, DatabaseClock
from mainspring.kernel.config import DEFAULT_HOST, DEFAULT_TIMING, Timing
from mainspring.kernel.ids import uuid7
from mainspring.kernel.lifecycle import Loops, PeriodicTask
from mainspring.kernel.loop_monitor import LoopMonitor
from mainspring.operations.access.access_admin import AccessAdmin
from mainspring.operations.access.sessions import Sessions
from mainspring.operations.backfills.control import BackfillControl
from mainspring.operations.bulk.control import BulkControl
from mainspring.operations.calendars.changes import CalendarChanger
from mainspring.operations.claim.long_poll import LongPolls
from mainspring.operations.control.amend import Amender
from mainspring.operations.control.declare import Declarer
from mainspring.operations.control.drain import Drainer
from mainspring.operations.control.replay import Replayer
from mainspring.operations.control.run_now import ManualRuns
from mainspring.operations.exchange.beats import Beats
from mainspring.operations.exchange.death_notices import DeathNotices
from mainspring.operations.exchange.exchanger import Exchanger
from mainspring.operations.lifecycle.decide import Random
from mainspring.operations.limits.breaker_control import BreakerControl
from mainspring.operations.limits.depths import Depths
from mainspring.operations.limits.gate_changes import GateChanger
from mainspring.operations.limits.gate_counting import RunningCount
from mainspring.operations.limits.gate_keeper import GateKeeper
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.operations.limits.settings import LimitSetter
from mainspring.operations.live.streams import Streams
from mainspring.operations.logs.log_merger import LogMerger
from mainspring.operations.logs.log_service import LogService
from mainspring.operations.logs.log_watch import LogWatch
from mainspring.operations.read.calendars import CalendarReader
from mainspring.operations.read.dead_letters import DeadLetterReader
from mainspring.operations.read.explanation import Explainer
from mainspring.operations.read.failures import FailureReader
from mainspring.operations.read.find import Finder
from mainspring.operations.read.heat_map import HeatMapReader
from mainspring.operations.read.ids import IdReader
from mainspring.operations.read.job_series import JobSeriesReader
from mainspring.operations.read.job_timeline import JobTimelineReader
from mainspring.operations.read.jobs import JobReader
from mainspring.operations.read.limits import LimitReader
from mainspring.operations.read.nodes import NodeReader
from mainspring.operations.read.overview import OverviewReader
from mainspring.operations.read.preview import Previewer
from mainspring.operations.read.queues import QueueReader
from mainspring.operations.read.runs import RunReader
from mainspring.operations.read.standing import StandingReader
from mainspring.operations.read.upcoming import UpcomingReader
from mainspring.operations.read.workers import WorkerReader
from mainspring.operations.signals import Signals
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.operations.submit.submitter import Submitter
from mainspring.operations.workflows.changes import WorkflowChanges
from mainspring.operations.workflows.control import WorkflowRuns
from mainspring.operations.workflows.definitions import Definitions
from mainspring.operations.workflows.outlines import Outlines
from mainspring.operations.workflows.reader import WorkflowReader
from mainspring.operations.workflows.run_reader import WorkflowRunReader
from mainspring.operations.workflows.waiting import WaitingSteps
from mainspring.roles.background import ClockSync, ReadyPoll, upkeep_tasks
from mainspring.scheduler.node import SchedulerNode
from mainspring.store import sessions
from mainspring.store.connection_budget import ConnectionBudget
from mainspring.store.database import Database
from mainspring.store.lanes import LaneRegistry
from mainspring.store.log_files import LogFiles
from mainspring.store.pool import Store, open_store
from mainspring.store.pulse import Pulse
from mainspring.upkeep.silence_judge import SilenceJudge


@dataclass(frozen=True, slots=True)
class Assembly:
    store: Store
    signals: Signals
    lanes: LaneRegistry
    long_polls: LongPolls
    services: Services
    app: Litestar
    monitor: LoopMonitor
    node: SchedulerNode | None
    pulse: Pulse
    connection_budget: ConnectionBudget
    periodic_tasks: list[PeriodicTask]

    def front(self) -> Page:
        """The app as it is served: behind the dashboard, and with too much to do it refuses what can wait."""
        return Page(LoadShedder(self.app, self.monitor, self.store))

    async def start(self, loops: Loops) -> None:
        """Start all background tasks."""
        self.monitor.start()
        await self.connection_budget.run_once(starting=True)
        loops.start(*self.periodic_tasks)
        loops.start_task("signals_out", self.signals.send_forever)
        loops.start_task("signals_in", self.signals.listen_forever)
        if self.node is not None:
            await self.node.start(loops)

    def release_waiters(self) -> None:
        """End all requests that wait here, which would delay the shutdown: long polls, followed logs, event streams."""
        self.long_polls.close()
        self.services.logs.watch.close()
        self.services.streams.close()

    async def stop(self, loops: Loops) -> None:
        if self.node is not None:
            await self.node.stop()
        await loops.stop()
        await self.close()

    async def close(self) -> None:
        """Close everything that uses the database."""
        self.release_waiters()
        self.monitor.stop()
        await self.services.exchanger.close()
        await self.pulse.close()
        await self.store.close()


async def assemble(
    database: str | Database,
    clock: Clock,
    *,
    host: str = DEFAULT_HOST,
    allow_hosts: Iterable[str] = (),
    scheduler: bool = True,
    timing: Timing = DEFAULT_TIMING,
    chance: Random = random.random,
    log_files: LogFiles | None = None,
) -> Assembly:
    """Build a server for a migrated database. `Assembly.start` starts it. Without `log_files` the output of runs is
    kept in memory."""
    log_files = log_files or LogFiles.in_memory()
    store = await open_store(database)
    database_clock = DatabaseClock(clock)
    signals, lanes, long_polls = Signals(store), LaneRegistry(store), LongPolls()
    clock_sync = ClockSync(store, clock, database_clock)
    await clock_sync.run_once()
    await lanes.refresh()
    signatures = SignatureRegistry(store)
    await signatures.run_once()
    node = SchedulerNode(store, lanes, signals, clock, database_clock, timing) if scheduler else None
    pulse = Pulse(database, store.outage)
    pulse.on_away(store.cut)
    beats = Beats(store, uuid7(), clock, database_clock, timing)
    monitor = LoopMonitor()
    judge = SilenceJudge(clock, timing, (monitor.late_periods, beats.late_periods))
    gates = GateRegistry(clock)
    async with store.reads.acquire() as connection:
        await gates.load(connection)
    exchanger = Exchanger(
        store, lanes, signals, long_polls, beats, clock, database_clock, timing, chance, signatures, gates
    )
    gate_changer, depths = GateChanger(store, gates, signals, clock), Depths(store, gates, lanes)
    gate_keeper = GateKeeper(store, gates, exchanger.waker, RunningCount(store, signals, clock), depths)
    definitions = Definitions()
    run_reader, queue_reader = RunReader(store, lanes, WaitingSteps(definitions)), QueueReader(store, lanes)
    log_watch, log_merger = LogWatch(store), LogMerger(log_files, clock)
    services = Services(
        submitter=(submitter := Submitter(store, lanes, signals, database_clock, signatures, depths)),
        amender=(amender := Amender(store, lanes, signals, signatures)),
        declarer=Declarer(store, lanes, amender),
        job_reader=(job_reader := JobReader(store, lanes, run_reader)),
        run_reader=run_reader,
        job_timeline=JobTimelineReader(store),
        queue_reader=queue_reader,
        limit_reader=LimitReader(store),
        calendar_reader=CalendarReader(store),
        calendar_changer=CalendarChanger(store, database_clock),
        limit_setter=LimitSetter(store, signals, clock),
        worker_reader=WorkerReader(store),
        dead_letter_reader=DeadLetterReader(store, lanes),
        standing_reader=(standing_reader := StandingReader(store, queue_reader)),
        overview_reader=OverviewReader(store, standing_reader, timing),
        failure_reader=FailureReader(store, lanes, database_clock),
        job_series=JobSeriesReader(store, database_clock),
        previewer=(previewer := Previewer(store, database_clock)),
        upcoming_reader=UpcomingReader(store, lanes, database_clock),
        heat_map_reader=(heat_maps := HeatMapReader(store, database_clock)),
        explainer=Explainer(previewer, heat_maps),
        id_reader=(id_reader := IdReader(store, lanes)),
        finder=Finder(store, lanes, signatures, id_reader),
        node_reader=NodeReader(store, timing),
        replayer=Replayer(store, lanes, signals, database_clock, signatures),
        manual_runs=(manual_runs := ManualRuns(store, lanes, signals, database_clock, signatures)),
        exchanger=exchanger,
        death_notices=DeathNotices(store, signals, chance, exchanger.forget),
        drainer=Drainer(store, signals),
        breakers=BreakerControl(store, signals),
        backfills=BackfillControl(store, signals, database_clock),
        bulk=BulkControl(store, lanes),
        workflow_reader=(workflow_reader := WorkflowReader(store, job_reader)),
        workflow_changes=WorkflowChanges(database_clock, signatures, submitter, amender, manual_runs, workflow_reader),
        workflow_run_reader=WorkflowRunReader(store, lanes, definitions, run_reader),
        workflow_runs=WorkflowRuns(store, signals, Outlines(definitions)),
        gate_changer=gate_changer,
        streams=(streams := Streams(store, signals, lanes, clock)),
        logs=LogService(store, log_files, log_watch, log_merger, exchanger.check_worker),
        signatures=signatures,
        access=AccessAdmin(store, signals),
        sessions=Sessions(store, signals),
        clock=clock,
        readiness=ReadinessCheck(store, node.leaser if node else None, lambda: judge.standing),
    )
    token_registry = TokenRegistry(store, clock)
    session_registry = TokenRegistry(store, clock, sessions.find)
    signals.on_tokens_changed(token_registry.forget)
    signals.on_tokens_changed(session_registry.forget)
    signals.on_tokens_changed(long_polls.disconnect_tenant)  # a waiting worker has to authenticate again
    return Assembly(
        store=store,
        signals=signals,
        lanes=lanes,
        long_polls=long_polls,
        services=services,
        app=create_app(services, token_registry, session_registry, pulse, hosts_for(host, allow_hosts)),
        monitor=monitor,
        node=node,
        pulse=pulse,
        connection_budget=(connection_budget := ConnectionBudget(store)),
        periodic_tasks=[
            clock_sync,
            pulse,
            connection_budget,
            ReadyPoll(exchanger, timing.ready_poll),
            gate_keeper,
            signatures,
            log_watch,
            log_merger,
            streams,
            *upkeep_tasks(store, lanes, signals, clock, database_clock, timing, judge, log_files),
        ],
    )
