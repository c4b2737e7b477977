"""Admission: give slots to the heads of lines.

A transaction that ends a run with limits releases its slots and admits the next runs. A transaction that creates such a
run, or puts one back into a line, only admits: it wakes the line without releasing a slot. The caller has written its
runs before. All lines are locked in one statement, in the order of their ids. The next statement reads the runs in
them, because its snapshot is newer than the locks. It also says whether a limit was changed while the transaction
waited for the locks.

Whether a line is strict is a property of the limit, not of the runs: the order may have changed since they were
submitted. In a strict line no run is admitted before a run that was submitted earlier, even if the earlier one backs
off.

A run with several limits needs a slot in each of its lines, and owns none until it has all. It waits in one of them. If
another line is full, the run moves there. If another line is not locked here, the lines are in `again`: a later
transaction locks them together.

A line with a rate admits as many runs as there are tokens (paces.py). A line with a circuit breaker admits any number
or none (breakers.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.job import spec_to_show
from mainspring.domain.limits import key_id
from mainspring.domain.tags import changed_meanwhile
from mainspring.operations.lifecycle.dispatch import BREAKERS_CLOSED, BREAKERS_OPENED
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import BreakerClosed, BreakerOpened
from mainspring.operations.limits.breakers import NO_ATTEMPTS, Attempts, Breakers
from mainspring.operations.limits.paces import Paces
from mainspring.operations.signals import Signals
from mainspring.store import limit_declarations, limits
from mainspring.store.limits import Head, Line
from mainspring.store.pool import Connection

_MOST = 500  # runs that one line admits at a time
_PEEKED = 5  # runs of each line whose other lines are locked as well


class Admitted(msgspec.Struct):
    """What was admitted, and what follows.

    lanes    the runs that each lane got
    later    (lane, seconds until ready) of runs that may start a little later
    again    lines in which runs must be admitted again: sets that are locked together
    timers   the seconds after which runs must be admitted in a line
    open     the lines whose breaker is open
    effects  the effects of the handlers of opened breakers
    """

    lanes: Counter[int] = msgspec.field(default_factory=Counter)
    later: list[tuple[int, float]] = []
    again: list[frozenset[int]] = []
    timers: list[float] = []
    open: set[int] = set()
    effects: Effects | None = None

    def publish(self, signals: Signals) -> None:
        """After the commit: publish signals, now or when it is time."""
        for lane_id, delay in self.later:
            signals.ready.publish_later(delay, {lane_id: 1})
        if self.effects is not None:
            self.effects.publish(signals)
        for delay in self.timers:
            signals.admission.publish_later(delay, [frozenset()])


async def release_and_admit(
    connection: Connection,
    freed: Mapping[int, int],
    woken: Collection[int] = (),
    *,
    attempts: Attempts = NO_ATTEMPTS,
    several: bool = False,
) -> Admitted:
    """Release the `freed` slots of lines, and admit the runs at the heads of these and of the `woken` lines. `attempts`
    are the attempts that have ended in these lines. `several`: the runs that wait there probably have several limits,
    so their other lines are locked as well."""
    chosen = {*freed, *woken}
    if several:
        chosen |= await limits.lines_of_heads(connection, sorted(chosen), _PEEKED)
    while True:
        lines = await _locked(connection, sorted(chosen))
        paces = await Paces.of(connection, lines, freed)
        breakers = await Breakers.of(connection, lines, attempts)
        room = {line.key_id: _room(line, freed.get(line.key_id, 0), paces, breakers) for line in lines}
        # One more run of a line with a rate is read, to see whether a run waits for its next token.
        wanted = {
            key: min(most + (key in paces.lines), _MOST) for key, most in room.items() if most or key in paces.lines
        }
        heads, firsts = await _picked(connection, wanted, lines)
        if not any(head.changed for head in heads):
            break
    plan = _decide(heads, room, firsts)
    for key, number in wanted.items():
        if number == _MOST and plan.taken[key] == _MOST:
            plan.admitted.again.append(frozenset({key}))
    changes = {key: plan.taken[key] - freed.get(key, 0) for key in room}
    changes = {key: change for key, change in changes.items() if change}
    plain, once = _by_kind(plan, heads, paces, breakers)
    if plain or plan.moves or changes:
        lanes, moved, counted = await limits.admit(connection, plain, plan.moves, changes)
        _check((len(lanes), moved, counted), (len(plain), len(plan.moves), len(changes)))
        plan.admitted.lanes.update(lanes)
    if once:
        rows = await limits.admit_once(connection, once, paces.lines, breakers.states)
        _check(len(rows), len(once))
        plan.admitted.lanes.update(lane for lane, delay in rows if delay <= 0)
        plan.admitted.later += [(lane, delay) for lane, delay in rows if delay > 0]
    if paces.lines:
        await _store_paces(connection, lines, paces, plan, heads)
    if breakers.states:
        await _store_breakers(connection, breakers, plan.admitted)
    return plan.admitted


def _room(line: Line, freed: int, paces: Paces, breakers: Breakers) -> int:
    """How many runs the line may admit."""
    key = line.key_id
    if key in paces:
        return paces.lines[key].tokens if key in paces.lines else 0
    if key in breakers:
        most = breakers.room(key)
        return _MOST if most is None else most
    return _MOST if line.slots is None else max(0, line.slots - line.in_use + freed)


def _by_kind(
    plan: _Plan, heads: list[Head], paces: Paces, breakers: Breakers
) -> tuple[list[UUID], dict[UUID, datetime]]:
    """The runs to admit: those without a rate or a breaker, and the others with the time from which they may start."""
    if not paces.lines and not breakers.states:
        return plan.runs, {}
    plain: list[UUID] = []
    once: dict[UUID, datetime] = {}
    keys = {head.run_id: head.limit_keys for head in heads}
    for run_id in plan.runs:
        moment = paces.spend(keys[run_id])
        breakers.admitted(run_id, keys[run_id])
        if moment is None:
            moment = next((breakers.now[key] for key in keys[run_id] if key in breakers), None)
        if moment is None:
            plain.append(run_id)
        else:
            once[run_id] = moment
    return plain, once


async def _store_paces(connection: Connection, lines: list[Line], paces: Paces, plan: _Plan, heads: list[Head]) -> None:
    """Store the state of rates. `next_at` is set for a line without tokens in which a run waits."""
    admitted = set(plan.runs)
    left = {head.key_id for head in heads if head.run_id not in admitted} | set(plan.moves.values())
    waiting = {key for key, pace in paces.lines.items() if key in left and paces.spent[key] >= pace.tokens}
    before = {line.key_id: (line.tat, line.next_at) for line in lines}
    changed = {key: state for key, state in paces.states(waiting).items() if state != before[key]}
    if changed:
        _check(await limits.pace_lines(connection, changed), len(changed))
        plan.admitted.timers += [
            (next_at - paces.lines[key].now).total_seconds() for key, (_, next_at) in changed.items() if next_at
        ]


async def _store_breakers(connection: Connection, breakers: Breakers, admitted: Admitted) -> None:
    changed = breakers.changed()
    if changed:
        _check(await limits.set_breakers(connection, changed), len(changed))
        admitted.timers += [
            (state.next_at - breakers.now[key]).total_seconds() for key, state in changed.items() if state.next_at
        ]
        if opened := sorted(breakers.opened()):
            admitted.again += [frozenset({key}) for key in opened]
            admitted.effects = Effects()
            await BREAKERS_OPENED.happened(connection, [BreakerOpened(key) for key in opened], admitted.effects)
        if closed := sorted(breakers.closed()):
            admitted.effects = admitted.effects or Effects()
            await BREAKERS_CLOSED.happened(connection, [BreakerClosed(key) for key in closed], admitted.effects)
    admitted.open = breakers.open


def _check(written: object, wanted: object) -> None:
    if written != wanted:
        raise changed_meanwhile("runs")


class _Plan(msgspec.Struct):
    runs: list[UUID] = []
    moves: dict[UUID, int] = {}
    taken: Counter[int] = msgspec.field(default_factory=Counter)
    admitted: Admitted = msgspec.field(default_factory=Admitted)


async def _picked(
    connection: Connection, wanted: dict[int, int], lines: list[Line]
) -> tuple[list[Head], dict[int, UUID | None]]:
    """The heads of the lines, and the first run of each strict one."""
    strict = [line.key_id for line in lines if line.strict and line.key_id in wanted]
    loose = {key: most for key, most in wanted.items() if key not in strict}
    heads = await limits.pick_heads(connection, loose, lines) if loose else []
    if not strict:
        return heads, {}
    firsts = await limits.pick_firsts(connection, strict, lines)
    heads += [head for first in firsts if (head := first.head) is not None]
    return heads, {first.key_id: first.first_id for first in firsts}


def _decide(heads: list[Head], room: dict[int, int], firsts: dict[int, UUID | None]) -> _Plan:
    """Decide by rank. A run that needs a slot of a strict line must be the first of that line."""
    plan = _Plan()
    for head in sorted(heads, key=lambda head: (head.held_rank, head.run_id)):
        if firsts and any(firsts.get(key, head.run_id) != head.run_id for key in head.limit_keys):
            continue  # the transaction that holds the first run wakes the line, and so does the end of its backoff
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
    """Lock the lines. A line that does not exist is created if a run in one of the lines needs it."""
    found = await limits.lock_lines(connection, lines)
    if len(found) == len(lines):
        return found
    missing = sorted(set(lines) - {line.key_id for line in found})
    for _, tenant, text in await limits.specs_in_lines(connection, missing, lines):
        slots = [slot for slot in spec_to_show(text)[0].line or () if key_id(tenant, slot) in missing]
        await limit_declarations.restore(connection, tenant, slots)
    return await limits.lock_lines(connection, lines)
