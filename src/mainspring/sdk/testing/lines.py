"""The limits of a box: which runs own slots, and which are HELD. The rules are those of a server."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from mainspring.domain.breakers import Breaker
from mainspring.domain.intake.limits import strict_order
from mainspring.domain.job import ONE_AFTER_ANOTHER, JobDefinition, Overlap, boost_in, line_of
from mainspring.domain.limits import Slot, overlap_slot, read_name
from mainspring.domain.pacing import Pace
from mainspring.domain.rates import format_rate
from mainspring.domain.transitions import RunState
from mainspring.sdk.testing.records import BoxJob, BoxRun

LineId = tuple[str, str]


@dataclass(slots=True)
class BoxLimit:
    """A limit: what counts, what was declared last, and whether a person has set it."""

    limit_id: int
    name: str
    slots: int | None
    declared: int | None
    strict: bool
    updated_at: datetime
    pinned: bool = False
    every: float | None = None
    burst: int = 1
    failures: int | None = None
    open_for: float = 0.0

    def follow(self, slot: Slot) -> None:
        """What jobs declare about a rate or a circuit breaker."""
        self.every, self.burst = slot.every, slot.burst or 1
        self.failures, self.open_for = slot.failures, slot.open_for or 0.0


@dataclass(slots=True)
class BoxLine:
    """The runs that own a slot of a line, those that stand in it, by rank, and those that back off without a slot.
    tat: of its rate."""

    owners: list[BoxRun] = field(default_factory=list)
    held: list[tuple[datetime, int, BoxRun]] = field(default_factory=list)
    asleep: list[BoxRun] = field(default_factory=list)
    tat: datetime | None = None
    breaker: Breaker = field(default_factory=Breaker)

    @property
    def first(self) -> BoxRun:
        """Who was submitted first, of those that wait. Ids rise."""
        return min([*(entry[2] for entry in self.held), *self.asleep], key=lambda run: run.run_id)


class BoxLines:
    """`admitted` is called for each run that gets its slots. `now` is the clock of the box."""

    def __init__(self, admitted: Callable[[BoxRun], None], now: Callable[[], datetime]) -> None:
        self.limits: dict[str, BoxLimit] = {}
        self.lines: dict[LineId, BoxLine] = {}
        self._admitted = admitted
        self._now = now
        self._count = 0

    def check(self, slots: Iterable[Slot]) -> None:
        """Raise Conflict if a slot contradicts the strict order of a limit that jobs share."""
        strict = {name for name, limit in self.limits.items() if limit.strict}
        if loose := {slot.name for slot in slots if not slot.strict and not slot.of_job and slot.name in strict}:
            raise strict_order(loose)

    def restore(self, slots: Iterable[Slot], now: datetime) -> None:
        """Open the lines that a run needs. A limit that exists stays as it is."""
        slots = list(slots)
        self.declare([slot for slot in slots if slot.name not in self.limits], now)
        for slot in slots:
            self.lines.setdefault((slot.name, slot.key), BoxLine())

    def declare(self, slots: Iterable[Slot], now: datetime) -> None:
        """Store what a job declares. What a person has set stays, unless the order becomes strict."""
        for slot in slots:
            limit = self.limits.get(slot.name)
            if limit is None:
                limit_id = len(self.limits) + 1
                self.limits[slot.name] = BoxLimit(limit_id, slot.name, slot.slots, slot.slots, slot.strict, now)
            elif (limit.declared, limit.strict) != (slot.slots, slot.strict):
                limit.declared, limit.strict, limit.updated_at = slot.slots, slot.strict, now
                limit.pinned = limit.pinned and not slot.strict
                limit.slots = limit.slots if limit.pinned else limit.declared
            self.limits[slot.name].follow(slot)
            self.lines.setdefault((slot.name, slot.key), BoxLine())

    def set(self, limit: BoxLimit, slots: int | None, now: datetime) -> None:
        """None: back to what is declared."""
        limit.slots, limit.pinned, limit.updated_at = slots or limit.declared, slots is not None, now
        self.admit(self.of(limit.name))

    def of(self, name: str) -> list[LineId]:
        return [line for line in self.lines if line[0] == name]

    def stand(self, run: BoxRun, since: datetime) -> None:
        """The run is HELD, until all of its lines have room."""
        self._count += 1
        run.status = RunState.HELD
        boost = timedelta(seconds=boost_in(run.line, run.definition.priority) or 0)
        entry = (since - boost, self._count, run)
        for slot in run.line:
            line = self.lines[slot.name, slot.key]
            line.asleep = [one for one in line.asleep if one is not run]
            bisect.insort(line.held, entry, key=lambda one: one[:2])
        self.admit(_ids(run.line))
        if run.status is RunState.HELD:
            run.reason = self.why(run)

    def give_up(self, run: BoxRun, *, backs_off: bool = False) -> None:
        """The run owns no slot and stands in no line any more. The next ones get its slots. If it backs off it keeps
        its place in strict lines."""
        for slot in run.line:
            line = self.lines[slot.name, slot.key]
            if run.owns:
                line.owners.remove(run)
                if line.breaker.probe == UUID(run.run_id):
                    line.breaker = line.breaker.without_probe()
            else:
                line.held = [entry for entry in line.held if entry[2] is not run]
            line.asleep = [one for one in line.asleep if one is not run] + [run] * backs_off
        run.owns = False
        self.admit(_ids(run.line))

    def attempt_ended(self, run: BoxRun, *, succeeded: bool) -> None:
        """Circuit breakers count it."""
        for slot in run.line:
            limit, line = self.limits[slot.name], self.lines[slot.name, slot.key]
            if limit.failures is not None:
                attempt = (UUID(run.run_id), succeeded)
                line.breaker = line.breaker.after([attempt], self._now(), limit.failures, limit.open_for)
                if line.breaker.opened_at is not None and not succeeded:
                    self._take_back(line)

    def reset(self, name: str) -> None:
        """Close the circuit breaker with this name."""
        for line_id in self.of(name):
            self.lines[line_id].breaker = Breaker()
        self.admit(self.of(name))

    def next_moment(self) -> datetime | None:
        """When somebody who is HELD may start, because of a rate or a circuit breaker."""
        now = self._now()
        moments = [self._moment(line_id) for line_id, line in self.lines.items() if line.held]
        return min((moment for moment in moments if moment is not None and moment > now), default=None)

    def join(self, run: BoxRun, slot: Slot) -> None:
        """A live run needs another slot. One that runs or is about to owns it at once."""
        if slot.name in [one.name for one in run.line]:
            return
        held = run.status is RunState.HELD
        if held:
            entry = next(one for one in self.lines[run.line[0].name, run.line[0].key].held if one[2] is run)
            bisect.insort(self.lines[slot.name, slot.key].held, entry, key=lambda one: one[:2])
        elif run.owns or not run.line:
            self.lines[slot.name, slot.key].owners.append(run)
            run.owns = True
        else:
            self.lines[slot.name, slot.key].asleep.append(run)
        run.line = [*run.line, slot]

    def leave(self, run: BoxRun, slot: Slot) -> None:
        """A run that is HELD or backs off without slots needs this one no longer."""
        if run.owns or slot.name not in [one.name for one in run.line]:
            return
        line = self.lines[slot.name, slot.key]
        line.held = [entry for entry in line.held if entry[2] is not run]
        line.asleep = [one for one in line.asleep if one is not run]
        run.line = [one for one in run.line if one.name != slot.name]
        if run.status is RunState.HELD and not run.line:
            self._admitted(run)
        self.admit(_ids(run.line))

    def change_rule(self, job: BoxJob, stored: JobDefinition) -> None:
        """The live runs of the job follow its new overlap rule, and the end of its circuit breaker."""
        before, rule, slot = stored.overlap, job.definition.overlap, overlap_slot(job.job_id)
        live = [run for run in job.runs if run.live]
        if stored.spec.circuit_breaker is not None and job.definition.spec.circuit_breaker is None:
            for breaker in [one for one in line_of(stored, job.job_id) if one.failures is not None]:
                for run in live:
                    self.leave(run, breaker)
        live = [run for run in live if run.backfill_id is None]
        if rule in ONE_AFTER_ANOTHER and before not in ONE_AFTER_ANOTHER:
            for run in live:
                self.join(run, slot)
        elif before in ONE_AFTER_ANOTHER and rule is Overlap.ALLOW:
            for run in live:
                self.leave(run, slot)

    def admit(self, lines: Iterable[LineId]) -> None:
        """Give slots to those at the front, by rank. In a strict line nobody passes one that was submitted before."""
        for line_id in lines:
            for entry in list(self.lines[line_id].held):
                run = entry[2]
                if not self._room(line_id):
                    break
                if self._may_start(entry):
                    self._take(run)
                    self._admitted(run)

    def why(self, run: BoxRun) -> str:
        """What a HELD run waits for."""
        full = next((slot for slot in run.line if not self._room((slot.name, slot.key))), run.line[0])
        name, limit = read_name(full.name), self.limits[full.name]
        if limit.strict and (first := self.lines[full.name, full.key].first).status is RunState.SCHEDULED:
            order = "overlap" if name.kind == "overlap" else f"strict order of {name.in_words(full.key)}"
            return f"waiting for run {first.run_id}, which is before it and cannot start yet ({order})"
        if name.kind == "overlap":
            return "waiting for an earlier run of its job to end (overlap)"
        line = self.lines[full.name, full.key]
        if limit.failures is not None:
            failed = line.breaker.failed
            return f"the circuit breaker of {name.kind} {name.of} is open after {failed} failures in a row"
        if limit.every is not None:
            return f"waiting for its turn under the rate of {name.in_words(full.key)}: {format_rate(limit.every)}"
        use = len(line.owners)
        return f"waiting for room in the limit of {name.in_words(full.key)}: {use} of {limit.slots} in use"

    def _room(self, line: LineId) -> bool:
        limit = self.limits[line[0]]
        if limit.every is not None or limit.failures is not None:
            moment = self._moment(line)
            return moment is not None and moment <= self._now()
        return limit.slots is None or len(self.lines[line].owners) < limit.slots

    def _moment(self, line_id: LineId) -> datetime | None:
        """When the rate or the circuit breaker of a line admits the next run. None: not before another run has ended,
        or if it has neither."""
        limit, line, now = self.limits[line_id[0]], self.lines[line_id], self._now()
        if limit.every is not None:
            return self._pace(limit, line).moment(1)
        if limit.failures is None or line.breaker.probe is not None:
            return None
        return line.breaker.next_at or now

    def _pace(self, limit: BoxLimit, line: BoxLine) -> Pace:
        return Pace(self._now(), limit.every or 0.0, limit.burst, line.tat, 0)

    def _take_back(self, line: BoxLine) -> None:
        """Runs that wait for a worker stand in the line of an open breaker again."""
        for run in [one for one in line.owners if one.status is RunState.QUEUED]:
            since, run.ready_at = run.ready_at or self._now(), None
            self.give_up(run)
            self.stand(run, since)

    def _may_start(self, entry: tuple[datetime, int, BoxRun]) -> bool:
        """Whether all of its lines have room, and it is the first in those that are strict."""
        for line in _ids(entry[2].line):
            if not self._room(line) or (self.limits[line[0]].strict and self.lines[line].first is not entry[2]):
                return False
        return True

    def _take(self, run: BoxRun) -> None:
        for line in _ids(run.line):
            found = self.lines[line]
            found.held = [entry for entry in found.held if entry[2] is not run]
            found.owners.append(run)
            limit = self.limits[line[0]]
            if limit.every is not None:
                found.tat = self._pace(limit, found).tat_after(1)
            if found.breaker.opened_at is not None:
                found.breaker = found.breaker.probing(UUID(run.run_id))
        run.owns = True


def stands_again(run: BoxRun) -> bool:
    """Whether each attempt needs its slots anew, because of a rate or a circuit breaker."""
    return any(slot.once for slot in run.line)


def _ids(slots: Iterable[Slot]) -> list[LineId]:
    return [(slot.name, slot.key) for slot in slots]


def with_overlap(definition: JobDefinition, rule: JobDefinition) -> JobDefinition:
    """`definition` with the overlap rule of its job as it is now."""
    return msgspec.structs.replace(definition, overlap=rule.overlap)
