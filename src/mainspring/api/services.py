"""The operations of this server, which the routes call. Here they are built from the parts of the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from mainspring.api.readiness import ReadinessCheck
from mainspring.api.request_rates import RequestRates
from mainspring.api.web import Request
from mainspring.domain.oidc import ProviderSettings
from mainspring.domain.rates import Rate
from mainspring.kernel.clock import Clock, DatabaseClock
from mainspring.kernel.config import Timing
from mainspring.kernel.lifecycle import PeriodicTask
from mainspring.operations.access.access_admin import AccessAdmin
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.failed_sign_ins import FailedSignIns
from mainspring.operations.access.sessions import Sessions
from mainspring.operations.access.typed_again import TypedAgain
from mainspring.operations.audit.reader import AuditReader
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
from mainspring.operations.events.emitter import Emitter
from mainspring.operations.events.reader import EventReader
from mainspring.operations.exchange.beats import Beats
from mainspring.operations.exchange.death_notices import DeathNotices
from mainspring.operations.exchange.exchanger import Exchanger
from mainspring.operations.files.applier import FileApplier
from mainspring.operations.files.parts import FileServices
from mainspring.operations.lifecycle.decide import Random
from mainspring.operations.limits.breaker_control import BreakerControl
from mainspring.operations.limits.depths import Depths
from mainspring.operations.limits.gate_changes import GateChanger
from mainspring.operations.limits.gate_counting import RunningCount
from mainspring.operations.limits.gate_keeper import GateKeeper
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.operations.limits.quota_admin import QuotaAdmin
from mainspring.operations.limits.quota_guard import QuotaGuard
from mainspring.operations.limits.settings import LimitSetter
from mainspring.operations.live.streams import Streams
from mainspring.operations.logs.log_bounds import LogBounds, LogBudget
from mainspring.operations.logs.log_finder import LogFinder
from mainspring.operations.logs.log_merger import LogMerger
from mainspring.operations.logs.log_retention import LogRetentionAdmin
from mainspring.operations.logs.log_service import LogService
from mainspring.operations.logs.log_watch import LogWatch
from mainspring.operations.notify.alert_keeper import AlertKeeper
from mainspring.operations.notify.channel_admin import ChannelAdmin
from mainspring.operations.notify.history import NotificationHistory
from mainspring.operations.notify.rule_admin import RuleAdmin
from mainspring.operations.notify.sender import NotificationSender
from mainspring.operations.notify.transport import Transport
from mainspring.operations.people.guesses import Guesses
from mainspring.operations.people.own_account import OwnAccount
from mainspring.operations.people.passwords import Passwords
from mainspring.operations.people.provider_people import ProviderPeople
from mainspring.operations.people.provider_sign_in import ProviderSignIn
from mainspring.operations.people.provider_transport import ProviderTransport
from mainspring.operations.people.sign_in import PasswordSignIn
from mainspring.operations.people.user_admin import UserAdmin
from mainspring.operations.read.calendar_preview import CalendarPreviewer
from mainspring.operations.read.calendars import CalendarReader
from mainspring.operations.read.dead_letters import DeadLetterReader
from mainspring.operations.read.explanation import Explainer
from mainspring.operations.read.failures import FailureReader
from mainspring.operations.read.find import Finder
from mainspring.operations.read.gauge_server import GaugeServer
from mainspring.operations.read.heat_map import HeatMapReader
from mainspring.operations.read.ids import IdReader
from mainspring.operations.read.job_gauges import JobGaugeReader
from mainspring.operations.read.job_outcomes import JobOutcomeReader
from mainspring.operations.read.job_series import JobSeriesReader
from mainspring.operations.read.job_timeline import JobTimelineReader
from mainspring.operations.read.jobs import JobReader
from mainspring.operations.read.limits import LimitReader
from mainspring.operations.read.nodes import NodeReader
from mainspring.operations.read.overview import OverviewReader
from mainspring.operations.read.preview import Previewer
from mainspring.operations.read.queues import QueueReader
from mainspring.operations.read.runs import RunReader
from mainspring.operations.read.scaling import ScalingReader
from mainspring.operations.read.tenant_counts import TenantCountsReader
from mainspring.operations.read.upcoming import UpcomingReader
from mainspring.operations.read.why_job import JobWhyReader
from mainspring.operations.read.workers import WorkerReader
from mainspring.operations.secrets.data_keys import DataKeys
from mainspring.operations.secrets.external import ExternalStores, SecretReader
from mainspring.operations.secrets.handing_out import SecretHandout
from mainspring.operations.secrets.master_keys import MasterKeys, ReadKeys
from mainspring.operations.secrets.secret_changes import SecretStore
from mainspring.operations.secrets.secret_check import SecretCheck
from mainspring.operations.signals import Signals
from mainspring.operations.signatures.offers import OfferRegistry
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.operations.sinks.admin import SinkAdmin
from mainspring.operations.sinks.keeper import SinkKeeper
from mainspring.operations.sinks.producers import Producers
from mainspring.operations.sinks.sender import SinkSender
from mainspring.operations.sources.source_reader import SourceReader
from mainspring.operations.sources.taker import SourceTaker
from mainspring.operations.submit.submitter import Submitter
from mainspring.operations.views.saved_views import SavedViews
from mainspring.operations.waits.approvals import Approvals
from mainspring.operations.waits.callbacks import Callbacks
from mainspring.operations.workflows.calls import CallCheck
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

_CALLBACKS_A_SECOND = 50  # from one address


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
        gauge_server: GaugeServer,
        read_keys: ReadKeys,
        secret_readers: Mapping[str, SecretReader],
        transport: Transport,
        page_url: str | None,
        providers: Sequence[ProviderSettings],
        provider_transport: ProviderTransport,
        producers: Producers,
    ) -> None:
        self.page_url = page_url
        master_keys = MasterKeys(read_keys, clock)
        data_keys, secret_check = DataKeys(master_keys), SecretCheck(store)
        self.quota_guard = quota_guard = QuotaGuard(store, gates, clock)
        self.external_stores = ExternalStores(secret_readers, clock)
        self.secrets = SecretStore(store, master_keys, data_keys, self.external_stores)
        self.emitter = Emitter(store, signals, quota_guard)
        self.event_reader = EventReader(store)
        definitions, depths, computations = Definitions(), Depths(store, gates, lanes), Computations()
        log_watch, written = LogWatch(store), log_stores.written
        log_merger = LogMerger(written, clock) if isinstance(written, LogFiles) else None
        log_budget = (
            None if isinstance(written, LogFiles) else LogBudget(store, clock, log_bounds, gates.log_bytes_per_day)
        )
        self.exchanger = Exchanger(
            store, lanes, signals, long_polls, beats, clock, database_clock, timing, chance, signatures, gates,
            SecretHandout(data_keys, self.external_stores),
        )  # fmt: skip
        self.run_reader = RunReader(store, lanes, WaitingSteps(definitions, lanes))
        self.queue_reader = QueueReader(store, lanes)
        self.offers = OfferRegistry(store, clock)
        self.submitter = Submitter(
            store, lanes, signals, database_clock, signatures, depths, self.offers, self.exchanger.hand_offs,
            secret_check, quota_guard,
        )  # fmt: skip
        self.source_taker = SourceTaker(store, signals, quota_guard, self.submitter)
        self.source_reader = SourceReader(store)
        self.amender = Amender(store, lanes, signals, signatures)
        self.declarer = Declarer(store, lanes, self.amender)
        self.job_reader = JobReader(store, lanes, self.run_reader)
        self.job_timeline = JobTimelineReader(store)
        self.job_why = JobWhyReader(store, self.run_reader)
        self.limit_reader = LimitReader(store)
        self.calendar_reader = CalendarReader(store)
        self.saved_views = SavedViews(store)
        self.calendar_changer = CalendarChanger(store, database_clock, computations)
        self.log_retention = LogRetentionAdmin(store)
        self.calendar_previewer = CalendarPreviewer(store, database_clock, computations)
        self.channels = ChannelAdmin(store, clock, database_clock, transport, page_url)
        self.notifications = NotificationHistory(store)
        self.rules = RuleAdmin(store)
        self.alert_keeper = AlertKeeper(store, clock, page_url)
        self.sinks = SinkAdmin(store, clock, database_clock, producers)
        self.sink_sender = SinkSender(store, clock, producers)
        self.limit_setter = LimitSetter(store, signals, clock)
        self.worker_reader = WorkerReader(store)
        self.dead_letter_reader = DeadLetterReader(store, lanes)
        self.scaling_reader = ScalingReader(store, self.queue_reader)
        self.tenant_counts = TenantCountsReader(store, self.queue_reader, self.scaling_reader)
        self.overview_reader = OverviewReader(store, self.tenant_counts, self.queue_reader, timing)
        self.job_gauges = JobGaugeReader(store)
        self.failure_reader = FailureReader(store, lanes, database_clock)
        self.job_series = JobSeriesReader(store, database_clock)
        self.job_outcomes = JobOutcomeReader(store, database_clock)
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
            secret_check,
            quota_guard,
            CallCheck(store),
        )
        self.workflow_run_reader = WorkflowRunReader(store, lanes, definitions, self.run_reader)
        self.approvals = Approvals(store, lanes, signals)
        self.callbacks = Callbacks(store, signals)
        self.callback_rates = RequestRates(clock, per_address=Rate(_CALLBACKS_A_SECOND, "s"))
        self.workflow_runs = WorkflowRuns(store, signals, GraphIndexes(definitions))
        self.gate_changer = GateChanger(store, gates, lanes, signals, clock)
        self.quotas = QuotaAdmin(store, gates, self.gate_changer)
        self.files = FileApplier(
            FileServices(
                store,
                lanes,
                signals,
                database_clock,
                signatures,
                depths,
                quota_guard,
                self.offers,
                self.run_reader,
                self.calendar_changer,
                self.gate_changer,
                self.secrets,
            )
        )
        self.streams = Streams(store, signals, lanes, clock)
        self.logs = LogService(store, log_stores, log_watch, log_merger, self.exchanger.check_worker, log_budget)
        self.notification_sender = NotificationSender(store, database_clock, transport, logs=self.logs)
        self.log_finder = LogFinder(store, lanes, self.logs)
        self.signatures = signatures
        self.audit_reader = AuditReader(store)
        passwords = Passwords()
        guesses = Guesses(store)
        self.password_sign_in = PasswordSignIn(store, signals, failed_sign_ins, passwords, guesses)
        self.provider_sign_in = ProviderSignIn(
            store, failed_sign_ins, guesses, ProviderPeople(store, signals), providers, provider_transport, clock,
            database_clock,
        )  # fmt: skip
        typed = TypedAgain(store, failed_sign_ins, self.password_sign_in.confirm)
        self.access = AccessAdmin(store, signals, typed)
        self.users = UserAdmin(store, signals, typed)
        self.own_account = OwnAccount(store, signals, passwords, self.password_sign_in, typed)
        self.sessions = Sessions(store, signals, failed_sign_ins)
        self.clock = clock
        self.readiness = readiness
        self.gauge_server = gauge_server
        running = RunningCount(store, signals, clock)
        self.periodic_tasks: list[PeriodicTask] = [
            GateKeeper(store, gates, self.exchanger.waker, running, depths),
            signatures,
            log_watch,
            *(task for task in (log_merger, log_budget) if task is not None),
            self.streams,
            self.alert_keeper,
            self.notification_sender,
            self.sink_sender,
            SinkKeeper(store),
        ]


def services_of(request: Request) -> Services:
    return cast(Services, request.app.state.services)


def caller_of(request: Request) -> Caller:
    return cast(Caller, request.scope["caller"])
