"""The operations of this server, which the routes call. Here they are built from the parts of the process."""

from __future__ import annotations

from typing import Any, cast

from litestar import Request

from mainspring.api.readiness import ReadinessCheck
from mainspring.kernel.clock import Clock, DatabaseClock
from mainspring.kernel.config import Timing
from mainspring.kernel.lifecycle import PeriodicTask
from mainspring.operations.access.access_admin import AccessAdmin
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.failed_sign_ins import FailedSignIns
from mainspring.operations.access.sessions import Sessions
from mainspring.operations.backfills.control import BackfillControl
from mainspring.operations.bulk.control import BulkControl
from mainspring.operations.calendars.calendar_changes import CalendarChanger
from mainspring.operations.claim.long_poll import LongPolls
from mainspring.operations.computations import Computations
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
from mainspring.operations.logs.log_bounds import LogBounds, LogBudget
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
from mainspring.operations.read.tenant_counts import TenantCountsReader
from mainspring.operations.read.upcoming import UpcomingReader
from mainspring.operations.read.why_job import JobWhyReader
from mainspring.operations.read.workers import WorkerReader
from mainspring.operations.signals import Signals
from mainspring.operations.signatures.offers import OfferRegistry
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.operations.submit.submitter import Submitter
from mainspring.operations.workflows.control import WorkflowRuns
from mainspring.operations.workflows.definitions import Definitions
from mainspring.operations.workflows.graph_indexes import GraphIndexes
from mainspring.operations.workflows.reader import WorkflowReader
from mainspring.operations.workflows.run_reader import WorkflowRunReader
from mainspring.operations.workflows.why_waiting import WaitingSteps
from mainspring.operations.workflows.workflow_changes import WorkflowChanges
from mainspring.store.lanes import LaneRegistry
from mainspring.store.log_files import LogFiles
from mainspring.store.log_stores import LogStores
from mainspring.store.pool import Store


class Services:
    def __init__(
        self,
        store: Store,
        lanes: LaneRegistry,
        signals: Signals,
        long_polls: LongPolls,
        beats: Beats,
        clock: Clock,
        database_clock: DatabaseClock,
        timing: Timing,
        chance: Random,
        signatures: SignatureRegistry,
        gates: GateRegistry,
        log_stores: LogStores,
        log_bounds: LogBounds,
        readiness: ReadinessCheck,
        failed_sign_ins: FailedSignIns,
    ) -> None:
        definitions, depths, computations = Definitions(), Depths(store, gates, lanes), Computations()
        log_watch, written = LogWatch(store), log_stores.written
        log_merger = LogMerger(written, clock) if isinstance(written, LogFiles) else None
        log_budget = None if isinstance(written, LogFiles) else LogBudget(store, clock, log_bounds)
        self.exchanger = Exchanger(
            store, lanes, signals, long_polls, beats, clock, database_clock, timing, chance, signatures, gates
        )
        self.run_reader = RunReader(store, lanes, WaitingSteps(definitions, lanes))
        self.queue_reader = QueueReader(store, lanes)
        self.offers = OfferRegistry(store, clock)
        self.submitter = Submitter(store, lanes, signals, database_clock, signatures, depths, self.offers)
        self.amender = Amender(store, lanes, signals, signatures)
        self.declarer = Declarer(store, lanes, self.amender)
        self.job_reader = JobReader(store, lanes, self.run_reader)
        self.job_timeline = JobTimelineReader(store)
        self.job_why = JobWhyReader(store, self.run_reader)
        self.limit_reader = LimitReader(store)
        self.calendar_reader = CalendarReader(store)
        self.calendar_changer = CalendarChanger(store, database_clock, computations)
        self.limit_setter = LimitSetter(store, signals, clock)
        self.worker_reader = WorkerReader(store)
        self.dead_letter_reader = DeadLetterReader(store, lanes)
        self.tenant_counts = TenantCountsReader(store, self.queue_reader)
        self.overview_reader = OverviewReader(store, self.tenant_counts, self.queue_reader, timing)
        self.failure_reader = FailureReader(store, lanes, database_clock)
        self.job_series = JobSeriesReader(store, database_clock)
        self.previewer = Previewer(store, database_clock, computations)
        self.upcoming_reader = UpcomingReader(store, lanes, database_clock)
        self.heat_map_reader = HeatMapReader(store, database_clock)
        self.explainer = Explainer(self.previewer, self.heat_map_reader)
        self.id_reader = IdReader(store, lanes)
        self.finder = Finder(store, lanes, signatures, self.id_reader)
        self.node_reader = NodeReader(store, timing)
        self.replayer = Replayer(store, lanes, signals, database_clock, signatures)
        self.manual_runs = ManualRuns(store, lanes, signals, database_clock, signatures)
        self.death_notices = DeathNotices(store, signals, chance, self.exchanger.forget)
        self.drainer = Drainer(store, signals)
        self.breakers = BreakerControl(store, signals)
        self.backfills = BackfillControl(store, signals, database_clock, computations)
        self.bulk = BulkControl(store, lanes)
        self.workflow_reader = WorkflowReader(store, self.job_reader)
        self.workflow_changes = WorkflowChanges(
            database_clock,
            signatures,
            self.offers,
            self.submitter,
            self.amender,
            self.manual_runs,
            self.workflow_reader,
        )
        self.workflow_run_reader = WorkflowRunReader(store, lanes, definitions, self.run_reader)
        self.workflow_runs = WorkflowRuns(store, signals, GraphIndexes(definitions))
        self.gate_changer = GateChanger(store, gates, signals, clock)
        self.streams = Streams(store, signals, lanes, clock)
        self.logs = LogService(store, log_stores, log_watch, log_merger, self.exchanger.check_worker, log_budget)
        self.signatures = signatures
        self.access = AccessAdmin(store, signals, failed_sign_ins)
        self.sessions = Sessions(store, signals, failed_sign_ins)
        self.clock = clock
        self.readiness = readiness
        running = RunningCount(store, signals, clock)
        self.periodic_tasks: list[PeriodicTask] = [
            GateKeeper(store, gates, self.exchanger.waker, running, depths),
            signatures,
            log_watch,
            *(task for task in (log_merger, log_budget) if task is not None),
            self.streams,
        ]


def services_of(request: Request[Any, Any, Any]) -> Services:
    return cast(Services, request.app.state.services)


def caller_of(request: Request[Any, Any, Any]) -> Caller:
    return cast(Caller, request.scope["caller"])  # type: ignore[typeddict-item]
