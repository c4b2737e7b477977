"""The scheduler process: leases, fires and upkeep, without the API."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from mainspring.kernel.clock import DatabaseClock, SystemClock
from mainspring.kernel.config import DEFAULT_TIMING
from mainspring.kernel.lifecycle import Loops
from mainspring.kernel.logs import bind_log_context, configure_logs, get_logger
from mainspring.kernel.loop_monitor import LoopMonitor
from mainspring.operations.signals import Signals
from mainspring.roles.background import ClockSync, upkeep_tasks
from mainspring.roles.database import prepare_database, when_available
from mainspring.roles.retention import audit_days, history_days
from mainspring.roles.stop_signals import StopSignals
from mainspring.scheduler.node import SchedulerNode
from mainspring.store.connection_budget import ConnectionBudget
from mainspring.store.database import Database
from mainspring.store.database_errors import database_in_words
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Store, open_store
from mainspring.store.pulse import Pulse
from mainspring.upkeep.silence_judge import SilenceJudge

log = get_logger("scheduler")


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    database: Database
    log_level: str = "info"
    log_format: str = "auto"


async def run_scheduler(options: SchedulerOptions) -> int:
    configure_logs(role="scheduler", log_format=options.log_format, level=options.log_level)
    history_days()  # report a mistake before anything is changed
    audit_days()
    clock, timing = SystemClock(), DEFAULT_TIMING
    database_clock = DatabaseClock(clock)
    stop = StopSignals()
    opened = await stop.unless_asked(when_available(options.database, partial(_open, options.database, database_clock)))
    if opened is None:
        return 0
    store, connection_budget, clock_sync = opened
    loops = Loops(store.outage)
    signals, lanes = Signals(store), LaneRegistry(store)
    node = SchedulerNode(store, LaneRegistry(store), signals, clock, database_clock, timing)
    pulse = Pulse(options.database, store.outage)
    pulse.on_outage(store.cut)
    pulse.on_refusal(store.cut)
    monitor = LoopMonitor()
    monitor.start()
    judge = SilenceJudge(clock, timing, (monitor.late_periods,))
    upkeep = upkeep_tasks(store, lanes, signals, clock, database_clock, timing, judge)
    loops.start(clock_sync, pulse, connection_budget, *upkeep)
    loops.start_task("signals_out", signals.send_forever)
    loops.start_task("signals_in", signals.listen_forever)
    bind_log_context(node=str(node.node_id))
    try:
        await stop.unless_asked(node.start(loops))
        if not stop.asked.is_set():
            log.info("scheduling")
        await stop.asked.wait()
    finally:
        await node.stop()
        await loops.stop()
        monitor.stop()
        await pulse.close()
        await store.close()
    return 0


async def _open(database: Database, clock: DatabaseClock) -> tuple[Store, ConnectionBudget, ClockSync]:
    await prepare_database(database)
    store = await open_store(database, application="scheduler", hot=4, reads=3)
    connection_budget, clock_sync = ConnectionBudget(store), ClockSync(store, SystemClock(), clock)
    try:
        with database_in_words(database):
            await connection_budget.run_once(starting=True)
            await clock_sync.run_once()
    except BaseException:
        await store.close()
        raise
    return store, connection_budget, clock_sync
