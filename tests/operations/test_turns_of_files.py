"""Job files of a tenant are applied one after the other, and those that wait hold up no change of another tenant."""

from __future__ import annotations

import asyncio

import asyncpg
import httpx
import pytest

from mainspring.kernel.ids import TenantId
from mainspring.store import file_objects

pytestmark = pytest.mark.anyio

WAITING = "select count(*) from pg_locks where locktype = 'advisory' and not granted and database = (select oid from \
pg_database where datname = current_database())"


async def test_files_that_wait_for_each_other_hold_up_no_change_of_another_tenant(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    other = (await api.post("/v1/tenants", json={"name": "other"})).json()["admin_token"]["token"]
    tenant = await connection.fetchval("select tenant_id from mainspring.tenants where name = 'other'")
    assert (await api.post("/v1/jobs", json={"job_id": "a", "task": "t", "schedule": "manual"})).status_code == 201

    async def apply(owner: str) -> httpx.Response:
        body = {"kind": "jobs", "id": owner, "body": {"task": "t"}}
        headers = {"Authorization": f"Bearer {other}"}
        return await api.post("/v1/files:apply", json={"owner": owner, "objects": [body]}, headers=headers)

    async with connection.transaction():
        await file_objects.take_turn(connection, TenantId(tenant))  # as files that are applied at another server
        applied = [asyncio.create_task(apply(f"o{number}")) for number in range(6)]
        while not await connection.fetchval(WAITING):
            await asyncio.sleep(0.01)
        for number in range(3):
            changed = await api.patch("/v1/jobs/a", json={"description": str(number)})
            assert changed.status_code == 200
            assert await connection.fetchval(WAITING) == 1
    assert [answer.status_code for answer in await asyncio.gather(*applied)] == [200] * 6
