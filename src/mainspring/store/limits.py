"""Limits: what was declared, lines, and the admission of HELD runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.breakers import Breaker
from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("limits")

FIRST_LINE = -(1 << 63)


class Line(msgspec.Struct, frozen=True):
    """A locked line: how many slots are in use, and what its limit allows. `slots` is None if any number may run at
    once. `every`, `burst` and `tat` belong to its rate; `failures`, `open_for`, `failed`, `opened_at` and `probe` to
    its circuit breaker. `next_at` is when it must be woken, `now` the time of the database, and `changed_at` when the
    limit was last changed."""

    key_id: int
    in_use: int
    slots: int | None
    strict: bool
    every: float | None
    burst: int | None
    failures: int | None
    open_for: float | None
    tat: datetime | None
    next_at: datetime | None
    failed: int
    opened_at: datetime | None
    probe: UUID | None
    now: datetime
    changed_at: datetime


class Head(msgspec.Struct, frozen=True):
    """A locked HELD run at the front of a line. `changed`: a limit was changed while its lines were locked."""

    run_id: UUID
    key_id: int
    held_rank: datetime
    limit_keys: list[int]
    lane_id: int
    changed: bool


class First(msgspec.Struct, frozen=True):
    """The first run of a strict line: of all runs that need a slot of the line, the one that was submitted first, also
    if it is locked, backs off or waits in another line. The other fields are those of its `Head` if it can be
    admitted."""

    run_id: UUID | None
    key_id: int
    held_rank: datetime | None
    limit_keys: list[int] | None
    lane_id: int | None
    changed: bool
    first_id: UUID | None

    @property
    def head(self) -> Head | None:
        if self.run_id is None or self.held_rank is None or self.limit_keys is None or self.lane_id is None:
            return None
        return Head(self.run_id, self.key_id, self.held_rank, self.limit_keys, self.lane_id, self.changed)


class HoldBack(msgspec.Struct, frozen=True):
    """A run that gives up its slots and backs off for `delay` seconds. `snoozed` is 1 if it asked for that, `lost` if
    its worker was lost, `given_back` if it was returned unstarted. `failed`: the attempt has failed. `alone`: the
    next attempt is to begin without neighbours."""

    run_id: UUID
    fence: int
    delay: float
    error: str | None = None
    snoozed: int = 0
    lost: int = 0
    given_back: int = 0
    failed: bool = False
    alone: bool = False


_lock_lines = RowQuery(Line, _SQL["lock_lines"])
_pick_heads = RowQuery(Head, _SQL["pick_heads"])
_pick_firsts = RowQuery(First, _SQL["pick_firsts"])


async def specs_in_lines(
    connection: Connection, missing: Sequence[int], lines: Sequence[int]
) -> list[tuple[int, TenantId, str]]:
    """For each of the missing lines that a run in one of `lines` needs: the line, the tenant, and the spec of such a
    run."""
    rows: list[tuple[int, TenantId, str]] = await connection.fetch(_SQL["specs_in_lines"], missing, lines)
    return rows


async def lines_of_heads(connection: Connection, lines: Sequence[int], limit: int) -> set[int]:
    """The lines that the first runs of these lines need. Nothing is locked."""
    return {line for (line,) in await connection.fetch(_SQL["lines_of_heads"], lines, limit)}


async def lock_lines(connection: Connection, lines: Sequence[int]) -> list[Line]:
    return await _lock_lines.fetch(connection, lines)


async def pick_heads(connection: Connection, room: Mapping[int, int], lines: Sequence[Line]) -> list[Head]:
    """The first HELD runs of each line, at most as many as it has room. They are locked. `lines`: all that the caller
    has locked."""
    return await _pick_heads.fetch(connection, list(room), list(room.values()), *_seen(lines))


async def pick_firsts(connection: Connection, strict: Sequence[int], lines: Sequence[Line]) -> list[First]:
    """The first run of each of these strict lines."""
    return await _pick_firsts.fetch(connection, strict, *_seen(lines))


def _seen(lines: Sequence[Line]) -> tuple[list[int], list[datetime]]:
    return [line.key_id for line in lines], [line.changed_at for line in lines]


async def admit(
    connection: Connection, runs: Sequence[UUID], moves: Mapping[UUID, int], changes: Mapping[int, int]
) -> tuple[list[int], int, int]:
    """Admit runs, move others to another line, and count. Returns the lanes of the admitted runs, and how many runs
    were moved and how many lines were counted."""
    row = await connection.fetchrow(
        _SQL["admit"],
        sorted(runs),
        list(moves),
        list(moves.values()),
        sorted(changes),
        [changes[line] for line in sorted(changes)],
    )
    return row["lanes"] or [], row["moved"], row["counted"]


async def unstarted(connection: Connection, lines: Sequence[int], limit: int) -> dict[int, int]:
    """How many runs of each line have a token of its rate and have not started as far as known."""
    return dict(await connection.fetch(_SQL["unstarted"], lines, limit))


async def admit_once(
    connection: Connection, runs: Mapping[UUID, datetime], rates: Collection[int], breakers: Collection[int]
) -> list[tuple[int, float]]:
    """Admit runs with a rate or a breaker, each at its moment. Returns the lane of each, and the seconds until then."""
    ordered = sorted(runs)
    rows: list[tuple[int, float]] = await connection.fetch(
        _SQL["admit_once"], ordered, [runs[run] for run in ordered], list(rates), list(breakers)
    )
    return rows


async def pace_lines(connection: Connection, paced: Mapping[int, tuple[datetime | None, datetime | None]]) -> int:
    """Store `tat` and `next_at` of locked lines. Returns how many there were."""
    ordered = sorted(paced)
    return len(
        await connection.fetch(
            _SQL["pace_lines"], ordered, [paced[line][0] for line in ordered], [paced[line][1] for line in ordered]
        )
    )


async def set_breakers(connection: Connection, breakers: Mapping[int, Breaker]) -> int:
    """Store the state of breakers whose lines are locked. Returns how many there were."""
    ordered = sorted(breakers)
    states = [breakers[line] for line in ordered]
    return len(
        await connection.fetch(
            _SQL["set_breakers"],
            ordered,
            [state.failed for state in states],
            [state.opened_at for state in states],
            [state.next_at for state in states],
            [state.probe for state in states],
        )
    )


async def live_probes(connection: Connection, runs: Sequence[UUID]) -> set[UUID]:
    """Which of these runs are admitted and have not ended."""
    return {run for (run,) in await connection.fetch(_SQL["live_probes"], runs)}


async def due_lines(connection: Connection, limit: int) -> list[int]:
    """Lines whose `next_at` has come."""
    return [line for (line,) in await connection.fetch(_SQL["due_lines"], limit)]


async def open_breakers(connection: Connection, after: int, limit: int) -> list[int]:
    return [line for (line,) in await connection.fetch(_SQL["open_breakers"], after, limit)]


async def take_back(connection: Connection, line: int, limit: int) -> list[list[int]]:
    """Runs that wait for a worker, behind a breaker that has opened, are HELD again. Returns the slots of each."""
    return [slots for (slots,) in await connection.fetch(_SQL["take_back"], line, limit)]


async def hold_back(
    connection: Connection, items: Sequence[HoldBack], ended_at: datetime | None = None
) -> list[tuple[UUID, list[int]]]:
    """Return the runs that matched, and the slots that they give up. `ended_at`: the end of their attempts, or now."""
    ordered = sorted(items, key=lambda item: item.run_id)
    rows: list[tuple[UUID, list[int]]] = await connection.fetch(
        _SQL["hold_back"],
        [item.run_id for item in ordered],
        [item.fence for item in ordered],
        [item.delay for item in ordered],
        [item.error for item in ordered],
        [item.snoozed for item in ordered],
        [item.lost for item in ordered],
        [item.given_back for item in ordered],
        [item.alone or None for item in ordered],
        ended_at,
    )
    return rows


async def wake(connection: Connection, limit: int) -> list[int]:
    """Let runs whose backoff is over stand in their lines again. Returns the line of each."""
    return [line for (line,) in await connection.fetch(_SQL["wake"], limit)]


async def lines_with_room(connection: Connection, after: int, limit: int) -> tuple[list[int], int | None]:
    """Lines after `after` in which runs are HELD although there is room. Also the last line that was read; None if
    there are no more after it."""
    rows = await connection.fetch(_SQL["lines_with_room"], after, limit)
    return [line for line, room in rows if room], (max(line for line, _ in rows) if len(rows) == limit else None)


async def prune_limits(connection: Connection, seconds: float, limit: int) -> int:
    return len(await connection.fetch(_SQL["prune_limits"], seconds, limit))


async def prune_lines(connection: Connection, seconds: float, limit: int) -> int:
    return len(await connection.fetch(_SQL["prune_lines"], seconds, limit))


async def join_line(connection: Connection, run_ids: Sequence[UUID], line: int) -> None:
    """Live runs own or need a slot of another line. The caller has locked the runs and the line."""
    await connection.execute(_SQL["join_line"], run_ids, line)


async def leave_line(connection: Connection, tenant: TenantId, job_id: str, line: int) -> tuple[list[int], set[int]]:
    """HELD runs of the job no longer need a slot of the line. Returns the lanes of those that are QUEUED now, and the
    lines in which the others stand."""
    rows = await connection.fetch(_SQL["leave_line"], tenant, job_id, line)
    return [lane for lane, held in rows if held is None], {held for _, held in rows if held is not None}


async def lines_that_stand_still(connection: Connection, seconds: float, limit: int) -> list[int]:
    """Full lines in which runs wait, and in which nothing has changed for so long."""
    return [line for (line,) in await connection.fetch(_SQL["lines_that_stand_still"], seconds, limit)]


async def owned_slots(connection: Connection, lines: Sequence[int]) -> dict[int, int]:
    """How many runs own a slot of each of these lines. It scans the live runs."""
    return dict(await connection.fetch(_SQL["owned_slots"], lines))


async def correct(connection: Connection, slots: Mapping[int, int], audited: Sequence[int]) -> None:
    """Set the counts of lines. The caller has locked all `audited` ones."""
    await connection.execute(_SQL["correct_lines"], list(slots), list(slots.values()), audited)
