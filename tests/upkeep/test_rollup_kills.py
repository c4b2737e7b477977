"""At rest every rollup equals a recount of the history, also if servers were killed between two statements."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec
import pytest

from mainspring.domain.fingerprints import fingerprint, masked
from mainspring.domain.rollups import Span, bucket_of, floor_to
from mainspring.domain.transitions import StoredState
from mainspring.kernel.clock import SystemClock
from mainspring.kernel.ids import uuid7
from mainspring.store import failure_groups, rollups
from mainspring.store.pool import Store
from mainspring.upkeep.rollup_keeper import RollupKeeper
from tests.eventually import PATIENCE
from tests.store.rows import a_lane, now_of

pytestmark = pytest.mark.anyio

STATEMENTS = (
    (rollups, "lock"), (rollups, "begin_watermark"), (rollups, "something_ended"), (rollups, "roll_up"),
    (rollups, "close_minute"), (rollups, "move_watermark"), (failure_groups, "failed_runs"),
    (failure_groups, "known"), (failure_groups, "add"),
)  # fmt: skip
ALWAYS = 3  # of these, if there is something to fold: the first ones
STEPS = {Span.MINUTE: timedelta(minutes=1), Span.HOUR: timedelta(hours=1), Span.DAY: timedelta(days=1)}
COUNTED = {
    StoredState.SUCCESS: "succeeded", StoredState.FAILED: "failed", StoredState.CANCELLED: "cancelled",
    StoredState.SKIPPED: "skipped",
}  # fmt: skip
RUN = """
insert into mainspring.run_history
    (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for, started_at, ended_at, ran_ms,
     error)
