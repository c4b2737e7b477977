"""Strict order: the limit says whether its lines are strict, whatever it was when a run was submitted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.limits import Slot
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.operations.limits.admitter import Admitter
from mainspring.roles.assembly import Assembly
from mainspring.store import limit_declarations, limits
from mainspring.upkeep.deadline_sweeper import DeadlineSweeper
from mainspring.wire.exchange import RunOrder
from tests.operations.firing import fire_due, make_due
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.limit_helpers import OneAdmitter, check_counts, lose, statuses, submit
from tests.store.rows import until_blocking

pytestmark = pytest.mark.anyio

LOOSE: dict[str, Any] = {"limit": 1, "per": "task"}
STRICT = {**LOOSE, "order": "strict"}
OTHER = {"limit": 1, "key": "payload.account"}


@pytest.fixture
async def admitter(assembly: Assembly) -> AsyncIterator[Admitter]:
    made = OneAdmitter(assembly.store, assembly.signals)
    yield made
    await made.close()


async def let_backoffs_pass(connection: asyncpg.Connection) -> None:
    await connection.execute(
        """update mainspring.runs set ready_at = clock_timestamp(), wake_at = clock_timestamp()
           where ready_at > clock_timestamp()"""
    )
    await connection.execute("update mainspring.runs set wake_at = null where state <> 4")


async def fail(worker: HandWorker, order: RunOrder) -> None:
    await worker.report(outcome(order, "FAILED", error="no"))


async def end_strict_order(api: httpx.AsyncClient) -> None:
    [limit] = [one for one in (await api.get("/v1/limits")).json()["limits"] if one["order"] == "strict"]
    answer = await api.put(f"/v1/limits/{limit['limit_id']}", json={"limit": None, "order": "priority"})
    assert answer.status_code == 200, answer.text


async def run_through(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter, expected: list[str]
) -> None:
    """All runs succeed one after another, in this order."""
    worker = HandWorker(api)
    for run in expected:
        await let_backoffs_pass(connection)
        await admitter.run_once()
        orders = (await worker.exchange(free=5, hello=None if worker.seq else worker.card)).runs
        assert [str(order.run_id) for order in orders] == [run]
        await worker.report(outcome(orders[0]))
        await check_counts(connection)
    assert await connection.fetchval("select count(*) from mainspring.runs") == 0


@pytest.mark.parametrize("how", ["fails", "snoozes", "is handed back", "is lost", "is lost after it failed"])
async def test_a_run_of_before_is_not_passed_while_it_is_tried_again(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, admitter: Admitter, how: str
) -> None:
    first = await submit(api, concurrency=LOOSE)
    worker = HandWorker(api)
    [order] = await worker.claim()
    second = await submit(api, concurrency=STRICT)
    if how == "snoozes":
        await worker.report(outcome(order, "FAILED", error="snoozed", retry_after=600.0, snooze=600.0))
    elif how == "is handed back":
        await worker.report(outcome(order, "RETURNED"))
    elif how == "is lost":
        await lose(assembly, worker)
    else:
        await fail(worker, order)
    if how == "is lost after it failed":
        await let_backoffs_pass(connection)
        await admitter.run_once()
        await worker.claim()
        await lose(assembly, worker)
    await admitter.run_once()
    assert await statuses(api, second) == ["HELD"]
    await run_through(api, connection, admitter, [first, second])


@pytest.mark.parametrize(
    "account", [None, 1, 2, 3, 4]
)  # with an account it has two limits, and backs off in either line
@pytest.mark.parametrize("how", ["fails", "snoozes", "is lost after it failed"])
async def test_a_run_that_has_begun_is_not_passed_by_one_that_was_submitted_earlier_and_committed_later(
    api: httpx.AsyncClient,
    assembly: Assembly,
    connection: asyncpg.Connection,
    admitter: Admitter,
    how: str,
    account: int | None,
) -> None:
    limited = [LOOSE] if account is None else [LOOSE, OTHER]
    begun = await submit(api, payload={"account": account}, concurrency=limited)
    worker = HandWorker(api)
    [order] = await worker.claim()
    earlier = await submit(api, concurrency=STRICT)
    await connection.execute(
        "update mainspring.runs set scheduled_for = scheduled_for - interval '1 second' where run_id = $1", earlier
    )
    snooze = {"retry_after": 600.0, "snooze": 600.0} if how == "snoozes" else {}
    await worker.report(outcome(order, "FAILED", error="later", **snooze))
    if how == "is lost after it failed":
        await let_backoffs_pass(connection)
        await admitter.run_once()
        await worker.claim()
        await lose(assembly, worker)
    await admitter.run_once()
    assert await statuses(api, earlier) == ["HELD"]
    await run_through(api, connection, admitter, [begun, earlier])


@pytest.mark.parametrize("how", ["fails", "snoozes"])
async def test_a_run_of_before_that_backs_off_already_is_not_passed(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter, how: str
) -> None:
    first = await submit(api, concurrency=LOOSE)
    worker = HandWorker(api)
    [order] = await worker.claim()
    snooze = {"retry_after": 600.0, "snooze": 600.0} if how == "snoozes" else {}
    await worker.report(outcome(order, "FAILED", error="later", **snooze))
    second, third = await submit(api, concurrency=STRICT), await submit(api, concurrency=STRICT, priority="critical")
    assert await admitter.run_once() == 0
    assert await statuses(api, first, second, third) == ["SCHEDULED", "HELD", "HELD"]
    await run_through(api, connection, admitter, [first, second, third])


async def test_runs_that_wait_go_in_the_order_of_submission_once_the_line_is_strict(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    words = ("normal", "low", "critical", "high")
    waiting = [await submit(api, concurrency=LOOSE, priority=word) for word in words]
    last = await submit(api, concurrency=STRICT)
    await run_through(api, connection, admitter, [*waiting, last])


async def test_priority_counts_again_when_strict_order_has_ended(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    first, low, high = [await submit(api, concurrency=LOOSE, priority=word) for word in ("normal", "low", "high")]
    last = await submit(api, concurrency=STRICT)
    await end_strict_order(api)
    await run_through(api, connection, admitter, [first, high, low, last])


async def test_a_line_with_more_slots_becomes_strict(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    """All who were admitted before end first, also those that fail."""
    wide = {"limit": 3, "per": "task"}
    before = [await submit(api, concurrency=wide) for _ in range(4)]
    worker = HandWorker(api)
    orders = await worker.claim(3)
    last = await submit(api, concurrency=STRICT)
    for order in orders:
        await fail(worker, order)
    assert await admitter.run_once() == 0
    assert await statuses(api, *before, last) == ["SCHEDULED", "SCHEDULED", "SCHEDULED", "HELD", "HELD"]
    await run_through(api, connection, admitter, [*before, last])


async def test_a_stored_job_fires_into_a_line_that_has_become_strict(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    await submit(api, job_id="daily", cron="0 3 * * *", concurrency=LOOSE, priority="critical")
    first, second = await submit(api, concurrency=STRICT), await submit(api, concurrency=STRICT)
    await make_due(connection, "daily")
    assert await fire_due(assembly, connection) == 1
    [fired] = [
        row["run_id"] for row in await connection.fetch("select run_id from mainspring.runs where job_id = 'daily'")
    ]
    third = await submit(api, concurrency=STRICT)
    await run_through(api, connection, admitter, [first, second, str(fired), third])


@pytest.mark.parametrize("way", ["the limit is set", "the job is changed"])
@pytest.mark.parametrize("how", ["fails", "snoozes"])
async def test_the_end_of_strict_order_frees_those_behind_a_run_that_backs_off(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter, way: str, how: str
) -> None:
    if way == "the limit is set":
        first, second = await submit(api, concurrency=STRICT), await submit(api, concurrency=STRICT)
    else:
        strict = {"limit": 1, "order": "strict"}
        await submit(api, job_id="sync", schedule="manual", overlap="allow", concurrency=strict)
        first, second = [(await api.post("/v1/jobs/sync:runNow")).json()["run_id"] for _ in range(2)]
    worker = HandWorker(api)
    [order] = await worker.claim()
    snooze = {"retry_after": 600.0, "snooze": 600.0} if how == "snoozes" else {}
    await worker.report(outcome(order, "FAILED", error="later", **snooze))
    assert await admitter.run_once() == 0
    assert await statuses(api, first, second) == ["SCHEDULED", "HELD"]
    if way == "the limit is set":
        await end_strict_order(api)
    else:
        assert (await api.patch("/v1/jobs/sync", json={"concurrency": 1})).status_code == 200
    await admitter.run_once()
    assert await statuses(api, first, second) == ["SCHEDULED", "QUEUED"]
    await run_through(api, connection, admitter, [second, first])


@pytest.mark.parametrize("way", ["a job is changed", "an overlap rule"])
async def test_a_job_makes_its_own_line_strict(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter, way: str
) -> None:
    fields: dict[str, Any] = {"concurrency": 1} if way == "a job is changed" else {"concurrency": 5}
    await submit(api, job_id="sync", schedule="manual", overlap="allow", **fields)
    first = (await api.post("/v1/jobs/sync:runNow")).json()["run_id"]
    worker = HandWorker(api)
    [order] = await worker.claim()
    change: dict[str, Any] = {"concurrency": {"limit": 1, "order": "strict"}}
    if way == "an overlap rule":
        change = {"overlap": "queue", "concurrency": None}
    answer = await api.patch("/v1/jobs/sync", json=change)
    assert answer.status_code == 200, answer.text
    await fail(worker, order)
    second = (await api.post("/v1/jobs/sync:runNow")).json()["run_id"]
    await admitter.run_once()
    assert await statuses(api, first, second) == ["SCHEDULED", "HELD"]
    await run_through(api, connection, admitter, [first, second])


@pytest.mark.parametrize("end", ["is cancelled", "expires"])
async def test_those_behind_a_run_that_backs_off_go_on_when_it_ends(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, admitter: Admitter, end: str
) -> None:
    first, second = await submit(api, concurrency=STRICT, run_timeout="1h"), await submit(api, concurrency=STRICT)
    worker = HandWorker(api)
    [order] = await worker.claim()
    await fail(worker, order)
    if end == "is cancelled":
        assert (await api.post(f"/v1/runs/{first}:cancel")).status_code == 202
    else:
        await connection.execute("update mainspring.runs set deadline = clock_timestamp() where deadline is not null")
        assert await DeadlineSweeper(assembly.store, assembly.signals).run_once() == 1
    await admitter.run_once()
    assert await statuses(api, second) == ["QUEUED"]


async def test_why_names_the_run_that_backs_off_before_it(api: httpx.AsyncClient) -> None:
    first, second, third = [await submit(api, concurrency=STRICT) for _ in range(3)]
    worker = HandWorker(api)
    [order] = await worker.claim()
    await fail(worker, order)
    words = f"waiting for run {first}, which is before it and cannot start yet (strict order of task noop)"
    assert (await api.get(f"/v1/runs/{second}")).json()["reason"] == words
    why = (await api.get(f"/v1/runs/{third}/why")).json()["why"]
    assert why == f"It is held: {words}. 2 runs are ahead of it in line."


@pytest.mark.parametrize("end", ["it runs", "it is cancelled"])
async def test_a_run_that_waits_for_another_limit_is_not_passed(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter, end: str
) -> None:
    """It needs a slot of the strict line too, and was submitted before."""
    payload = {"account": 1}
    holder = await submit(api, payload=payload, concurrency=OTHER)
    first = await submit(api, payload=payload, concurrency=[LOOSE, OTHER])
    second = await submit(api, concurrency=STRICT)
    await admitter.run_once()
    assert await statuses(api, holder, first, second) == ["QUEUED", "HELD", "HELD"]
    words = f"waiting for run {first}, which is before it and cannot start yet (strict order of task noop)"
    assert (await api.get(f"/v1/runs/{second}")).json()["reason"] == words
    if end == "it is cancelled":
        assert (await api.post(f"/v1/runs/{first}:cancel")).status_code == 202
        await admitter.run_once()
        assert await statuses(api, second) == ["QUEUED"]
        return
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order))
    await run_through(api, connection, admitter, [first, second])


@pytest.mark.parametrize(("number", "strict"), [(1, True), (2, False)])
async def test_an_admission_that_waited_for_a_line_goes_by_the_limit_as_it_is_then(
    api: httpx.AsyncClient, connection: asyncpg.Connection, database_url: str, number: int, strict: bool
) -> None:
    """While a report waits for the lock of the line, another transaction makes the line strict, or takes one slot."""
    loose = {"limit": number, "per": "task"}
    backs_off = await submit(api, concurrency=loose)
    worker = HandWorker(api)
    [order] = await worker.claim()
    await fail(worker, order)
    for _ in range(number):
        await submit(api, concurrency=loose)
    orders = await worker.claim(number)
    waits = await submit(api, concurrency=loose)
    assert await statuses(api, backs_off, waits) == ["SCHEDULED", "HELD"]
    line = await connection.fetchval("select key_id from mainspring.limit_keys")
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await limits.lock_lines(other, [line])
            report = asyncio.create_task(worker.report(outcome(orders[0])))
            await until_blocking(connection, other.get_server_pid())
            await limit_declarations.declare(other, DEFAULT_TENANT, [Slot("task:noop", "", 1, strict)])
        await report
    finally:
        await other.close()
    assert await statuses(api, waits) == ["HELD"]
    await check_counts(connection)
