"""Late fires: each one is run, skipped or recorded as missed, by the policy of the job."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import asyncpg
import pytest

from mainspring.domain.job import DUE_TOGETHER, Overlap, Spec
from mainspring.domain.schedules.misfire import MisfirePolicy
from mainspring.domain.transitions import StoredJobStatus, StoredState
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.store import missed_fires
from tests.store.rows import a_job, at, ended, every, job_row, live

from .a_node import Node

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
ALLOW = Overlap.ALLOW


async def a_late_job(
    connection: asyncpg.Connection, lane_id: int, node: Node, misfire: MisfirePolicy, overlap: Overlap = ALLOW
) -> list[datetime]:
    """A job that fires every minute and was last fired ten and a half minutes ago. Returns the eleven late fire
    times."""
    first = node.now - 10.5 * MINUTE
    await a_job(connection, lane_id, "late", every(60, first), first, overlap=overlap, spec=Spec(misfire=misfire))
    return [first + number * MINUTE for number in range(11)]


async def missed(connection: asyncpg.Connection, job_id: str = "late") -> list[tuple[datetime, datetime, int, str]]:
    rows = await missed_fires.of_job(connection, DEFAULT_TENANT, job_id, 100)
    return [(row.first_at, row.last_at, row.count, row.reason) for row in reversed(rows)]


async def runs_of(connection: asyncpg.Connection, job_id: str = "late") -> list[datetime]:
    return [row["scheduled_for"] for row in await live(connection, job_id)]


async def test_once_runs_the_latest_and_records_the_others(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    late = await a_late_job(connection, lane_id, node, MisfirePolicy("once"))
    assert await node.turn() == 1
    assert await runs_of(connection) == late[-1:]
    assert await missed(connection) == [(late[0], late[9], 10, "coalesced into a later fire")]


async def test_skip_runs_none_and_records_all(connection: asyncpg.Connection, node: Node, lane_id: int) -> None:
    late = await a_late_job(connection, lane_id, node, MisfirePolicy("skip"))
    assert await node.turn() == 0
    assert await runs_of(connection) == []
    assert await missed(connection) == [(late[0], late[10], 11, "late: misfire policy skip")]


async def test_all_runs_each_up_to_the_cap_and_records_the_rest(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    late = await a_late_job(connection, lane_id, node, MisfirePolicy("all", cap=4))
    assert await node.turn() == 4
    assert await runs_of(connection) == late[-4:]
    assert await missed(connection) == [(late[0], late[6], 7, "over the misfire cap")]


async def test_all_leaves_out_what_is_older_than_the_grace(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    late = await a_late_job(connection, lane_id, node, MisfirePolicy("all", grace=300.0))
    assert await node.turn() == 5
    assert await runs_of(connection) == late[-5:]
    assert await missed(connection) == [(late[0], late[5], 6, "older than the misfire grace")]


async def test_all_with_overlap_skip_runs_the_first_and_skips_the_rest_with_the_reason(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    late = await a_late_job(connection, lane_id, node, MisfirePolicy("all"), overlap=Overlap.SKIP)
    assert await node.turn() == 1
    assert await runs_of(connection) == late[:1]
    skipped = await ended(connection, "late")
    assert [row["scheduled_for"] for row in skipped] == late[1:]
    assert {row["state"] for row in skipped} == {StoredState.SKIPPED}
    assert {row["reason"] for row in skipped} == {DUE_TOGETHER}


@pytest.mark.parametrize("policy", ["once", "skip", "all"])
async def test_every_late_fire_is_a_run_or_recorded_and_the_job_goes_on(
    connection: asyncpg.Connection, node: Node, lane_id: int, policy: str
) -> None:
    late = await a_late_job(connection, lane_id, node, MisfirePolicy(policy))
    await node.turn()
    await node.turn()
    counted = len(await runs_of(connection)) + sum(count for _, _, count, _ in await missed(connection))
    assert counted == len(late)
    job = await job_row(connection, "late")
    assert (job["last_fired_for"], job["next_fire_at"]) == (late[-1], late[-1] + MINUTE)


async def test_a_backlog_of_more_than_one_look_is_worked_off_and_none_is_lost(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    first = node.now - timedelta(seconds=12_000.5)
    await a_job(connection, lane_id, "late", every(1, first), first, overlap=ALLOW)
    turns = 0
    while (await job_row(connection, "late"))["next_fire_at"] <= node.now:
        await node.turn()
        turns += 1
        assert turns < 10
    runs = await runs_of(connection)
    gaps = await missed(connection)
    assert len(runs) + sum(count for _, _, count, _ in gaps) == 12_001
    assert gaps[0][0] == first
    for before, after in pairwise(gaps):
        assert after[0] - before[1] == timedelta(seconds=1)
    assert runs[-1] == first + timedelta(seconds=12_000)


@pytest.mark.parametrize(
    ("misfire", "seconds", "reason"),
    [
        (MisfirePolicy("skip"), 6, "late: misfire policy skip"),
        (MisfirePolicy("once", grace=60.0), 61, "older than the misfire grace"),
        (MisfirePolicy("all", grace=60.0), 61, "older than the misfire grace"),
        (MisfirePolicy("skip"), 4, None),
        (MisfirePolicy("once", grace=60.0), 59, None),
        (MisfirePolicy("all"), 3600, None),
        (MisfirePolicy("once"), 3600, None),
    ],
    ids=str,
)
async def test_a_late_one_time_job_follows_its_policy_and_grace(
    connection: asyncpg.Connection,
    node: Node,
    lane_id: int,
    misfire: MisfirePolicy,
    seconds: float,
    reason: str | None,
) -> None:
    moment = node.now - timedelta(seconds=seconds)
    await a_job(connection, lane_id, "late", at(moment), moment, spec=Spec(misfire=misfire))
    assert await node.turn() == (reason is None)
    assert await node.turn() == 0
    if reason is None:
        assert (await runs_of(connection), await missed(connection)) == ([moment], [])
        return
    assert (await runs_of(connection), await missed(connection)) == ([], [(moment, moment, 1, reason)])
    job = await job_row(connection, "late")
    assert (job["status"], job["next_fire_at"]) == (StoredJobStatus.COMPLETED, None)
    assert job["last_fired_for"] == moment
