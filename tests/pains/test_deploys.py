"""Schedules that are declared in the application: restarts and many processes give one job that keeps its schedule."""

from __future__ import annotations

import asyncio

import asyncpg
import httpx
import pytest

from mainspring import AsyncClient, Mainspring
from mainspring.kernel.clock import SystemClock
from mainspring.roles.assembly import Assembly, assemble
from mainspring.sdk.app.ensure_schedules import ensure_schedules
from tests.conftest import TOKEN
from tests.operations.firing import fire_due, make_due
from tests.store.rows import job_row, live

pytestmark = pytest.mark.anyio

URL = "http://127.0.0.1:8700"


def an_app() -> Mainspring:
    """An application, loaded as at every start."""
    app = Mainspring()

    @app.cron("0 9 * * MON", job_id="by-cron")
    @app.task
    def weekly() -> None: ...

    @app.every("7d", job_id="by-interval")
    @app.task
    def sometimes() -> None: ...

    return app


async def declare(assembly: Assembly) -> dict[str, str]:
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    async with AsyncClient(URL, TOKEN, transport=transport) as client:
        return dict((await ensure_schedules(client, an_app())).done)


async def a_week_ahead(connection: asyncpg.Connection) -> None:
    """Move all fires by a week, so that nothing is due during the test."""
    await connection.execute("update mainspring.jobs set next_fire_at = next_fire_at + interval '7 days'")


async def test_a_weekly_job_keeps_its_next_fire_however_often_all_is_deployed_anew(
    assembly: Assembly, connection: asyncpg.Connection, database_url: str
) -> None:
    assert set((await declare(assembly)).values()) == {"created"}
    await a_week_ahead(connection)
    before = [await job_row(connection, job_id) for job_id in ("by-cron", "by-interval")]
    for _ in range(5):
        deployed = await assemble(database_url, SystemClock())
        try:
            assert set((await declare(deployed)).values()) == {"unchanged"}
            assert await fire_due(deployed, connection) == 0
            assert deployed.node is not None
            await deployed.node.leaser.release_all(connection)
        finally:
            await deployed.close()
    assert [await job_row(connection, job_id) for job_id in ("by-cron", "by-interval")] == before
    await make_due(connection, "by-cron")
    assert await fire_due(assembly, connection) == 1


async def test_many_web_workers_that_declare_a_schedule_make_one_job_that_fires_once(
    assembly: Assembly, connection: asyncpg.Connection, database_url: str
) -> None:
    declared = await asyncio.gather(*(declare(assembly) for _ in range(8)))
    assert sorted(each["by-cron"] for each in declared) == ["created"] + ["unchanged"] * 7
    await a_week_ahead(connection)
    await make_due(connection, "by-cron")
    other = await assemble(database_url, SystemClock())
    try:
        fired = [await fire_due(server, connection) for server in (assembly, other, assembly, other)]
    finally:
        await other.close()
    assert sum(fired) == 1
    assert len(await live(connection, "by-cron")) == 1
