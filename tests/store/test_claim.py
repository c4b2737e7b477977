"""Claim: the oldest run first, critical runs before all others, and no run to two workers."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from mainspring.domain.job import Priority
from mainspring.domain.transitions import StoredState
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.store import runs
from mainspring.store.pool import HOT_SETTINGS

from .rows import BEGINNING, a_lane, claim, live, now_of, queued

pytestmark = pytest.mark.anyio


async def test_a_lane_is_emptied_in_the_order_of_ready_at(connection: asyncpg.Connection) -> None:
    lane_id = await a_lane(connection)
    by_wait = {seconds: (await queued(connection, lane_id, waited=seconds))[0] for seconds in (20, 60, 5, 40)}
    worker_id = uuid7()
    order = [(await claim(connection, [lane_id], 1, worker_id))[0].run_id for _ in by_wait]
    assert order == [by_wait[seconds] for seconds in (60, 40, 20, 5)]


async def test_a_batch_comes_in_the_order_in_which_it_is_to_be_run(connection: asyncpg.Connection) -> None:
    lane_id = await a_lane(connection)
    for seconds in (20, 60, 5, 40):
        await queued(connection, lane_id, waited=seconds)
    moments = [row.ready_at for row in await claim(connection, [lane_id], 4, uuid7())]
    assert moments == sorted(moments)


async def test_a_limit_takes_the_oldest_and_leaves_the_rest(connection: asyncpg.Connection) -> None:
    lane_id = await a_lane(connection)
    young = await queued(connection, lane_id, 3, waited=10)
    old = await queued(connection, lane_id, 2, waited=100)
    taken = await claim(connection, [lane_id], 2, uuid7())
    assert {row.run_id for row in taken} == set(old)
    left = {row["run_id"] for row in await live(connection) if row["state"] == StoredState.QUEUED}
    assert left == set(young)


@pytest.mark.parametrize("lanes", [1, 2], ids=["one lane", "several lanes"])
async def test_a_claim_writes_down_who_has_the_run_and_spends_an_attempt(
    connection: asyncpg.Connection, lanes: int
) -> None:
    lane_ids = [await a_lane(connection, task=f"work-{number}") for number in range(lanes)]
    [run_id] = await queued(connection, lane_ids[0], payload='{"to": "moon"}')
    worker_id = uuid7()
    [claimed] = await claim(connection, lane_ids, 5, worker_id, seq=7)
    assert (claimed.run_id, claimed.fence, claimed.attempt) == (run_id, 1, 1)
    assert claimed.payload_text == '{"to": "moon"}'
    [row] = await live(connection)
    assert (row["state"], row["worker_id"], row["claim_seq"]) == (StoredState.RUNNING, worker_id, 7)
    assert (row["fence"], row["attempt"]) == (1, 1)
    assert row["claimed_at"] is not None
    assert await claim(connection, lane_ids, 5, uuid7()) == []


@pytest.mark.parametrize("lanes", [1, 2], ids=["one lane", "several lanes"])
async def test_a_run_that_backs_off_is_not_claimed_before_its_moment(
    connection: asyncpg.Connection, lanes: int
) -> None:
    lane_ids = [await a_lane(connection, task=f"work-{number}") for number in range(lanes)]
    await queued(connection, lane_ids[0], waited=-60)
    assert await claim(connection, lane_ids, 5, uuid7()) == []
    await connection.execute("update mainspring.runs set ready_at = ready_at - interval '61 s'")
    assert len(await claim(connection, lane_ids, 5, uuid7())) == 1


@pytest.mark.parametrize("lanes", [1, 2], ids=["one lane", "several lanes"])
async def test_what_stands_before_the_bound_is_left_for_the_full_look(
    connection: asyncpg.Connection, lanes: int
) -> None:
    lane_ids = [await a_lane(connection, task=f"work-{number}") for number in range(lanes)]
    await queued(connection, lane_ids[0], waited=600)
    [run_id] = await queued(connection, lane_ids[0], waited=1)
    bound = await connection.fetchval("select clock_timestamp() - interval '300 s'")
    taken = await runs.claim(connection, [(lane_id, 1, bound) for lane_id in lane_ids], 5, uuid7(), 1)
    assert [row.run_id for row in taken] == [run_id]
    assert len(await runs.claim(connection, [(lane_id, 1, BEGINNING) for lane_id in lane_ids], 5, uuid7(), 1)) == 1


async def test_only_the_asked_for_lanes_are_taken_from(connection: asyncpg.Connection) -> None:
    ours, ours_too, theirs = [await a_lane(connection, task=f"work-{number}") for number in range(3)]
    await queued(connection, theirs, 5, waited=600)
    await queued(connection, ours_too, 2)
    assert {row.lane_id for row in await claim(connection, [ours, ours_too], 10, uuid7())} == {ours_too}


async def test_critical_goes_before_everything_however_long_that_has_waited(connection: asyncpg.Connection) -> None:
    high = await a_lane(connection, priority=Priority.HIGH)
    critical = await a_lane(connection, priority=Priority.CRITICAL)
    await queued(connection, high, 5, waited=24 * 3600)
    fresh = await queued(connection, critical, 2)
    assert {row.run_id for row in await claim(connection, [high, critical], 2, uuid7())} == set(fresh)


async def test_a_higher_priority_goes_first_among_fresh_runs(connection: asyncpg.Connection) -> None:
    lanes = {word: await a_lane(connection, priority=word) for word in (Priority.LOW, Priority.NORMAL, Priority.HIGH)}
    for lane_id in lanes.values():
        await queued(connection, lane_id)
    order = [(await claim(connection, list(lanes.values()), 1, uuid7()))[0].lane_id for _ in lanes]
    assert order == [lanes[word] for word in (Priority.HIGH, Priority.NORMAL, Priority.LOW)]


@pytest.mark.parametrize(("minutes", "first"), [(11, Priority.LOW), (9, Priority.HIGH)])
async def test_low_overtakes_high_after_ten_minutes_of_waiting(
    connection: asyncpg.Connection, minutes: int, first: Priority
) -> None:
    lanes = {word: await a_lane(connection, priority=word) for word in (Priority.LOW, Priority.HIGH)}
    await queued(connection, lanes[Priority.LOW], waited=minutes * 60)
    await queued(connection, lanes[Priority.HIGH], 3)
    [row] = await claim(connection, list(lanes.values()), 1, uuid7())
    assert row.lane_id == lanes[first]


@pytest.mark.parametrize("lanes", [1, 2], ids=["one lane", "several lanes"])
async def test_a_locked_run_is_passed_over_and_not_waited_for(
    database_url: str, connection: asyncpg.Connection, lanes: int
) -> None:
    lane_ids = [await a_lane(connection, task=f"work-{number}") for number in range(lanes)]
    [old] = await queued(connection, lane_ids[0], waited=60)
    [young] = await queued(connection, lane_ids[0])
    other = await asyncpg.connect(database_url)
    await connection.execute("set lock_timeout = '30s'")
    async with other.transaction():
        await runs.lock_run(other, DEFAULT_TENANT, old)
        [row] = await claim(connection, lane_ids, 1, uuid7())
    await other.close()
    assert row.run_id == young


@pytest.mark.parametrize("lanes", [1, 5], ids=["one lane", "several lanes"])
async def test_concurrent_claims_share_nothing_and_leave_nothing(
    database_url: str, connection: asyncpg.Connection, lanes: int
) -> None:
    """5,000 runs and eight claimers: their claims are disjoint and complete."""
    lane_ids = [await a_lane(connection, task=f"work-{number}", priority=number % 4) for number in range(lanes)]
    expected = {run_id for lane_id in lane_ids for run_id in await queued(connection, lane_id, 5000 // lanes)}

    async def claim_all(limit: int) -> list[object]:
        own = await asyncpg.connect(database_url, server_settings=HOT_SETTINGS)
        worker_id, taken = uuid7(), []
        while rows := await claim(own, lane_ids, limit, worker_id):
            assert len(rows) <= limit
            taken += [row.run_id for row in rows]
        await own.close()
        return taken

    # A claim is empty while others hold the last rows, so the remaining runs are claimed at the end.
    shares = await asyncio.gather(*(claim_all(limit) for limit in (1, 7, 20, 50, 100, 150, 200, 250)))
    taken = [run_id for share in [*shares, await claim_all(100)] for run_id in share]
    assert len(taken) == len(set(taken)) == len(expected)
    assert set(taken) == expected
    assert {(row["fence"], row["attempt"]) for row in await live(connection)} == {(1, 1)}


async def test_a_claim_whose_answer_was_lost_is_handed_out_again(connection: asyncpg.Connection) -> None:
    lane_id = await a_lane(connection)
    await queued(connection, lane_id, 4)
    worker_id = uuid7()
    first = [row.run_id for row in await claim(connection, [lane_id], 2, worker_id, seq=1)]
    await claim(connection, [lane_id], 2, worker_id, seq=2)
    again = await runs.redeliver(connection, worker_id, 2, [first[0]], 10)
    assert [(row.run_id, row.fence, row.attempt) for row in again] == [(first[1], 1, 1)]
    assert await runs.redeliver(connection, uuid7(), 2, [], 10) == []


async def test_a_claim_that_is_to_be_cancelled_is_handed_out_again_too(connection: asyncpg.Connection) -> None:
    """Only its worker can report that it has ended."""
    lane_id = await a_lane(connection)
    await queued(connection, lane_id, 3)
    worker_id = uuid7()
    taken = [row.run_id for row in await claim(connection, [lane_id], 3, worker_id, seq=1)]
    assert await runs.request_cancels(connection, [(taken[0], 1)]) == {worker_id}
    assert {row.run_id for row in await runs.redeliver(connection, worker_id, 2, [], 10)} == set(taken)
    assert await runs.to_stop(connection, [worker_id, uuid7()]) == {worker_id: [taken[0]]}
    assert len(await runs.redeliver(connection, worker_id, 2, [], 1)) == 1


async def test_claimed_at_is_the_databases_time(connection: asyncpg.Connection) -> None:
    lane_id = await a_lane(connection)
    await queued(connection, lane_id)
    async with connection.transaction():
        before = await now_of(connection)  # later than the transaction's start, which now() would give
        await claim(connection, [lane_id], 1, uuid7())
        after = await now_of(connection)
    [row] = await live(connection)
    assert before <= row["claimed_at"] <= after


async def test_a_look_names_the_lanes_that_have_something_and_takes_nothing(connection: asyncpg.Connection) -> None:
    ready, backing_off, empty, passed = [await a_lane(connection, task=f"work-{number}") for number in range(4)]
    await queued(connection, ready, 3)
    await queued(connection, backing_off, waited=-60)
    await queued(connection, passed, waited=60)
    bounds = [(lane_id, BEGINNING) for lane_id in (ready, backing_off, empty)]
    bounds.append((passed, await connection.fetchval("select clock_timestamp() - interval '30 s'")))
    assert await runs.ready_lanes(connection, bounds) == [ready]
    assert {row["state"] for row in await live(connection)} == {StoredState.QUEUED}
