"""A database that the tests of a module use one after the other, with their connections.

A new connection to a new database plans every statement anew: that was half of the CPU time of most tests. So the
database and the pools stay, and after each test the database gets the rows of the template again. If a test has changed
anything else (tables, functions, settings, statistics), or has left many dead rows, the next test gets a new database.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import asyncpg

from mainspring.store.database import Database, Pooling, database_at
from mainspring.store.pool import Store, open_store

_MOST_DEAD_ROWS = 3_000
_FIRST_OF_USERS = 16_384  # smaller object ids are PostgreSQL's own

# Changes if a test has created, changed, dropped, analyzed or vacuumed something. The last line has the settings.
# A truncated table is another file, which nobody sees.
_CATALOG = f"""
select array[
    (select sum(hashtextextended(format('%s %s %s %s %s %s', oid, relname, relowner, relacl, greatest(reltuples, 0),
                                        reloptions), 0))
     from pg_class where oid >= {_FIRST_OF_USERS}),
    (select sum(hashtextextended(format('%s %s', attrelid, xmin), 0))
     from pg_attribute where attrelid >= {_FIRST_OF_USERS}),
    (select sum(hashtextextended(format('%s %s', oid, xmin), 0)) from pg_proc where oid >= {_FIRST_OF_USERS}),
    (select sum(hashtextextended(format('%s %s', oid, xmin), 0)) from pg_trigger),
    (select sum(hashtextextended(format('%s %s', oid, xmin), 0)) from pg_constraint where oid >= {_FIRST_OF_USERS}),
    (select sum(hashtextextended(format('%s %s', oid, xmin), 0)) from pg_namespace),
    (select sum(hashtextextended(s::text, 0)) from pg_db_role_setting s)
]::text
"""
_TABLES = """
select c.oid::regclass::text as name,
    array(select quote_ident(attname) from pg_attribute
          where attrelid = c.oid and attnum > 0 and not attisdropped and attgenerated = '') as columns,
    array(select confrelid::regclass::text from pg_constraint
          where conrelid = c.oid and contype = 'f' and confrelid <> c.oid) as parents
from pg_class c
where c.relkind = 'r' and c.oid >= $1 and c.relnamespace <> 'information_schema'::regnamespace
order by c.oid
"""
_SEQUENCES = """
select quote_ident(schemaname) || '.' || quote_ident(sequencename) as name, coalesce(last_value, start_value) as value,
    last_value is not null as called
from pg_sequences
"""
_END_OTHERS = """
select count(pg_terminate_backend(pid, 60000)) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and pid <> all($1::int[])
"""
_LOCKED = """
select count(*) from pg_locks
where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())
"""
# What a reset of a connection leaves: `set role`, and statements of PREPARE.
_IS_PLAIN = "select current_user = session_user and not exists (select from pg_prepared_statements where from_sql)"


class Databases(Protocol):
    async def created(self, template: str) -> str: ...

    async def dropped(self, url: str) -> None: ...

    async def run(self, work: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class LentStore(Store):
    """Pools that are given back when the server of a test is closed, if that is the end of the test."""

    kept: KeptDatabase | None = None
    options: tuple[tuple[str, object], ...] = ()

    async def close(self) -> None:
        if self.kept is not None and _at_the_end.get():
            self.kept.give_back(self)
        else:
            await Store.close(self)


_at_the_end: contextvars.ContextVar[bool] = contextvars.ContextVar("_at_the_end", default=False)


@contextmanager
def at_the_end() -> Iterator[None]:
    """What is closed here is not used again by its test."""
    token = _at_the_end.set(True)
    try:
        yield
    finally:
        _at_the_end.reset(token)


class Contents:
    """The rows of a database that is new, and how to have them again."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._parents: dict[str, list[str]] = {}
        self._columns: dict[str, str] = {}
        self._seeds: dict[str, str] = {}
        self._sequences: dict[str, tuple[int, bool]] = {}
        self._state = ""
        self._fresh: dict[str, object] = {}
        self._catalog = ""
        self._dead = 0

    async def remember(self) -> None:
        fetch = self._connection.fetch
        for table in await fetch(_TABLES, _FIRST_OF_USERS):
            self._parents[table["name"]], self._columns[table["name"]] = table["parents"], ", ".join(table["columns"])
        for name in self._parents:
            rows = await self._connection.fetchval(f"select jsonb_agg(t)::text from {name} t")
            if rows is not None:
                self._seeds[name] = rows
        self._sequences = {row["name"]: (row["value"], row["called"]) for row in await fetch(_SEQUENCES)}
        self._state = "select " + ", ".join(
            f'(select sum(hashtextextended(t::text, 0))::text from {name} t) as "{name}"'
            if name in self._seeds
            else f'exists (select from {name}) as "{name}"'
            for name in self._parents
        )
        self._fresh = dict(await self._connection.fetchrow(self._state))
        self._catalog = await self._connection.fetchval(_CATALOG)

    async def restore(self, pids: Sequence[int]) -> bool:
        """Returns whether the database is as it was. pids: the connections that stay."""
        connection = self._connection
        await connection.execute("set lock_timeout = '30s'")
        await connection.fetchval(_END_OTHERS, pids)
        if await connection.fetchval(_CATALOG) != self._catalog or await connection.fetchval(_LOCKED):
            return False
        now = await connection.fetchrow(self._state)
        changed = {name for name, value in now.items() if value != self._fresh[name]}
        for name, parents in self._parents.items():
            if changed.intersection((name, *parents)):
                changed.update((name, *parents))
        children_first = sorted(changed, key=lambda name: not self._parents[name])
        script = [f"delete from {name}" for name in children_first]
        script += [f"select setval('{name}', {value}, {called})" for name, (value, called) in self._sequences.items()]
        async with connection.transaction():
            for statement in script:
                if statement.startswith("delete"):
                    self._dead += int((await connection.execute(statement)).split()[-1])
                else:
                    await connection.execute(statement)
            for name in reversed(children_first):
                if name in self._seeds:
                    columns = self._columns[name]
                    await connection.execute(
                        f"insert into {name} ({columns}) overriding system value "
                        f"select {columns} from jsonb_populate_recordset(null::{name}, $1::jsonb)",
                        self._seeds[name],
                    )
        return self._dead < _MOST_DEAD_ROWS

    async def close(self) -> None:
        self._connection.terminate()


