"""A job submitted in SQL is committed or rolled back with the caller's transaction. An open one blocks nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import httpx
import psycopg
import pytest

from mainspring.roles.assembly import Assembly
from mainspring.store.lanes import LaneRegistry
from tests.api.bookkeeping import problem
from tests.eventually import PATIENCE
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_long_poll import PROMPTLY, start_waiting
from tests.operations.test_long_poll import assembly as assembly
from tests.operations.waiting import until
from tests.store.rows import now_of, until_blocked

pytestmark = pytest.mark.anyio

CHANNEL = "mainspring"
BLOCKED = (
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    " and application_name = 'mainspring server hot'"
)
LISTENERS = (
    "select count(*) from pg_stat_activity where query ilike 'listen%' and state = 'idle'"
    " and datname = current_database()"
)


@pytest.fixture
async def user(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """The user's own connection."""
    opened = await asyncpg.connect(database_url)
    yield opened
    await opened.close()


async def submit(connection: asyncpg.Connection, **job: Any) -> str:
    job_id: str = await connection.fetchval("select mainspring.submit($1)", json.dumps(job))
    return job_id


async def runs(connection: asyncpg.Connection) -> int:
    count: int = await connection.fetchval("select count(*) from mainspring.runs")
    return count


async def test_an_order_and_its_job_are_committed_together_or_not_at_all(
    api: httpx.AsyncClient, connection: asyncpg.Connection, assembly: Assembly, database_url: str
) -> None:
    """Like an application: with psycopg, its own table and its own transaction."""
    own = await psycopg.AsyncConnection.connect(database_url)
    await own.execute("create table orders (number int primary key, job_id text)")
    await own.commit()
    body = json.dumps({"task": "noop", "payload": {"order": 7}})
    order = "insert into orders select %s, mainspring.submit(%s) returning job_id"

    await own.execute(order, (7, body))
    await own.rollback()
    for table in ("orders", "mainspring.runs", "mainspring.lanes", "mainspring.submissions"):
        assert await connection.fetchval(f"select count(*) from {table}") == 0

    row = await (await own.execute(order, (7, body))).fetchone()
    assert row is not None
    assert await runs(connection) == 0
    await own.commit()
    assert await connection.fetchval("select job_id from orders where number = 7") == row[0]
    await assembly.services.exchanger.poll()  # the lane is new to this server
    (handed_out,) = await HandWorker(api).claim()
    assert (handed_out.job_id, bytes(memoryview(handed_out.payload))) == (row[0], b'{"order": 7}')
    assert (await api.get(f"/v1/jobs/{row[0]}")).json()["task"] == "noop"
    await own.close()


async def test_a_failure_at_the_end_of_the_transaction_takes_the_job_with_it(
    user: asyncpg.Connection, connection: asyncpg.Connection
) -> None:
    await user.execute("create table parts (id int unique deferrable initially deferred)")
    with pytest.raises(asyncpg.UniqueViolationError):
        async with user.transaction():
            await submit(user, task="noop", idempotency_key="k", job_id="mine")
            await user.execute("insert into parts values (1), (1)")
    assert await runs(connection) == 0
    async with user.transaction():
        await submit(user, task="noop", idempotency_key="k", job_id="mine")
    assert await runs(connection) == 1


async def test_a_savepoint_that_is_rolled_back_takes_only_its_own_jobs(
    user: asyncpg.Connection, connection: asyncpg.Connection
) -> None:
    async with user.transaction():
        with pytest.raises(asyncpg.InvalidParameterValueError):
            async with user.transaction():
                await submit(user, task="first", job_id="first")
                await submit(user, task="first", timeout="never")
        await submit(user, task="second", job_id="first")
        async with user.transaction():
            await submit(user, task="third")
    tasks = await connection.fetch(
        "select task from mainspring.runs join mainspring.lanes using (lane_id) order by task"
    )
    assert [row["task"] for row in tasks] == ["second", "third"]


