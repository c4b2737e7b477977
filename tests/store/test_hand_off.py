"""Fresh runs that are stored as claimed by workers that wait: the guards of the statement, and what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest

from mainspring.domain.job import DEFAULT_SPEC, Delivery, Spec, spec_to_text
from mainspring.domain.transitions import StoredState
from mainspring.domain.worker_state import WorkerState
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7_texts
from mainspring.store import gates, runs
from mainspring.store.claimed_runs import ClaimedRun
from mainspring.store.hand_off import HandOffTaker, hand_off_runs

from .rows import BEGINNING, a_lane, a_worker, claim, live, queued
from .test_exchange_groups import last_seq, set_worker

pytestmark = pytest.mark.anyio

SEQ = 7
QUEUED, RUNNING = int(StoredState.QUEUED), int(StoredState.RUNNING)
MOMENTS = ("run_id", "scheduled_for", "ready_at", "claimed_at", "deadline", "expires_at")


def fresh(lane_id: int, count: int = 1, spec: Spec = DEFAULT_SPEC) -> runs.NewRuns:
    new = runs.NewRuns()
    new.run_ids = uuid7_texts(count)
    new.lane_ids = [lane_id] * count
    new.max_attempts = [4] * count
    new.job_ids, new.names = [None] * count, [None] * count
    new.payloads = ['{"n": 1}'] * count
    new.specs = [spec_to_text(spec)] * count
    new.generations = [1] * count
    return new


def taker(worker_id: UUID, *, seq: int = SEQ, again: bool = False) -> HandOffTaker:
    return HandOffTaker(worker_id, DEFAULT_TENANT, seq, again)


async def hand_off(
    connection: asyncpg.Connection,
    new: runs.NewRuns,
    *takers: HandOffTaker,
    places: Sequence[int | None] | None = None,
    lanes: Sequence[int] | None = None,
    revision: int | None = None,
) -> dict[UUID, list[ClaimedRun]]:
    heads = [(lane_id, 1, BEGINNING) for lane_id in (new.lane_ids[:1] if lanes is None else lanes)]
    known = await gates.revision(connection) if revision is None else revision
    places = [0] * len(new.run_ids) if places is None else places
    return await hand_off_runs(connection, DEFAULT_TENANT, new, places, takers, heads, known, None)


async def states(connection: asyncpg.Connection) -> list[int]:
    return sorted(row["state"] for row in await live(connection))


@pytest.mark.parametrize(
    "spec",
    [
        DEFAULT_SPEC,
        msgspec.structs.replace(DEFAULT_SPEC, run_timeout=60.0, expires_in=30.0),
        msgspec.structs.replace(DEFAULT_SPEC, delivery=Delivery.AT_MOST_ONCE),
    ],
    ids=["plain", "timed", "at most once"],
)
async def test_the_row_is_that_of_a_run_that_was_claimed(connection: asyncpg.Connection, spec: Spec) -> None:
    lane_id, one, other = await a_lane(connection), await a_worker(connection), await a_worker(connection)
    await queued(connection, lane_id, spec=spec)
    [claimed] = await claim(connection, [lane_id], 1, one, SEQ)
    [handed] = (await hand_off(connection, fresh(lane_id, spec=spec), taker(other)))[other]
    rows = {row["worker_id"]: dict(row) for row in await connection.fetch("select * from mainspring.runs")}
    assert rows[other]["run_id"] == handed.run_id and await last_seq(connection, other) == SEQ
    for name in rows[one]:
        if name in MOMENTS:
            assert (rows[one][name] is None) == (rows[other][name] is None), name
        elif name != "worker_id":
            assert rows[one][name] == rows[other][name], name
    moments = rows[other]
    assert moments["scheduled_for"] == moments["ready_at"] == moments["claimed_at"]
    for name in ("deadline", "expires_at"):
        if moments[name] is not None:
            seconds = spec.run_timeout if name == "deadline" else spec.expires_in
            assert (moments[name] - moments["claimed_at"]).total_seconds() == seconds
    for field in ClaimedRun.__struct_fields__:
        if field not in (*MOMENTS, "time_left"):
            assert getattr(handed, field) == getattr(claimed, field), field
    assert (handed.time_left is None) == (claimed.time_left is None)


@pytest.mark.parametrize(
    ("columns", "sent"),
    [
        ({"last_seq": SEQ}, {}), ({"last_seq": SEQ + 1}, {}), ({"last_seq": SEQ + 1}, {"again": True}),
        ({"state": int(WorkerState.DRAINING)}, {}), ({"state": int(WorkerState.LOST)}, {}),
        ({"state": int(WorkerState.STOPPED)}, {}), ({"tenant_id": 5}, {}),
    ],
)  # fmt: skip
async def test_runs_of_a_taker_whose_row_does_not_pass_are_queued_and_the_others_are_handed_off(
    connection: asyncpg.Connection, columns: dict[str, int], sent: dict[str, Any]
) -> None:
    lane_id, one, other = await a_lane(connection), await a_worker(connection), await a_worker(connection)
    await set_worker(connection, one, **columns)
    before = await last_seq(connection, one)
    found = await hand_off(
        connection, fresh(lane_id, 3), taker(one, **sent), taker(other), places=[0, 1, None], lanes=[lane_id]
    )
    assert list(found) == [other] and len(found[other]) == 1
    assert await states(connection) == [QUEUED, QUEUED, RUNNING]
    assert (await last_seq(connection, one), await last_seq(connection, other)) == (before, SEQ)
    waiting = [row for row in await live(connection) if row["state"] == QUEUED]
    untouched = (0, 0, None, None)
    assert all((row["attempt"], row["fence"], row["worker_id"], row["claimed_at"]) == untouched for row in waiting)


async def test_an_exchange_that_has_taken_its_number_keeps_it(connection: asyncpg.Connection) -> None:
    lane_id, worker_id = await a_lane(connection), await a_worker(connection)
    await set_worker(connection, worker_id, last_seq=SEQ)
    assert await hand_off(connection, fresh(lane_id), taker(worker_id, again=True))
    assert await last_seq(connection, worker_id) == SEQ


@pytest.mark.parametrize("waited", [10.0, -60.0], ids=["ready", "backs off"])
async def test_a_run_that_waits_in_any_lane_of_the_taker_comes_first(
    connection: asyncpg.Connection, waited: float
) -> None:
    lane_id, slow = await a_lane(connection), await a_lane(connection, priority=0)
    worker_id = await a_worker(connection)
    await queued(connection, slow, waited=waited)
    found = await hand_off(connection, fresh(lane_id), taker(worker_id), lanes=[lane_id, slow])
    assert bool(found) == (waited < 0)
    assert await last_seq(connection, worker_id) == (SEQ if found else 0)


async def test_a_run_in_a_lane_from_which_the_taker_does_not_take_holds_up_nothing(
    connection: asyncpg.Connection,
) -> None:
    lane_id, other = await a_lane(connection), await a_lane(connection, "other")
    worker_id = await a_worker(connection)
    await queued(connection, other)
    assert await hand_off(connection, fresh(lane_id), taker(worker_id))


async def test_the_row_of_a_worker_that_another_transaction_holds_is_not_waited_for(
    connection: asyncpg.Connection, database_url: str
) -> None:
    lane_id, one, other = await a_lane(connection), await a_worker(connection), await a_worker(connection)
    holder = await asyncpg.connect(database_url)
    try:
        await holder.execute("begin")
        await holder.execute("select from mainspring.workers where worker_id = $1 for no key update", one)
        await connection.execute("set statement_timeout = '20s'")
        found = await hand_off(connection, fresh(lane_id, 2), taker(one), taker(other), places=[0, 1])
    finally:
        await holder.close()
    assert list(found) == [other] and await states(connection) == [QUEUED, RUNNING]


async def test_everything_is_queued_where_the_gates_have_changed(connection: asyncpg.Connection) -> None:
    lane_id, worker_id = await a_lane(connection), await a_worker(connection)
    known = await gates.revision(connection)
    await connection.execute("update mainspring.gate_revision set revision = revision + 1")
    assert await hand_off(connection, fresh(lane_id, 2), taker(worker_id), revision=known) == {}
    assert await states(connection) == [QUEUED, QUEUED] and await last_seq(connection, worker_id) == 0
