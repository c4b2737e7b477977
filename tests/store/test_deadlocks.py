"""Of two transactions that wait for each other PostgreSQL ends one. It is repeated, and both are stored."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.pool import Store

pytestmark = pytest.mark.anyio


async def test_the_one_that_is_ended_is_repeated(store: Store, connection: asyncpg.Connection) -> None:
    await connection.execute("create table rows (id int primary key, seen int not null default 0)")
    await connection.execute("insert into rows values (1), (2)")
    both = asyncio.Barrier(2)
    tries = []

    async def transaction(first: int, second: int) -> None:
        tries.append(first)
        async with store.hot.acquire() as own, own.transaction():
            await own.execute("update rows set seen = seen + 1 where id = $1", first)
            if len(tries) <= 2:
                await both.wait()
            await own.execute("update rows set seen = seen + 1 where id = $1", second)

    await asyncio.gather(
        despite_deadlocks(lambda: transaction(1, 2)), despite_deadlocks(lambda: transaction(2, 1))
    )  # fmt: skip
    assert len(tries) > 2  # it may meet the other one again, which has not gone on yet
    assert await connection.fetchval("select array_agg(seen order by id) from rows") == [2, 2]


async def test_it_is_not_repeated_for_ever_and_not_after_other_errors() -> None:
    tries = []

    async def transaction(error: type[Exception]) -> None:
        tries.append(error)
        raise error

    with pytest.raises(asyncpg.DeadlockDetectedError):
        await despite_deadlocks(lambda: transaction(asyncpg.DeadlockDetectedError))
    assert len(tries) == 5
    with pytest.raises(ValueError, match=r"^$"):
        await despite_deadlocks(lambda: transaction(ValueError))
    assert len(tries) == 6
