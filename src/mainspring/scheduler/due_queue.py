"""Due jobs that wait for their fire. When thousands are due in one second, this decides which of them fire first.

The order is that of the claim. Critical jobs are first. The others are ordered by due time, and each level of priority
counts like five minutes of waiting, so that no job waits for ever. Of jobs that are due at the same time, tenants take
turns. If critical jobs fill whole batches, a fifth of each batch is left to the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import count, repeat

from mainspring.domain.fairness import AGING_STEP
from mainspring.domain.job import Priority
from mainspring.kernel.ids import TenantId
from mainspring.store.fires import DueJob

_LEFT_TO_OTHERS = 5  # one in so many jobs of a batch
_LEVELS = (Priority.HIGH, Priority.NORMAL, Priority.LOW)

# Due time, turn of its tenant, and a number that makes the entry unique, so that jobs are never compared.
_Entry = tuple[datetime, int, int, DueJob]


class DueQueue:
    """`priority_of` tells the priority of a lane."""

    def __init__(self, priority_of: Callable[[int], Priority]) -> None:
        self._priority_of = priority_of
        self._waiting: dict[Priority, deque[_Entry]] = {priority: deque() for priority in Priority}
        self._numbers = count()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[DueJob]:
        return (entry[3] for entries in self._waiting.values() for entry in entries)

    def at_least(self, priority: Priority) -> int:
        """How many jobs of this priority or a higher one wait."""
        return sum(len(entries) for level, entries in self._waiting.items() if level >= priority)

    def add(self, due: Sequence[DueJob]) -> None:
        """Takes 60 ms for 100,000 jobs of one tenant, during which nothing fires."""
        levels: dict[Priority, set[int]] = {}
        for lane_id in {job.lane_id for job in due}:
            levels.setdefault(self._priority_of(lane_id), set()).add(lane_id)
        for priority, lane_ids in levels.items():
            jobs = due if len(levels) == 1 else [job for job in due if job.lane_id in lane_ids]
            entries = list(zip([job.next_fire_at for job in jobs], _turns(jobs), self._numbers, jobs, strict=False))
            entries.sort()
            waiting = self._waiting[priority]
            if waiting and entries[0] < waiting[-1]:
                self._waiting[priority] = deque(sorted([*waiting, *entries]))
            else:
                waiting.extend(entries)

    def take(self, most: int) -> list[DueJob]:
        """Remove and return the jobs that fire next."""
        critical = self._waiting[Priority.CRITICAL]
        others = sum(len(self._waiting[level]) for level in _LEVELS)
        first = min(len(critical), most - min(others, most // _LEFT_TO_OTHERS))
        taken = [critical.popleft()[3] for _ in range(first)]
        taken += [self._next_other() for _ in range(min(others, most - first))]
        return taken

    def clear(self) -> None:
        for entries in self._waiting.values():
            entries.clear()

    def _next_other(self) -> DueJob:
        heads = [(waiting[0][0] - level * AGING_STEP, -level) for level in _LEVELS if (waiting := self._waiting[level])]
        return self._waiting[Priority(-min(heads)[1])].popleft()[3]


def _turns(jobs: Sequence[DueJob]) -> Iterable[int]:
    """The position of each job among the jobs of its tenant that are due at the same time."""
    if len({job.tenant_id for job in jobs}) <= 1:
        return repeat(0)
    seen: dict[tuple[TenantId, datetime], int] = {}
    turns = []
    for job in jobs:
        kind = (job.tenant_id, job.next_fire_at)
        seen[kind] = turn = seen.get(kind, 0) + 1
        turns.append(turn)
    return turns