class KeptDatabase:
    def __init__(self, databases: Databases, template: str) -> None:
        self._databases = databases
        self._template = template
        self._url: str | None = None
        self._contents: Contents | None = None
        self._idle: dict[tuple[tuple[str, object], ...], list[Store]] = {}
        self._lent: list[LentStore] = []
        self._connection: asyncpg.Connection | None = None

    @asynccontextmanager
    async def used(self) -> AsyncIterator[str]:
        """The database, for one test."""
        if self._url is None:
            await self._begin()
        assert self._url is not None
        tasks, context = asyncio.all_tasks(), contextvars.copy_context()
        try:
            yield self._url
        finally:
            await _end_tasks(asyncio.all_tasks() - tasks)
            _restore_variables(context)
            await self._restore()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection without a pool, as new: without settings, locks, listeners and transaction."""
        opened, self._connection = self._connection, None
        if opened is None or opened.is_closed():
            opened = await asyncpg.connect(self._url)
        try:
            yield opened
        finally:
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
                await opened.reset(timeout=10)
                if await opened.fetchval(_IS_PLAIN):
                    opened, self._connection = self._connection, opened
            if opened is not None:
                opened.terminate()

    async def lend(self, where: str | Database, options: dict[str, Any]) -> Store | None:
        """A store with pools that are connected already, if it is about this database."""
        database = database_at(where)
        if database.url != self._url or database.pooling is not Pooling.NONE:
            return None
        key = tuple(sorted(options.items()))
        idle = self._idle.get(key)
        store = idle.pop() if idle else await open_store(database, **options)
        lent = LentStore(
            database,
            store.hot,
            store.reads,
            store.urgent,
            store.groups,
            store.logs,
            store.connections,
            kept=self,
            options=key,
        )
        self._lent.append(lent)
        return lent

    def give_back(self, lent: LentStore) -> None:
        if lent not in self._lent:
            return
        self._lent.remove(lent)
        if any(pool._closed for pool in _pools(lent)):
            return
        for pool in _pools(lent):
            for holder in pool._holders:
                if holder._in_use is not None:
                    holder.terminate()
        kept = Store(lent.database, *_pools(lent), lent.connections)
        self._idle.setdefault(lent.options, []).append(kept)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
        for stores in self._idle.values():
            for store in stores:
                await Store.close(store)
        self._idle.clear()
        if self._url is not None:
            url, self._url = self._url, None
            contents, self._contents = self._contents, None
            if contents is not None:
                await self._databases.run(contents.close)
            await self._databases.dropped(url)

    async def _begin(self) -> None:
        self._url = url = await self._databases.created(self._template)

        async def remember() -> Contents:
            contents = Contents(await asyncpg.connect(url))
            await contents.remember()
            return contents

        self._contents = await self._databases.run(remember)

    async def _restore(self) -> None:
        for lent in self._lent:  # never closed, or closed before the end
            await Store.close(lent)
        self._lent.clear()
        pids = [
            holder._con.get_server_pid()
            for stores in self._idle.values()
            for store in stores
            for pool in _pools(store)
            for holder in pool._holders
            if holder._con is not None and not holder._con.is_closed()
        ]
        if self._connection is not None and not self._connection.is_closed():
            pids.append(self._connection.get_server_pid())
        contents = self._contents
        assert contents is not None
        try:
            same = await self._databases.run(lambda: contents.restore(pids))
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            same = False
        if not same:
            await self.close()


def _pools(store: Store) -> tuple[asyncpg.Pool, ...]:
    return (store.hot, store.reads, store.urgent, store.groups, store.logs)


def _restore_variables(before: contextvars.Context) -> None:
    """All tests of a module run in one task, so what one has set is there for the next one. A variable that was not set
    gets its default; without a default it stays."""
    for variable in contextvars.copy_context():
        with suppress(LookupError):
            value = before[variable] if variable in before else contextvars.Context().run(variable.get)
            if variable.get() is not value:
                variable.set(value)


async def _end_tasks(tasks: set[asyncio.Task[Any]]) -> None:
    """As the end of an event loop does it. The tasks of anyio itself wait for this one."""
    tasks = {task for task in tasks if not task.get_coro().__qualname__.startswith("TestRunner.")}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
