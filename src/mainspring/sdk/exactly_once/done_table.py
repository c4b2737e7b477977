"""The table of `exactly_once`, and the access to it through each database library.

The statements are written once, as generators that yield statements and receive the number of rows. There is one
function per library that executes them. The library of a connection is recognized by the name of its class, so that no
database library has to be imported.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from mainspring.domain.errors import InvalidInput

TABLE = "mainspring_done"
DDL = f"create table if not exists {TABLE} (key text primary key, run_id text, done_at timestamptz not null)"
_CREATION_LOCK = 0x6D61696E7370  # if several find no table at the same time, one creates it and the others wait
_IDLE = 0  # psycopg.pq.TransactionStatus.IDLE
_NO_PIPELINE = 0  # psycopg.pq.PipelineStatus.OFF

T = TypeVar("T")


class Statement(NamedTuple):
    text: str
    values: tuple[Any, ...] = ()


Steps = Generator[Statement, int, T]
MakeSteps = Callable[["Dialect"], Steps[T]]


class Dialect(NamedTuple):
    """The SQL of one kind of database, with the placeholders of one library."""

    marks: tuple[str, str, str]
    sqlite: bool = False

    def record(self, key: str, run_id: str | None) -> Steps[bool]:
        """Insert a record. True if it did not exist before."""
        if not (yield self._is_there):
            if not self.sqlite:
                yield Statement(f"select pg_advisory_xact_lock({_CREATION_LOCK})")
            yield Statement(DDL)
        now, values = "clock_timestamp()", [key, run_id]
        if self.sqlite:
            now, values = self.marks[2], [key, run_id, sortable(datetime.now(UTC))]
        added = yield Statement(
            f"insert into {TABLE} (key, run_id, done_at) values ({self.marks[0]}, {self.marks[1]}, {now}) "
            "on conflict (key) do nothing",
            tuple(values),
        )
        return added == 1

    def forget(self, moment: datetime) -> Steps[int]:
        """Delete the records from before `moment`. Returns their number."""
        if not (yield self._is_there):
            return 0
        bound = sortable(moment) if self.sqlite else moment
        return (yield Statement(f"delete from {TABLE} where done_at < {self.marks[0]}", (bound,)))

    @property
    def _is_there(self) -> Statement:
        if self.sqlite:
            return Statement(f"select 1 from sqlite_master where name = '{TABLE}'")
        return Statement(f"select 1 where to_regclass('{TABLE}') is not null")


def sortable(moment: datetime) -> str:
    """UTC as text of fixed width, so that SQLite sorts it by time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


QUESTION_MARKS = Dialect(("?", "?", "?"), sqlite=True)
PERCENT = Dialect(("%s", "%s", "%s"))
PERCENT_SQLITE = PERCENT._replace(sqlite=True)
DOLLARS = Dialect(("$1", "$2", "$3"))
NAMED = Dialect((":p0", ":p1", ":p2"))
NAMED_SQLITE = NAMED._replace(sqlite=True)


def run_steps(connection: Any, make_steps: MakeSteps[T], *, in_transaction: bool) -> T | Awaitable[T]:
    """Execute the steps on this connection. Returns the result, or an awaitable for an async connection.

    With `in_transaction`, a connection in autocommit mode is rejected.
    """
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(connection).__mro__}
    for names, library in _LIBRARIES:
        if kinds & names:
            result: T | Awaitable[T] = library(connection, make_steps, in_transaction)
            return result
    raise TypeError(
        f"exactly_once does not support {type(connection).__module__}.{type(connection).__qualname__}. "
        "Use a connection of sqlite3, psycopg, asyncpg, SQLAlchemy or Django."
    )


