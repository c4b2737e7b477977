"""The periodic tasks of every process that uses the database."""

from __future__ import annotations

import random

import mainspring.operations.handlers  # noqa: F401 - lists who handles the events of all processes
from mainspring.kernel.clock import Clock, DatabaseClock
from mainspring.kernel.config import Timing
from mainspring.kernel.lifecycle import PeriodicTask
from mainspring.operations.backfills.backfill_worker import BackfillWorker
from mainspring.operations.bulk.performer import Performer
from mainspring.operations.bulk.selector import Selector
from mainspring.operations.bulk.verbs import Verbs
from mainspring.operations.calendars.recompute import Recomputer
from mainspring.operations.control.amend import Amender
from mainspring.operations.control.replay import Replayer
from mainspring.operations.control.run_now import ManualRuns
from mainspring.operations.dependencies.dependency_poller import DependencyPoller
from mainspring.operations.events.matcher import EventMatcher
from mainspring.operations.events.starter import EventStarter
from mainspring.operations.exchange.exchanger import Exchanger
from mainspring.operations.limits.admitter import Admitter
from mainspring.operations.signals import Signals
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.operations.waits.sweeper import WaitSweeper
from mainspring.operations.workflows.children import ChildRunner
from mainspring.operations.workflows.definitions import Definitions
from mainspring.operations.workflows.expander import FanoutExpander
from mainspring.operations.workflows.graph_indexes import GraphIndexes
from mainspring.operations.workflows.join_counter import JoinCounter
from mainspring.operations.workflows.starter import FlowStarter
from mainspring.operations.workflows.stopper import FlowStopper
from mainspring.roles.retention import audit_days, event_days, history_days
from mainspring.store.lanes import LaneRegistry
from mainspring.store.log_stores import LogStores
from mainspring.store.pool import Store
from mainspring.upkeep.audit_linker import AuditLinker
from mainspring.upkeep.beat_sweeper import BeatSweeper
from mainspring.upkeep.calendar_recomputer import CalendarRecomputer
from mainspring.upkeep.deadline_sweeper import DeadlineSweeper
from mainspring.upkeep.forecaster import ForecastMaker
from mainspring.upkeep.gauge_sampler import GaugeSampler
from mainspring.upkeep.health_keeper import HealthKeeper
from mainspring.upkeep.library_versions import library_versions
from mainspring.upkeep.line_pruner import LinePruner
from mainspring.upkeep.log_block_maker import LogBlockMaker
from mainspring.upkeep.partition_maintainer import AuditPruner, EventPruner, HistoryPruner, PartitionMaintainer
from mainspring.upkeep.rollup_keeper import RollupKeeper
from mainspring.upkeep.run_rescuer import RunRescuer
from mainspring.upkeep.silence_judge import SilenceJudge
from mainspring.upkeep.slot_reconciler import SlotReconciler
from mainspring.upkeep.tenant_history_pruner import TenantHistoryPruner


class ClockSync:
    """Updates the offset to the database's clock."""

    name = "clock_sync"
    interval = 1.0

    def __init__(self, store: Store, clock: Clock, database_clock: DatabaseClock) -> None:
        self._store = store
        self._clock = clock
        self._database_clock = database_clock

    async def run_once(self) -> None:
        async with self._store.reads.acquire() as connection:
            sent = self._clock.monotonic()
            moment = await connection.fetchval("select clock_timestamp()")
            self._database_clock.observe(moment, sent, self._clock.monotonic())


class ReadyPoll:
    """Polls for runs for all waiting workers of this server once a second, in case a notification was lost."""

    name = "ready_poll"

    def __init__(self, exchanger: Exchanger, interval: float) -> None:
        self.interval = interval
        self._exchanger = exchanger

    async def run_once(self) -> int:
        return await self._exchanger.poll()


def upkeep_tasks(
    store: Store,
    lanes: LaneRegistry,
    signals: Signals,
    clock: Clock,
    database_clock: DatabaseClock,
    timing: Timing,
    judge: SilenceJudge,
    log_stores: LogStores | None = None,
) -> list[PeriodicTask]:
    graph_indexes = GraphIndexes(Definitions())
    return [
        RunRescuer(store, signals, clock, timing, random.random, judge),
        BeatSweeper(store),
        DeadlineSweeper(store, signals),
        Admitter(store, signals),
        BackfillWorker(store, lanes, signals),
        Performer(store, Selector(store, lanes), _verbs(store, lanes, signals, database_clock)),
        FlowStarter(store, lanes, signals, graph_indexes),
        FanoutExpander(store, lanes, signals, graph_indexes),
        JoinCounter(store, signals),
        FlowStopper(store, signals),
        WaitSweeper(store, signals),
        ChildRunner(store, lanes, signals, graph_indexes),
        DependencyPoller(store, signals),
        EventMatcher(store, signals),
        EventStarter(store, lanes, signals),
        LinePruner(store),
        SlotReconciler(store, signals),
        CalendarRecomputer(store, signals, Recomputer(store, lanes), library_versions()),
        ForecastMaker(store, clock),
        RollupKeeper(store, clock),
        LogBlockMaker(store, clock),
        HealthKeeper(store, signals, clock),
        GaugeSampler(store, clock),
        PartitionMaintainer(store),
        HistoryPruner(store, history_days(), log_stores),
        *([] if log_stores is None else [TenantHistoryPruner(store, history_days(), log_stores)]),
        AuditLinker(store),
        AuditPruner(store, audit_days()),
        EventPruner(store, event_days()),
    ]


def _verbs(store: Store, lanes: LaneRegistry, signals: Signals, clock: DatabaseClock) -> Verbs:
    signatures = SignatureRegistry(store)  # no verb on many takes a payload, so it may know none
    return Verbs(
        signals,
        Amender(store, lanes, signals, signatures),
        ManualRuns(store, lanes, signals, clock, signatures),
        Replayer(store, lanes, signals, clock, signatures),
    )
