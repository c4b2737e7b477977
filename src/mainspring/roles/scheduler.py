"""The scheduler process: leases, fires and upkeep, without the API."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass

from mainspring.kernel.clock import DatabaseClock, SystemClock
from mainspring.kernel.config import DEFAULT_TIMING
from mainspring.kernel.lifecycle import Loops
from mainspring.kernel.logs import bind_log_context, configure_logs, get_logger
from mainspring.kernel.loop_monitor import LoopMonitor
from mainspring.operations.signals import Signals
from mainspring.roles.background import ClockSync, upkeep_tasks
from mainspring.roles.database import prepare_database
from mainspring.roles.retention import history_days
from mainspring.scheduler.node import SchedulerNode
from mainspring.store.connection_budget import ConnectionBudget
from mainspring.store.database import Database
from mainspring.store.database_errors import database_in_words
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import open_store
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
    await prepare_database(options.database)
    clock, timing = SystemClock(), DEFAULT_TIMING
    database_clock = DatabaseClock(clock)
    store = await open_store(options.database, application="scheduler", hot=4, reads=3)
    connection_budget = ConnectionBudget(store)
    loops = Loops(store.outage)
    signals, lanes = Signals(store), LaneRegistry(store)
    clock_sync = ClockSync(store, clock, database_clock)
    with database_in_words(options.database):
        await connection_budget.run_once(starting=True)
        await clock_sync.run_once()
    node = SchedulerNode(store, LaneRegistry(store), signals, clock, database_clock, timing)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    pulse = Pulse(options.database, store.outage)
    pulse.on_away(store.cut)
    monitor = LoopMonitor()
    monitor.start()
    judge = SilenceJudge(clock, timing, (monitor.late_periods,))
    upkeep = upkeep_tasks(store, lanes, signals, clock, database_clock, timing, judge)
    loops.start(clock_sync, pulse, connection_budget, *upkeep)
    loops.start_task("signals_out", signals.send_forever)
    loops.start_task("signals_in", signals.listen_forever)
    bind_log_context(node=str(node.node_id))
    await node.start(loops)
    log.info("scheduling")
    try:
        await stopping.wait()
    finally:
        await node.stop()
        await loops.stop()
        monitor.stop()
        await pulse.close()
        await store.close()
    return 0