class MustAwait(Generic[T]):
    """A result that must be awaited. Without await, `if exactly_once(...)` would always be true and the effect would
    happen each time. Its truth value therefore raises an error."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def __bool__(self) -> NoReturn:
        self._coroutine.close()
        raise TypeError("this connection is async. Await the result: `if await mainspring.exactly_once(...):`")


def _refuse(how: str) -> None:
    raise InvalidInput(
        "this connection commits each statement separately, so record and effect would not be atomic",
        code="no_transaction",
        field="connection",
        hint=how,
    )


def _run_sync(steps: Steps[T], run: Callable[[Statement], int]) -> T:
    statement = next(steps)
    try:
        while True:
            statement = steps.send(run(statement))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def _run_async(steps: Steps[T], run: Callable[[Statement], Awaitable[int]]) -> T:
    statement = next(steps)
    while True:
        rows = await run(statement)
        try:
            statement = steps.send(rows)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


# -- one function per library


def _sqlite(connection: Any, make_steps: MakeSteps[T], in_transaction: bool) -> T:
    if in_transaction:
        _check_sqlite(connection)

    def run(statement: Statement) -> int:
        cursor = connection.execute(*statement)
        return 1 if cursor.description and cursor.fetchone() else max(0, cursor.rowcount)

    return _run_sync(make_steps(QUESTION_MARKS), run)


def _check_sqlite(connection: Any) -> None:
    # Python 3.12 added `autocommit`. Before that, and with its default, isolation_level None means the same.
    alone = getattr(connection, "autocommit", None) is True or connection.isolation_level is None
    if alone and not connection.in_transaction:
        _refuse('execute "begin immediate" first, or leave isolation_level at its default')


def _psycopg(connection: Any, make_steps: MakeSteps[T], in_transaction: bool) -> T:
    _check_psycopg(connection, in_transaction)
    return _run_sync(make_steps(PERCENT), lambda statement: int(connection.execute(*statement).rowcount))


def _psycopg_async(connection: Any, make_steps: MakeSteps[T], in_transaction: bool) -> Awaitable[T]:
    _check_psycopg(connection, in_transaction)

    async def run(statement: Statement) -> int:
        return int((await connection.execute(*statement)).rowcount)

    return MustAwait(_run_async(make_steps(PERCENT), run))


def _check_psycopg(connection: Any, in_transaction: bool) -> None:
    if in_transaction and connection.autocommit and connection.info.transaction_status == _IDLE:
        _refuse('use "with connection.transaction():", or leave autocommit off')
    if getattr(connection.pgconn, "pipeline_status", _NO_PIPELINE) != _NO_PIPELINE:  # psycopg 3.0 has none
        # In pipeline mode the number of rows is not known yet, so every record would look like an existing one.
        raise InvalidInput(
            "this connection is in pipeline mode, where results are not available yet",
            code="in_pipeline",
            field="connection",
            hint='call exactly_once before "with connection.pipeline():"',
        )


def _asyncpg(connection: Any, make_steps: MakeSteps[T], in_transaction: bool) -> Awaitable[T]:
    if in_transaction and not connection.is_in_transaction():
        _refuse('use "async with connection.transaction():"')

    async def run(statement: Statement) -> int:
        # Such as "INSERT 0 1", "SELECT 1", "CREATE TABLE".
        count = (await connection.execute(statement.text, *statement.values)).rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    return MustAwait(_run_async(make_steps(DOLLARS), run))


def _sqlalchemy(connection: Any, make_steps: MakeSteps[T], in_transaction: bool) -> T:
    from sqlalchemy import text

    dialect = connection.dialect.name
    if dialect not in ("postgresql", "sqlite"):
        raise TypeError(f"exactly_once works with PostgreSQL and SQLite, not with {dialect}")
    if in_transaction:
        _check_sqlalchemy(connection)

    def run(statement: Statement) -> int:
        values = {f"p{place}": value for place, value in enumerate(statement.values)}
        result = connection.execute(text(statement.text), values)
        return len(result.fetchall()) if result.returns_rows else int(result.rowcount)

    return _run_sync(make_steps(NAMED_SQLITE if dialect == "sqlite" else NAMED), run)


def _check_sqlalchemy(connection: Any) -> None:
    raw = connection.connection
    if connection.dialect.name == "sqlite":
        _check_sqlite(raw.driver_connection)
    elif getattr(raw.dbapi_connection, "autocommit", False) is True:
        _refuse("open the connection without isolation_level AUTOCOMMIT")


def _sqlalchemy_session(session: Any, make_steps: MakeSteps[T], in_transaction: bool) -> T:
    return _sqlalchemy(session.connection(), make_steps, in_transaction)


def _sqlalchemy_async(connection: Any, make_steps: MakeSteps[T], in_transaction: bool) -> Awaitable[T]:
    return MustAwait(connection.run_sync(_sqlalchemy, make_steps, in_transaction))


def _sqlalchemy_async_session(session: Any, make_steps: MakeSteps[T], in_transaction: bool) -> Awaitable[T]:
    async def run() -> T:
        return await _sqlalchemy_async(await session.connection(), make_steps, in_transaction)

    return MustAwait(run())


def _django(connection: Any, make_steps: MakeSteps[T], in_transaction: bool) -> T:
    if connection.vendor not in ("postgresql", "sqlite"):
        raise TypeError(f"exactly_once works with PostgreSQL and SQLite, not with {connection.vendor}")
    if in_transaction and connection.get_autocommit():
        _refuse('use "with transaction.atomic():"')

    def run(statement: Statement) -> int:
        with connection.cursor() as cursor:
            cursor.execute(*statement)
            return 1 if cursor.description and cursor.fetchone() else max(0, cursor.rowcount)

    return _run_sync(make_steps(PERCENT_SQLITE if connection.vendor == "sqlite" else PERCENT), run)


_LIBRARIES: list[tuple[set[tuple[str, str]], Callable[[Any, MakeSteps[Any], bool], Any]]] = [
    ({("sqlite3", "Connection")}, _sqlite),
    ({("psycopg", "Connection")}, _psycopg),
    ({("psycopg", "AsyncConnection")}, _psycopg_async),
    ({("asyncpg", "Connection"), ("asyncpg", "PoolConnectionProxy")}, _asyncpg),
    ({("sqlalchemy", "Connection")}, _sqlalchemy),
    ({("sqlalchemy", "Session"), ("sqlalchemy", "scoped_session")}, _sqlalchemy_session),
    ({("sqlalchemy", "AsyncConnection")}, _sqlalchemy_async),
    ({("sqlalchemy", "AsyncSession"), ("sqlalchemy", "async_scoped_session")}, _sqlalchemy_async_session),
    ({("django", "BaseDatabaseWrapper"), ("django", "ConnectionProxy")}, _django),
]
