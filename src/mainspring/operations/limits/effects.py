"""Effects on limits: the lines in which runs may be admitted, and the gates that were given back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

import msgspec

from mainspring.domain.limits import is_gate
from mainspring.operations.lifecycle.effects import Effects, Part
from mainspring.operations.lifecycle.events import RunsCreated, SlotsReleased
from mainspring.operations.limits.admission import Admitted, release_and_admit
from mainspring.operations.signals import Signals
from mainspring.store import gates
from mainspring.store.pool import Connection

_AT_ONCE = 100  # lines that one transaction locks at most


class LimitEffects(Part):
    """`wakes`: the lines to wake after the commit, as sets that are locked together. `delays`: the seconds after which
    a line must be woken. `gates`: the gates that were given back, and how often."""

    wakes: set[frozenset[int]] = msgspec.field(default_factory=set)
    delays: list[float] = msgspec.field(default_factory=list)
    gates: dict[int, int] = msgspec.field(default_factory=dict)

    def wake(self, lines: Iterable[int]) -> None:
        """Wake each of these lines after the commit."""
        self.wakes.update(frozenset({line}) for line in lines)

    def take_gates(self) -> dict[int, int]:
        """The caller publishes them itself."""
        taken, self.gates = self.gates, {}
        return taken

    def merge(self, other: Self, /) -> None:
        self.wakes |= other.wakes
        self.delays += other.delays
        for gate_id, number in other.gates.items():
            self.gates[gate_id] = self.gates.get(gate_id, 0) + number

    def publish(self, signals: Signals, /) -> None:
        signals.admission.publish(self.wakes)
        for delay in self.delays:
            signals.admission.publish_later(delay, [frozenset()])
        signals.gates_freed.publish(self.gates)


def note_admitted(effects: Effects, done: Admitted) -> None:
    """Add the effects of an admission to those of the transaction."""
    effects.ready.update(done.lanes)
    effects.requeued += done.later
    if done.effects is not None:
        effects.merge(done.effects)
    part = effects.of(LimitEffects)
    part.delays += done.timers
    part.wakes.update(done.again)


async def admit_woken(connection: Connection, effects: Effects) -> None:
    """Admit runs in the woken lines now, before the commit, instead of after it. At most 100 lines are processed; the
    others are woken after the commit."""
    if LimitEffects not in effects.parts:
        return
    wakes = effects.of(LimitEffects).wakes
    single = sorted(line for group in wakes if len(group) == 1 for line in group)[:_AT_ONCE]
    if single:
        wakes.difference_update(frozenset({line}) for line in single)
        note_admitted(effects, await release_and_admit(connection, {}, single, several=True))


class ReleasedSlots:
    """Runs have given back slots: the heads of the lines get them, and gates are given back."""

    def wants(self, _: SlotsReleased, /) -> bool:
        return True

    async def handle(self, connection: Connection, events: Sequence[SlotsReleased], effects: Effects, /) -> None:
        for released in events:
            part = effects.of(LimitEffects)
            part.wake(released.left)
            part.delays += released.delays
            freed = {line: count for line, count in released.slots.items() if not is_gate(line)}
            if freed:
                done = await release_and_admit(connection, freed, attempts=released.attempts, several=released.several)
                note_admitted(effects, done)
            for gate_id, number in (await gates.give_back(connection, released.slots)).items():
                part.gates[gate_id] = part.gates.get(gate_id, 0) + number


class HeldRunsCreated:
    """Runs were created that are HELD: their lines are woken after the commit."""

    def wants(self, event: RunsCreated, /) -> bool:
        return bool(event.held_in)

    async def handle(self, _: Connection, events: Sequence[RunsCreated], effects: Effects, /) -> None:
        for event in events:
            effects.of(LimitEffects).wake(event.held_in)
