"""A ledger of charges over each of the database libraries that `exactly_once` knows."""

from __future__ import annotations

import importlib.util
import inspect
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.orm import Session

CHARGES = "create table if not exists charges (account text, cents integer)"
CHARGE = "insert into charges values ('a1', 1000)"
COUNT = "select count(*) from charges"


@dataclass(frozen=True)
class Place:
    """Where a test's databases are."""

    postgres: str
    folder: Path

    def alchemy(self, driver: str) -> str:
        return self.postgres.replace("postgresql://", f"postgresql+{driver}://", 1)

    @property
    def sqlite(self) -> Path:
        return self.folder / "ledger.db"


@dataclass
class Ledger:
    """One connection with an open transaction; `execute` gives the first value of the first row, if there is one."""

    connection: Any
    execute: Callable[[str], Any]
    commit: Callable[[], Any]
    rollback: Callable[[], Any]
    close: Callable[[], Any]


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def open_sqlite(place: Place) -> Ledger:
    connection = sqlite3.connect(place.sqlite, timeout=60)

    def execute(text: str) -> Any:
        row = connection.execute(text).fetchone()
        return row and row[0]

    return Ledger(connection, execute, connection.commit, connection.rollback, connection.close)


async def open_psycopg(place: Place) -> Ledger:
    connection = psycopg.connect(place.postgres)

    def execute(text: str) -> Any:
        cursor = connection.execute(text)
        return cursor.fetchone()[0] if cursor.description else None  # type: ignore[index]

    return Ledger(connection, execute, connection.commit, connection.rollback, connection.close)


async def open_psycopg_async(place: Place) -> Ledger:
    connection = await psycopg.AsyncConnection.connect(place.postgres)

    async def execute(text: str) -> Any:
        cursor = await connection.execute(text)
        return (await cursor.fetchone())[0] if cursor.description else None  # type: ignore[index]

    return Ledger(connection, execute, connection.commit, connection.rollback, connection.close)


async def open_asyncpg(place: Place) -> Ledger:
    return await _asyncpg(await asyncpg.connect(place.postgres), None)


async def open_asyncpg_pool(place: Place) -> Ledger:
    pool = await asyncpg.create_pool(place.postgres, min_size=1, max_size=1)
    return await _asyncpg(await pool.acquire(), pool)


async def _asyncpg(connection: Any, pool: Any) -> Ledger:
    state = {"transaction": connection.transaction()}
    await state["transaction"].start()

    async def end(how: str) -> None:
        await getattr(state["transaction"], how)()
        state["transaction"] = connection.transaction()
        await state["transaction"].start()

    async def close() -> None:
        await state["transaction"].rollback()
        if pool is None:
            await connection.close()
        else:
            await pool.release(connection)
            await pool.close()

    return Ledger(connection, connection.fetchval, lambda: end("commit"), lambda: end("rollback"), close)


def _alchemy(url: Callable[[Place], str], session: bool) -> Callable[[Place], Awaitable[Ledger]]:
    async def opened(place: Place) -> Ledger:
        engine = sqlalchemy.create_engine(url(place))
        connection: Any = Session(engine) if session else engine.connect()

        def execute(text: str) -> Any:
            result = connection.execute(sqlalchemy.text(text))
            return result.scalar() if result.returns_rows else None

        def close() -> None:
            connection.close()
            engine.dispose()

        return Ledger(connection, execute, connection.commit, connection.rollback, close)

    return opened


def _alchemy_async(session: bool) -> Callable[[Place], Awaitable[Ledger]]:
    async def opened(place: Place) -> Ledger:
        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

        engine = create_async_engine(place.alchemy("asyncpg"))
        connection: Any = AsyncSession(engine) if session else await engine.connect()

        async def execute(text: str) -> Any:
            result = await connection.execute(sqlalchemy.text(text))
            return result.scalar() if result.returns_rows else None

        async def close() -> None:
            await connection.close()
            await engine.dispose()

        return Ledger(connection, execute, connection.commit, connection.rollback, close)

    return opened


ON_POSTGRES: dict[str, Callable[[Place], Awaitable[Ledger]]] = {
    "psycopg": open_psycopg,
    "psycopg async": open_psycopg_async,
    "asyncpg": open_asyncpg,
    "asyncpg pool": open_asyncpg_pool,
    "sqlalchemy": _alchemy(lambda place: place.alchemy("psycopg"), session=False),
    "sqlalchemy session": _alchemy(lambda place: place.alchemy("psycopg"), session=True),
}
if importlib.util.find_spec("greenlet"):  # what SQLAlchemy's async side is made with; not part of SQLAlchemy alone
    ON_POSTGRES["sqlalchemy async"] = _alchemy_async(session=False)
    ON_POSTGRES["sqlalchemy async session"] = _alchemy_async(session=True)
ON_SQLITE: dict[str, Callable[[Place], Awaitable[Ledger]]] = {
    "sqlite3": open_sqlite,
    "sqlalchemy on sqlite": _alchemy(lambda place: f"sqlite:///{place.sqlite}?timeout=60", session=False),
}
ALL = ON_POSTGRES | ON_SQLITE
