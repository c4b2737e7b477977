"""A cluster of real processes with its own PostgreSQL. All connections go through proxies that tests can break."""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.store import tokens
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.embedded.access import ROLE
from mainspring.store.migrate import migrate
from mainspring.store.pool import AWAY
from tests.certificates import NOBODY
from tests.cluster.children import RESTART_AFTER, SCHEDULER, SERVER, WORKER, Child, Seat
from tests.cluster.databases import SETTINGS, Databases, see_standbys, socket_of
from tests.cluster.history import RESCUE, Exit, Injection
from tests.cluster.load_limits import NARROW
from tests.cluster.proxy import Links, ProxyLink
from tests.cluster.tasks import LEDGER_VARIABLE
from tests.processes.cluster import RUN_AS, eventually, free_port

TOKEN = "ms_arena-token"
APP = "tests.cluster.tasks:app"
_AUDIT = Path(__file__).with_name("audit.sql")
_SUPERVISE_EVERY = 0.1


@dataclass(frozen=True, slots=True)
class Shape:
    schedulers: int = 3
    servers: int = 2
    workers: int = 3
    slots: int = 8


def _queues(seat: Seat) -> str:
    """The exchanges of a worker of several queues, or of one with limits, are written one by one, those of the others
    together."""
    return "default" if seat.index % 2 else f"default,{NARROW}"