values ($1, 1, $2, $3, $4::int, 4, $4::int, $5, $6, $7, $8, $9)
"""
ATTEMPT = """
insert into mainspring.attempts (run_id, attempt, fence, started_at, ended_at, outcome, error)
values ($1, 1, 1, $2, $3, $4, $5)
"""
OUTCOMES = ("FAILED", "LOST", "SNOOZED", "RETURNED")
ERRORS = ("ValueError: {n} is odd", "TimeoutError: no answer from /srv/{n}", "KeyError: '{n}'", "E{n}: x{n}")


class Row(msgspec.Struct):
    """What a rollup should have."""

    counts: Counter[str] = msgspec.field(default_factory=Counter)
    lag: Counter[int] = msgspec.field(default_factory=Counter)
    ran: Counter[int] = msgspec.field(default_factory=Counter)


Key = tuple[int, str, str, datetime]


async def some_history(connection: asyncpg.Connection, dice: random.Random, runs: int) -> None:
    """Runs that ended in the last minutes, and their attempts. What ended before them is folded."""
    lanes = [await a_lane(connection, f"task_{n}", queue=f"q{n % 2}") for n in range(3)]
    now = await now_of(connection)
    minutes = [now - timedelta(minutes=ago) for ago in (6, 4, 3, 1)]
    await connection.execute(
        "insert into mainspring.rollup_watermark (folded_until) values ($1)",
        floor_to(min(minutes) - timedelta(minutes=3), STEPS[Span.MINUTE]),
    )
    for _ in range(runs):
        run_id, lane, state = uuid7(), dice.choice(lanes), dice.choice(list(COUNTED))
        ended = min(now, dice.choice(minutes) + timedelta(seconds=dice.uniform(0, 59)))
        started = ended - timedelta(milliseconds=dice.choice([0.2, 7, 900, 40_000]))
        due, attempts = started - timedelta(milliseconds=dice.uniform(0, 5000)), dice.randint(1, 2)
        error = dice.choice(ERRORS).format(n=dice.randint(0, 10**6)) if state is StoredState.FAILED else None
        ran = None if state is StoredState.SKIPPED else dice.uniform(0, 9000)
        await connection.execute(RUN, run_id, lane, int(state), attempts, due, started, ended, ran, error)
        if attempts == 2:
            text = dice.choice(ERRORS).format(n=dice.randint(0, 99))
            first = started - timedelta(seconds=dice.uniform(0.1, 100))
            await connection.execute(ATTEMPT, run_id, first, started, dice.choice(OUTCOMES), text)


async def recount(connection: asyncpg.Connection, until: datetime) -> tuple[dict[Key, Row], Counter[tuple[str, str]]]:
    """The rollups of all spans and the failures by fingerprint and queue, counted one by one. Hours and days have the
    minutes that are over."""
    expected: dict[Key, Row] = defaultdict(Row)
    failures: Counter[tuple[str, str]] = Counter()

    def add(row: asyncpg.Record, change: Callable[[Row], None]) -> None:
        for span, step in STEPS.items():
            if span is not Span.MINUTE and floor_to(row["ended_at"], STEPS[Span.MINUTE]) >= floor_to(
                until, STEPS[Span.MINUTE]
            ):
                continue
            for task, queue in ((row["task"], row["queue"]), ("", row["queue"]), ("", "")):
                change(expected[int(span), task, queue, floor_to(row["ended_at"], step)])

    for run in await connection.fetch("select * from mainspring.run_history join mainspring.lanes using (lane_id)"):
        add(run, lambda row, run=run: _count_run(row, run))  # type: ignore[misc]
        if run["state"] == StoredState.FAILED:
            failures[fingerprint(run["task"], masked(run["error"])), run["queue"]] += 1
    for attempt in await connection.fetch(
        """select a.*, l.task, l.queue, h.scheduled_for
           from mainspring.attempts a
           join mainspring.run_history h using (run_id)
           join mainspring.lanes l on l.lane_id = h.lane_id
           where a.outcome <> 'RETURNED'"""
    ):
        add(attempt, lambda row, attempt=attempt: _count_attempt(row, attempt))  # type: ignore[misc]
        if attempt["outcome"] in ("FAILED", "LOST"):
            failures[fingerprint(attempt["task"], masked(attempt["error"])), attempt["queue"]] += 1
    return dict(expected), failures


def _count_run(row: Row, run: asyncpg.Record) -> None:
    row.counts[COUNTED[StoredState(run["state"])]] += 1
    if run["ran_ms"] is not None:
        row.counts["ran_us"] += round(run["ran_ms"] * 1000)
        row.ran[bucket_of(run["ran_ms"])] += 1
    if run["attempt"] == 1:
        row.lag[bucket_of((run["started_at"] - run["scheduled_for"]).total_seconds() * 1000)] += 1


def _count_attempt(row: Row, attempt: asyncpg.Record) -> None:
    row.counts["retried"] += attempt["outcome"] == "FAILED"
    row.counts["lost"] += attempt["outcome"] == "LOST"
    row.lag[bucket_of((attempt["started_at"] - attempt["scheduled_for"]).total_seconds() * 1000)] += 1


async def stored(connection: asyncpg.Connection) -> tuple[dict[Key, Row], Counter[tuple[str, str]]]:
    found: dict[Key, Row] = {}
    for row in await connection.fetch("select * from mainspring.rollups"):
        counts = Counter({name: row[name] for name in (*COUNTED.values(), "retried", "lost", "missed", "ran_us")})
        lag, ran = (
            Counter({(row[f"{name}_first"] or 0) + n: count for n, count in enumerate(row[name] or ())})
            for name in ("lag", "ran")
        )
        found[row["span"], row["task"], row["queue"], row["at"]] = Row(counts, lag, ran)
    groups = await connection.fetch("select * from mainspring.failure_groups")
    assert all(sum(each or 0 for each in group["minutes"]) == group["count"] for group in groups)
    failures: Counter[tuple[str, str]] = Counter()
    for group in groups:
        failures[group["fingerprint"], group["queue"]] += group["count"]
    return found, failures


class Killer:
    """Ends the connection of a fold after one of its statements, as if its server had been killed then."""

    def __init__(self, admin: asyncpg.Connection, dice: random.Random) -> None:
        self._admin = admin
        self._dice = dice
        self.left = 0
        self.kills: Counter[str] = Counter()

    def arm(self) -> None:
        """The first fold has much to do, and is killed after one of the statements that each such fold has. How many
        follow depends on the time: every other one lives."""
        if not self.kills:
            self.left = self._dice.randint(1, ALWAYS)
        else:
            self.left = self._dice.choice([0, self._dice.randint(1, len(STATEMENTS) - 1)])

    def watch(self, name: str, statement: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def watched(connection: asyncpg.Connection, *arguments: Any) -> Any:
            answer = await statement(connection, *arguments)
            self.left -= 1
            if self.left == 0:
                self.kills[name] += 1
                pid = await connection.fetchval("select pg_backend_pid()")
                await self._admin.execute("select pg_terminate_backend($1, 10000)", pid)
            return answer

        return watched


@pytest.mark.parametrize("seed", range(4))
async def test_rollups_equal_a_recount_whatever_was_killed_between_two_statements(
    store: Store,
    connection: asyncpg.Connection,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    dice = random.Random(seed)
    admin = await asyncpg.connect(database_url)
    killer = Killer(admin, dice)
    for module, name in STATEMENTS:
        monkeypatch.setattr(module, name, killer.watch(name, getattr(module, name)))
    await some_history(connection, dice, 60)
    keeper, until = RollupKeeper(store, SystemClock()), await now_of(connection)
    async with asyncio.timeout(PATIENCE):
        while (await _watermark(connection) or until - timedelta(days=9)) <= until:
            killer.arm()
            try:
                if await keeper.roll_up() is None:
                    await asyncio.sleep(0.05)  # the last second is not folded yet
            except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
                continue
    await admin.close()
    folded_until = await _watermark(connection)
    assert folded_until is not None
    expected, failures = await recount(connection, folded_until)
    found, groups = await stored(connection)
    assert found.keys() == expected.keys()
    assert {key: row for key, row in found.items() if row != expected[key]} == {}
    assert groups == failures
    assert killer.kills


async def _watermark(connection: asyncpg.Connection) -> datetime | None:
    until: datetime | None = await connection.fetchval("select folded_until from mainspring.rollup_watermark")
    return until
