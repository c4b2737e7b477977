"""The lines with a circuit breaker among locked lines: what the attempts that ended mean for them, and their probes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from uuid import UUID

import msgspec

from mainspring.domain.breakers import Breaker
from mainspring.store import limits
from mainspring.store.limits import Line
from mainspring.store.pool import Connection

# The attempts that have ended in each line: the run, and whether it succeeded.
Attempts = Mapping[int, Sequence[tuple[UUID, bool]]]
NO_ATTEMPTS: Attempts = MappingProxyType({})


class Breakers(msgspec.Struct):
    """`before`: as stored. `states`: as they are now."""

    before: dict[int, Breaker] = {}
    states: dict[int, Breaker] = {}
    now: dict[int, datetime] = {}

    @classmethod
    async def of(cls, connection: Connection, lines: Sequence[Line], attempts: Attempts) -> Breakers:
        """The caller has locked the lines, and has written the runs that have ended. A probe that was lost, cancelled
        or snoozed makes way for another one."""
        found = cls()
        for line in lines:
            if line.failures is None or line.open_for is None:
                continue
            key = line.key_id
            stored = Breaker(line.failed, line.opened_at, line.next_at, line.probe)
            found.before[key], found.now[key] = stored, line.now
            found.states[key] = stored.after(attempts.get(key, ()), line.now, line.failures, line.open_for)
        probes = [state.probe for state in found.states.values() if state.probe is not None]
        if probes:
            alive = await limits.live_probes(connection, probes)
            for key, state in found.states.items():
                if state.probe is not None and state.probe not in alive:
                    found.states[key] = state.without_probe()
        return found

    def __contains__(self, key: int) -> bool:
        return key in self.states

    def room(self, key: int) -> int | None:
        """How many runs the breaker of the line admits. None: any number."""
        state = self.states.get(key)
        return None if state is None else state.room(self.now[key])

    def admitted(self, run_id: UUID, keys: Collection[int]) -> None:
        """The run is the probe of those of its breakers that are open."""
        for key in keys:
            state = self.states.get(key)
            if state is not None and state.opened_at is not None:
                self.states[key] = state.probing(run_id)

    def changed(self) -> dict[int, Breaker]:
        """The states that are not stored yet. A breaker whose time is over waits for a probe."""
        for key, state in self.states.items():
            if state.next_at is not None and state.next_at <= self.now[key]:
                self.states[key] = state.probing(state.probe)
        return {key: state for key, state in self.states.items() if state != self.before[key]}

    @property
    def open(self) -> set[int]:
        return {key for key, state in self.states.items() if state.opened_at is not None}

    def closed(self) -> set[int]:
        """Those that were open."""
        return {key for key, state in self.states.items() if state.opened_at is None and self.before[key].opened_at}

    def opened(self) -> set[int]:
        """The breakers that were closed before."""
        return {key for key in self.open if self.before[key].opened_at is None}
