"""Which run stands for a step of a workflow run: its first one, or that of the last rerun with the step."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from mainspring.domain.workflows.flow import run_in


class Numbers:
    """The numbers of the step runs. Each rerun is the number of its first run, and the places of its steps in order."""

    def __init__(self, prefix: UUID, steps: int, reruns: Sequence[tuple[int, Sequence[int]]] = ()) -> None:
        self._prefix = prefix
        self._steps = steps
        self._latest: dict[int, tuple[int, int]] = {}
        self.replaced: list[UUID] = []
        self._firsts = [first for first, _ in reruns]
        self.ranges: list[tuple[UUID, UUID]] = [(run_in(prefix, 0), run_in(prefix, steps - 1))]
        for rerun, (first, places) in enumerate(reruns, 1):
            for offset, place in enumerate(places):
                self.replaced.append(run_in(prefix, self.of(place)[0]))
                self._latest[place] = (first + offset, rerun)
            self.ranges.append((run_in(prefix, first), run_in(prefix, first + len(places) - 1)))

    def of(self, place: int) -> tuple[int, int]:
        """The number of the latest run of a step, and the rerun that it belongs to: 0 for none."""
        return self._latest.get(place, (place, 0))

    def rerun_of(self, number: int) -> int:
        """The rerun in which a run with this number, also that of a member, was created: 0 for none."""
        return sum(first <= number for first in self._firsts)

    def run_id(self, place: int) -> UUID:
        return run_in(self._prefix, self.of(place)[0])
