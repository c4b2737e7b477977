"""Exchanges that arrive together, written in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store import arrays
from mainspring.store.claimed_runs import ClaimedRun
from mainspring.store.pool import Connection
from mainspring.store.queries import load

_SQL = load("exchange_groups")
_OF_MEMBERS = 6  # columns of the result before those of a claimed run

LaneHead = tuple[int, int, datetime]  # lane, priority, lower bound of ready_at


class Success(msgspec.Struct, frozen=True, gc=False):
    """A plain success. `result` and `usage` are JSON."""

    run_id: UUID
    fence: int
    held_ms: float
    ran_ms: float
    result: str | None
    usage: str | None


class GroupMember(msgspec.Struct, frozen=True):
    """One exchange of a group. `again`: it has taken its number before. `most`: how many runs it takes. `lane_set`: the
    place of its lanes among those of the group."""

    worker_id: UUID
    tenant: TenantId
    seq: int
    again: bool
    most: int
    lane_set: int
    successes: Sequence[Success]


class MemberResult(msgspec.Struct):
    """What became of a member whose number was taken. `complete`: all its successes are recorded. `gates_known`: the
    gates have the revision of the group; otherwise no runs were claimed."""

    state: int
    complete: bool
    gates_known: bool
    claimed: list[ClaimedRun] = []


async def exchange_together(
    connection: Connection, members: Sequence[GroupMember], lane_sets: Sequence[Sequence[LaneHead]], revision: int
) -> list[MemberResult | None]:
    """What became of each member; None: nothing was written for it. No two members are of one worker. `revision`: that
    of the gates by which the lanes were chosen. Raises RuntimeError if the counts of what was written differ."""
    successes = [(number, one) for number, member in enumerate(members, 1) for one in member.successes]
    heads = [(place, *head) for place, lanes in enumerate(lane_sets) for head in lanes]
    results = [one.result for _, one in successes]
    usages = [one.usage for _, one in successes]
    rows = await connection.fetch(
        _SQL["exchange_together"],
        arrays.of_uuids(member.worker_id for member in members),
        [member.tenant for member in members],
        [member.seq for member in members],
        [member.again for member in members],
        [member.most for member in members],
        [member.lane_set for member in members],
        arrays.of_uuids(one.run_id for _, one in successes),
        arrays.of_ints(one.fence for _, one in successes),
        arrays.of_ints(number for number, _ in successes),
        [one.held_ms for _, one in successes],
        [one.ran_ms for _, one in successes],
        results if any(results) else (),
        usages if any(usages) else (),
        revision,
        [head[0] for head in heads],
        [head[1] for head in heads],
        [head[3] for head in heads],
        [head[2] for head in heads],
    )
    found: list[MemberResult | None] = [None] * len(members)
    for row in rows:
        if row[1] is not None:
            found[row[0] - 1] = MemberResult(row[1], row[2], row[3] == revision)
        else:
            passed = found[row[0] - 1]
            assert passed is not None
            passed.claimed.append(ClaimedRun(*row[_OF_MEMBERS:]))
    if rows:
        _check_counts(members, found, advanced=rows[0][4], recorded=rows[0][5])
    return found


def _check_counts(
    members: Sequence[GroupMember], found: Sequence[MemberResult | None], *, advanced: int, recorded: int
) -> None:
    passed = [(member, one) for member, one in zip(members, found, strict=True) if one is not None]
    least = len({success.run_id for member, one in passed if one.complete for success in member.successes})
    if advanced != len(passed) or recorded < least:
        raise RuntimeError(f"{len(passed)} exchanges passed and {advanced} took their number; {recorded} runs ended")
