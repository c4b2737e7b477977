"""Real PostgreSQL for every test: one server per test process, and a database from a migrated template. Tests that use
it from this process share a database with their module (`kept_database.py`); others get a new one."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import asyncpg
import httpx
import pytest
from hypothesis import settings

from mainspring.kernel import data_folder
from mainspring.kernel.clock import SystemClock
from mainspring.kernel.config import DEFAULT_DATA_FOLDER, Timing
from mainspring.kernel.data_folder import found_folder
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.roles import assembly as assembling
from mainspring.roles.assembly import Assembly, assemble
from mainspring.sdk.client import connection as connecting
from mainspring.store import tokens
from mainspring.store.database import Database, Pooling, address_of
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.embedded.access import ROLE
from mainspring.store.migrate import migrate
from mainspring.store.pool import SESSION_SETTINGS, Store, open_store
from tests.eventually import PATIENCE
from tests.kept_database import KeptDatabase, at_the_end
from tests.pgbouncer import PgBouncer, a_pgbouncer, through

T = TypeVar("T")

# The same examples each time, so that a change fails for what it changed. HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile("mainspring", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "mainspring"))

# A machine that stands still must not end a test's transaction. In production two seconds are all that others can wait.
SESSION_SETTINGS["idle_in_transaction_session_timeout"] = "60s"

# Between its lease round and its fire a test may stand still for longer than the three seconds of a lease.
LONG_LEASES = Timing(lease_ttl=600.0)

FAST = {
    "fsync": "off",
    "shared_buffers": "128MB",
    "max_connections": "200",
    "max_wal_size": "256MB",
    "min_wal_size": "64MB",
    "autovacuum": "off",  # a database lives for seconds, and its launcher looks at all of them
}
SCRATCH_BYTES = 4 << 30

# Another PostgreSQL than that of the wheel: the folder of its programs.
BINARIES = os.environ.get("MAINSPRING_TEST_POSTGRES_BIN")
THROUGH = Pooling(os.environ.get("MAINSPRING_TEST_PGBOUNCER", Pooling.NONE))
# Every test gets a new database, to find out whether a failure comes from sharing one.
OWN = os.environ.get("MAINSPRING_TEST_DATABASES") == "own"
TEMPLATE = "mainspring_template"
TOKEN = "ms_test-token"


# They take from ten seconds to two minutes each. The run ends sooner if all of them begin first. Each line is the work
# of one test process: what measures a cluster under faults needs some time of its own, and the tests of a line share
# servers and a browser.
LONGEST = (
    (
        "tests/cluster/test_faults.py", "tests/docs/test_sitting.py", "tests/cluster/test_outage.py",
        "tests/processes/test_exactly_once.py", "tests/processes/test_one_per_account.py",
        "tests/processes/test_expansion.py",
    ),
    ("tests/bench/",),
    ("tests/api/test_stall_", "tests/sdk/with_server/", "tests/sdk/testing/test_documented.py"),
    ("tests/ui/", "tests/cluster/test_mutants.py"),
)  # fmt: skip


# To import a file takes a test process 20 ms, and each test process imports all. So a run leaves out a file without
# looking into it if no test of it can be wanted: `make test` those that are slow as a whole, `make test-slow` and
# `make test-long` those without such a mark.
ALL_SLOW = re.compile(r"^pytestmark = .*\bpytest\.mark\.(slow|long)\b", re.MULTILINE)
SOME_SLOW = re.compile(r"mark\.(slow|long)\b|^from tests\.sizes import", re.MULTILINE)
BROWSER = Path(__file__).parent / "ui"  # its conftest.py marks all of them


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    wanted, in_browser = config.option.markexpr, collection_path.parent == BROWSER
    if wanted == "not slow and not long":
        return in_browser or ALL_SLOW.search(collection_path.read_text()) is not None or None
    if wanted in ("slow and not long", "slow", "long"):
        return (not in_browser and SOME_SLOW.search(collection_path.read_text()) is None) or None
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """xdist gives each test process a stretch of the list, and then lets idle ones steal from the ends of others. So
    each stretch begins with a line of long tests."""
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    lines: list[list[pytest.Item]] = [[] for _ in range(count)]
    rest: list[pytest.Item] = []
    for item in items:
        found = next((number for number, line in enumerate(LONGEST) if item.nodeid.startswith(line)), None)
        (rest if found is None else lines[found % count]).append(item)
    ordered: list[pytest.Item] = []
    for number, line in enumerate(lines):
        size = (len(items) - len(ordered)) // (count - number)
        fill = max(0, size - len(line))
        ordered += line + rest[:fill]
        del rest[:fill]
    items[:] = ordered + rest


def pytest_sessionstart() -> None:
    """Collection makes no garbage worth mentioning, and a million objects that live until the end."""
    gc.disable()


def pytest_collection_finish() -> None:
    """From now on the garbage collector passes over the tests themselves."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Data folders of tests are recorded here, not in the home folder of the developer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        for module in (data_folder, connecting):
            patch.setattr(module, "found_folder", _other_than_ours(found_folder))
        yield


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """A command that a test calls in this process may set another one."""
    before = os.umask(0o077)
    os.umask(before)
    yield
    os.umask(before)


