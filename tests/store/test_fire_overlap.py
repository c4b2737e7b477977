"""Overlap: fires and manual runs while a run of the job is alive. The decision is made after the lock."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from mainspring.domain.job import Overlap
from mainspring.domain.schedules.misfire import FirePlan
from mainspring.domain.transitions import StoredJobStatus, StoredState
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.store import fires, jobs

from .fire_scene import MINUTE, Scene, run_now
from .rows import a_job, at, claim, ended, job_row, live, until_blocked

pytestmark = pytest.mark.anyio

OVERLAP_REASON = "overlap: an earlier run of this job was still alive"
TOGETHER_REASON = "overlap: several fires of this job were due together, and the first of them was run"


@pytest.mark.parametrize("state", [StoredState.QUEUED, StoredState.RUNNING], ids=lambda state: state.name)
async def test_a_fire_while_a_run_is_alive_is_skipped_with_the_reason(scene: Scene, state: StoredState) -> None:
    await scene.job()
    await scene.fire(scene.again())
    if state is StoredState.RUNNING:
        await claim(scene.connection, [scene.lane_id], 1, uuid7())
    assert await scene.fire(scene.again(minutes=1)) == fires.FiredRows({}, [0])
    assert len(await live(scene.connection)) == 1
    [skip] = await ended(scene.connection)
    assert (skip["state"], skip["reason"], skip["job_id"]) == (StoredState.SKIPPED, OVERLAP_REASON, "nightly")
    assert (skip["scheduled_for"], skip["attempt"], skip["trigger"]) == (scene.moment + MINUTE, 0, None)
    job = await job_row(scene.connection, "nightly")
    assert (job["next_fire_at"], job["last_fired_for"]) == (scene.moment + 2 * MINUTE, scene.moment + MINUTE)


async def test_overlap_allow_gives_both_runs(scene: Scene) -> None:
    await scene.job(overlap=Overlap.ALLOW)
    await scene.fire(scene.again())
    await scene.fire(scene.again(minutes=1))
    assert [row["scheduled_for"] for row in await live(scene.connection)] == [scene.moment, scene.moment + MINUTE]
    assert await ended(scene.connection) == []


async def test_of_several_catch_up_runs_at_once_all_but_the_first_overlap(scene: Scene) -> None:
    await scene.job()
    moments = [scene.moment + number * MINUTE for number in range(3)]
    plan = FirePlan(moments, [], moments[-1], moments[-1] + MINUTE)
    await scene.fire(fires.DueAgain(DEFAULT_TENANT, "nightly", 1, scene.moment, plan))
    assert [row["scheduled_for"] for row in await live(scene.connection)] == moments[:1]
    skipped = await ended(scene.connection)
    assert [row["scheduled_for"] for row in skipped] == moments[1:]
    assert {row["reason"] for row in skipped} == {TOGETHER_REASON}


async def test_of_several_catch_up_runs_beside_a_live_run_all_say_that_it_is_alive(scene: Scene) -> None:
    await scene.job()
    assert await run_now(scene.connection)
    moments = [scene.moment + number * MINUTE for number in range(3)]
    plan = FirePlan(moments, [], moments[-1], moments[-1] + MINUTE)
    await scene.fire(fires.DueAgain(DEFAULT_TENANT, "nightly", 1, scene.moment, plan))
    assert [row["reason"] for row in await ended(scene.connection)] == [OVERLAP_REASON] * 3


async def test_a_fire_decides_about_overlap_after_it_has_the_lock(
    scene: Scene, others: list[asyncpg.Connection]
) -> None:
    """A manual run is being created. The fire waits for the job's row and then sees the run."""
    await scene.job()
    by_hand, firing = others
    transaction = by_hand.transaction()
    await transaction.start()
    assert await run_now(by_hand)
    fire = asyncio.create_task(scene.fire(scene.again(), on=firing))
    await until_blocked(scene.connection, firing.get_server_pid())
    await transaction.commit()
    assert await fire == fires.FiredRows({}, [0])
    assert [row["trigger"] is None for row in await live(scene.connection)] == [False]
    assert [row["reason"] for row in await ended(scene.connection)] == [OVERLAP_REASON]


async def test_a_run_by_hand_decides_about_overlap_after_it_has_the_lock(
    scene: Scene, others: list[asyncpg.Connection]
) -> None:
    await scene.job()
    by_hand, firing = others
    transaction = firing.transaction()
    await transaction.start()
    await scene.fire(scene.again(), on=firing)
    running = asyncio.create_task(run_now(by_hand))
    await until_blocked(scene.connection, by_hand.get_server_pid())
    await transaction.commit()
    assert await running is False
    assert len(await live(scene.connection)) == 1
    [skip] = await ended(scene.connection)
    assert skip["trigger"].startswith("manual:")
    assert skip["reason"] == OVERLAP_REASON


async def test_no_mix_of_fires_and_runs_by_hand_gives_a_job_two_live_runs(
    scene: Scene, others: list[asyncpg.Connection]
) -> None:
    for number in range(25):
        job_id = f"job-{number}"
        await scene.job(job_id)
        await asyncio.gather(
            scene.fire(scene.again(job_id), on=others[number % 2]), run_now(others[1 - number % 2], job_id)
        )
        assert len(await live(scene.connection, job_id)) == 1, job_id
        assert len(await ended(scene.connection, job_id)) == 1, job_id


