"""Joins: counters over the ends of parents, marks, and the runs that wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec

from mainspring.domain.workflows.flow import map_join
from mainspring.domain.workflows.rules import JOIN_BLOCK, WIDE, Counts, Skip
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery
from mainspring.store.runs import EndedRow

_SQL = load("joins")
FIRST_JOIN = 0


class JoinCounts(msgspec.Struct, frozen=True):
    """A join after it was counted. Its row is locked."""

    join_id: int
    total: int
    ok: int
    failed: int
    skipped: int
    blocked: int
    cause: str | None

    @property
    def counts(self) -> Counts:
        return Counts(self.total, self.ok, self.failed, self.skipped, self.blocked, self.cause)


class NewJoin(msgspec.Struct, frozen=True):
    """A join to create. It may have counted parents that ended before."""

    join_id: int
    total: int
    ok: int = 0
    failed: int = 0
    skipped: int = 0
    blocked: int = 0
    cause: str | None = None


class Tally(msgspec.Struct):
    """Ends to count in one join."""

    ok: int = 0
    failed: int = 0
    skipped: int = 0
    blocked: int = 0
    cause: str | None = None


class WaitingRun(msgspec.Struct, frozen=True):
    """A locked WAITING run whose rule is decided. `limited`: it has limits."""

    run_id: UUID
    join_id: int
    fence: int
    attempt: int
    rule: int
    limited: bool
    follows: int | None


class SkippedRuns(msgspec.Struct, frozen=True):
    """How many runs with these `follows` bits were skipped, all of them if `feed` is None; otherwise how many of them
    feed this join. cause: the step whose failure is the reason, if it is one."""

    feed: int | None
    follows: int
    cause: str | None
    number: int


class UnresolvedPayload(msgspec.Struct, frozen=True):
    """What the payload of a run is made of."""

    run_id: UUID
    task: str
    job_id: str | None
    payload_text: str | None
    spec_text: str | None


class Ready(msgspec.Struct, frozen=True):
    """A run that starts now. payload, spec: None if they stay as they are."""

    run_id: UUID
    payload: str | None = None
    spec: str | None = None


_count_ends = RowQuery(JoinCounts, _SQL["count_ends"])
_fold_marks = RowQuery(JoinCounts, _SQL["fold_marks"])
_waiting_runs = RowQuery(WaitingRun, _SQL["waiting_runs"])
_skip_waiting = RowQuery(SkippedRuns, _SQL["skip_waiting"])
_to_resolve = RowQuery(UnresolvedPayload, _SQL["to_resolve"])


async def new_blocks(connection: Connection, count: int = 1) -> list[int]:
    """Reserve blocks. Each stands for JOIN_BLOCK ids of joins that no other block has."""
    return [block for (block,) in await connection.fetch(_SQL["new_blocks"], count)]


def join_in(block: int, number: int) -> int:
    """The id of a join by its number in the block."""
    return block * JOIN_BLOCK + number


def as_fed(join_id: int, total: int) -> int:
    """How `runs.feeds` names the join: a wide one takes marks."""
    return -join_id if total > WIDE else join_id


async def insert(connection: Connection, new: Sequence[NewJoin]) -> None:
    await connection.execute(
        _SQL["insert_joins"],
        [join.join_id for join in new],
        [join.total for join in new],
        [join.ok for join in new],
        [join.failed for join in new],
        [join.skipped for join in new],
        [join.blocked for join in new],
        [join.cause for join in new],
    )


async def count(connection: Connection, tallies: Mapping[int, Tally]) -> list[JoinCounts]:
    """Count ends in joins that are not wide. These are locked. A join that does not exist any more is left out."""
    return await _count_ends.fetch(connection, *_columns(tallies))


async def mark(connection: Connection, tallies: Mapping[int, Tally]) -> None:
    """Write marks that count ends. The caller publishes a signal after its commit; otherwise the next round of the join
    counter counts them."""
    await connection.execute(_SQL["mark_ends"], *_columns(tallies))


def _columns(
    tallies: Mapping[int, Tally],
) -> tuple[list[int], list[int], list[int], list[int], list[int], list[str | None]]:
    items = list(tallies.values())
    return (
        list(tallies),
        [item.ok for item in items],
        [item.failed for item in items],
        [item.skipped for item in items],
        [item.blocked for item in items],
        [item.cause for item in items],
    )


async def marked(connection: Connection, after: int, limit: int) -> list[int]:
    """Joins after `after` that have marks."""
    return [join_id for (join_id,) in await connection.fetch(_SQL["marked_joins"], after, limit)]


async def count_marks(connection: Connection, join_ids: Sequence[int]) -> list[JoinCounts]:
    """Count the marks of these joins. The joins are locked. Those without marks are left out."""
    await connection.execute(_SQL["lock_joins"], join_ids)
    return await _fold_marks.fetch(connection, join_ids)


async def waiting(connection: Connection, decided: Mapping[int, int], limit: int) -> list[WaitingRun]:
    """The runs that wait for these joins, with one of the rules that are decided; at most so many. They are locked."""
    return await _waiting_runs.fetch(connection, list(decided), list(decided.values()), limit)


async def skip(connection: Connection, wanted: Sequence[tuple[int, Skip]], limit: int) -> list[SkippedRuns]:
    """End runs that wait for these joins and cannot start any more; at most so many."""
    return await _skip_waiting.fetch(
        connection,
        [join_id for join_id, _ in wanted],
        [item.rules for _, item in wanted],
        [item.reason for _, item in wanted],
        [item.cause for _, item in wanted],
        limit,
    )


async def to_resolve(connection: Connection, run_ids: Sequence[UUID]) -> list[UnresolvedPayload]:
    return await _to_resolve.fetch(connection, run_ids)


async def make_ready(connection: Connection, ready: Sequence[Ready]) -> list[int]:
    """Queue runs. Returns the lane of each."""
    return [lane for (lane,) in await connection.fetch(_SQL["make_ready"], *_ready(ready))]


async def hold_ready(connection: Connection, ready: Sequence[Ready]) -> list[int]:
    """Put runs with limits into their waiting lists. Return the list of each."""
    return [line for (line,) in await connection.fetch(_SQL["hold_ready"], *_ready(ready))]


def _ready(ready: Sequence[Ready]) -> tuple[list[UUID], list[str | None], list[str | None]]:
    return [item.run_id for item in ready], [item.payload for item in ready], [item.spec for item in ready]


async def succeed(connection: Connection, results: Mapping[UUID, str | None]) -> list[EndedRow]:
    """End WAITING runs with SUCCESS."""
    rows: list[EndedRow] = await connection.fetch(_SQL["succeed_waiting"], list(results), list(results.values()))
    return rows


async def delete(connection: Connection, block: int, limit: int) -> int:
    """Delete joins of a block, except those of maps, whose counts are shown. Returns how many."""
    done = await connection.execute(_SQL["delete_joins"], block * JOIN_BLOCK, map_join(block, 0), limit)
    return int(done.rpartition(" ")[2])
