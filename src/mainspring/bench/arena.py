"""The environment of a benchmark: a fresh PostgreSQL and the real processes of the product. All end afterwards."""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, TypeVar
from uuid import UUID

import asyncpg
import httpx
import msgspec

from mainspring.bench.cpu import cpu_seconds_of_tree
from mainspring.bench.process import Process
from mainspring.domain.errors import Unavailable
from mainspring.kernel.config import TOKEN_FILE_NAME
from mainspring.roles.token import ensure_admin_token
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.migrate import migrate
from mainspring.store.pool import connect

T = TypeVar("T")
BENCH_TASKS = "mainspring.bench.tasks:app"

_PATIENCE = 120.0  # ends a benchmark that hangs; on a busy machine a process can take half a minute to start
_reserved: list[socket.socket] = []
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class BenchServer(Process):
    url: str
    port: int


class Scheduler(Process):
    node_id: UUID


class BenchWorker(Process):
    worker_id: UUID


class Arena:
    """The environment and the processes that were started in it."""

    def __init__(
        self,
        postgres: EmbeddedPostgres | None,
        folder: Path,
        token: str,
        log: IO[bytes],
        variables: Mapping[str, str] = _NO_SETTINGS,
        database_url: str = "",
    ) -> None:
        self._postgres = postgres
        self.folder = folder
        self.database_url = database_url if postgres is None else postgres.url()
        self.token = token
        self.servers: list[BenchServer] = []
        self._log = log
        self._variables = variables
        self._started: list[Process] = []

    @property
    def postgres(self) -> EmbeddedPostgres:
        assert self._postgres is not None, "this arena is on a PostgreSQL that it has not started"
        return self._postgres

    @property
    def processes(self) -> dict[str, int]:
        """The pid of each process of the product, by its role and number, and that of PostgreSQL."""
        found = {} if self._postgres is None or self._postgres.pid is None else {"postgres": self._postgres.pid}
        for process in self._started:
            number = sum(name.startswith(process.name) for name in found) + 1
            found[f"{process.name}-{number}"] = process.pid
        return found

    @property
    def server_url(self) -> str:
        return self.servers[0].url

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}

    async def connect(self) -> asyncpg.Connection:
        return await connect(self.database_url, application="bench")

    async def start_server(self, *, scheduler: bool = True, port: int | None = None) -> BenchServer:
        """Start a server and wait until it answers."""
        port = port or free_port()
        arguments = ["server", "--port", str(port), "--data", str(self._data)]
        arguments.append("--scheduler" if scheduler else "--no-scheduler")
        server = BenchServer("server", arguments, self._with_database(), self._log)
        self._started.append(server)
        server.port, server.url = port, f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient() as client:

            async def answers() -> bool:
                try:
                    return (await client.get(f"{server.url}/healthz")).status_code == 200
                except httpx.TransportError:
                    return False

            await until(answers, "the server answers", alive=server)
        self.servers.append(server)
        return server

    async def start_scheduler(self) -> Scheduler:
        """Start a scheduler and wait until its node has joined. Start only one at a time: the new node is found by
        comparison with the nodes before."""
        connection = await self.connect()
        try:
            before = await _ids(connection, "select node_id from mainspring.nodes")
            scheduler = Scheduler("scheduler", ["scheduler"], self._with_database(), self._log)
            self._started.append(scheduler)

            async def joined() -> set[UUID]:
                return await _ids(connection, "select node_id from mainspring.nodes") - before

            (scheduler.node_id,) = await until(joined, "the scheduler joins", alive=scheduler)
        finally:
            await connection.close()
        return scheduler

    async def start_worker(
        self, server_url: str, *, slots: int | None = None, app: str = BENCH_TASKS, token_file: Path | None = None
    ) -> BenchWorker:
        """Start a worker with the tasks of the benchmarks and wait until it is registered. Start only one at a time.
        `token_file`: None for that of the administrator."""
        arguments = ["worker", "--server", server_url, "--token-file", str(token_file or self._data / TOKEN_FILE_NAME)]
        arguments += ["--app", app, *(["--slots", str(slots)] if slots else [])]
        connection = await self.connect()
        try:
            before = await _ids(connection, "select worker_id from mainspring.workers")
            worker = BenchWorker("worker", arguments, {}, self._log)
            self._started.append(worker)

            async def registered() -> set[UUID]:
                return await _ids(connection, "select worker_id from mainspring.workers") - before

            (worker.worker_id,) = await until(registered, "the worker registers", alive=worker)
        finally:
            await connection.close()
        return worker

    def end(self) -> None:
        """End everything. Workers end first, while there is a server where they can sign off."""
        workers = [process for process in self._started if isinstance(process, BenchWorker)]
        others = [process for process in self._started if not isinstance(process, BenchWorker)]
        for group in (workers, others):
            for process in group:
                process.ask_to_end()
            for process in group:
                process.wait_for_end()

    def cpu_seconds(self) -> tuple[float, float]:
        """CPU time of all servers, and of PostgreSQL."""
        assert self.postgres.pid is not None
        return sum(cpu_seconds_of_tree(server.pid) for server in self.servers), cpu_seconds_of_tree(self.postgres.pid)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _with_database(self) -> dict[str, str]:
        return {"MAINSPRING_DATABASE_URL": self.database_url, **self._variables}


