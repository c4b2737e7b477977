"""Report: an outcome must match worker and fence, and is recorded once. Then the run is in the history."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from mainspring.domain.transitions import StoredState
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.store import dead_letters, runs
from mainspring.store.claimed_runs import ClaimedRun
from mainspring.store.dead_letters import DeadLetterFilter
from mainspring.store.runs import EndedRow

from .rows import a_lane, claim, ended, live, now_of, queued

pytestmark = pytest.mark.anyio

RUNNING = int(StoredState.RUNNING)
FAILED = int(StoredState.FAILED)
CANCELLED = int(StoredState.CANCELLED)


def ids(rows: list[EndedRow]) -> list[UUID]:
    return [run_id for run_id, *_ in rows]


async def a_claimed_run(connection: asyncpg.Connection, worker_id: UUID, **columns: object) -> ClaimedRun:
    lane_id = await a_lane(connection, task=f"work-{uuid7()}")
    await queued(connection, lane_id, **columns)  # type: ignore[arg-type]
    [row] = await claim(connection, [lane_id], 1, worker_id)
    return row


async def succeed(connection: asyncpg.Connection, worker_id: UUID, run_id: UUID, fence: int) -> list[UUID]:
    rows = await runs.report_successes(connection, worker_id, [run_id], [fence], [2.0], [5.0], ['{"sum": 3}'])
    return ids(rows)


async def test_success_moves_the_run_to_history_with_its_payload(connection: asyncpg.Connection) -> None:
    worker_id = uuid7()
    run = await a_claimed_run(connection, worker_id)
    [claimed] = await live(connection)
    assert await succeed(connection, worker_id, run.run_id, 1) == [run.run_id]
    assert await live(connection) == []
    [row] = await ended(connection)
    assert (row["state"], row["attempt"], row["fence"]) == (StoredState.SUCCESS, 1, 1)
    assert (row["payload"], row["result"], row["worker_id"]) == ('{"n": 1}', '{"sum": 3}', worker_id)
    assert (row["started_at"] - claimed["claimed_at"]).total_seconds() == pytest.approx(0.002)
    assert row["ran_ms"] == 5.0
    assert row["ended_at"] <= await now_of(connection)
    assert await dead_letters.page(connection, DEFAULT_TENANT, DeadLetterFilter(), None, 10) == []


@pytest.mark.parametrize("wrong", ["fence", "worker"])
async def test_a_success_of_another_fence_or_worker_changes_nothing_and_is_told(
    connection: asyncpg.Connection, wrong: str
) -> None:
    worker_id = uuid7()
    run_id = (await a_claimed_run(connection, worker_id)).run_id
    before = await live(connection)
    stranger, fence = (worker_id, 2) if wrong == "fence" else (uuid7(), 1)
    assert await succeed(connection, stranger, run_id, fence) == []
    assert await runs.reported_before(connection, stranger, [run_id], [fence], ["FAILED"]) == set()
    assert await live(connection) == before
    assert await ended(connection) == []


async def test_a_success_told_twice_is_recorded_once_and_known_the_second_time(connection: asyncpg.Connection) -> None:
    worker_id = uuid7()
    run_id = (await a_claimed_run(connection, worker_id)).run_id
    await succeed(connection, worker_id, run_id, 1)
    before = await ended(connection)
    assert await succeed(connection, worker_id, run_id, 1) == []
    assert await runs.reported_before(connection, worker_id, [run_id], [1], ["FAILED"]) == {run_id}
    assert await runs.reported_before(connection, uuid7(), [run_id], [1], ["FAILED"]) == set()
    assert await runs.reported_before(connection, worker_id, [run_id], [2], ["FAILED"]) == set()
    assert await ended(connection) == before


async def test_of_a_batch_those_that_match_are_recorded(connection: asyncpg.Connection) -> None:
    worker_id = uuid7()
    ours = [(await a_claimed_run(connection, worker_id)).run_id for _ in range(3)]
    theirs = (await a_claimed_run(connection, uuid7())).run_id
    sent = [*ours, theirs]
    rows = await runs.report_successes(connection, worker_id, sent, [1, 9, 1, 1], [0.0] * 4, [0.0] * 4, [None] * 4)
    assert set(ids(rows)) == {ours[0], ours[2]}
    assert {row["run_id"] for row in await live(connection)} == {ours[1], theirs}


async def test_an_outcome_other_than_success_is_decided_under_a_lock_that_matches_all_three(
    connection: asyncpg.Connection,
) -> None:
    worker_id = uuid7()
    run_id = (await a_claimed_run(connection, worker_id)).run_id
    assert len(await runs.lock_reported(connection, worker_id, [run_id], [1])) == 1
    assert await runs.lock_reported(connection, worker_id, [run_id], [2]) == []
    assert await runs.lock_reported(connection, uuid7(), [run_id], [1]) == []
    await runs.requeue(connection, [runs.Requeue(run_id, 1, 0.0)])
    assert await runs.lock_reported(connection, worker_id, [run_id], [1]) == []


async def test_failed_goes_to_history_and_to_the_dead_letters_with_its_payload(connection: asyncpg.Connection) -> None:
    worker_id = uuid7()
    run = await a_claimed_run(connection, worker_id, payload='{"to": "moon"}')
    failed = runs.Ending(run.run_id, 1, FAILED, "no tries left", "Boom", RUNNING, ran_ms=7.0)
    assert ids(await runs.end(connection, [failed])) == [run.run_id]
    assert await live(connection) == []
    [row] = await ended(connection)
    assert (row["state"], row["reason"], row["error"]) == (FAILED, "no tries left", "Boom")
    assert (row["payload"], row["ran_ms"], row["worker_id"]) == ('{"to": "moon"}', 7.0, worker_id)
    [letter] = await dead_letters.page(connection, DEFAULT_TENANT, DeadLetterFilter(), None, 10)
    assert (letter.run_id, letter.error, letter.attempts) == (run.run_id, "Boom", 1)
    assert letter.payload_text == '{"to": "moon"}'
    assert await runs.reported_before(connection, worker_id, [run.run_id], [1], ["FAILED"]) == {run.run_id}


async def test_cancelled_keeps_its_payload_in_history_and_is_no_dead_letter(connection: asyncpg.Connection) -> None:
    run = await a_claimed_run(connection, uuid7(), payload='{"to": "moon"}')
    await runs.end(connection, [runs.Ending(run.run_id, 1, CANCELLED, "asked for", None, RUNNING)])
    [row] = await ended(connection)
    assert (row["state"], row["payload"]) == (CANCELLED, '{"to": "moon"}')
    assert await dead_letters.page(connection, DEFAULT_TENANT, DeadLetterFilter(), None, 10) == []


@pytest.mark.parametrize(("fence", "before"), [(2, RUNNING), (1, int(StoredState.QUEUED))], ids=["fence", "state"])
async def test_an_end_of_another_fence_or_from_another_state_changes_nothing(
    connection: asyncpg.Connection, fence: int, before: int
) -> None:
    run = await a_claimed_run(connection, uuid7())
    rows = await live(connection)
    assert await runs.end(connection, [runs.Ending(run.run_id, fence, FAILED, None, "Boom", before)]) == []
    assert await live(connection) == rows
    assert await ended(connection) == []
    assert await dead_letters.page(connection, DEFAULT_TENANT, DeadLetterFilter(), None, 10) == []


async def test_an_ended_run_ends_no_second_time(connection: asyncpg.Connection) -> None:
    run = await a_claimed_run(connection, uuid7())
    ending = runs.Ending(run.run_id, 1, FAILED, None, "Boom", RUNNING)
    await runs.end(connection, [ending])
    before = await ended(connection)
    assert await runs.end(connection, [ending]) == []
    assert await ended(connection) == before


async def test_requeue_raises_the_fence_keeps_the_attempt_and_waits(connection: asyncpg.Connection) -> None:
    worker_id = uuid7()
    run = await a_claimed_run(connection, worker_id)
    before = await now_of(connection)
    [answer] = await runs.requeue(connection, [runs.Requeue(run.run_id, 1, 30.0, error="Boom")])
    [row] = await live(connection)
    assert (row["state"], row["fence"], row["attempt"]) == (StoredState.QUEUED, 2, 1)
    assert (row["worker_id"], row["claim_seq"], row["claimed_at"]) == (None, None, None)
    assert row["last_error"] == "Boom"
    assert 30.0 <= (row["ready_at"] - before).total_seconds() < 60.0
    assert (answer.run_id, answer.lane_id) == (run.run_id, run.lane_id)


async def test_the_worker_that_had_a_requeued_run_is_fenced(connection: asyncpg.Connection) -> None:
    worker_id = uuid7()
    run = await a_claimed_run(connection, worker_id)
    await runs.requeue(connection, [runs.Requeue(run.run_id, 1, 0.0)])
    assert await succeed(connection, worker_id, run.run_id, 1) == []
    [again] = await claim(connection, [run.lane_id], 1, worker_id)
    assert (again.fence, again.attempt) == (3, 2)
    assert await succeed(connection, worker_id, run.run_id, 1) == []
    assert await succeed(connection, worker_id, run.run_id, 3) == [run.run_id]


async def test_a_run_handed_back_unstarted_gets_its_attempt_back(connection: asyncpg.Connection) -> None:
    run = await a_claimed_run(connection, uuid7())
    await runs.requeue(connection, [runs.Requeue(run.run_id, 1, 0.0, error="Boom")])
    await claim(connection, [run.lane_id], 1, uuid7())
    await runs.requeue(connection, [runs.Requeue(run.run_id, 3, 0.0, given_back=1)])
    [row] = await live(connection)
    assert (row["attempt"], row["fence"], row["last_error"]) == (1, 4, "Boom")


@pytest.mark.parametrize("fence", [0, 2])
async def test_requeue_of_another_fence_changes_nothing(connection: asyncpg.Connection, fence: int) -> None:
    run = await a_claimed_run(connection, uuid7())
    before = await live(connection)
    assert await runs.requeue(connection, [runs.Requeue(run.run_id, fence, 0.0)]) == []
    assert await live(connection) == before


async def test_requeue_of_a_queued_run_changes_nothing(connection: asyncpg.Connection) -> None:
    [run_id] = await queued(connection, await a_lane(connection))
    assert await runs.requeue(connection, [runs.Requeue(run_id, 0, 0.0)]) == []


async def test_an_error_of_an_earlier_try_is_kept_when_the_last_one_has_none(connection: asyncpg.Connection) -> None:
    run = await a_claimed_run(connection, uuid7())
    await runs.requeue(connection, [runs.Requeue(run.run_id, 1, 0.0, error="Boom")])
    [again] = await claim(connection, [run.lane_id], 1, uuid7())
    await runs.end(connection, [runs.Ending(run.run_id, again.fence, FAILED, None, None, RUNNING)])
    [row] = await ended(connection)
    assert row["error"] == "Boom"


async def test_cancel_is_asked_for_once_and_only_of_the_present_holder(connection: asyncpg.Connection) -> None:
    worker_id = uuid7()
    run_id = (await a_claimed_run(connection, worker_id)).run_id
    assert await runs.request_cancels(connection, [(run_id, 2)]) == set()
    assert await runs.request_cancels(connection, [(run_id, 1)]) == {worker_id}
    [before] = await live(connection)
    assert await runs.request_cancels(connection, [(run_id, 1)]) == set()
    [after] = await live(connection)
    assert after["cancel_requested_at"] == before["cancel_requested_at"]


@pytest.mark.parametrize("trigger", [None, "manual:1"], ids=["schedule", "manual"])
async def test_the_database_refuses_a_second_run_of_the_same_fire(
    connection: asyncpg.Connection, trigger: str | None
) -> None:
    """Identity: (job, trigger, scheduled_for). `schedule` is stored as null, and two of those are the same too."""
    [run_id] = await queued(connection, await a_lane(connection), job_id="nightly")
    await connection.execute("update mainspring.runs set trigger = $1", trigger)
    copy = """
        insert into mainspring.runs (run_id, tenant_id, lane_id, state, max_attempts, scheduled_for, ready_at, job_id,
                                     trigger)
        select $1, tenant_id, lane_id, 1, 4, scheduled_for + $2::interval, ready_at, job_id, trigger
        from mainspring.runs where run_id = $3
    """
    with pytest.raises(asyncpg.UniqueViolationError, match="runs_identity"):
        await connection.execute(copy, uuid7(), timedelta(0), run_id)
    assert len(await live(connection)) == 1
    await connection.execute(copy, uuid7(), timedelta(seconds=1), run_id)
    assert len(await live(connection)) == 2


@pytest.mark.parametrize("trigger", [None, "backfill:1"], ids=["schedule", "backfill"])
async def test_the_database_refuses_a_second_run_of_the_same_nominal_time(
    connection: asyncpg.Connection, trigger: str | None
) -> None:
    [run_id] = await queued(connection, await a_lane(connection), job_id="nightly")
    await connection.execute("update mainspring.runs set trigger = $1, nominal_for = scheduled_for", trigger)
    copy = """
        insert into mainspring.runs (run_id, tenant_id, lane_id, state, max_attempts, scheduled_for, ready_at, job_id,
                                     trigger, generation, nominal_for)
        select $1, tenant_id, lane_id, 1, 4, scheduled_for + interval '1 s', ready_at, job_id, $3, $4, nominal_for
        from mainspring.runs where run_id = $2
    """
    with pytest.raises(asyncpg.UniqueViolationError, match="runs_nominal"):
        await connection.execute(copy, uuid7(), run_id, trigger, 1)
    await connection.execute(copy, uuid7(), run_id, "replay:1", 1)
    await connection.execute(copy, uuid7(), run_id, trigger, 2)


async def test_jobs_that_run_now_are_no_fires_of_each_other(connection: asyncpg.Connection) -> None:
    """A one-time job with a generated id has no job_id and is not in the identity index."""
    await queued(connection, await a_lane(connection), 3)
    assert len({row["scheduled_for"] for row in await live(connection)}) == 1
