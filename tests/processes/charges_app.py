"""An application that charges accounts in its own database, for the test of exactly-once effects."""

from __future__ import annotations

import asyncio
import os
import signal

import asyncpg

import mainspring
from mainspring import Context, Mainspring

LEDGER_VARIABLE = "CHARGES_LEDGER_URL"
FATAL_ACCOUNT = 7  # the worker that has charged it dies before it reports
SCHEMA = """
create table charges (account integer not null, cents integer not null, attempt integer not null);
create table committed_attempts (account integer not null, attempt integer not null);
"""

app = Mainspring()
_pools: list[asyncio.Future[asyncpg.Pool]] = []


async def ledger() -> asyncpg.Pool:
    if not _pools:
        opening = asyncpg.create_pool(os.environ[LEDGER_VARIABLE], min_size=1, max_size=8)
        _pools.append(asyncio.ensure_future(opening))
    return await asyncio.shield(_pools[0])


@app.task
async def charge(account: int, cents: int, ctx: Context) -> bool:
    """Insert the charge with exactly_once, and in the same transaction a line without it, as a careless task would
    do."""
    async with (await ledger()).acquire() as connection, connection.transaction():
        first = await mainspring.exactly_once(connection, ctx)
        if first:
            await connection.execute("insert into charges values ($1, $2, $3)", account, cents, ctx.attempt)
        await connection.execute("insert into committed_attempts values ($1, $2)", account, ctx.attempt)
    # A worker that dies here has charged the account, but has not reported it.
    if first and account == FATAL_ACCOUNT:
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.03)
    return first
