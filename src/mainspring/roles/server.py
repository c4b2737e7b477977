"""The server: the API, and (unless told otherwise) a scheduler node, in one process."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from mainspring.api.app import create_app
from mainspring.api.auth import TokenBook, hosts_for
from mainspring.api.readiness import ReadinessCheck
from mainspring.api.services import Services
from mainspring.kernel.clock import DatabaseClock, SystemClock
from mainspring.kernel.config import DEFAULT_TIMING, TOKEN_FILE_NAME
from mainspring.kernel.ids import uuid7
from mainspring.kernel.lifecycle import Loops
from mainspring.kernel.logs import configure_logs, get_logger
from mainspring.operations.amend import Amender
from mainspring.operations.beats import Beats
from mainspring.operations.exchange import Exchanger
from mainspring.operations.parking import Parking
from mainspring.operations.reader import Reader
from mainspring.operations.signals import Signals
from mainspring.operations.submit import Submitter
from mainspring.roles.keeping import ClockKeeper, upkeep_duties
from mainspring.roles.token import ensure_admin_token
from mainspring.scheduler.node import SchedulerNode
from mainspring.store.lanes import LaneBook
from mainspring.store.migrate import migrate
from mainspring.store.pool import open_store

log = get_logger("server")


@dataclass(frozen=True, slots=True)
class ServerOptions:
    database_url: str
    host: str
    port: int
    scheduler: bool
    data: Path
    log_level: str = "info"
    allow_hosts: tuple[str, ...] = ()


class LanePoll:
    """Backs up the hints: new lanes, and one look a second for every parked worker."""

    name = "lane_poll"

    def __init__(self, lanes: LaneBook, parking: Parking, interval: float) -> None:
        self.interval = interval
        self._lanes = lanes
        self._parking = parking

    async def run_once(self) -> int:
        await self._lanes.refresh()
        self._parking.see_lanes()
        self._parking.wake_all()
        return len(self._parking)


async def run_server(options: ServerOptions) -> int:
    configure_logs(role="server", level=options.log_level)
    applied = await migrate(options.database_url)
    if applied:
        log.info("schema migrated", applied=applied)
    if await ensure_admin_token(options.database_url, options.data, only_first=True):
        log.info("admin token", file=str(options.data / TOKEN_FILE_NAME))

    clock, timing = SystemClock(), DEFAULT_TIMING
    database_clock = DatabaseClock(clock)
    store = await open_store(options.database_url)
    loops = Loops()
    signals = Signals(store)
    lanes = LaneBook(store)
    parking = Parking()
    keeper = ClockKeeper(store, clock, database_clock)
    await keeper.run_once()
    await lanes.refresh()

    node = SchedulerNode(store, signals, clock, database_clock, timing) if options.scheduler else None
    server_id = uuid7()
    services = Services(
        submitter=Submitter(store, lanes, signals, database_clock),
        amender=Amender(store, lanes, signals),
        reader=Reader(store, lanes),
        exchanger=Exchanger(
            store, lanes, signals, parking, Beats(store, server_id, clock, timing), clock, timing, random.random
        ),
        readiness=ReadinessCheck(store, node.leaser.held if node else lambda: None),
    )
    app = create_app(services, TokenBook(store, clock), hosts_for(options.host, options.allow_hosts))
    loops.start(keeper, LanePoll(lanes, parking, timing.ready_poll))
    loops.start(*upkeep_duties(store, signals, clock, timing))
    loops.start_task("signals_out", signals.send_forever)
    loops.start_task("signals_in", signals.listen_forever)
    if node is not None:
        await node.start(loops)
    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        http="httptools",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=2048,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
    )
    log.info("serving", url=f"http://{options.host}:{options.port}", scheduler=options.scheduler)
    try:
        await _Server(config, on_exit=parking.close).serve()
    finally:
        if node is not None:
            await node.stop()
        await loops.stop()
        await store.close()
    return 0


class _Server(uvicorn.Server):
    """uvicorn, with a word to the parked exchanges when it is told to stop: they would hold it up for a beat."""

    def __init__(self, config: uvicorn.Config, on_exit: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_exit = on_exit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_exit()
        super().handle_exit(sig, frame)
        with suppress(ValueError):
            self._captured_signals.remove(signal.Signals(sig))  # it has been obeyed; do not raise it again at the end
