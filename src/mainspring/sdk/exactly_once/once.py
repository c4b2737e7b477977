"""Exactly-once effects: a run's key is recorded in your own database, in your own transaction.

A run is delivered at least once. A worker can die after it has charged a card and before it has reported that. The run
is retried then. `exactly_once` closes this gap for effects in a database: key and effect are committed together, so a
second attempt finds the key and skips the effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from datetime import datetime
from typing import Any, Protocol, overload

from mainspring.domain.errors import InvalidInput
from mainspring.domain.run_key import idempotency_key
from mainspring.sdk.exactly_once.done_table import DDL, run_steps
from mainspring.sdk.tasks.context import Context
from mainspring.wire.runs import RunView

_LONGEST = 1000
Run = Context | RunView | str


class PlainConnection(Protocol):
    """A connection of sqlite3, psycopg or SQLAlchemy (a Session too), or Django's."""

    def commit(self) -> None: ...


class AwaitedConnection(Protocol):
    """An AsyncConnection of psycopg or SQLAlchemy, or an AsyncSession."""

    def commit(self) -> Coroutine[Any, Any, None]: ...


class AsyncpgConnection(Protocol):
    """A connection of asyncpg, its own or one of a pool."""

    def is_in_transaction(self) -> bool: ...


@overload
def exactly_once(connection: PlainConnection, run: Run, *, step: str | None = None) -> bool: ...


@overload
def exactly_once(
    connection: AwaitedConnection | AsyncpgConnection, run: Run, *, step: str | None = None
) -> Awaitable[bool]: ...


def exactly_once(connection: Any, run: Run, *, step: str | None = None) -> bool | Awaitable[bool]:
    """Record in the open transaction that `run` does its work. True the first time, False if it was done before.

        with psycopg.connect(URL) as connection:      # commits at the end, rolls back on an error
            if mainspring.exactly_once(connection, ctx):
                connection.execute("insert into charges values (%s, %s)", (account, cents))

        async with pool.acquire() as connection, connection.transaction():      # asyncpg
            if await mainspring.exactly_once(connection, ctx):
                await connection.execute("insert into charges values ($1, $2)", account, cents)

    The connection is one of sqlite3, psycopg, asyncpg, SQLAlchemy or Django. Await the result of an async connection.
    `run` is the task's Context, a RunView, or your own key. The key of a run consists of its job and its fire time. It
    is the same for all attempts and for a replay of that fire. A run that repeats a success, or has another payload
    than the run that it repeats, has a key of its own. `step` names one of several effects of the same run:
    `exactly_once(connection, ctx, step="mail")`.

    The function does not commit. You commit, and a rollback reverts the record together with the effect. If two
    attempts run at the same time, the second one waits for the transaction of the first. It returns False, or True if
    the first was rolled back. (SQLite has one writer at a time: use "begin immediate" if you read before you write.) A
    connection that commits each statement separately is rejected, because record and effect would not be atomic.

    The table `mainspring_done` is created on first use. `exactly_once_table` returns the statement to create it
    earlier.
    """
    key = _key_of(run, step)
    run_id = None if isinstance(run, str) else run.run_id
    return run_steps(connection, lambda dialect: dialect.record(key, run_id), in_transaction=True)


def exactly_once_table() -> str:
    """The statement that creates the table of `exactly_once`, for your migrations. It works in PostgreSQL and SQLite.

    connection.execute(mainspring.exactly_once_table())
    """
    return DDL


@overload
def forget_before(connection: PlainConnection, moment: datetime) -> int: ...


@overload
def forget_before(connection: AwaitedConnection | AsyncpgConnection, moment: datetime) -> Awaitable[int]: ...


def forget_before(connection: Any, moment: datetime) -> int | Awaitable[int]:
    """Remove the records of `exactly_once` from before `moment` and return their number. You commit.

        mainspring.forget_before(connection, datetime.now(UTC) - timedelta(days=90))

    A run that is retried or replayed after its record was removed does its work again. Keep records for longer than you
    would replay a run.
    """
    if moment.tzinfo is None:
        raise InvalidInput(f"{moment} has no time zone", field="moment", hint="use datetime.now(UTC) or .astimezone()")
    return run_steps(connection, lambda dialect: dialect.forget(moment), in_transaction=False)


def _key_of(run: Run, step: str | None) -> str:
    match run:
        case str():
            key = run
        case Context():
            key = run.idempotency_key
        case RunView():
            key = run.idempotency_key or idempotency_key(  # older servers show none
                run.job_id, run.scheduled_for, generation=run.generation
            )
        case _:
            raise TypeError(f"run must be a Context, a RunView or a key, not {type(run).__name__}")
    for field, text in (("run", key), ("step", step)):
        if text is not None and not 1 <= len(text) <= _LONGEST:
            raise InvalidInput(f"{field} is empty or too long", field=field, expected=f"1 to {_LONGEST} characters")
    # The first # separates key and step, so that a key with a step never equals another key.
    whole = key.replace("%", "%25").replace("#", "%23")
    return whole if step is None else f"{whole}#{step}"
