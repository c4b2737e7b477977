"""Lists and searches come from a standby: not older than promised, and with what their caller has just done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.roles.assembly import Assembly, assemble
from mainspring.roles.token import ensure_admin_token
from mainspring.store.migrate import migrate
from tests.eventually import PATIENCE
from tests.processes.cluster import eventually
from tests.processes.failover_pair import FailoverPair

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
async def pair() -> AsyncIterator[FailoverPair]:
    async with FailoverPair() as made:
        await migrate(made.url)
        yield made


@pytest.fixture
async def server(pair: FailoverPair) -> AsyncIterator[Assembly]:
    made = await assemble(pair.url, SystemClock(), scheduler=False, read_url=pair.second.url("mainspring"))
    try:
        yield made
    finally:
        await made.close()


def client(server: Assembly, token: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=server.front())  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers, timeout=60)


async def submit(http: httpx.AsyncClient, job_id: str) -> None:
    answer = await http.post("/v1/jobs", json={"task": "t", "job_id": job_id, "schedule": "0 3 1 1 *"})
    assert answer.status_code == 201, answer.text


async def jobs(http: httpx.AsyncClient, **headers: str) -> set[str]:
    answer = await http.get("/v1/jobs", headers=headers)
    assert answer.status_code == 200, answer.text
    return {job["job_id"] for job in answer.json()["jobs"]}


async def test_lists_come_from_a_standby_that_is_near_enough(
    pair: FailoverPair, server: Assembly, tmp_path: Any
) -> None:
    token = await ensure_admin_token(pair.url, tmp_path)
    assert token is not None and server.store.replica is not None
    replica = server.store.replica
    # Both ask the same app, so that it knows who has changed what.
    writer = client(server, token)
    made = await writer.post("/v1/tokens", json={"name": "other", "role": "admin"})
    assert made.status_code == 201, made.text
    reader = httpx.AsyncClient(transport=writer._transport, base_url=writer.base_url, timeout=60)
    reader.headers["Authorization"] = f"Bearer {made.json()['token']}"
    await submit(writer, "first")

    async def is_replayed() -> bool:
        await replica.run_once()
        return replica.is_near

    async def both_see_the_first() -> bool:
        await replica.run_once()
        return await jobs(reader) == {"first"} and await jobs(writer) == {"first"}

    await eventually(is_replayed, PATIENCE, "the standby is near")
    await eventually(both_see_the_first, PATIENCE, "the standby has the first job")
    standby = await asyncpg.connect(pair.second.url("mainspring"))
    await standby.execute("select pg_wal_replay_pause()")
    await eventually(
        lambda: standby.fetchval("select pg_get_wal_replay_pause_state() = 'paused'"), PATIENCE, "replay has stopped"
    )
    replica.max_staleness = 3600.0
    await submit(writer, "second")
    assert await jobs(writer) == {"first", "second"}, "the caller does not see what it has done"
    assert await jobs(reader) == {"first"}, "this is read from the primary"
    assert await jobs(reader, Cookie="mainspring_changed=1") == {"first", "second"}
    await replica.run_once()
    replica.max_staleness = 0.0
    assert await jobs(reader) == {"first", "second"}, "the standby is further behind than it may be"
    replica.max_staleness = 3600.0
    await standby.execute("select pg_wal_replay_resume()")
    await standby.close()

    async def both_see_both() -> bool:
        await replica.run_once()
        return replica.is_near and await jobs(reader) == {"first", "second"} == await jobs(writer)

    await eventually(both_see_both, PATIENCE, "the standby has caught up")
    pair.second.kill()
    await replica.run_once()
    assert not replica.is_near
    assert await jobs(reader) == {"first", "second"}
    await writer.aclose()
