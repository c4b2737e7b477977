"""A server whose time the test sets: that of its process, and that of the database.

Statements call `clock_timestamp()` without its schema. In the databases of these tests another schema comes first, and
the defaults of columns come from there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import asyncpg
import httpx

from mainspring.kernel.clock import ManualClock
from mainspring.kernel.config import SHARD_COUNT
from mainspring.roles.assembly import Assembly, assemble
from mainspring.store import fires
from tests.conftest import LONG_LEASES, TOKEN

START = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday
_FAKE = """
create table mainspring.run_history_then partition of mainspring.run_history
    for values from ('2026-03-01') to ('2026-04-01');
create schema faked;
create table faked.clock (at timestamptz not null);
insert into faked.clock values (now());
create function faked.clock_timestamp() returns timestamptz language sql volatile as 'select at from faked.clock';
do $$
declare
    has_default record;
begin
    for has_default in
        select a.attrelid::regclass as of_table, quote_ident(a.attname) as name
        from pg_attrdef d
        join pg_attribute a on a.attrelid = d.adrelid and a.attnum = d.adnum
        where pg_get_expr(d.adbin, d.adrelid) = 'clock_timestamp()'
    loop
        execute format('alter table %s alter column %s set default faked.clock_timestamp()', has_default.of_table,
                       has_default.name);
    end loop;
end $$;
"""


class TimedServer:
    def __init__(
        self, assembly: Assembly, clock: ManualClock, api: httpx.AsyncClient, connection: asyncpg.Connection
    ) -> None:
        self.assembly, self.api, self.connection = assembly, api, connection
        self._clock = clock
        self.now = START

    async def fire(self) -> int:
        """One turn of the scheduler, without its wheel, which takes long to turn by hours. Return how many runs were
        created."""
        node = self.assembly.node
        assert node is not None
        await node.leaser.run_once(self.connection)
        return await node.firer.fire(await fires.due_scan(self.connection, range(SHARD_COUNT), 0.0, 1000))

    async def sleep_until(self, moment: datetime) -> None:
        """Time passes, and no scheduler runs."""
        await self.connection.execute("update faked.clock set at = $1", moment)
        self._clock.advance((moment - self.now).total_seconds())
        self.now = moment

    async def pass_until(self, moment: datetime) -> None:
        """Time passes, and what becomes due fires on time."""
        before = None
        while (due := await self._next_due()) is not None and due <= moment:
            assert due != before, f"what is due at {due} does not fire"
            await self.sleep_until(max(due, self.now))
            await self.fire()
            before = due
        await self.sleep_until(moment)

    async def pass_by(self, time: timedelta) -> None:
        await self.pass_until(self.now + time)

    async def _next_due(self) -> datetime | None:
        return await self.connection.fetchval("select min(next_fire_at) from mainspring.jobs")  # type: ignore[no-any-return]


@asynccontextmanager
async def timed_server(database_url: str) -> AsyncIterator[TimedServer]:
    owner = await asyncpg.connect(database_url)
    try:
        await owner.execute(_FAKE)
        name = await owner.fetchval("select quote_ident(current_database())")
        await owner.execute(f"alter database {name} set search_path = faked, pg_catalog")
        await owner.execute("update faked.clock set at = $1", START)
        # There are no partitions of days so far from today.
        await owner.execute("create table mainspring.audit_faked partition of mainspring.audit_entries default")
        connection = await asyncpg.connect(database_url)
        clock = ManualClock(START)
        assembly = await assemble(database_url, clock, chance=lambda: 0.5, timing=LONG_LEASES)
        transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
        headers = {"Authorization": f"Bearer {TOKEN}"}
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers) as api:
                yield TimedServer(assembly, clock, api, connection)
        finally:
            await assembly.close()
            await connection.close()
    finally:
        await owner.close()