async def test_a_run_by_hand_may_overlap_where_that_is_allowed(scene: Scene) -> None:
    await scene.job(overlap=Overlap.ALLOW)
    assert await run_now(scene.connection)
    assert await run_now(scene.connection)
    await scene.fire(scene.again())
    assert len(await live(scene.connection)) == 3


async def test_a_cancelled_job_is_not_run_by_hand(scene: Scene) -> None:
    await scene.job()
    await scene.connection.execute("update mainspring.jobs set status = $1", int(StoredJobStatus.CANCELLED))
    assert await fires.run_now(scene.connection, DEFAULT_TENANT, "nightly", uuid7(), "manual:1") is None
    assert await live(scene.connection) == []


async def test_a_one_time_job_beside_a_live_run_of_it_is_skipped_with_the_reason(scene: Scene) -> None:
    await a_job(scene.connection, scene.lane_id, "launch", at(scene.moment), scene.moment)
    assert await run_now(scene.connection, "launch")
    assert await scene.fire_once(await scene.once("launch", uuid7())) == fires.FiredRows({}, [], gone=1)
    [by_hand] = await live(scene.connection, "launch")
    assert by_hand["trigger"].startswith("manual:")
    [skip] = await ended(scene.connection, "launch")
    assert (skip["state"], skip["reason"], skip["trigger"]) == (StoredState.SKIPPED, OVERLAP_REASON, "at")
    assert (skip["scheduled_for"], skip["attempt"]) == (scene.moment, 0)
    assert await jobs.get(scene.connection, DEFAULT_TENANT, "launch") is None


async def test_a_one_time_job_without_a_live_run_or_with_overlap_allow_fires(scene: Scene) -> None:
    for job_id, overlap in (("alone", Overlap.SKIP), ("beside", Overlap.ALLOW)):
        await a_job(scene.connection, scene.lane_id, job_id, at(scene.moment), scene.moment, overlap=overlap)
    assert await run_now(scene.connection, "beside")
    for job_id in ("alone", "beside"):
        assert (await scene.fire_once(await scene.once(job_id, uuid7()))).created == {scene.lane_id: 1}
    assert await ended(scene.connection) == []


async def test_a_job_that_recurred_and_is_to_run_once_now_is_skipped_beside_its_last_run(scene: Scene) -> None:
    await scene.job()
    await scene.fire(scene.again())
    scene.moment += MINUTE
    await scene.connection.execute(
        "update mainspring.jobs set one_time = true, next_fire_at = $1, version = 2", scene.moment
    )
    assert (await scene.fire_once(await scene.once("nightly", uuid7(), version=2))).created == {}
    assert [row["reason"] for row in await ended(scene.connection)] == [OVERLAP_REASON]


@pytest.mark.parametrize("waits", [True, False], ids=["the fire waits for it", "it is over before the fire"])
async def test_a_fire_prepared_before_a_run_by_hand_of_a_one_time_job_does_not_match(
    scene: Scene, others: list[asyncpg.Connection], waits: bool
) -> None:
    """The fire is one statement, so its snapshot may be older than the run by hand. The row is then a newer one."""
    await a_job(scene.connection, scene.lane_id, "launch", at(scene.moment), scene.moment)
    due = await scene.once("launch", uuid7())
    by_hand, firing = others
    transaction = by_hand.transaction()
    await transaction.start()
    assert await run_now(by_hand, "launch")
    if waits:
        fire = asyncio.create_task(scene.await_and_fire_once(due, on=firing))
        await until_blocked(scene.connection, firing.get_server_pid())
        await transaction.commit()
        assert await fire == fires.FiredRows({}, [])
    else:
        await transaction.commit()
        assert await scene.fire_once(due) == fires.FiredRows({}, [])
    assert len(await live(scene.connection, "launch")) == 1
    assert (await scene.fire_once(await scene.once("launch", uuid7()))).created == {}
    assert [row["reason"] for row in await ended(scene.connection, "launch")] == [OVERLAP_REASON]


async def test_no_mix_of_one_time_fires_and_runs_by_hand_gives_a_job_two_live_runs(
    scene: Scene, others: list[asyncpg.Connection]
) -> None:
    for number in range(25):
        job_id = f"job-{number}"
        await a_job(scene.connection, scene.lane_id, job_id, at(scene.moment), scene.moment)
        due = await scene.once(job_id, uuid7())
        async with asyncio.TaskGroup() as together:
            together.create_task(scene.fire_once(due, on=others[number % 2]))
            together.create_task(_run_now_or_gone(others[1 - number % 2], job_id))
        if await jobs.get(scene.connection, DEFAULT_TENANT, job_id) is not None:
            await scene.fire_once(await scene.once(job_id, uuid7()))
        assert len(await live(scene.connection, job_id)) == 1, job_id


async def _run_now_or_gone(connection: asyncpg.Connection, job_id: str) -> None:
    async with connection.transaction():
        if await jobs.lock(connection, DEFAULT_TENANT, job_id):
            await fires.run_now(connection, DEFAULT_TENANT, job_id, run_id := uuid7(), f"manual:{run_id}")