@asynccontextmanager
async def fresh_postgres(settings: Mapping[str, str] = _NO_SETTINGS) -> AsyncIterator[tuple[EmbeddedPostgres, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="mainspring-bench-"))
    postgres = EmbeddedPostgres(folder / "data", settings=settings)
    postgres.start()
    try:
        yield postgres, folder
    finally:
        postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def empty_arena(
    postgres: EmbeddedPostgres, folder: Path, variables: Mapping[str, str] = _NO_SETTINGS
) -> AsyncIterator[Arena]:
    """A migrated database with a token, without any process. `variables` are those of its servers."""
    await migrate(postgres.url())
    token = await ensure_admin_token(postgres.url(), folder / "data")
    assert token is not None
    with (folder / "bench.log").open("wb") as log:
        arena = Arena(postgres, folder, token, log, variables)
        try:
            yield arena
        finally:
            arena.end()


@asynccontextmanager
async def arena_at(
    database_url: str, folder: Path, variables: Mapping[str, str] = _NO_SETTINGS
) -> AsyncIterator[Arena]:
    """As `empty_arena`, on an empty database that the caller has started. `folder` is for tokens and logs."""
    (folder / "data").mkdir(mode=0o700, parents=True, exist_ok=True)
    await migrate(database_url)
    token = await ensure_admin_token(database_url, folder / "data")
    assert token is not None
    with (folder / "bench.log").open("wb") as log:
        arena = Arena(None, folder, token, log, variables, database_url)
        try:
            yield arena
        finally:
            arena.end()


@asynccontextmanager
async def product(
    postgres: EmbeddedPostgres, folder: Path, app: str = BENCH_TASKS, variables: Mapping[str, str] = _NO_SETTINGS
) -> AsyncIterator[Arena]:
    """One server with its scheduler and one worker on `postgres`, ready for jobs."""
    async with empty_arena(postgres, folder, variables) as arena:
        server = await arena.start_server()
        await arena.start_worker(server.url, app=app)
        yield arena


async def until(
    look: Callable[[], Awaitable[T]],
    what: str,
    *,
    within: float = _PATIENCE,
    every: float = 0.02,
    alive: Process | None = None,
) -> T:
    """Repeat a check until its result is truthy."""
    try:
        async with asyncio.timeout(within):
            while not (found := await look()):
                if alive is not None:
                    alive.check_alive()
                await asyncio.sleep(every)
            return found
    except TimeoutError:
        raise Unavailable(f"the benchmark waited {within:g} s, but this did not happen: {what}") from None


async def submit_batch(client: httpx.AsyncClient, url: str, body: bytes) -> list[str]:
    """The ids of a batch that the server at `url` has accepted. A server that has too much to do is asked again."""
    while True:
        answer = await client.post(f"{url}/v1/jobs:batch", content=body)
        if answer.status_code != 429:
            break
        await asyncio.sleep(float(answer.headers["retry-after"]))
    answer.raise_for_status()
    job_ids: list[str] = msgspec.json.decode(answer.content)["job_ids"]
    return job_ids


async def _ids(connection: asyncpg.Connection, query: str) -> set[UUID]:
    return {row[0] for row in await connection.fetch(query)}


def free_port() -> int:
    """A local port that is reserved until this process ends. It is bound without listening, so the system gives it to
    no other process. A server can listen on it (with SO_REUSEADDR, which servers set), also again after it was
    killed."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    _reserved.append(reserved)
    port: int = reserved.getsockname()[1]
    return port