def _other_than_ours(find: Callable[[Path | None], Path | None]) -> Callable[..., Path | None]:
    """As `find`, but tests do not find the data folder that `make run` makes in this repository."""

    def found(start: Path | None = None) -> Path | None:
        folder = find(start)
        return None if folder == Path(__file__).parents[1] / DEFAULT_DATA_FOLDER else folder

    return found


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL of this test process. Durability is off for speed; the benches and fault tests have it on."""
    folder = Path(tempfile.mkdtemp(prefix="ms-", dir=_scratch()))
    server = EmbeddedPostgres(folder / "data", settings=FAST, bin_folder=Path(BINARIES) if BINARIES else None)
    if BINARIES:  # as root: initdb before 18 wants to pass through the folders above its data
        server.lock.acquire()
        for above in (folder, server.folder):
            above.chmod(0o711)
    server.start()
    try:
        asyncio.run(_make_template(server))
        yield server
    finally:
        server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


def _scratch() -> Path:
    """Memory if there is enough of it, because every database of a test is 300 files."""
    memory = Path("/dev/shm")
    with suppress(OSError):
        if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= SCRATCH_BYTES:
            return memory
    return Path("/tmp")


async def _make_template(server: EmbeddedPostgres) -> None:
    admin = await asyncpg.connect(server.url("postgres"))
    await admin.execute(f"create database {TEMPLATE}")
    await migrate(server.url(TEMPLATE))
    connection = await asyncpg.connect(server.url(TEMPLATE))
    await tokens.insert(connection, DEFAULT_TENANT, TOKEN, "admin", "test")
    await connection.close()
    await admin.close()


async def drop_database(admin: asyncpg.Connection, name: str) -> None:
    """Drop a database, also if it is in use. `with (force)` fails while autovacuum works in it, because our role may
    not end that; without `force`, PostgreSQL ends it by itself. Nobody connects again in between."""
    await admin.execute(f"alter database {name} allow_connections false")
    await admin.execute(
        "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = $1 and usename = current_user",
        name,
    )
    await admin.execute(f"drop database {name}")


async def _create(admin: asyncpg.Connection, name: str, template: str) -> None:
    await admin.execute(f"create database {name} template {template} strategy file_copy")


class Databases:
    """Creates and drops the databases of all tests of this process, with one connection. Each test has an event loop of
    its own, so the connection has a thread and a loop of its own."""

    def __init__(self, postgres: EmbeddedPostgres) -> None:
        self._url = postgres.url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="databases", daemon=True)
        self._thread.start()
        self._turn = asyncio.Lock()
        self._admin: asyncpg.Connection | None = None

    @asynccontextmanager
    async def a_database(self, template: str) -> AsyncIterator[str]:
        url = await self.created(template)
        try:
            yield url
        finally:
            await self.dropped(url)

    @contextmanager
    def a_shared_database(self, template: str) -> Iterator[str]:
        """A database for a fixture that several tests share, each with a loop of its own."""
        name = f"test_{uuid4().hex}"
        self._do(lambda admin: _create(admin, name, template)).result()
        try:
            yield self._url(name)
        finally:
            self._do(lambda admin: drop_database(admin, name)).result()

    async def created(self, template: str) -> str:
        name = f"test_{uuid4().hex}"
        await asyncio.wrap_future(self._do(lambda admin: _create(admin, name, template)))
        return self._url(name)

    async def dropped(self, url: str) -> None:
        name = address_of(url).database
        await asyncio.wrap_future(self._do(lambda admin: drop_database(admin, name)))

    async def run(self, work: Callable[[], Coroutine[None, None, T]]) -> T:
        """Do this in the loop of the connections that outlive a test."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))

    def _do(self, work: Callable[[asyncpg.Connection], Awaitable[object]]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(self._with_admin(work), self._loop)

    async def _with_admin(self, work: Callable[[asyncpg.Connection], Awaitable[object]]) -> None:
        async with self._turn:
            if self._admin is None or self._admin.is_closed():
                self._admin = await asyncpg.connect(self._url("postgres"))
            await work(self._admin)

    def close(self) -> None:
        async def close() -> None:
            if self._admin is not None:
                self._admin.terminate()

        asyncio.run_coroutine_threadsafe(close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="session")
def databases(postgres: EmbeddedPostgres) -> Iterator[Databases]:
    made = Databases(postgres)
    yield made
    made.close()


@pytest.fixture(scope="module")
async def kept_database(databases: Databases) -> AsyncIterator[KeptDatabase]:
    """The database of those tests of a module that share one, and the pools of their servers."""
    kept = KeptDatabase(databases, TEMPLATE)

    async def lent(where: str | Database, **options: Any) -> Store:
        return await kept.lend(where, options) or await open_store(where, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembling, "open_store", lent)
        yield kept
    await kept.close()


@pytest.fixture
def kept_if_shared(request: pytest.FixtureRequest) -> KeptDatabase | None:
    """The kept database, if all that uses it is in this process, and ends with the test. `@pytest.mark.own_database` is
    for tests that need a new one, and for those that change the settings of connections."""
    names = request.fixturenames
    if OWN or THROUGH is not Pooling.NONE or not {"assembly", "store", "connection"}.intersection(names):
        return None
    if "cluster" in names or request.node.get_closest_marker("own_database"):
        return None
    kept: KeptDatabase = request.getfixturevalue("kept_database")
    return kept


@pytest.fixture
async def database_url(databases: Databases, kept_if_shared: KeptDatabase | None) -> AsyncIterator[str]:
    """A migrated database with the admin token TOKEN, and nothing else in it."""
    if kept_if_shared is None:
        async with databases.a_database(TEMPLATE) as url:
            yield url
    else:
        async with kept_if_shared.used() as url:
            yield url


@pytest.fixture
async def empty_url(databases: Databases) -> AsyncIterator[str]:
    """A database with nothing in it: not migrated, and no token."""
    async with databases.a_database("template1") as url:
        yield url


@pytest.fixture(scope="session")
def superuser_of(postgres: EmbeddedPostgres) -> Callable[[str], str]:
    """Turns a URL of a database into one of its superuser, who can log in only in the tests that use this fixture."""

    def url(of: str) -> str:
        return of.replace(f"//{ROLE}@", "//postgres@")

    async def until_allowed() -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    return await (await asyncpg.connect(url(postgres.url()))).close()
                except asyncpg.InvalidAuthorizationSpecificationError:
                    await asyncio.sleep(0.01)

    rules = postgres.access.hba_file
    rules.write_text(f"local all postgres trust\n{rules.read_text()}")
    assert postgres.pid is not None
    os.kill(postgres.pid, signal.SIGHUP)
    asyncio.run(until_allowed())
    return url


@pytest.fixture
async def superuser(database_url: str, superuser_of: Callable[[str], str]) -> AsyncIterator[asyncpg.Connection]:
    """A superuser's connection to the test's database."""
    opened = await asyncpg.connect(superuser_of(database_url))
    yield opened
    await opened.close()


@pytest.fixture
async def connection(database_url: str, kept_if_shared: KeptDatabase | None) -> AsyncIterator[asyncpg.Connection]:
    if kept_if_shared is None:
        opened = await asyncpg.connect(database_url)
        yield opened
        await opened.close()
    else:
        async with kept_if_shared.connection() as kept:
            yield kept


@pytest.fixture(scope="session")
def pgbouncer(postgres: EmbeddedPostgres) -> Iterator[PgBouncer | None]:
    """MAINSPRING_TEST_PGBOUNCER=transaction or =session: what uses `store`, `assembly` or `api` goes through one."""
    if THROUGH is Pooling.NONE:
        yield None
        return
    with a_pgbouncer(postgres, THROUGH) as bouncer:
        yield bouncer


def reached(url: str, pgbouncer: PgBouncer | None) -> Database:
    """A database as servers reach it."""
    return Database(url) if pgbouncer is None else through(pgbouncer, url, THROUGH)


@pytest.fixture
def where(database_url: str, pgbouncer: PgBouncer | None) -> Database:
    """The database of the test, as servers reach it."""
    return reached(database_url, pgbouncer)


@pytest.fixture
async def store(where: Database) -> AsyncIterator[Store]:
    opened = await assembling.open_store(where)
    yield opened
    with at_the_end():
        await opened.close()


@asynccontextmanager
async def put_together(where: Database) -> AsyncIterator[Assembly]:
    """A whole server, put together as in production; its loops do not run: tests drive `run_once` themselves."""
    assembled = await assemble(where, SystemClock(), chance=lambda: 0.5, timing=LONG_LEASES)
    yield assembled
    with at_the_end():
        await assembled.close()


@pytest.fixture
async def assembly(where: Database) -> AsyncIterator[Assembly]:
    async with put_together(where) as assembled:
        yield assembled


@pytest.fixture
async def api(assembly: Assembly) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client of that server, with the admin token."""
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers) as client:
        yield client
