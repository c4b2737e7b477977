"""Jobs: the first submission takes a chosen id or key, and a change needs the version that was read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from mainspring.domain.job import JobDefinition
from mainspring.domain.transitions import StoredJobStatus
from mainspring.kernel.config import SHARD_COUNT
from mainspring.kernel.ids import DEFAULT_TENANT, TenantId
from mainspring.store import idempotency_keys, jobs
from mainspring.store.lanes import Lane

from .rows import a_job, a_lane, every, job_row, now_of, until_blocked

pytestmark = pytest.mark.anyio

OTHER_TENANT = TenantId(2)


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    opened = await asyncpg.connect(database_url)
    yield opened
    await opened.close()


def test_the_shard_of_a_job_never_changes() -> None:
    """It is the same in all processes and releases. These are the values of the first release."""
    known = {(1, "nightly"): 97, (2, "nightly"): 36, (1, "0198c0de-0000-7000-8000-000000000000"): 22}
    assert {key: jobs.shard_of(TenantId(key[0]), key[1]) for key in known} == known


def test_the_shards_are_all_used() -> None:
    counts = [0] * SHARD_COUNT
    for number in range(12_800):
        counts[jobs.shard_of(DEFAULT_TENANT, f"job-{number}")] += 1
    assert min(counts) > 50 and max(counts) < 200


async def test_an_id_is_taken_once_in_its_tenant(connection: asyncpg.Connection) -> None:
    assert await jobs.take_ids(connection, DEFAULT_TENANT, ["a", "b"]) == {"a", "b"}
    assert await jobs.take_ids(connection, DEFAULT_TENANT, ["b", "c"]) == {"c"}
    assert await jobs.take_ids(connection, OTHER_TENANT, ["a"]) == {"a"}


async def test_of_two_who_want_an_id_the_second_waits_and_is_told(
    connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    transaction = connection.transaction()
    await transaction.start()
    await jobs.take_ids(connection, DEFAULT_TENANT, ["a"])
    second = asyncio.create_task(jobs.take_ids(other, DEFAULT_TENANT, ["a", "b"]))
    await until_blocked(connection, other.get_server_pid())
    await transaction.commit()
    assert await second == {"b"}


async def test_batches_in_opposite_orders_do_not_wait_for_each_other_in_a_circle(
    connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    """Ids and keys are taken in sorted order. Otherwise PostgreSQL would end a deadlock with an error."""
    for turn in range(10):
        names = [f"{turn}-{number}" for number in range(200)]
        keys = [(name, b"hash", name) for name in names]
        free = await asyncio.gather(
            jobs.take_ids(connection, DEFAULT_TENANT, names), jobs.take_ids(other, DEFAULT_TENANT, names[::-1])
        )
        assert sorted([*free[0], *free[1]]) == sorted(names)
        known = await asyncio.gather(
            idempotency_keys.take(connection, DEFAULT_TENANT, keys),
            idempotency_keys.take(other, DEFAULT_TENANT, keys[::-1]),
        )
        assert sorted([*known[0], *known[1]]) == sorted(names)


async def test_the_loser_of_a_key_reads_what_the_winner_wrote(
    connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    transaction = connection.transaction()
    await transaction.start()
    assert await idempotency_keys.take(connection, DEFAULT_TENANT, [("key", b"body", "first")]) == {}
    second = asyncio.create_task(idempotency_keys.take(other, DEFAULT_TENANT, [("key", b"other", "second")]))
    await until_blocked(connection, other.get_server_pid())
    await transaction.commit()
    assert await second == {"key": idempotency_keys.KnownKey(b"body", "first", 1)}


async def test_a_key_that_was_rolled_back_is_free_again(
    connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    transaction = connection.transaction()
    await transaction.start()
    await idempotency_keys.take(connection, DEFAULT_TENANT, [("key", b"body", "first")])
    second = asyncio.create_task(idempotency_keys.take(other, DEFAULT_TENANT, [("key", b"body", "second")]))
    await until_blocked(connection, other.get_server_pid())
    await transaction.rollback()
    assert await second == {}


async def change(connection: asyncpg.Connection, version: int, definition: JobDefinition) -> bool:
    return await jobs.change(
        connection,
        DEFAULT_TENANT,
        "nightly",
        version,
        status=int(StoredJobStatus.PAUSED),
        next_fire_at=None,
        paused_from=None,
        runs_left=None,
        last_nominal_for=None,
        lane_id=1,
        definition=definition,
        now=await now_of(connection),
    )


async def stored(connection: asyncpg.Connection, job_id: str) -> jobs.JobRow:
    row = await jobs.get(connection, DEFAULT_TENANT, job_id)
    assert row is not None
    return row


async def test_a_change_raises_the_version_and_needs_the_one_that_was_read(connection: asyncpg.Connection) -> None:
    now = await now_of(connection)
    lane_id = await a_lane(connection)
    await a_job(connection, lane_id, "nightly", every(60, now), now)
    lane = Lane(lane_id, DEFAULT_TENANT, "default", 1, "work")
    definition = jobs.definition_of(await stored(connection, "nightly"), lane)
    assert await change(connection, 1, definition)
    row = await job_row(connection, "nightly")
    assert (row["version"], row["status"], row["next_fire_at"]) == (2, StoredJobStatus.PAUSED, None)
    assert row["updated_at"] > row["created_at"]
    assert not await change(connection, 1, definition)
    assert await job_row(connection, "nightly") == row


async def test_a_definition_comes_back_as_it_was_stored(connection: asyncpg.Connection) -> None:
    now = await now_of(connection)
    lane_id = await a_lane(connection)
    await a_job(connection, lane_id, "nightly", every(60, now), now)
    read = jobs.definition_of(await stored(connection, "nightly"), Lane(lane_id, DEFAULT_TENANT, "default", 1, "work"))
    assert (read.task, read.queue, read.payload, read.schedule) == ("work", "default", '{"n": 1}', every(60, now))


@pytest.mark.parametrize("text", ["100%", "a_b", "back\\slash", "plain"])
async def test_a_search_finds_the_text_as_it_stands(connection: asyncpg.Connection, text: str) -> None:
    pattern = jobs.contains(text)
    assert await connection.fetchval("select $1::text ilike $2", f"before {text} after", pattern)
    assert not await connection.fetchval("select $1::text ilike $2", "100x aXb backXslash", pattern)
