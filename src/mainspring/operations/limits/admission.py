"""Admission: give slots to the heads of lines.

Whoever ends a run with limits hands its slots over in the same transaction. Whoever creates one, or lets one stand in a
line again, lets the line admit it (a knock: no slot is given back). The caller has written its runs before. All lines
are locked in one statement, in the order of their ids. The next statement looks at who stands in them, because its
snapshot is newer than the locks.

A run with several limits needs a slot in each of its lines, and owns none until it has all. It stands in one of them.
If another one is full it moves there. If another one is not locked here, its lines are locked together later: they are
in `again`, for a transaction of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from uuid import UUID

import msgspec

from mainspring.domain.errors import Conflict
from mainspring.domain.job import spec_from_text
from mainspring.domain.limits import key_id
from mainspring.store import limits
from mainspring.store.limits import Head, Line
from mainspring.store.pool import Connection

_MOST = 500  # runs that one line admits at a time
_PEEKED = 5  # runs of each line whose other lines are locked as well


class Admitted(msgspec.Struct):
    """The runs that each lane got, and lines that must be looked at again: sets that are locked together."""

    lanes: Counter[int] = msgspec.field(default_factory=Counter)
    again: list[frozenset[int]] = []


async def hand_over(
    connection: Connection, freed: Mapping[int, int], knocked: Collection[int] = (), *, several: bool = False
) -> Admitted:
    """Take back the `freed` slots of lines, and admit the runs at the heads of these and of the `knocked` lines.
    `several`: those who wait there probably have several limits, so their other lines are locked as well."""
    chosen = {*freed, *knocked}
    if several:
        chosen |= await limits.lines_of_heads(connection, sorted(chosen), _PEEKED)
    lines = await _locked(connection, sorted(chosen))
    room = {
        line.key_id: _MOST if line.slots is None else max(0, line.slots - line.in_use + freed.get(line.key_id, 0))
        for line in lines
    }
    strict = {line.key_id for line in lines if line.strict}
    heads: list[Head] = []
    if wanted := {key: min(room[key], _MOST) for key in room if room[key] > 0}:
        heads = await limits.pick_heads(connection, wanted)
    plan = _decide(heads, room, strict)
    for key, number in wanted.items():
        if number == _MOST and plan.taken[key] == _MOST:
            plan.admitted.again.append(frozenset({key}))
    changes = {key: plan.taken[key] - freed.get(key, 0) for key in room}
    changes = {key: change for key, change in changes.items() if change}
    if plan.runs or plan.moves or changes:
        lanes, moved, counted = await limits.admit(connection, plan.runs, plan.moves, changes)
        if (len(lanes), moved, counted) != (len(plan.runs), len(plan.moves), len(changes)):
            raise Conflict("runs changed meanwhile", code="changed_meanwhile", hint="try again")
        plan.admitted.lanes.update(lanes)
    return plan.admitted


class _Plan(msgspec.Struct):
    runs: list[UUID] = []
    moves: dict[UUID, int] = {}
    taken: Counter[int] = msgspec.field(default_factory=Counter)
    admitted: Admitted = msgspec.field(default_factory=Admitted)


def _decide(heads: list[Head], room: dict[int, int], strict: set[int]) -> _Plan:
    """By rank. A head of a strict line must be the first of all."""
    plan = _Plan()
    for head in sorted(heads, key=lambda head: (head.held_rank, head.run_id)):
        if head.key_id in strict and not head.first:
            continue  # whoever holds the first one knocks when it is done
        if any(key not in room for key in head.limit_keys):
            plan.admitted.again.append(frozenset(head.limit_keys))
            continue
        full = next((key for key in head.limit_keys if plan.taken[key] >= room[key]), None)
        if full is None:
            plan.runs.append(head.run_id)
            plan.taken.update(head.limit_keys)
        elif full != head.key_id:
            plan.moves[head.run_id] = full
            plan.admitted.again.append(frozenset({head.key_id}))
    return plan


async def _locked(connection: Connection, lines: list[int]) -> list[Line]:
    """Lock the lines. One that does not exist is opened, if a run stands in it."""
    found = await limits.lock_lines(connection, lines)
    if len(found) == len(lines):
        return found
    missing = sorted(set(lines) - {line.key_id for line in found})
    for _, tenant, text in await limits.specs_in_lines(connection, missing):
        slots = [slot for slot in spec_from_text(text).line or () if key_id(tenant, slot) in missing]
        await limits.open_lines(connection, tenant, slots)
    return await limits.lock_lines(connection, lines)
