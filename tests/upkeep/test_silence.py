"""Silent workers: each by its own lease, ordinary runs before exclusive ones, and nobody while servers are unwell."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest

from mainspring.domain.job import Delivery, Spec
from mainspring.domain.transitions import StoredState
from mainspring.kernel.clock import ManualClock
from mainspring.kernel.config import DEFAULT_TIMING
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.kernel.late_times import LatePeriods, LateTimes, Period, late_within
from mainspring.operations.signals import Signals
from mainspring.store import runs, workers
from mainspring.store.pool import Store
from mainspring.store.workers import LastHeard, WorkerState
from mainspring.upkeep.run_rescuer import RunRescuer
from mainspring.upkeep.silence_judge import SilenceJudge
from mainspring.upkeep.silent_together import silent_groups
from tests.store.rows import a_lane, a_worker, beat, claim, claimed_long_ago, live, queued

pytestmark = pytest.mark.anyio

# Leases are tenfold here, so that no slow machine lets one end: 150 stands for 15 seconds, 750 for 75, 70 for 7.
ORDINARY, EXCLUSIVE, BASE = 150.0, 750.0, 70.0
BEAT = DEFAULT_TIMING.beat
SLOW = 5.0  # seconds that a test may take between its heartbeats and its sweep
AT_MOST_ONCE = Spec(delivery=Delivery.AT_MOST_ONCE)


class Watch:
    """A rescuer with a clock that stands still. It has seen the database writable for a very long time."""

    def __init__(self, store: Store, late: Sequence[LatePeriods] = ()) -> None:
        self.clock = ManualClock(datetime(2026, 11, 15, tzinfo=UTC))
        self.judge = SilenceJudge(self.clock, DEFAULT_TIMING, late)
        self.rescuer = RunRescuer(
            store, Signals(store), self.clock, DEFAULT_TIMING, lambda: 0.5, self.judge
        )  # fmt: skip

    async def sweep(self) -> int:
        return await self.rescuer.run_once()


@pytest.fixture
async def watch(store: Store) -> Watch:
    made = Watch(store)
    assert await made.sweep() == 0
    made.clock.advance(EXCLUSIVE)
    return made


@pytest.fixture
async def lane_id(connection: asyncpg.Connection) -> int:
    return await a_lane(connection)


async def holding(
    connection: asyncpg.Connection, lane_id: int, ordinary: int, exclusive: int, *, lease: float = ORDINARY
) -> UUID:
    """A worker with runs of both kinds."""
    worker_id = await a_worker(
        connection, rescue_after=lease, exclusive_rescue_after=EXCLUSIVE if lease > BASE else BASE
    )
    for count, spec in ((ordinary, Spec()), (exclusive, AT_MOST_ONCE)):
        if count:
            await queued(connection, lane_id, count, spec=spec)
            assert len(await claim(connection, [lane_id], count, worker_id)) == count
    await claimed_long_ago(connection, worker_id)
    return worker_id


async def state_of(connection: asyncpg.Connection, worker_id: UUID) -> WorkerState:
    row = await workers.registration(connection, DEFAULT_TENANT, worker_id)
    assert row is not None
    return WorkerState(row.state)


async def held(connection: asyncpg.Connection, worker_id: UUID) -> list[bool]:
    """Whether each run of the worker is exclusive."""
    return sorted(row["exclusive"] for row in await live(connection) if row["worker_id"] == worker_id)


class TestByItsLease:
    async def test_ordinary_runs_are_taken_at_their_lease_and_the_worker_is_lost(
        self, connection: asyncpg.Connection, watch: Watch, lane_id: int
    ) -> None:
        waiting, over = [await holding(connection, lane_id, 2, 0) for _ in range(2)]
        await beat(connection, waiting, ago=ORDINARY - SLOW)
        await beat(connection, over, ago=ORDINARY)
        assert await watch.sweep() == 2
        assert await state_of(connection, over) is WorkerState.LOST
        assert await state_of(connection, waiting) is WorkerState.LIVE

    async def test_exclusive_runs_stay_with_their_worker_when_the_ordinary_ones_are_taken(
        self, connection: asyncpg.Connection, watch: Watch, lane_id: int
    ) -> None:
        worker_id = await holding(connection, lane_id, 3, 2)
        await beat(connection, worker_id, ago=ORDINARY)
        assert await watch.sweep() == 3
        assert await state_of(connection, worker_id) is WorkerState.LIVE
        assert await held(connection, worker_id) == [True, True]
        assert {row["state"] for row in await live(connection) if row["worker_id"] is None} == {StoredState.QUEUED}
        assert await watch.sweep() == 0

    async def test_a_worker_that_comes_back_in_between_reports_its_exclusive_run_on_the_first_attempt(
        self, connection: asyncpg.Connection, watch: Watch, lane_id: int
    ) -> None:
        worker_id = await holding(connection, lane_id, 1, 1)
        before = {row["exclusive"]: row["run_id"] for row in await live(connection)}
        await beat(connection, worker_id, ago=ORDINARY)
        assert await watch.sweep() == 1
        await beat(connection, worker_id, ago=0.0)
        assert await watch.sweep() == 0
        reported = await runs.report_successes(
            connection, worker_id, [before[True], before[False]], [1, 1], [0.0, 0.0], [0.0, 0.0], [None, None]
        )
        assert [row[0] for row in reported] == [before[True]]

    async def test_exclusive_runs_are_taken_at_their_own_lease(
        self, connection: asyncpg.Connection, watch: Watch, lane_id: int
    ) -> None:
        waiting, over = [await holding(connection, lane_id, 0, 1) for _ in range(2)]
        await beat(connection, waiting, ago=EXCLUSIVE - SLOW)
        await beat(connection, over, ago=EXCLUSIVE)
        assert await watch.sweep() == 1
        assert await state_of(connection, over) is WorkerState.LOST
        assert await state_of(connection, waiting) is WorkerState.LIVE

    async def test_a_worker_that_asked_for_no_lease_is_lost_at_the_old_one(
        self, connection: asyncpg.Connection, watch: Watch, lane_id: int
    ) -> None:
        alive, lost = [await holding(connection, lane_id, 1, 1, lease=BASE) for _ in range(2)]
        await beat(connection, alive, ago=BASE - SLOW)
        await beat(connection, lost, ago=BASE)
        assert await watch.sweep() == 2
        assert (await state_of(connection, alive), await state_of(connection, lost)) == (
            WorkerState.LIVE,
            WorkerState.LOST,
        )

    async def test_a_claim_is_a_sign_of_life(self, connection: asyncpg.Connection, watch: Watch, lane_id: int) -> None:
        """The heartbeat of an exchange may be committed after its claim."""
        worker_id = await holding(connection, lane_id, 0, 1)
        await queued(connection, lane_id, 1)
        await claim(connection, [lane_id], 1, worker_id)
        assert await watch.sweep() == 0

    async def test_a_worker_that_exchanges_while_it_is_judged_is_not_lost(
        self, connection: asyncpg.Connection, lane_id: int
    ) -> None:
        worker_id = await holding(connection, lane_id, 1, 0)
        seen = await workers.silent(connection, BASE)
        judged = workers.StillSilent(worker_id, seen[0].last_seq, ORDINARY)
        await workers.advance(connection, DEFAULT_TENANT, worker_id, 7, again=False)
        assert await workers.mark_lost(connection, [judged]) == set()
        assert not await workers.lock_silent(connection, judged)
        later = workers.StillSilent(worker_id, 7, ORDINARY)
        await beat(connection, worker_id, ago=0.0)
        assert await workers.mark_lost(connection, [later]) == set()

    async def test_a_worker_whose_row_is_held_by_others_waits_for_the_next_sweep(
        self, connection: asyncpg.Connection, store: Store, watch: Watch, lane_id: int
    ) -> None:
        lost, partly = await holding(connection, lane_id, 1, 0), await holding(connection, lane_id, 1, 1)
        await beat(connection, lost, partly, ago=ORDINARY)
        async with store.hot.acquire() as other, other.transaction():
            await other.execute("select from mainspring.workers for update")
            assert await watch.sweep() == 0
        assert await watch.sweep() == 2


class TestLastHeard:
    async def test_a_truncated_table_leaves_the_last_heartbeat_in_the_workers_row(
        self, connection: asyncpg.Connection, watch: Watch, lane_id: int
    ) -> None:
        server, worker_id = uuid7(), await holding(connection, lane_id, 0, 1)
        await beat(connection, worker_id, ago=200.0, server_id=uuid7())
        await beat(connection, worker_id, ago=100.0, server_id=server)
        [before] = await workers.last_heard(connection, [worker_id])
        assert await workers.truncate_beats(connection, 0)
        [after] = await workers.last_heard(connection, [worker_id])
        assert before == after
        assert (after.server_id, await watch.sweep()) == (server, 0)
        view = await workers.view(connection, DEFAULT_TENANT, worker_id)
        assert view is not None and view.last_beat_at is not None
        assert view.last_beat_at.timestamp() == pytest.approx(after.at)

    async def test_a_worker_that_the_other_table_contains_is_left_alone(self, connection: asyncpg.Connection) -> None:
        worker_id = await a_worker(connection)
        await beat(connection, worker_id, ago=100.0, table=0)
        await beat(connection, worker_id, ago=1.0, table=1)
        assert await workers.truncate_beats(connection, 0)
        assert await connection.fetchval("select heard_at from mainspring.workers") is None

    async def test_a_row_that_is_held_by_others_is_not_waited_for(
        self, connection: asyncpg.Connection, store: Store
    ) -> None:
        worker_id = await a_worker(connection)
        await beat(connection, worker_id, ago=100.0)
        async with store.hot.acquire() as other, other.transaction():
            await other.execute("select from mainspring.workers for update")
            assert not await workers.truncate_beats(connection, 0)
        assert await connection.fetchval("select count(*) from mainspring.worker_beats_0") == 1
        assert await workers.truncate_beats(connection, 0)


class TestAnOlderWorker:
    async def test_a_repeated_hello_without_a_lease_shortens_nothing(self, connection: asyncpg.Connection) -> None:
        worker_id = await a_worker(connection, rescue_after=15.0, exclusive_rescue_after=75.0)
        row = await connection.fetchrow("select name, queues, tasks, slots from mainspring.workers")
        hello = workers.WorkerHello(*row)
        assert await workers.register(connection, DEFAULT_TENANT, worker_id, hello)
        assert await connection.fetchval("select rescue_after + exclusive_rescue_after from mainspring.workers") == 90.0


class TestAWritableDatabase:
    async def test_each_kind_waits_for_the_longest_lease_of_its_kind(
        self, connection: asyncpg.Connection, store: Store, lane_id: int
    ) -> None:
        ordinary, exclusive = await holding(connection, lane_id, 1, 0), await holding(connection, lane_id, 0, 1)
        others = await holding(connection, lane_id, 0, 0, lease=ORDINARY + 50)
        watch = Watch(store)
        await beat(connection, others, ago=0.0)
        assert await watch.sweep() == 0
        watch.clock.advance(ORDINARY + 49)
        assert await watch.sweep() == 0
        assert "the database has not been writable" in watch.judge.status
        watch.clock.advance(1)
        assert await watch.sweep() == 1
        assert await state_of(connection, ordinary) is WorkerState.LOST
        watch.clock.advance(EXCLUSIVE - ORDINARY - 50)
        assert await watch.sweep() == 1
        assert await state_of(connection, exclusive) is WorkerState.LOST
        assert watch.judge.status == "ok"

    async def test_what_is_known_to_have_ended_is_rescued_at_once(
        self, connection: asyncpg.Connection, store: Store, lane_id: int
    ) -> None:
        worker_id = await holding(connection, lane_id, 1, 1)
        await workers.set_state(connection, worker_id, WorkerState.LOST)
        assert await Watch(store).sweep() == 2


class TestAServerThatIsUnwell:
    async def test_the_time_by_which_it_was_late_does_not_count(
        self, connection: asyncpg.Connection, store: Store, lane_id: int
    ) -> None:
        periods: list[Period] = []
        watch = Watch(store, [lambda _: periods])
        await watch.sweep()
        watch.clock.advance(EXCLUSIVE)
        worker_id = await holding(connection, lane_id, 1, 0)
        await beat(connection, worker_id, ago=ORDINARY + 50)
        now = watch.clock.monotonic()
        periods.append((now - 100, now - 30))
        assert await watch.sweep() == 0
        assert watch.judge.status == "held for 1 silent workers: this server was late"
        periods[0] = (now - 100, now - 55)
        assert await watch.sweep() == 1

    async def test_after_a_long_stop_every_worker_has_a_full_lease_and_not_more(
        self, connection: asyncpg.Connection, store: Store, lane_id: int
    ) -> None:
        periods: list[Period] = []
        watch = Watch(store, [lambda _: periods])
        await watch.sweep()
        watch.clock.advance(EXCLUSIVE)
        worker_id = await holding(connection, lane_id, 1, 0)
        await beat(connection, worker_id, ago=1000.0)
        now = watch.clock.monotonic()
        periods.append((now - 990, now))
        assert await watch.sweep() == 0
        watch.clock.advance(ORDINARY - 1)
        assert await watch.sweep() == 0
        watch.clock.advance(1)
        assert await watch.sweep() == 1

    def test_periods_that_overlap_count_once(self) -> None:
        loop, beats = LateTimes(0.25), LateTimes(0.5)
        for times, begin, end in ((loop, 10.0, 14.0), (loop, 20.0, 20.2), (beats, 12.0, 17.0)):
            times.begin(begin)
            times.end(end)
        assert late_within([loop.until, beats.until], 20.0, 15.0) == 7.0
        assert late_within([loop.until, beats.until], 31.0, 15.0) == 5.0
        beats.begin(31.0)
        assert late_within([loop.until, beats.until], 31.4, 5.0) == 0.0
        assert late_within([loop.until, beats.until], 33.0, 5.0) == 2.0


class TestSilentTogether:
    async def test_workers_of_one_server_that_fall_silent_together_have_one_more_lease(
        self, connection: asyncpg.Connection, watch: Watch, lane_id: int
    ) -> None:
        server = uuid7()
        members = [await holding(connection, lane_id, 1, 0) for _ in range(5)]
        alone = await holding(connection, lane_id, 1, 0)
        for number, worker_id in enumerate(members):
            await beat(connection, worker_id, ago=ORDINARY + number * BEAT / 5, server_id=server)
        await beat(connection, alone, ago=ORDINARY + 3, server_id=server)
        assert await watch.sweep() == 1, "three seconds is more than a beat"
        assert await state_of(connection, alone) is WorkerState.LOST
        assert watch.judge.status == "held for 5 silent workers: they fell silent together at one server"
        await connection.execute("update mainspring.worker_beats_0 set at = at - $1 * interval '1 s'", ORDINARY)
        watch.judge._heard.clear()  # time does not go on here: the heartbeats were moved
        assert await watch.sweep() == 5
        assert watch.judge.status == "ok"

    async def test_four_are_not_enough_and_five_of_more_than_twenty_five_neither(
        self, connection: asyncpg.Connection, watch: Watch, lane_id: int
    ) -> None:
        small, large = uuid7(), uuid7()
        few = [await holding(connection, lane_id, 1, 0) for _ in range(4)]
        some = [await holding(connection, lane_id, 1, 0) for _ in range(5)]
        crowd = [await a_worker(connection) for _ in range(21)]
        await beat(connection, *few, ago=ORDINARY, server_id=small)
        await beat(connection, *some, *crowd, ago=ORDINARY, server_id=large)
        await beat(connection, *crowd, ago=0.0, server_id=large)
        assert await watch.sweep() == 9

    def test_a_group_is_chained_over_several_beats_and_a_gap_divides_it(self) -> None:
        server = uuid7()
        times = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 10.0, 10.1, 10.2, 10.3]
        heard = [LastHeard(uuid7(), at, server) for at in times]
        [group] = silent_groups([*heard, LastHeard(uuid7(), 1.0, None)], 2.0)
        assert (group.since, group.until, group.most, len(group.worker_ids)) == (0.0, 3.0, 5, 7)
        assert group.is_share_of(25) and not group.is_share_of(26)
