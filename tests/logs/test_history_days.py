"""FEATURES 7.4: a tenant keeps the history of its runs for the days of its quota, if others keep theirs for longer."""

from __future__ import annotations

from datetime import UTC, timedelta
from pathlib import Path

import asyncpg
import httpx
import pytest

from mainspring.domain.rollups import Span
from mainspring.roles.assembly import Assembly
from mainspring.store import rollups
from mainspring.store.log_files import LogFiles
from mainspring.store.log_stores import LogStores
from mainspring.upkeep import tenant_history_pruner
from mainspring.upkeep.tenant_history_pruner import TenantHistoryPruner
from mainspring.wire.exchange import RunOrder
from tests.api.bookkeeping import problem
from tests.logs.scene import a_run, chunk, ship, text
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.tenants import Tenants
from tests.store.rows import now_of

pytestmark = pytest.mark.anyio

KEY = {"idempotency_key": "key"}


async def ended(api: httpx.AsyncClient, number: int, **fields: object) -> list[RunOrder]:
    """Runs of a tenant that have printed something, failed once and ended."""
    worker, orders = HandWorker(api), []
    for _ in range(number):
        order = await a_run(worker, **fields)
        await ship(worker, chunk(order, 0, b"one\n", end=True))
        await worker.report(outcome(order))
        orders.append(order)
    return orders


async def ended_before(connection: asyncpg.Connection, days: int, orders: list[RunOrder]) -> None:
    day = (await now_of(connection)).astimezone(UTC).date() - timedelta(days=days)
    await connection.execute(
        f"""create table if not exists mainspring.run_history_{day:%Y%m%d} partition of mainspring.run_history
            for values from ('{day} 00:00+00') to ('{day + timedelta(days=1)} 00:00+00')"""
    )
    await connection.execute(
        """update mainspring.run_history set ended_at = $1::date::timestamp at time zone 'UTC' + interval '12 h'
           where run_id = any ($2)""",
        day, [order.run_id for order in orders],
    )  # fmt: skip
    until = await rollups.begin_watermark(connection)
    await rollups.move_watermark(connection, until, await now_of(connection))


async def statuses(api: httpx.AsyncClient, orders: list[RunOrder]) -> set[int]:
    return {(await api.get(f"/v1/runs/{order.run_id}")).status_code for order in orders}


@pytest.mark.own_database
async def test_history_of_a_tenant_ends_with_its_quota_and_that_of_others_stays(
    assembly: Assembly,
    tenants: Tenants,
    log_files: LogFiles | None,
    connection: asyncpg.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [acme] = await tenants.add("acme")
    old, older = await ended(acme, 3, keep_logs="52w"), await ended(acme, 1, **KEY)
    fresh, others = await ended(acme, 1), await ended(tenants.operator, 2)
    await ended_before(connection, 5, [*old, *others])
    await ended_before(connection, 6, older)
    await ended_before(connection, 3, fresh)

    stores = assembly.services.logs.stores
    pruner = TenantHistoryPruner(assembly.store, 30, stores)
    assert await pruner.run_once() == 0  # nobody has the quota
    path = "/v1/tenants/acme/quotas"
    found = problem(await tenants.operator.put(path, json={"history_days": 31}))
    assert (found["status"], found["field"], found["expected"]) == (422, "history_days", "1 to 30")
    usage = (await tenants.operator.put(path, json={"history_days": 3})).json()
    assert {"quota": "history_days", "limit": 3, "used": None, "near": False} in usage["quotas"]

    # A process that dies in the middle has deleted whole runs, and the next one goes on.
    monkeypatch.setattr(tenant_history_pruner, "_AT_ONCE", 2)
    monkeypatch.setattr(tenant_history_pruner, "_OBJECTS_AT_ONCE", 2)
    monkeypatch.setattr(tenant_history_pruner, "_LOOKED_AT", 3)
    killed = pytest.MonkeyPatch()
    batches = 0

    async def die(*arguments: object) -> None:
        nonlocal batches
        batches += 1
        if batches == 3:
            raise ConnectionError("killed")
        await delete(*arguments)  # type: ignore[arg-type]

    delete = tenant_history_pruner.tenant_history.delete
    killed.setattr(tenant_history_pruner.tenant_history, "delete", die)
    with pytest.raises(ConnectionError):
        await pruner.run_once()
    killed.undo()
    assert await connection.fetchval("select count(*) from mainspring.run_history where tenant_id <> 1") > 1
    assert await TenantHistoryPruner(assembly.store, 30, stores).run_once() > 0

    assert (await statuses(acme, [*old, *older]), await statuses(acme, fresh)) == ({404}, {200})
    assert await statuses(tenants.operator, others) == {200}
    assert await text(tenants.operator, others[0].run_id) == "one\n"
    assert await text(acme, fresh[0].run_id) == "one\n"
    assert (await acme.get(f"/v1/runs/{old[0].run_id}/logs")).status_code == 404
    left = [*fresh, *others] if log_files is not None else []
    assert len(list((tmp_path / "logs").rglob(f"*{old[0].run_id}*"))) == 0
    assert {path.name for path in (tmp_path / "logs").glob("*/*")} == {str(order.run_id) for order in left}
    for table in ("log_chunks", "run_logs"):
        kept = {row[0] for row in await connection.fetch(f"select run_id from mainspring.{table}")}
        assert kept <= {order.run_id for order in (*fresh, *others)}
    # A repeated submission is still known, and the days that were done are not looked at again.
    again = await acme.post("/v1/jobs", json={"task": "noop", **KEY})
    assert (again.status_code, again.json()["job_id"]) == (200, str(older[0].run_id))
    day = await connection.fetchval("select history_from from mainspring.tenant_quotas where history_days is not null")
    assert day == (await now_of(connection)).astimezone(UTC).date() - timedelta(days=3)
    assert await pruner.run_once() == 0


@pytest.mark.own_database
async def test_it_waits_for_a_quiet_minute_and_for_the_rollups_but_not_for_a_second_day(
    assembly: Assembly, tenants: Tenants, connection: asyncpg.Connection
) -> None:
    [acme] = await tenants.add("acme")
    orders = await ended(acme, 1)
    await ended_before(connection, 5, orders)
    path, today = "/v1/tenants/acme/quotas", (await now_of(connection)).astimezone(UTC).date()
    await tenants.operator.put(path, json={"history_days": 4})
    await connection.execute("update mainspring.tenant_quotas set history_from = $1", today - timedelta(days=5))
    until = await rollups.watermark(connection)
    assert until is not None
    busy = """insert into mainspring.rollups (span, tenant_id, task, queue, at, succeeded, failed, cancelled, skipped,
                                              retried, lost, missed, ran_us)
              select $2, 1, '', '', date_trunc('minute', $1::timestamptz) - interval '1 min', 9, 0, 0, 0, 0, 0, 0, 0"""
    await connection.execute(busy, until, Span.MINUTE)
    pruner = TenantHistoryPruner(assembly.store, 30, LogStores(assembly.services.logs.stores.written))
    assert await pruner.run_once() == 0
    await tenants.operator.put(path, json={"history_days": 3})
    assert await rollups.move_watermark(connection, until, until - timedelta(days=20))
    assert await pruner.run_once() == 0
    assert await rollups.move_watermark(connection, until - timedelta(days=20), until)
    assert await pruner.run_once() == 1