async def test_constraints_set_to_immediate_store_at_once(user: asyncpg.Connection) -> None:
    async with user.transaction():
        await submit(user, task="before")
        await user.execute("set constraints all immediate")
        assert await runs(user) == 1
        await submit(user, task="after")
        assert await runs(user) == 2
    assert await user.fetchval("select count(*) from mainspring.submissions") == 0


async def test_the_servers_hear_of_it_at_commit_and_not_before(
    user: asyncpg.Connection, connection: asyncpg.Connection, assembly: Assembly
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    await connection.add_listener(CHANNEL, lambda *said: heard.put_nowait(str(said[3])))
    created: list[dict[int, int]] = []
    assembly.signals.ready.subscribe(lambda lanes: created.append(dict(lanes)))
    async with user.transaction():
        for _ in range(3):
            await submit(user, task="many")
        await submit(user, task="soon", schedule={"every": 1})
        await connection.fetchval("select 1")
        assert heard.empty()
    lane = await connection.fetchval("select lane_id from mainspring.lanes where task = 'many'")
    said = [await asyncio.wait_for(heard.get(), 60) for _ in range(2)]
    assert said == [f"sql ready {lane}:3", "sql due -"]
    for message in said:  # the servers understand these messages
        assembly.signals._on_notify(None, 0, CHANNEL, message)
    assert created == [{lane: 3}]


async def test_a_waiting_worker_gets_it_at_once(
    user: asyncpg.Connection, api: httpx.AsyncClient, assembly: Assembly
) -> None:
    listening = asyncio.create_task(assembly.signals.listen_forever())
    waiting = await start_waiting(assembly, HandWorker(api, tasks=["brand-new"]))

    async def listens() -> bool:
        return bool(await user.fetchval(LISTENERS))

    await until(listens)
    job_id = await submit(user, task="brand-new")
    reply = await asyncio.wait_for(waiting, PROMPTLY)  # shorter than its long poll, after which it would look by itself
    assert [order.job_id for order in reply.runs] == [job_id]
    listening.cancel()
    await asyncio.wait([listening])


async def test_without_the_hint_the_next_poll_finds_it(
    user: asyncpg.Connection, api: httpx.AsyncClient, assembly: Assembly
) -> None:
    waiting = await start_waiting(assembly, HandWorker(api, tasks=["brand-new"]))
    job_id = await submit(user, task="brand-new")
    assert await assembly.services.exchanger.poll() == 1
    assert [order.job_id for order in (await waiting).runs] == [job_id]


async def test_an_open_transaction_with_a_new_lane_holds_up_nobody(
    user: asyncpg.Connection, api: httpx.AsyncClient, connection: asyncpg.Connection, assembly: Assembly
) -> None:
    """Neither submissions to the same lane nor to another new one wait. The lane is found afterwards."""
    transaction = user.transaction()
    await transaction.start()
    await submit(user, task="shared")
    await submit(user, task="of the user alone")
    async with asyncio.timeout(PATIENCE):
        assert (await api.post("/v1/jobs", json={"task": "shared"})).status_code == 201
        assert (await api.post("/v1/jobs", json={"task": "another"})).status_code == 201
    reader = LaneRegistry(assembly.store)
    await reader.refresh()
    await transaction.commit()
    await reader.refresh()
    tasks = {lane.task for lane in reader.eligible(1, ["default"], ["shared", "of the user alone", "another"], {})}  # type: ignore[arg-type]
    assert tasks == {"shared", "of the user alone", "another"}
    lanes = await connection.fetch("select task from mainspring.lanes order by lane_id")
    assert [row["task"] for row in lanes] == ["shared", "another", "of the user alone"]


async def test_a_run_is_ready_from_the_commit_on_however_long_the_transaction_took(
    user: asyncpg.Connection, connection: asyncpg.Connection
) -> None:
    """Workers do not look for runs that became ready long before the head of their lane."""
    transaction = user.transaction()
    await transaction.start()
    await submit(user, task="noop")
    await submit(user, task="noop", schedule={"every": "1h"}, job_id="hourly")
    before = await now_of(connection)
    await transaction.commit()
    assert await connection.fetchval("select ready_at from mainspring.runs") >= before
    next_fire = await connection.fetchval("select next_fire_at from mainspring.jobs where job_id = 'hourly'")
    assert next_fire >= before + timedelta(hours=1) - timedelta(seconds=1)


async def test_a_key_that_is_repeated_gives_the_same_job(user: asyncpg.Connection) -> None:
    job = {"task": "noop", "payload": {"a": 1, "b": 2}, "idempotency_key": "k"}
    first = await submit(user, **job)
    assert await submit(user, **{**job, "payload": {"b": 2, "a": 1}}) == first
    async with user.transaction():
        assert await submit(user, **job) == first
    assert await runs(user) == 1
    with pytest.raises(
        asyncpg.UniqueViolationError, match="the idempotency key 'k' was used with another body"
    ) as again:
        await submit(user, task="noop", idempotency_key="k")
    assert again.value.detail == "idempotency_key"
    assert await runs(user) == 1


async def test_a_key_is_shared_with_the_api_and_its_bodies_never_agree(
    user: asyncpg.Connection, api: httpx.AsyncClient
) -> None:
    job = {"task": "noop", "idempotency_key": "k"}
    assert (await api.post("/v1/jobs", json=job)).status_code == 201
    with pytest.raises(asyncpg.UniqueViolationError):
        await submit(user, **job)
    await submit(user, task="noop", idempotency_key="sql")
    refused = problem(await api.post("/v1/jobs", json={"task": "noop", "idempotency_key": "sql"}))
    assert (refused["status"], refused["code"]) == (409, "idempotency_key_reused")


@pytest.mark.parametrize("committed", [True, False])
async def test_the_second_of_two_with_the_same_key_waits_for_the_first(
    user: asyncpg.Connection, database_url: str, connection: asyncpg.Connection, committed: bool
) -> None:
    job = {"task": "noop", "idempotency_key": "k"}
    other = await asyncpg.connect(database_url)
    transaction = user.transaction()
    await transaction.start()
    first = await submit(user, **job)
    second = asyncio.create_task(submit(other, **job))
    await until_blocked(connection, other.get_server_pid())
    await (transaction.commit() if committed else transaction.rollback())
    assert (await second == first) is committed
    assert await runs(connection) == 1
    await other.close()


async def test_a_chosen_id_is_taken_once_over_both_ways(user: asyncpg.Connection, api: httpx.AsyncClient) -> None:
    await submit(user, task="noop", job_id="mine")
    assert problem(await api.post("/v1/jobs", json={"task": "noop", "job_id": "mine"}))["code"] == "job_exists"
    assert (await api.post("/v1/jobs", json={"task": "noop", "job_id": "theirs"})).status_code == 201
    with pytest.raises(asyncpg.UniqueViolationError, match="a job called 'theirs' exists already") as taken:
        await submit(user, task="noop", job_id="theirs")
    assert taken.value.detail == "job_id"
    made = (await api.post("/v1/jobs", json={"task": "noop"})).json()["job_id"]
    for own in (made, await submit(user, task="noop"), await submit(user, task="noop", schedule="manual")):
        with pytest.raises(asyncpg.UniqueViolationError):
            await submit(user, task="noop", job_id=own)


async def test_a_role_needs_the_grant_and_nothing_else(
    superuser: asyncpg.Connection, connection: asyncpg.Connection
) -> None:
    await superuser.execute("create role clerk")
    try:
        await superuser.execute("set role clerk")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await submit(superuser, task="noop")
        await connection.execute("grant usage on schema mainspring to clerk")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await submit(superuser, task="noop")
        await connection.execute("grant execute on function mainspring.submit(jsonb) to clerk")
        async with superuser.transaction():
            await submit(superuser, task="noop")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await superuser.fetch("select * from mainspring.runs")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await superuser.fetch("select mainspring.new_id()")
        assert await runs(connection) == 1
    finally:
        await superuser.execute("reset role")
        await superuser.execute("drop owned by clerk")
        await superuser.execute("drop role clerk")


async def test_a_role_submits_for_its_tenant_and_cannot_choose_another(
    superuser: asyncpg.Connection, connection: asyncpg.Connection
) -> None:
    tenant = await connection.fetchval(
        "insert into mainspring.tenants (tenant_id, name) values (7, 'acme') returning tenant_id"
    )
    await superuser.execute("""
        create role acme_app; create role acme_friend in role acme_app; create role some_app;
        grant usage on schema mainspring to acme_app, some_app;
        grant execute on function mainspring.submit(jsonb) to acme_app, some_app;
        insert into mainspring.tenant_roles (role, tenant_id)
            select 'acme_app', tenant_id from mainspring.tenants where name = 'acme';
    """)
    try:
        await superuser.execute("set session authorization acme_app")  # as if it had logged in
        await submit(superuser, task="noop", job_id="hers", idempotency_key="k")
        await submit(superuser, task="noop", job_id="hourly", schedule={"every": "1h"})
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await superuser.execute("insert into mainspring.tenant_roles values ('some_app', 7)")
        await superuser.execute("reset session authorization; set session authorization some_app")
        await submit(superuser, task="noop", job_id="hers", idempotency_key="k")  # another tenant's ids and keys
        # `set role` does not change the role that logged in.
        await superuser.execute("reset session authorization; set session authorization acme_friend; set role acme_app")
        await submit(superuser, task="noop", job_id="friend")
    finally:
        await superuser.execute("reset session authorization")
        await superuser.execute("drop owned by acme_app, acme_friend, some_app")
        await superuser.execute("drop role acme_app, acme_friend, some_app")
    rows = await connection.fetch(
        "select job_id, r.tenant_id, l.tenant_id from mainspring.runs r join mainspring.lanes l using (lane_id)"
        " order by 1, 2"
    )
    assert [tuple(row) for row in rows] == [("friend", 1, 1), ("hers", 1, 1), ("hers", tenant, tenant)]
    assert await connection.fetchval("select tenant_id from mainspring.jobs where job_id = 'hourly'") == tenant


async def test_names_of_the_callers_do_not_lead_the_function_astray(user: asyncpg.Connection) -> None:
    """It runs with the rights of its owner, so it must not use objects from the caller's schemas."""
    await user.execute("""
        create schema trap;
        create function trap.length(text) returns int language sql as 'select 1 / 0';
        create function trap.jsonb_typeof(jsonb) returns text language sql as 'select (1 / 0)::text';
        create temp table runs (x int);
        set search_path = trap, pg_temp, pg_catalog, mainspring;
    """)
    await submit(user, task="noop", owner="bi")
    assert await user.fetchval("select count(*) from mainspring.runs") == 1


async def test_a_key_in_an_open_transaction_does_not_take_the_servers_connections_from_the_workers(
    user: asyncpg.Connection, api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    """A request with the same key over HTTP is told to retry. All other requests are served meanwhile."""
    job = {"task": "noop", "idempotency_key": "k"}
    transaction = user.transaction()
    await transaction.start()
    await submit(user, **job)
    repeats = [asyncio.create_task(api.post("/v1/jobs", json=job)) for _ in range(60)]

    async def six_wait() -> bool:
        waiting: int = await connection.fetchval(BLOCKED)
        assert waiting <= 6  # of eight connections
        return waiting == 6

    await until(six_wait)
    worker = HandWorker(api)
    assert (await api.post("/v1/jobs", json={"task": "noop"})).status_code == 201
    (order,) = await worker.claim()
    await worker.report(outcome(order))
    refused = problem(await repeats[0])
    assert (refused["status"], refused["code"]) == (503, "busy")
    await transaction.rollback()
    answers = [answer.status_code for answer in await asyncio.gather(*repeats)]
    assert answers.count(201) == 1
    assert set(answers) <= {200, 201, 503}