class Arena:
    """A cluster for `async with`. It ends every process that it starts."""

    def __init__(self, shape: Shape | None = None) -> None:
        self.shape = shape or Shape()
        self.folder = Path(tempfile.mkdtemp(prefix="ms-arena-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.ledger = self.folder / "ledger"
        self.databases = Databases(self.folder)
        self.links = Links()
        self.exits: list[Exit] = []
        self.injections: list[Injection] = []
        self.seats = [
            *(Seat(SERVER, index) for index in range(self.shape.servers)),
            *(Seat(SCHEDULER, index) for index in range(self.shape.schedulers)),
            *(Seat(WORKER, index) for index in range(self.shape.workers)),
        ]
        self._ports = [free_port() for _ in range(self.shape.servers)]
        self._database: dict[str, ProxyLink] = {}
        self._balancers: dict[str, ProxyLink] = {}
        self._witness: asyncpg.Connection | None = None
        self._witness_lock = asyncio.Lock()
        self._supervising: asyncio.Task[None] | None = None

    @property
    def postgres(self) -> EmbeddedPostgres:
        """The primary."""
        return self.databases.current

    async def __aenter__(self) -> Arena:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start everything. Returns when every process is ready."""
        await self.start_database()
        await self.open_links()
        for seat in self.seats:
            self.spawn(seat)
        await self.all_ready()
        self._supervising = asyncio.create_task(self._supervise())

    async def start_database(self) -> None:
        copy = await asyncio.create_subprocess_exec("cp", "-a", await _prepared(), self.postgres.folder)
        assert await copy.wait() == 0
        await self.databases.start()
        (self.folder / "token").write_text(TOKEN)

    async def open_links(self) -> None:
        for seat in self.seats:
            if seat.role == WORKER:
                self._balancers[seat.name] = self.links.open(f"servers for {seat.name}", self._ports)
            else:
                self._database[seat.name] = self.links.open(f"postgres for {seat.name}", [self.databases.socket])
        self._balancers["clients"] = self.links.open("servers for clients", self._ports)

    async def close(self) -> None:
        if self._supervising is not None:
            self._supervising.cancel()
            with suppress(asyncio.CancelledError):
                await self._supervising
        for seat in self.seats:
            if seat.child is not None:
                seat.child.finish()
        if self._witness is not None:
            self._witness.terminate()
        self.links.close()
        self.databases.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- members

    def seat(self, role: str, index: int) -> Seat:
        return next(seat for seat in self.seats if (seat.role, seat.index) == (role, index))

    def seats_of(self, role: str) -> list[Seat]:
        return [seat for seat in self.seats if seat.role == role]

    def living(self, role: str) -> set[str]:
        """The labels of the processes that are running and not stopped."""
        children = [seat.child for seat in self.seats_of(role) if seat.child is not None]
        return {child.label for child in children if child.alive and not child.paused and not child.wanted_end}

    def database_link(self, seat: Seat) -> ProxyLink:
        return self._database[seat.name]

    def balancer(self, name: str = "clients") -> ProxyLink:
        """The proxy between the servers and a worker (by its seat's name), or all clients."""
        return self._balancers[name]

    def port(self, seat: Seat) -> int:
        """The port of a server, without a proxy."""
        return self._ports[seat.index]

    def client(self, timeout: float = 3.0, transport: httpx.AsyncHTTPTransport | None = None) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.balancer().port}",
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=timeout,
            transport=transport,
            verify=NOBODY,
        )

    # -- starting and stopping

    def spawn(self, seat: Seat) -> Child:
        label = seat.next_label()
        environment: dict[str, str] = {}
        if seat.role == WORKER:
            environment[LEDGER_VARIABLE] = str(self.ledger)
            arguments = [
                "worker", "--server", f"http://127.0.0.1:{self.balancer(seat.name).port}",
                "--token-file", str(self.folder / "token"), "--app", APP,
                "--queues", _queues(seat),
                "--slots", str(self.shape.slots), "--name", label, "--lease", f"{RESCUE:g}s", *RUN_AS,
            ]  # fmt: skip
        else:
            environment["MAINSPRING_DATABASE_URL"] = self._database_url(seat, label)
            arguments = ["scheduler"]
            if seat.role == SERVER:
                port = str(self._ports[seat.index])
                arguments = ["server", "--no-scheduler", "--port", port, "--data", str(self.folder)]
        seat.child = Child(seat, label, arguments, environment, self.folder / f"{label}.log")
        return seat.child

    def _database_url(self, seat: Seat, label: str) -> str:
        """The database URL with the label of the process, so that the audit knows who wrote."""
        port = self.database_link(seat).port
        passfile = self.databases.password_file
        return (
            f"postgresql://{ROLE}@127.0.0.1:{port}/mainspring?sslmode=disable&passfile={passfile}&arena.process={label}"
        )

    async def all_ready(self, within: float = 120.0) -> None:
        """Wait until every process that should be up is ready."""

        async def look() -> bool:
            await self._note_ready()
            waiting = [seat.name for seat in self.seats if not seat.kept_down and not (seat.up and seat.child.ready)]
            dead = [seat.child for seat in self.seats if seat.child and not seat.kept_down and not seat.child.alive]
            if dead and self._supervising is None:
                raise AssertionError(f"{dead[0].label} ended while it started:\n{dead[0].last_words()}")
            return not waiting

        await eventually(look, within, "every process is ready")

    async def restart_database(self, down_for: float) -> None:
        async with self.databases.lock:
            await self.databases.crash(down_for)

    def lead_to(self, postgres: EmbeddedPostgres, *, only: ProxyLink | None = None) -> None:
        """All connections to PostgreSQL, or those of one process, lead to this one from now on."""
        for link in self._database.values() if only is None else [only]:
            self.links.lead_to(link, [socket_of(postgres)])

    async def _supervise(self) -> None:
        """Restart ended processes after a while."""
        while True:
            await asyncio.sleep(_SUPERVISE_EVERY)
            for seat in self.seats:
                child = seat.child
                if child is None:
                    continue
                if (ended := child.exit()) is not None:
                    self.exits.append(ended)
                if child.ended_at is None or seat.kept_down:
                    continue
                if time.monotonic() - child.ended_at >= RESTART_AFTER:
                    self.spawn(seat)
            await self._note_ready()

    async def _note_ready(self) -> None:
        waiting = [seat.child for seat in self.seats if seat.child and seat.child.alive and not seat.child.ready]
        if not waiting:
            return
        rows = await self.ask(
            "select process as label from cluster_audit.events where tbl = 'nodes' "
            "union select new ->> 'name' from cluster_audit.events where tbl = 'workers'"
        )
        known = {row["label"] for row in rows}
        for child in waiting:
            if child.seat.role == SERVER:
                child.ready = await _answers(self._ports[child.seat.index])
            else:
                child.ready = child.label in known

    # -- queries without a proxy

    async def set_limit(self, name: str, slots: int) -> None:
        """Change a limit under the eyes of those who admit runs. No server knows of it before it reads it."""
        query = "update mainspring.limits set slots = $2, pinned = true where name = $1 and slots <> $2 returning name"
        await self.ask(query, name, slots)

    async def ask(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        """The rows, or none while PostgreSQL does not answer."""
        async with self._witness_lock:
            try:
                if self._witness is None or self._witness.is_closed():
                    self._witness = await asyncpg.connect(self.postgres.url(), timeout=60)
                return await self._witness.fetch(query, *arguments, timeout=60)
            except AWAY:
                if self._witness is not None:
                    self._witness.terminate()
                self._witness = None
                return []


_preparing: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}


async def _prepared() -> Path:
    """A folder of a migrated PostgreSQL with the token and the audit, made once. To copy it takes a tenth of the
    time."""
    folder = _folder_of_prepared()
    async with _preparing.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        if not (folder / "db").exists():
            postgres = EmbeddedPostgres(folder / "made", settings=SETTINGS)
            for _ in postgres.starting():
                await asyncio.sleep(0.02)
            await migrate(postgres.url())
            connection = await asyncpg.connect(postgres.url())
            await tokens.insert(connection, DEFAULT_TENANT, TOKEN, "admin", "arena")
            await connection.execute(_AUDIT.read_text())
            await connection.close()
            postgres.stop()
            for _ in see_standbys(postgres):
                await asyncio.sleep(0.02)
            postgres.folder.rename(folder / "db")
    return folder / "db"


@cache
def _folder_of_prepared() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ms-prepared-", dir="/tmp"))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


async def _answers(port: int) -> bool:
    try:
        async with httpx.AsyncClient(timeout=5.0, verify=NOBODY) as client:
            return (await client.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200
    except httpx.TransportError:
        return False
