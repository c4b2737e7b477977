"""The rescuer: runs of a lost worker continue elsewhere. A worker is not lost while heartbeats cannot be recorded."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest

from mainspring.domain.job import Delivery, Spec
from mainspring.domain.transitions import StoredState
from mainspring.kernel.clock import ManualClock
from mainspring.kernel.config import Timing
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.operations.signals import Signals
from mainspring.store import dead_letters, history, runs, workers
from mainspring.store.dead_letters import DeadLetterFilter
from mainspring.store.pool import Store
from mainspring.store.workers import WorkerState
from mainspring.upkeep.run_rescuer import RunRescuer
from tests.store.rows import a_lane, a_worker, beat, claim, claimed_long_ago, ended, live, queued

pytestmark = pytest.mark.anyio

TIMING = Timing(rescue=600.0)  # longer than any test takes, so that only a test makes a worker silent
AT_MOST_ONCE = Spec(delivery=Delivery.AT_MOST_ONCE)


class Watch:
    """A rescuer with a clock that stands still."""

    def __init__(self, store: Store) -> None:
        self.clock = ManualClock(datetime(2026, 11, 15, tzinfo=UTC))
        self.ready: list[dict[int, int]] = []
        signals = Signals(store)
        signals.ready.subscribe(lambda created: self.ready.append(dict(created)))
        self.rescuer = RunRescuer(store, signals, self.clock, TIMING, lambda: 0.5)

    async def sweep(self) -> int:
        return await self.rescuer.run_once()

    async def settle_in(self) -> None:
        """Sweep for long enough that silent workers may be marked as lost."""
        assert await self.sweep() == 0
        self.clock.advance(TIMING.rescue)


@pytest.fixture
async def watch(store: Store) -> Watch:
    made = Watch(store)
    await made.settle_in()
    return made


@pytest.fixture
async def lane_id(connection: asyncpg.Connection) -> int:
    return await a_lane(connection)


async def a_worker_with(
    connection: asyncpg.Connection, lane_id: int, count: int = 1, *, spec: Spec | None = None, max_attempts: int = 4
) -> UUID:
    """A worker that registered long ago, has sent no heartbeat since, and holds runs."""
    worker_id = await a_worker(connection, rescue_after=TIMING.rescue, exclusive_rescue_after=TIMING.rescue)
    await queued(connection, lane_id, count, spec=spec or Spec(), max_attempts=max_attempts)
    assert len(await claim(connection, [lane_id], count, worker_id)) == count
    await claimed_long_ago(connection, worker_id)
    return worker_id


async def state_of(connection: asyncpg.Connection, worker_id: UUID) -> WorkerState:
    row = await workers.registration(connection, DEFAULT_TENANT, worker_id)
    assert row is not None
    return WorkerState(row.state)


async def test_a_silent_workers_runs_are_queued_again_under_a_new_fence(
    connection: asyncpg.Connection, watch: Watch, lane_id: int
) -> None:
    worker_id = await a_worker_with(connection, lane_id, 3)
    assert await watch.sweep() == 3
    assert await state_of(connection, worker_id) is WorkerState.LOST
    rows = await live(connection)
    assert {(row["state"], row["fence"], row["attempt"]) for row in rows} == {(StoredState.QUEUED, 2, 1)}
    assert {(row["worker_id"], row["claim_seq"], row["last_error"]) for row in rows} == {(None, None, "worker lost")}
    assert watch.ready == [{lane_id: 3}]
    assert await watch.sweep() == 0


async def test_the_lost_try_is_recorded_and_the_next_worker_has_the_next_attempt(
    connection: asyncpg.Connection, watch: Watch, lane_id: int
) -> None:
    worker_id = await a_worker_with(connection, lane_id)
    [before] = await live(connection)
    await workers.note_starts(connection, worker_id, [(before["run_id"], before["fence"], 0.0)])
    [started] = await live(connection)
    await watch.sweep()
    [attempt] = await history.attempts_of(connection, before["run_id"])
    assert (attempt.attempt, attempt.fence, attempt.outcome) == (1, 1, "LOST")
    assert (attempt.worker_id, attempt.started_at) == (worker_id, started["started_at"])
    [again] = await claim(connection, [lane_id], 1, uuid7())
    assert (again.run_id, again.attempt, again.fence) == (before["run_id"], 2, 3)


async def test_a_late_report_of_the_lost_worker_changes_nothing(
    connection: asyncpg.Connection, watch: Watch, lane_id: int
) -> None:
    worker_id = await a_worker_with(connection, lane_id)
    [run] = await live(connection)
    await watch.sweep()
    [after] = await live(connection)
    assert await runs.report_successes(connection, worker_id, [run["run_id"]], [1], [0.0], [0.0], [None]) == []
    assert await live(connection) == [after]


async def test_a_run_that_is_at_most_once_fails_and_is_a_dead_letter(
    connection: asyncpg.Connection, watch: Watch, lane_id: int
) -> None:
    await a_worker_with(connection, lane_id, spec=AT_MOST_ONCE)
    assert await watch.sweep() == 1
    assert await live(connection) == []
    [row] = await ended(connection)
    assert (row["state"], row["attempt"], row["error"]) == (StoredState.FAILED, 1, "worker lost")
    assert row["reason"] == "worker lost, and the job is at most once"
    [letter] = await dead_letters.page(connection, DEFAULT_TENANT, DeadLetterFilter(), None, 10)
    assert (letter.run_id, letter.payload_text) == (row["run_id"], '{"n": 1}')
    assert watch.ready == []


async def test_a_run_of_one_attempt_is_run_again_until_it_was_lost_too_often(
    connection: asyncpg.Connection, watch: Watch, lane_id: int
) -> None:
    await a_worker_with(connection, lane_id, max_attempts=1)
    for losses in (1, 2, 3):
        assert await watch.sweep() == 1
        [row] = await live(connection)
        assert (row["state"], row["losses"], row["attempt"]) == (StoredState.QUEUED, losses, losses)
        assert row["max_attempts"] - row["losses"] == 1 and row["started_at"] is None
        waits = await connection.fetchval(
            "select extract(epoch from ready_at - clock_timestamp()) from mainspring.runs"
        )
        assert waits <= 0 if losses == 1 else 0 < waits <= 30
        await connection.execute("update mainspring.runs set ready_at = clock_timestamp()")
        worker_id = await a_worker(connection)
        assert len(await claim(connection, [lane_id], 1, worker_id)) == 1
        await claimed_long_ago(connection, worker_id)
    await watch.sweep()
    [row] = await ended(connection)
    assert (row["state"], row["losses"], row["started_at"]) == (StoredState.FAILED, 4, None)
    assert row["reason"].startswith("lost 4 times, max_losses is 3")
    assert len(await dead_letters.page(connection, DEFAULT_TENANT, DeadLetterFilter(), None, 10)) == 1


@pytest.mark.parametrize("spec", [Spec(), AT_MOST_ONCE], ids=["at least once", "at most once"])
async def test_a_run_that_was_to_be_cancelled_is_cancelled(
    connection: asyncpg.Connection, watch: Watch, lane_id: int, spec: Spec
) -> None:
    worker_id = await a_worker_with(connection, lane_id, spec=spec)
    [run] = await live(connection)
    assert await runs.request_cancels(connection, [(run["run_id"], 1)]) == {worker_id}
    assert await watch.sweep() == 1
    assert await live(connection) == []
    [row] = await ended(connection)
    assert (row["state"], row["reason"]) == (StoredState.CANCELLED, "cancelled on request")
    assert await dead_letters.page(connection, DEFAULT_TENANT, DeadLetterFilter(), None, 10) == []


@pytest.mark.parametrize("table", [0, 1])
async def test_a_worker_that_beats_is_left_alone(
    connection: asyncpg.Connection, watch: Watch, lane_id: int, table: int
) -> None:
    worker_id = await a_worker_with(connection, lane_id)
    await beat(connection, worker_id, ago=TIMING.rescue + 30, table=1 - table)
    await beat(connection, worker_id, ago=0.0, table=table)
    assert await watch.sweep() == 0
    assert await state_of(connection, worker_id) is WorkerState.LIVE
    [row] = await live(connection)
    assert (row["state"], row["fence"], row["worker_id"]) == (StoredState.RUNNING, 1, worker_id)


async def test_a_beat_older_than_the_silence_saves_nobody(
    connection: asyncpg.Connection, watch: Watch, lane_id: int
) -> None:
    worker_id = await a_worker_with(connection, lane_id)
    await beat(connection, worker_id, ago=TIMING.rescue + 0.1)
    assert await watch.sweep() == 1


async def test_a_worker_that_has_just_registered_has_its_time_to_beat(
    connection: asyncpg.Connection, watch: Watch
) -> None:
    worker_id = await a_worker(connection, registered_ago=0.0, rescue_after=TIMING.rescue)
    await watch.sweep()
    assert await state_of(connection, worker_id) is WorkerState.LIVE


async def test_a_draining_worker_is_judged_like_any_other(
    connection: asyncpg.Connection, watch: Watch, lane_id: int
) -> None:
    worker_id = await a_worker_with(connection, lane_id)
    await workers.set_state(connection, worker_id, WorkerState.DRAINING)
    assert await watch.sweep() == 1
    assert await state_of(connection, worker_id) is WorkerState.LOST


async def test_only_the_silent_of_several_workers_lose_their_runs(
    connection: asyncpg.Connection, watch: Watch, lane_id: int
) -> None:
    silent, beating = [await a_worker_with(connection, lane_id, 2) for _ in range(2)]
    await beat(connection, beating, ago=1.0)
    assert await watch.sweep() == 2
    assert await state_of(connection, silent) is WorkerState.LOST
    assert {row["worker_id"] for row in await live(connection) if row["state"] == StoredState.RUNNING} == {beating}


async def test_more_runs_than_a_batch_are_all_rescued(
    connection: asyncpg.Connection, watch: Watch, lane_id: int
) -> None:
    await a_worker_with(connection, lane_id, 1201)
    assert await watch.sweep() == 1201
    assert {row["state"] for row in await live(connection)} == {StoredState.QUEUED}
    assert sum(created[lane_id] for created in watch.ready) == 1201


async def test_nobody_is_judged_before_the_database_has_been_writable_for_a_full_lease(
    connection: asyncpg.Connection, store: Store, lane_id: int
) -> None:
    """Workers could not send heartbeats while it was unavailable, so they do not count as silent yet."""
    worker_id = await a_worker_with(connection, lane_id)
    watch = Watch(store)
    assert await watch.sweep() == 0
    watch.clock.advance(TIMING.rescue - 0.01)
    assert await watch.sweep() == 0
    assert await state_of(connection, worker_id) is WorkerState.LIVE
    watch.clock.advance(0.01)
    assert await watch.sweep() == 1


async def test_a_sweep_that_failed_starts_the_count_anew(
    connection: asyncpg.Connection, watch: Watch, lane_id: int
) -> None:
    await a_worker_with(connection, lane_id)
    await connection.execute("alter table mainspring.worker_beats_0 rename to elsewhere")
    with pytest.raises(asyncpg.UndefinedTableError):
        await watch.sweep()
    await connection.execute("alter table mainspring.elsewhere rename to worker_beats_0")
    assert await watch.sweep() == 0
    watch.clock.advance(TIMING.rescue)
    assert await watch.sweep() == 1


async def test_an_interrupted_rescue_is_finished_by_a_later_sweep(
    connection: asyncpg.Connection, watch: Watch, lane_id: int
) -> None:
    """The worker is marked as lost, but the rescuer died before it took the runs. The silence check does not find
    it."""
    assert await watch.sweep() == 0
    worker_id = await a_worker_with(connection, lane_id, 2)
    await workers.set_state(connection, worker_id, WorkerState.LOST)
    assert await watch.sweep() == 0  # it checks for interrupted rescues every five seconds
    watch.clock.advance(5.0)
    assert await watch.sweep() == 2
    assert {row["fence"] for row in await live(connection)} == {2}


async def test_runs_that_a_stopped_worker_left_behind_are_rescued(
    connection: asyncpg.Connection, watch: Watch, lane_id: int
) -> None:
    worker_id = await a_worker_with(connection, lane_id)
    await workers.set_state(connection, worker_id, WorkerState.STOPPED)
    assert await watch.sweep() == 1
    assert await state_of(connection, worker_id) is WorkerState.STOPPED


async def test_two_rescuers_take_each_run_once(
    connection: asyncpg.Connection, store: Store, watch: Watch, lane_id: int
) -> None:
    other = Watch(store)
    await other.settle_in()
    await a_worker_with(connection, lane_id, 20)
    assert sorted([await watch.sweep(), await other.sweep()]) == [0, 20]
    assert {row["fence"] for row in await live(connection)} == {2}
    assert await connection.fetchval("select count(*) from mainspring.attempts") == 20


async def test_runs_that_somebody_holds_are_rescued_when_they_are_free_and_the_others_now(
    connection: asyncpg.Connection, database_url: str, watch: Watch, lane_id: int
) -> None:
    """A server is stopped in the middle of a cancel. There is no need to wait five seconds for the next look."""
    worker_id = await a_worker_with(connection, lane_id, 3)
    [first, *_] = await live(connection)
    stopped = await asyncpg.connect(database_url)
    await stopped.execute("begin")
    await stopped.execute("select from mainspring.runs where run_id = $1 for no key update", first["run_id"])
    async with asyncio.timeout(5):
        assert await watch.sweep() == 2
    assert await state_of(connection, worker_id) is WorkerState.LOST
    assert await watch.sweep() == 0
    await stopped.execute("rollback")
    await stopped.close()
    assert await watch.sweep() == 1
    assert {row["state"] for row in await live(connection)} == {StoredState.QUEUED}


async def test_a_held_worker_row_delays_neither_the_others_nor_its_own_rescue_for_long(
    connection: asyncpg.Connection, database_url: str, watch: Watch, lane_id: int
) -> None:
    """A server is stopped in the middle of an exchange. The rescuer goes on judging."""
    held = await a_worker_with(connection, lane_id)
    other = await a_worker_with(connection, lane_id)
    stopped = await asyncpg.connect(database_url)
    await stopped.execute("begin")
    await stopped.execute("select from mainspring.workers where worker_id = $1 for no key update", held)
    async with asyncio.timeout(4):
        assert await watch.sweep() == 1
    assert await state_of(connection, held) is WorkerState.LIVE
    assert await state_of(connection, other) is WorkerState.LOST
    await stopped.execute("rollback")
    await stopped.close()
    assert await watch.sweep() == 1
    assert await state_of(connection, held) is WorkerState.LOST
