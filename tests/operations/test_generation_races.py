"""A new generation begins while something else happens to the ended job. Each pair is tried in both orders, with real
transactions: one of them is open, the other one waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.operations.access.caller import Caller
from mainspring.operations.submit.chosen_ids import still_held
from mainspring.roles.assembly import Assembly
from mainspring.store import dead_letters, fires, jobs
from mainspring.store.pool import Connection
from tests.api.bookkeeping import problem
from tests.api.test_generations import FUTURE, PAST, create, finish, job, made, runs
from tests.operations.firing import fire_due, make_due
from tests.store.rows import until_blocking

pytestmark = pytest.mark.anyio

CALLER = Caller(DEFAULT_TENANT, "admin", "test", UUID(int=0))

COMPLETE = "update mainspring.jobs set status = 4, next_fire_at = null"
HOURLY = {"every": "1h"}


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """The connection whose transaction is open."""
    opened = await asyncpg.connect(database_url)
    yield opened
    await opened.close()


@asynccontextmanager
async def while_open(
    observer: asyncpg.Connection, other: asyncpg.Connection, call: Awaitable[httpx.Response]
) -> AsyncIterator[asyncio.Future[httpx.Response]]:
    """Send `call` when the block begins, and let it wait for the transaction of `other`. The block ends that."""
    task = asyncio.ensure_future(call)
    blocked = asyncio.create_task(until_blocking(observer, other.get_server_pid()))
    await asyncio.wait({task, blocked}, return_when=asyncio.FIRST_COMPLETED)
    blocked.cancel()
    assert not task.done(), f"it did not wait: {task.result().text}"
    yield task
    await task


async def submit(other: asyncpg.Connection, **fields: Any) -> None:
    """Create the job in an open transaction."""
    body = msgspec.json.encode({"job_id": "mine", "task": "noop", **fields}).decode()
    await other.execute("select mainspring.submit($1::text::jsonb)", body)


async def ended(api: httpx.AsyncClient, connection: asyncpg.Connection, how: str) -> UUID | None:
    """A job that has ended. Return its failed run if it has one."""
    match how:
        case "fired":
            await made(api)
            order = await finish(api, "FAILED")
            return UUID(str(order.run_id))
        case "cancelled":
            await made(api, "@daily")
            await api.delete("/v1/jobs/mine")
        case "completed":
            await made(api, "@daily")
            await connection.execute(COMPLETE)
    return None


# -- the other one first: a create waits for it, and sees what it did


async def locked(other: Connection) -> jobs.LockedJob:
    row = await jobs.lock(other, DEFAULT_TENANT, "mine")
    assert row is not None
    return row


async def runs_now(other: Connection) -> None:
    await locked(other)
    run_id = uuid7()
    assert await fires.run_now(other, DEFAULT_TENANT, "mine", run_id, f"manual:{run_id}")


async def resumes(other: Connection) -> None:
    await locked(other)
    await other.execute("update mainspring.jobs set status = 1, version = version + 1")


async def repeats(other: Connection) -> None:
    run_id = await other.fetchval("select run_id from mainspring.run_history")
    await dead_letters.lock_jobs(other, DEFAULT_TENANT, ["mine"])
    assert await dead_letters.repeat(other, DEFAULT_TENANT, dead_letters.Replay(run_id, uuid7(), exclusive=False), None)


@pytest.mark.parametrize(
    ("how", "first"),
    [("completed", runs_now), ("cancelled", resumes), ("completed", resumes), ("fired", repeats)],
)
async def test_what_revives_the_old_job_first_keeps_its_id(
    api: httpx.AsyncClient,
    connection: asyncpg.Connection,
    other: asyncpg.Connection,
    how: str,
    first: Callable[[Any], Awaitable[None]],
) -> None:
    await ended(api, connection, how)
    transaction = other.transaction()
    await transaction.start()
    await first(other)
    async with while_open(connection, other, create(api)) as creating:
        await transaction.commit()
    refused = problem(await creating)
    assert (refused["status"], refused["code"]) == (409, "job_exists")
    assert (await job(api))["generation"] == 1


@pytest.mark.parametrize(("how", "first"), [("completed", runs_now), ("cancelled", resumes), ("fired", repeats)])
async def test_what_was_rolled_back_does_not_count(
    api: httpx.AsyncClient,
    connection: asyncpg.Connection,
    other: asyncpg.Connection,
    how: str,
    first: Callable[[Any], Awaitable[None]],
) -> None:
    await ended(api, connection, how)
    transaction = other.transaction()
    await transaction.start()
    await first(other)
    async with while_open(connection, other, create(api)) as creating:
        await transaction.rollback()
    assert ((await creating).status_code, (await creating).json()["generation"]) == (201, 2)


async def test_a_fire_in_flight_keeps_the_id_until_its_run_has_ended(
    api: httpx.AsyncClient, connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    await made(api, PAST)
    transaction = other.transaction()
    await transaction.start()
    row = await locked(other)
    assert row.next_fire_at is not None
    done = await fires.fire_locked_one_time(other, DEFAULT_TENANT, "mine", row.version, row.next_fire_at)
    assert done.gone == 1
    async with while_open(connection, other, create(api)) as creating:
        await transaction.commit()
    refused = problem(await creating)
    assert (refused["status"], "has not ended" in refused["detail"]) == (409, True)
    await finish(api)
    assert await made(api) == 2


async def test_a_cancel_in_flight_is_waited_for(
    api: httpx.AsyncClient, connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    await made(api, "@daily")
    transaction = other.transaction()
    await transaction.start()
    await locked(other)
    await other.execute("update mainspring.jobs set status = 3, next_fire_at = null, version = version + 1")
    async with while_open(connection, other, create(api)) as creating:
        await transaction.commit()
    assert (await creating).status_code == 201


# -- the create first: the others wait for it, and find the new generation


async def test_a_second_create_waits_for_the_first(
    api: httpx.AsyncClient, connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    for how in ("fired", "cancelled"):
        await ended(api, connection, how)
        for commit in (False, True):
            generation = (await job(api))["generation"]
            transaction = other.transaction()
            await transaction.start()
            await submit(other)
            async with while_open(connection, other, create(api)) as creating:
                await (transaction.commit() if commit else transaction.rollback())
            assert (await creating).status_code == (409 if commit else 201)
            assert (await job(api))["generation"] == generation + 1
            await api.delete("/v1/jobs/mine")


@pytest.mark.parametrize("how", ["fired", "cancelled"])
async def test_a_create_that_has_only_looked_yet_is_waited_for(
    api: httpx.AsyncClient, connection: asyncpg.Connection, other: asyncpg.Connection, how: str
) -> None:
    await ended(api, connection, how)
    transaction = other.transaction()
    await transaction.start()
    assert await jobs.take_ids(other, DEFAULT_TENANT, ["mine"]) == set()
    assert await still_held(other, CALLER, ["mine"]) == []
    async with while_open(connection, other, create(api)) as creating:
        await submit(other)
        await transaction.commit()
    assert (await creating).status_code == 409
    assert await runs(api, generation=2) == [(2, "QUEUED")]


@pytest.mark.parametrize("how", ["cancelled", "completed"])
async def test_changes_that_waited_for_a_create_change_the_new_job(
    api: httpx.AsyncClient, connection: asyncpg.Connection, other: asyncpg.Connection, how: str
) -> None:
    await ended(api, connection, how)
    calls = {
        "resume": lambda: api.post("/v1/jobs/mine:resume"),
        "change": lambda: api.patch("/v1/jobs/mine", json={"owner": "me"}),
        "run now": lambda: api.post("/v1/jobs/mine:runNow"),
        "cancel": lambda: api.delete("/v1/jobs/mine"),
    }
    for generation, (name, call) in enumerate(calls.items(), start=2):
        transaction = other.transaction()
        await transaction.start()
        await submit(other, schedule=HOURLY)
        async with while_open(connection, other, call()) as calling:
            await transaction.commit()
        answer = await calling
        assert answer.is_success, (name, answer.text)
        shown = await job(api)
        assert shown["generation"] == generation
        if name == "change":
            assert shown["owner"] == "me"
        if name == "run now":
            assert await runs(api) == [(generation, "QUEUED")]
        await api.delete("/v1/jobs/mine")


async def test_a_repetition_that_waited_for_a_create_asks_the_new_job(
    api: httpx.AsyncClient, connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    """A run that lives forbids it; a job that will fire later allows it, in the old generation."""
    run_id = await ended(api, connection, "fired")
    transaction = other.transaction()
    await transaction.start()
    await submit(other)
    async with while_open(connection, other, api.post(f"/v1/runs/{run_id}:retry")) as retrying:
        await transaction.commit()
    assert problem(await retrying)["code"] == "overlap"
    await api.delete("/v1/jobs/mine")
    transaction = other.transaction()
    await transaction.start()
    await submit(other, schedule=FUTURE)
    async with while_open(connection, other, api.post(f"/v1/runs/{run_id}:retry")) as retrying:
        await transaction.commit()
    assert (await retrying).json()["generation"] == 1
    assert await runs(api) == [(1, "QUEUED"), (2, "CANCELLED"), (1, "FAILED")]
    assert (await job(api))["generation"] == 3


async def test_run_now_that_waited_for_a_create_of_a_job_that_runs_at_once_finds_it_fired(
    api: httpx.AsyncClient, connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    await ended(api, connection, "completed")
    transaction = other.transaction()
    await transaction.start()
    await submit(other)
    async with while_open(connection, other, api.post("/v1/jobs/mine:pause")) as calling:
        await transaction.commit()
    assert problem(await calling)["code"] == "already_fired"
    assert await runs(api) == [(2, "QUEUED")]


async def test_an_old_id_that_is_just_used_again_is_not_forgotten(
    api: httpx.AsyncClient, database_url: str, connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    await ended(api, connection, "fired")
    await connection.execute("update mainspring.taken_ids set taken_at = taken_at - interval '99 days'")
    await connection.execute("truncate mainspring.run_history")
    transaction = other.transaction()
    await transaction.start()
    await submit(other)
    third = await asyncpg.connect(database_url)
    try:
        pruning = asyncio.ensure_future(jobs.prune(third, 30.0))
        await until_blocking(connection, other.get_server_pid())
        await transaction.commit()
        await pruning
    finally:
        await third.close()
    assert await connection.fetchval("select generation from mainspring.taken_ids") == 2
    assert (await create(api)).status_code == 409


async def test_an_id_is_kept_as_long_as_a_run_of_it_is_in_the_history(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    """Otherwise the next job with this id would have the generation and the keys of runs that are still shown."""
    await ended(api, connection, "fired")
    await connection.execute("update mainspring.taken_ids set taken_at = taken_at - interval '99 days'")
    await jobs.prune(connection, 30.0)
    assert await made(api) == 2
    await finish(api)
    await connection.execute("update mainspring.taken_ids set taken_at = taken_at - interval '99 days'")
    await connection.execute("truncate mainspring.run_history")
    await jobs.prune(connection, 30.0)
    assert await made(api) == 1, "nothing is left of the earlier ones"


async def test_past_jobs_are_forgotten_with_the_history(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await ended(api, connection, "cancelled")
    await made(api, "@daily")
    assert (await job(api, generation=1))["status"] == "CANCELLED"
    await connection.execute("update mainspring.past_jobs set replaced_at = replaced_at - interval '31 days'")
    await jobs.prune(connection, 30.0)
    assert (await api.get("/v1/jobs/mine", params={"generation": 1})).status_code == 404


# -- in SQL


@pytest.mark.parametrize("how", ["fired", "cancelled", "completed"])
@pytest.mark.parametrize("schedule", ["now", HOURLY, FUTURE])
async def test_sql_creates_an_ended_job_again(
    api: httpx.AsyncClient, connection: asyncpg.Connection, other: asyncpg.Connection, how: str, schedule: Any
) -> None:
    await ended(api, connection, how)
    before = await job(api)
    async with other.transaction():
        await submit(other, schedule=schedule, idempotency_key="k")
        with pytest.raises(asyncpg.UniqueViolationError, match="submitted a job called 'mine' already"):
            async with other.transaction():
                await submit(other, schedule=schedule)
    assert (await job(api))["generation"] == 2
    unknown = {"version": 0, "created_at": ""} if how == "fired" else {"version": 0}  # there was no row to keep
    assert {**(await job(api, generation=1)), **unknown} == {**before, **unknown}
    with pytest.raises(asyncpg.UniqueViolationError, match="exists already"):
        await submit(other)
    await submit(other, schedule=schedule, idempotency_key="k")
    assert await connection.fetchval("select generation from mainspring.idempotency_keys where key = 'k'") == 2
    assert await connection.fetchval("select count(*) from mainspring.submissions") == 0


async def test_sql_begins_no_generation_in_a_savepoint_that_is_rolled_back(
    api: httpx.AsyncClient, connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    await ended(api, connection, "cancelled")
    async with other.transaction():
        inner = other.transaction()
        await inner.start()
        await submit(other, schedule=HOURLY)
        await inner.rollback()
        await submit(other, schedule=HOURLY)
    assert (await job(api))["generation"] == 2


@pytest.mark.parametrize(("how", "revive"), [("fired", repeats), ("completed", runs_now)])
async def test_sql_with_an_old_snapshot_does_not_overlook_a_run(
    api: httpx.AsyncClient,
    connection: asyncpg.Connection,
    other: asyncpg.Connection,
    how: str,
    revive: Callable[[Any], Awaitable[None]],
) -> None:
    await ended(api, connection, how)
    transaction = other.transaction(isolation="repeatable_read")
    await transaction.start()
    await other.fetch("select from mainspring.runs")
    async with connection.transaction():
        await revive(connection)
    with pytest.raises(asyncpg.SerializationError):
        await submit(other)
    await transaction.rollback()
    assert (await job(api))["generation"] == 1


async def test_a_due_job_that_is_created_again_fires_as_the_new_one(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await ended(api, connection, "cancelled")
    await made(api, HOURLY, overlap="allow")
    await make_due(connection, "mine")
    assert await fire_due(assembly, connection) == 1
    assert await runs(api) == [(2, "QUEUED")]
