"""Builds a server from its parts. The server process and the tests use the same assembly."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mainspring.api.app import create_app
from mainspring.api.auth import Admission, TokenRegistry, hosts_for
from mainspring.api.front import Front
from mainspring.api.http_application import HttpApplication
from mainspring.api.page import DashboardPage
from mainspring.api.readiness import ReadinessCheck
from mainspring.api.request_rates import RequestRates
from mainspring.api.services import Services
from mainspring.domain.oidc import ProviderSettings
from mainspring.kernel.callback_addresses import set_callback_key
from mainspring.kernel.clock import Clock, DatabaseClock
from mainspring.kernel.config import DEFAULT_HOST, DEFAULT_TIMING, Timing
from mainspring.kernel.ids import uuid7
from mainspring.kernel.lifecycle import Loops, PeriodicTask
from mainspring.kernel.loop_monitor import LoopMonitor
from mainspring.kernel.siblings import SiblingPlace
from mainspring.operations.access.failed_sign_ins import FailedSignIns
from mainspring.operations.claim.long_poll import LongPolls
from mainspring.operations.exchange.beats import Beats
from mainspring.operations.lifecycle.decide import Random
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.operations.logs.log_bounds import DEFAULT_BOUNDS, LogBounds
from mainspring.operations.notify.transport import Transport
from mainspring.operations.object_guard import ObjectGuard
from mainspring.operations.people.provider_transport import ProviderTransport
from mainspring.operations.read.gauge_server import GaugeServer
from mainspring.operations.secrets.external import SecretReader
from mainspring.operations.secrets.master_keys import ReadKeys, no_keys
from mainspring.operations.signals import Signals
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.operations.sinks.producers import NoProducers, Producers
from mainspring.roles.background import ClockSync, ReadyPoll, upkeep_tasks
from mainspring.roles.notify_guard import notify_guard
from mainspring.roles.notify_transport import NetworkTransport
from mainspring.roles.provider_transport import NetworkProviderTransport
from mainspring.roles.retention import history_days
from mainspring.scheduler.node import SchedulerNode
from mainspring.store import sessions, waits
from mainspring.store.connection_budget import ConnectionBudget
from mainspring.store.database import Database
from mainspring.store.lanes import LaneRegistry
from mainspring.store.log_files import LogFiles
from mainspring.store.log_stores import LogStores
from mainspring.store.log_table import LogTable
from mainspring.store.pool import Store, open_store
from mainspring.store.pulse import Pulse
from mainspring.upkeep.log_place_checker import LogPlaceChecker
from mainspring.upkeep.silence_judge import SilenceJudge


@dataclass(frozen=True, slots=True)
class Assembly:
    store: Store
    signals: Signals
    lanes: LaneRegistry
    long_polls: LongPolls
    services: Services
    app: HttpApplication
    monitor: LoopMonitor
    node: SchedulerNode | None
    pulse: Pulse
    connection_budget: ConnectionBudget
    log_places: LogPlaceChecker
    periodic_tasks: list[PeriodicTask]

    def front(self) -> DashboardPage:
        """The app as it is served: behind the dashboard, and with too much to do it refuses what can wait."""
        return DashboardPage(Front(self.app, self.monitor, self.store))

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
        await self.services.notification_sender.close()
        await self.services.sink_sender.close()
        self.services.provider_sign_in.close()
        await self.services.exchanger.close()
        await self.services.external_stores.close()
        await self.pulse.close()
        await self.log_places.close()
        await self.services.gauge_server.close()
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
    old_log_files: LogFiles | None = None,
    log_bounds: LogBounds = DEFAULT_BOUNDS,
    rates: RequestRates | None = None,
    place: SiblingPlace | None = None,
    read_keys: ReadKeys = no_keys,
    secret_readers: Mapping[str, SecretReader] | None = None,
    transport: Transport | None = None,
    producers: Producers | None = None,
    page_url: str | None = None,
    providers: Sequence[ProviderSettings] = (),
    provider_transport: ProviderTransport | None = None,
    read_url: str | None = None,
) -> Assembly:
    """Build a server for a migrated database. `Assembly.start` starts it. Without `log_files` the output of runs is
    stored in PostgreSQL. `old_log_files` may have older output. `read_keys` returns the master keys of secrets.
    `secret_readers`: stores of secrets outside.
    `rates`: how often tokens and addresses may call. `transport` sends messages. `page_url`: where people open the
    page. `producers` sends changes. `providers`: where they sign in. `read_url`: the standby for lists and searches."""
    share = 1 if place is None else place.count
    store = await open_store(database, share=share, read_url=read_url)
    log_stores = _log_stores(LogTable(store), log_files, old_log_files)
    database_clock = DatabaseClock(clock)
    signals, lanes, long_polls = Signals(store), LaneRegistry(store), LongPolls()
    clock_sync = ClockSync(store, clock, database_clock)
    signatures, gates = SignatureRegistry(store), GateRegistry(clock, history_days())
    try:
        await clock_sync.run_once()
        await lanes.refresh()
        await signatures.run_once()
        async with store.reads.acquire() as connection:
            await gates.load(connection)
        async with store.change() as connection:
            set_callback_key(await waits.callback_key(connection, secrets.token_bytes(32)))
    except BaseException:
        await store.close()
        raise
    node = SchedulerNode(store, lanes, signals, clock, database_clock, timing) if scheduler else None
    pulse = Pulse(database, store.outage)
    pulse.on_outage(store.cut)
    pulse.on_refusal(store.cut)
    beats = Beats(store, uuid7(), clock, database_clock, timing)
    monitor = LoopMonitor()
    judge = SilenceJudge(clock, timing, (monitor.late_periods, beats.late_periods))
    failed_sign_ins = FailedSignIns()
    services = Services(
        store, lanes, signals, long_polls, beats, clock, database_clock, timing, chance, signatures, gates,
        log_stores, log_bounds,
        ReadinessCheck(store, node.leaser if node else None, lambda: judge.status, place), failed_sign_ins,
        GaugeServer(store, place), read_keys, secret_readers or {},
        transport or NetworkTransport(notify_guard(None)), page_url, providers,
        provider_transport or NetworkProviderTransport(), producers or NoProducers(),
    )  # fmt: skip
    token_registry = TokenRegistry(store, clock)
    session_registry = TokenRegistry(store, clock, sessions.find)
    signals.tokens.subscribe(token_registry.forget)
    signals.tokens.subscribe(session_registry.forget)
    signals.tokens.subscribe(long_polls.disconnect_tenant)  # a waiting worker has to authenticate again
    return Assembly(
        store=store,
        signals=signals,
        lanes=lanes,
        long_polls=long_polls,
        services=services,
        app=create_app(
            services,
            Admission(
                token_registry,
                session_registry,
                services.death_notices,
                hosts_for(host, allow_hosts),
                failed_sign_ins,
                ObjectGuard(store, lanes),
                rates,
            ),
            pulse,
            share,
        ),
        monitor=monitor,
        node=node,
        pulse=pulse,
        connection_budget=(connection_budget := ConnectionBudget(store)),
        log_places=(log_places := LogPlaceChecker(store, log_stores.written)),
        periodic_tasks=[
            clock_sync,
            pulse,
            connection_budget,
            log_places,
            ReadyPoll(services.exchanger, timing.ready_poll),
            *([] if store.replica is None else [store.replica]),
            *services.periodic_tasks,
            *upkeep_tasks(store, lanes, signals, clock, database_clock, timing, judge, log_stores),
        ],
    )


def _log_stores(table: LogTable, named: LogFiles | None, old: LogFiles | None) -> LogStores:
    others = () if old is None else (old,)
    return LogStores(table, others) if named is None else LogStores(named, (table, *others))
