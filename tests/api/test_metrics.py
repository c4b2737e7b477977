from __future__ import annotations

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.roles.assembly import Assembly, assemble
from tests.conftest import LONG_LEASES
from tests.operations.servers import another_server

pytestmark = pytest.mark.anyio


async def test_metrics_need_a_token_and_show_queues_workers_and_counters(api: httpx.AsyncClient) -> None:
    assert (await api.get("/metrics", headers={"Authorization": ""})).status_code == 401
    await api.post("/v1/jobs", json={"task": "nobody", "queue": "heavy"})
    answer = await api.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.text.splitlines()
    assert 'mainspring_queue_depth{queue="heavy"} 1.0' in lines
    assert 'mainspring_queue_running{queue="heavy"} 0.0' in lines
    assert "mainspring_dead_letters 0.0" in lines
    for name in (
        "mainspring_jobs_submitted_total",
        "mainspring_runs_fired_total",
        "mainspring_retries_total",
        "mainspring_runs_dead_total",
        "mainspring_lease_epoch",
        "mainspring_fire_lag_seconds_count",
        "mainspring_start_latency_seconds_count",
        "mainspring_exchange_seconds_count",
    ):
        assert any(line.startswith(name) for line in lines), name


async def test_one_of_several_servers_shows_the_state_of_the_database(
    assembly: Assembly, api: httpx.AsyncClient, database_url: str
) -> None:
    """What `sum(mainspring_queue_depth)` over all servers says is what waits."""
    await api.post("/v1/jobs", json={"task": "nobody", "queue": "heavy"})
    waiting = 'mainspring_queue_depth{queue="heavy"} 1.0'
    other = await assemble(database_url, SystemClock(), timing=LONG_LEASES)
    transport = httpx.ASGITransport(app=other.app)  # type: ignore[arg-type]
    try:
        async with httpx.AsyncClient(transport=transport, base_url=api.base_url, headers=api.headers) as second:
            assert assembly.node is not None and other.node is not None
            async with assembly.store.hot.acquire() as connection:
                assert await assembly.node.leaser.run_once(connection) == 128
                assert await other.node.leaser.run_once(connection) == 0
            assert waiting in (await api.get("/metrics")).text
            for query, shown in (("", False), ("?gauges=one", False), ("?gauges=yes", True), ("?gauges=no", False)):
                answer = await second.get(f"/metrics{query}")
                assert answer.status_code == 200 and (waiting in answer.text) is shown, query
                assert "mainspring_jobs_submitted_total" in answer.text, "each server shows its own counters"
            assert (await second.get("/metrics?gauges=some")).status_code == 422
    finally:
        await other.close()


async def test_servers_that_do_not_schedule_are_counted_as_others(database_url: str) -> None:
    """One of all servers that are asked shows the state, whether it schedules or not, and another one when it ends."""
    async with another_server(database_url) as second:
        async with another_server(database_url) as first:
            for _ in range(2):
                assert "mainspring_dead_letters" in (await first.get("/metrics")).text
                assert "mainspring_dead_letters" not in (await second.get("/metrics")).text
        assert "mainspring_dead_letters" in (await second.get("/metrics")).text


async def test_a_server_that_is_not_asked_any_more_loses_its_turn(
    api: httpx.AsyncClient, database_url: str, connection: asyncpg.Connection
) -> None:
    async with another_server(database_url) as second:
        assert "mainspring_dead_letters" in (await api.get("/metrics")).text
        await connection.execute("update mainspring.gauge_servers set until = clock_timestamp()")
        assert "mainspring_dead_letters" in (await second.get("/metrics")).text
        assert "mainspring_dead_letters" not in (await api.get("/metrics")).text
