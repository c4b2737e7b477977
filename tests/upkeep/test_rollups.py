"""The rollups equal the history: whoever ends, whenever its transaction commits, and whatever is killed meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from mainspring.domain.rollups import MOST_GROUPS, OTHER_GROUP, Span, bucket_of
from mainspring.domain.transitions import StoredState
from mainspring.kernel.clock import SystemClock
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.store import failure_groups, rollups
from mainspring.store.failure_groups import GroupFilter
from mainspring.store.pool import Store
from mainspring.upkeep.gauge_sampler import GaugeSampler
from mainspring.upkeep.rollup_keeper import RollupKeeper
from tests.eventually import PATIENCE
from tests.store.rows import a_lane, now_of, queued

pytestmark = pytest.mark.anyio

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
INSERT = """
insert into mainspring.run_history
    (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for, started_at, ended_at, ran_ms,
     error)
select $1, 1, $2, $3, $4::int, 4, $4::int, (select clock_timestamp()) - $5::interval, (select clock_timestamp()),
       (select clock_timestamp()), $6, $7
"""
ATTEMPT = """
insert into mainspring.attempts (run_id, attempt, fence, started_at, ended_at, outcome, error)
select $1, 1, 1, (select clock_timestamp()), (select clock_timestamp()), $2, 'TimeoutError: after 3 s'
"""
RECOUNT = """
select l.task, h.state, count(*) as runs, sum(round(h.ran_ms::float8 * 1000))::bigint as ran_us
from mainspring.run_history h join mainspring.lanes l using (lane_id) group by 1, 2
"""


async def settle(connection: asyncpg.Connection, keeper: RollupKeeper) -> None:
    """Fold until everything that has ended is in the rollups."""
    until = await now_of(connection)
    async with asyncio.timeout(PATIENCE):
        while (await rollups.watermark(connection) or until - timedelta(days=9)) <= until:
            if await keeper.roll_up() is None:
                await asyncio.sleep(0.05)


async def sums(connection: asyncpg.Connection, span: Span, task: str = "") -> dict[str, int]:
    row = await connection.fetchrow(
        """select sum(succeeded)::bigint as succeeded, sum(failed)::bigint as failed,
                  sum(cancelled)::bigint as cancelled, sum(skipped)::bigint as skipped,
                  sum(retried)::bigint as retried, sum(lost)::bigint as lost,
                  sum(missed)::bigint as missed, sum(ran_us)::bigint as ran_us
           from mainspring.rollups where span = $1 and task = $2 and (task <> '' or queue = '')""",
        int(span), task,
    )  # fmt: skip
    return {name: value or 0 for name, value in row.items()}


async def histogram(connection: asyncpg.Connection, name: str) -> Counter[int]:
    found: Counter[int] = Counter()
    for row in await connection.fetch(
        f"select {name}_first as first, {name} as counts from mainspring.rollups"
        " where span = 1 and task = '' and queue = '' and lag is not null"
    ):
        found.update({row["first"] + i: count for i, count in enumerate(row["counts"]) if count})
    return found


async def test_the_rollups_equal_the_history_after_kills_rollbacks_and_late_commits(
    store: Store, connection: asyncpg.Connection, database_url: str
) -> None:
    chance = random.Random(7)
    lanes = [await a_lane(connection, f"task_{n}", queue=f"q{n % 2}") for n in range(3)]
    keeper, done = RollupKeeper(store, SystemClock()), 0

    async def write(seed: int) -> None:
        """Transactions that end runs, some of them late and some in vain."""
        nonlocal done
        own, dice = await asyncpg.connect(database_url), random.Random(seed)
        try:
            for _ in range(60):
                transaction = own.transaction()
                await transaction.start()
                for _ in range(dice.randint(1, 5)):
                    run_id, attempts = uuid7(), dice.randint(1, 2)
                    state = dice.choice([StoredState.SUCCESS] * 3 + [StoredState.FAILED, StoredState.CANCELLED])
                    late = timedelta(milliseconds=dice.choice([0, 3, 70, 5000]))
                    await own.execute(
                        INSERT, run_id, dice.choice(lanes), int(state), attempts, late, dice.uniform(0, 900),
                        f"ValueError: {dice.random()}" if state is StoredState.FAILED else None,
                    )  # fmt: skip
                    if attempts == 2:
                        await own.execute(ATTEMPT, run_id, dice.choice(["FAILED", "LOST", "SNOOZED", "RETURNED"]))
                await asyncio.sleep(dice.choice([0.0, 0.0, 0.02]))
                await (transaction.rollback() if dice.random() < 0.2 else transaction.commit())
        finally:
            await own.close()
            done += 1

    async def fold_and_kill() -> None:
        admin = await asyncpg.connect(database_url)
        while done < 3:
            folding = asyncio.create_task(keeper.roll_up())
            if chance.random() < 0.5:
                await asyncio.sleep(chance.random() * 0.02)
                await admin.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = current_database() and application_name like 'mainspring % reads'"
                )
            await asyncio.gather(folding, return_exceptions=True)
        await admin.close()

    await asyncio.gather(fold_and_kill(), *(write(seed) for seed in range(3)))
    await settle(connection, keeper)
    recount: Counter[str] = Counter()
    for row in await connection.fetch(RECOUNT):
        recount[StoredState(row["state"]).name] += row["runs"]
        recount["ran_us"] += row["ran_us"] or 0
    attempts = Counter(row["outcome"] for row in await connection.fetch("select outcome from mainspring.attempts"))
    total = await sums(connection, Span.MINUTE)
    assert total == {
        "succeeded": recount["SUCCESS"], "failed": recount["FAILED"], "cancelled": recount["CANCELLED"], "skipped": 0,
        "retried": attempts["FAILED"], "lost": attempts["LOST"], "missed": 0, "ran_us": recount["ran_us"],
    }  # fmt: skip
    assert total["succeeded"] > 0 and total["retried"] > 0
    by_task = [await sums(connection, Span.MINUTE, f"task_{n}") for n in range(3)]
    assert total == {name: sum(each[name] for each in by_task) for name in total}
    rows = await connection.fetch("select ran_ms from mainspring.run_history")
    assert await histogram(connection, "ran") == Counter(bucket_of(row["ran_ms"]) for row in rows)
    firsts = await connection.fetchval(
        "select (select count(*) from mainspring.run_history where attempt = 1)"
        " + (select count(*) from mainspring.attempts where outcome <> 'RETURNED')"
    )
    assert (await histogram(connection, "lag")).total() == firsts
    chosen = GroupFilter(DEFAULT_TENANT, LONG_AGO)
    groups = await failure_groups.largest(connection, chosen, 1000)
    assert sum(group.failed for group in groups) == recount["FAILED"]
    assert sum(group.count for group in groups) == recount["FAILED"] + attempts["FAILED"] + attempts["LOST"]
    counts = {group.fingerprint: 0 for group in groups}
    for hour in await failure_groups.minutes(connection, chosen, groups):
        counts[hour.fingerprint] += sum(hour.counts)
    assert counts == {group.fingerprint: group.count for group in groups}
    assert {group.title for group in groups} == {"ValueError: #", "TimeoutError: after # s"}


async def test_a_transaction_that_is_open_for_long_holds_the_fold_back_and_a_reader_does_not(
    store: Store, connection: asyncpg.Connection, database_url: str
) -> None:
    lane, keeper = await a_lane(connection), RollupKeeper(store, SystemClock())
    slow, reader = await asyncpg.connect(database_url), await asyncpg.connect(database_url)
    await reader.execute("begin isolation level repeatable read; select count(*) from mainspring.run_history")
    async with slow.transaction():
        await end(slow, lane)
        begun = await slow.fetchval("select now()")
        await end(connection, lane)
        while await keeper.roll_up() is not None:
            pass
        until = await rollups.watermark(connection)
        assert until is not None and until <= begun
    await settle(connection, keeper)
    assert (await sums(connection, Span.MINUTE))["succeeded"] == 2
    for each in (slow, reader):
        await each.close()


async def test_minutes_that_are_over_are_in_their_hour_and_day_and_days_without_runs_are_passed(
    store: Store, connection: asyncpg.Connection
) -> None:
    lane, keeper = await a_lane(connection), RollupKeeper(store, SystemClock())
    now = await now_of(connection)
    yesterday = now.replace(hour=0, minute=0, second=30, microsecond=0) - timedelta(days=1)
    for minute in (0, 1, 61):
        await end(connection, lane, yesterday + timedelta(minutes=minute), times=2)
    await settle(connection, keeper)
    for span, rows in ((Span.MINUTE, None), (Span.HOUR, 2), (Span.DAY, 1)):  # old minutes are folded by the hour
        found = await connection.fetch(
            "select succeeded, ran from mainspring.rollups where span = $1 and task = '' and queue = ''", int(span)
        )
        assert rows in (None, len(found))
        assert sum(row["succeeded"] for row in found) == 6 and sum(sum(row["ran"]) for row in found) == 6


async def test_after_the_clock_was_set_back_the_day_is_counted_anew(
    store: Store, connection: asyncpg.Connection
) -> None:
    lane, keeper = await a_lane(connection), RollupKeeper(store, SystemClock())
    await end(connection, lane)
    await settle(connection, keeper)
    before = await sums(connection, Span.MINUTE)
    await connection.execute(
        "update mainspring.rollup_watermark set folded_until = clock_timestamp() + interval '10 minutes'"
    )
    await end(connection, lane)
    await keeper.roll_up()
    await settle(connection, keeper)
    assert (await sums(connection, Span.MINUTE))["succeeded"] == before["succeeded"] + 1 == 2


async def test_missed_fires_count_and_the_501st_error_of_an_hour_is_another_one(
    store: Store, connection: asyncpg.Connection
) -> None:
    lane, keeper = await a_lane(connection), RollupKeeper(store, SystemClock())
    await connection.execute(
        """insert into mainspring.jobs (tenant_id, job_id, lane_id, shard, status, max_attempts, one_time, id_generated,
                                        created_at, updated_at, schedule)
           values (1, 'a', $1, 0, 1, 4, false, false, clock_timestamp(), clock_timestamp(), '{}')""",
        lane,
    )
    await connection.execute(
        """insert into mainspring.missed_fires (tenant_id, job_id, first_at, last_at, count, reason)
           values (1, 'a', clock_timestamp(), clock_timestamp(), 17, 'late')"""
    )
    words = ["".join(chr(97 + n // 26**place % 26) for place in range(3)) for n in range(MOST_GROUPS + 20)]
    for word in words:
        await connection.execute(INSERT, uuid7(), lane, 11, 1, timedelta(), 1.0, f"Error {word}")
    await settle(connection, keeper)
    assert (await sums(connection, Span.MINUTE))["missed"] == 17
    rows = await connection.fetch(
        "select at, fingerprint, count from mainspring.failure_groups order by at, fingerprint"
    )
    by_hour: dict[datetime, list[tuple[str, int]]] = {}
    for row in rows:
        by_hour.setdefault(row["at"], []).append((row["fingerprint"], row["count"]))
    assert sum(row["count"] for row in rows) == len(words)
    for groups in by_hour.values():  # more than one only if the hour has changed meanwhile
        assert len(groups) <= MOST_GROUPS + 1
        assert len(groups) < MOST_GROUPS or (OTHER_GROUP in dict(groups))


async def test_samples_are_taken_when_they_are_due_and_keep_the_largest_values(
    store: Store, connection: asyncpg.Connection
) -> None:
    lane, sampler = await a_lane(connection, queue="mail"), GaugeSampler(store, SystemClock())
    await queued(connection, lane, 3)
    await queued(connection, lane, 1, waited=-600)
    assert await sampler.run_once() == 4
    assert await sampler.run_once() == 0  # not due
    await connection.execute("delete from mainspring.runs where ready_at < clock_timestamp()")
    await connection.execute("update mainspring.gauge_pass set due_at = clock_timestamp()")
    assert await sampler.run_once() == 1
    [gauge] = await connection.fetch("select depth, scheduled from mainspring.lane_gauges")
    assert tuple(gauge) == (0, 1)
    found = await connection.fetch("select max(waiting) from mainspring.gauge_rollups group by span, queue")
    assert [row[0] for row in found] == [3, 3, 3, 3]


async def end(connection: asyncpg.Connection, lane: int, at: datetime | None = None, times: int = 1) -> None:
    """Runs that succeeded, now or then."""
    moment: Sequence[Any] = [at] * times
    await connection.execute(
        """insert into mainspring.run_history
               (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for, started_at, ended_at,
                ran_ms)
           select gen_random_uuid(), 1, $1, 10, 1, 4, 1, t.at, t.at, t.at, 5
           from (select coalesce(u.at, clock_timestamp()) as at from unnest($2::timestamptz[]) as u (at)) as t""",
        lane,
        moment,
    )
