"""Exchanges that arrive together, in one statement. Each member has guards of its own, and waits for nobody."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import asyncpg
import pytest

from mainspring.domain.transitions import StoredState
from mainspring.domain.worker_state import WorkerState
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.store import gates
from mainspring.store.claimed_runs import ClaimedRun
from mainspring.store.exchange_groups import GroupMember, MemberResult, Success, exchange_together

from .rows import BEGINNING, a_lane, a_worker, claim, ended, live, queued

pytestmark = pytest.mark.anyio

SEQ = 7


def member(
    worker_id: UUID, *runs: ClaimedRun, most: int = 0, seq: int = SEQ, again: bool = False, lane_set: int = 0
) -> GroupMember:
    successes = [Success(run.run_id, run.fence, 1.0, 2.0, None, None) for run in runs]
    return GroupMember(worker_id, DEFAULT_TENANT, seq, again, most, lane_set, successes)


async def together(
    connection: asyncpg.Connection, *members: GroupMember, lanes: tuple[int, ...] = ()
) -> list[MemberResult | None]:
    heads = [(lane_id, 1, BEGINNING) for lane_id in lanes]
    return await exchange_together(connection, members, [heads], await gates.revision(connection))


async def last_seq(connection: asyncpg.Connection, worker_id: UUID) -> int:
    number: int = await connection.fetchval("select last_seq from mainspring.workers where worker_id = $1", worker_id)
    return number


async def set_worker(connection: asyncpg.Connection, worker_id: UUID, **columns: object) -> None:
    for name, value in columns.items():
        await connection.execute(f"update mainspring.workers set {name} = $2 where worker_id = $1", worker_id, value)


@pytest.mark.parametrize(
    ("columns", "sent"),
    [
        ({"last_seq": SEQ}, {}), ({"last_seq": SEQ + 1}, {}), ({"last_seq": SEQ + 1}, {"again": True}),
        ({"state": int(WorkerState.LOST)}, {}), ({"state": int(WorkerState.STOPPED)}, {}), ({"tenant_id": 5}, {}),
    ],
)  # fmt: skip
async def test_a_member_whose_row_does_not_pass_changes_nothing_and_the_others_do(
    connection: asyncpg.Connection, columns: dict[str, int], sent: dict[str, bool]
) -> None:
    lane_id = await a_lane(connection)
    await queued(connection, lane_id, 4)
    one, other = await a_worker(connection), await a_worker(connection)
    [run] = await claim(connection, [lane_id], 1, one)
    if "tenant_id" in columns:
        await connection.execute("insert into mainspring.tenants (tenant_id, name) values (5, 'five')")
    await set_worker(connection, one, **columns)
    number, before = await last_seq(connection, one), await live(connection)
    first, second = await together(
        connection,
        member(one, run, most=2, **sent),
        member(other, most=1),
        lanes=(lane_id,),  # type: ignore[arg-type]
    )
    assert first is None and await last_seq(connection, one) == number
    assert second is not None and len(second.claimed) == 1 and await last_seq(connection, other) == SEQ
    changed = [row for row in await live(connection) if row not in before]
    assert [row["worker_id"] for row in changed] == [other] and await ended(connection) == []


async def test_an_exchange_that_goes_on_keeps_its_number(connection: asyncpg.Connection) -> None:
    worker_id = await a_worker(connection)
    await set_worker(connection, worker_id, last_seq=SEQ)
    assert await together(connection, member(worker_id)) == [None]
    assert await together(connection, member(worker_id, again=True)) == [MemberResult(WorkerState.LIVE, True, True)]


@pytest.mark.parametrize("column", ["follows", "feeds", "limit_keys", "gates"])
async def test_an_outcome_that_something_follows_is_left_over_and_its_member_takes_no_runs(
    connection: asyncpg.Connection, column: str
) -> None:
    lane_id = await a_lane(connection)
    await queued(connection, lane_id, 6)
    one, other = await a_worker(connection), await a_worker(connection)
    plain, followed = await claim(connection, [lane_id], 2, one)
    [third] = await claim(connection, [lane_id], 1, other)
    value = "1" if column == "follows" else "array[1]"
    await connection.execute(f"update mainspring.runs set {column} = {value} where run_id = $1", followed.run_id)
    first, second = await together(
        connection, member(one, plain, followed, most=2), member(other, third, most=2), lanes=(lane_id,)
    )
    assert first is not None and (first.complete, first.claimed) == (False, [])
    assert second is not None and (second.complete, len(second.claimed)) == (True, 2)
    assert {row["run_id"] for row in await ended(connection)} == {plain.run_id, third.run_id}
    assert await last_seq(connection, one) == SEQ, "it goes on with its number"


@pytest.mark.parametrize("wrong", ["fence", "worker", "state"])
async def test_an_outcome_must_match_run_fence_and_the_incarnation_of_its_member(
    connection: asyncpg.Connection, wrong: str
) -> None:
    lane_id = await a_lane(connection)
    await queued(connection, lane_id, 2)
    one, other = await a_worker(connection), await a_worker(connection)
    [run] = await claim(connection, [lane_id], 1, other if wrong == "worker" else one)
    if wrong == "fence":
        await connection.execute("update mainspring.runs set fence = fence + 1 where run_id = $1", run.run_id)
    if wrong == "state":
        await connection.execute(
            "update mainspring.runs set state = $2 where run_id = $1", run.run_id, int(StoredState.QUEUED)
        )
    first, _ = await together(connection, member(one, run, most=1), member(other), lanes=(lane_id,))
    assert first is not None and (first.complete, first.claimed) == (False, [])
    assert await ended(connection) == [] and len(await live(connection)) == 2


async def test_rows_that_another_transaction_holds_are_passed_over(
    connection: asyncpg.Connection, database_url: str
) -> None:
    lane_id = await a_lane(connection)
    await queued(connection, lane_id, 5)
    one, other, third = [await a_worker(connection) for _ in range(3)]
    [run] = await claim(connection, [lane_id], 1, other)
    holder = await asyncpg.connect(database_url)
    try:
        await holder.execute("begin")
        await holder.execute("select from mainspring.workers where worker_id = $1 for no key update", one)
        await holder.execute("select from mainspring.runs where run_id = $1 for no key update", run.run_id)
        await connection.execute("set statement_timeout = '20s'")
        found = await together(
            connection, member(one, most=1), member(other, run, most=1), member(third, most=9), lanes=(lane_id,)
        )
    finally:
        await holder.close()
    assert found[0] is None
    assert found[1] is not None and (found[1].complete, found[1].claimed) == (False, [])
    assert found[2] is not None and len(found[2].claimed) == 4


async def test_runs_are_dealt_round_by_round_the_oldest_first_and_none_twice(connection: asyncpg.Connection) -> None:
    lane_id = await a_lane(connection)
    run_ids = [(await queued(connection, lane_id, waited=100.0 - number))[0] for number in range(7)]
    workers = [await a_worker(connection) for _ in range(3)]
    found = await together(
        connection, *(member(worker_id, most=most) for worker_id, most in zip(workers, (1, 5, 2), strict=True)),
        lanes=(lane_id,),
    )  # fmt: skip
    dealt = [{run.run_id for run in one.claimed} for one in found if one is not None]
    oldest = run_ids
    assert dealt == [{oldest[0]}, {oldest[1], oldest[3], oldest[5], oldest[6]}, {oldest[2], oldest[4]}]
    rows = {row["run_id"]: row for row in await live(connection)}
    for worker_id, runs in zip(workers, dealt, strict=True):
        for run_id in runs:
            row = rows[run_id]
            assert (row["worker_id"], row["claim_seq"], row["state"]) == (worker_id, SEQ, StoredState.RUNNING)
            assert (row["fence"], row["attempt"]) == (1, 1)


async def test_each_member_takes_from_its_own_lanes_and_critical_runs_go_first(connection: asyncpg.Connection) -> None:
    plain, critical, other = [await a_lane(connection, task) for task in ("plain", "critical", "other")]
    for lane_id in (plain, critical, other):
        await queued(connection, lane_id, 2, waited=60.0)
    one, two = await a_worker(connection), await a_worker(connection)
    sets = [[(plain, 1, BEGINNING), (critical, 3, BEGINNING)], [(other, 1, BEGINNING)]]
    members = [member(one, most=3), member(two, most=3, lane_set=1)]
    first, second = await exchange_together(connection, members, sets, await gates.revision(connection))
    assert first is not None and Counter(run.lane_id for run in first.claimed) == {critical: 2, plain: 1}
    assert second is not None and Counter(run.lane_id for run in second.claimed) == {other: 2}


async def test_a_draining_member_takes_no_runs_and_reports(connection: asyncpg.Connection) -> None:
    lane_id = await a_lane(connection)
    await queued(connection, lane_id, 3)
    worker_id = await a_worker(connection)
    [run] = await claim(connection, [lane_id], 1, worker_id)
    await set_worker(connection, worker_id, state=int(WorkerState.DRAINING))
    [found] = await together(connection, member(worker_id, run, most=2), lanes=(lane_id,))
    assert found == MemberResult(WorkerState.DRAINING, True, True)
    assert [row["run_id"] for row in await ended(connection)] == [run.run_id]


async def test_nothing_is_claimed_where_the_gates_have_changed(connection: asyncpg.Connection) -> None:
    lane_id = await a_lane(connection)
    await queued(connection, lane_id, 2)
    worker_id = await a_worker(connection)
    known = await gates.revision(connection)
    await connection.execute("update mainspring.gate_revision set revision = revision + 1")
    [found] = await exchange_together(connection, [member(worker_id, most=2)], [[(lane_id, 1, BEGINNING)]], known)
    assert found == MemberResult(WorkerState.LIVE, True, False)
    assert await last_seq(connection, worker_id) == SEQ
