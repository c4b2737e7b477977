"""Due jobs that wait for their fire. When thousands are due in one second, this decides which of them fire first.

The order is that of the claim. Critical jobs are first. The others are ordered by due time, and each level of priority
counts like five minutes of waiting, so that nobody waits for ever. Of jobs that are due at the same time, tenants take
turns. If critical jobs fill whole batches, a fifth of each batch is left to the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

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
        self._added = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[DueJob]:
        return (entry[3] for entries in self._waiting.values() for entry in entries)

    def at_least(self, priority: Priority) -> int:
        """How many jobs of this priority or a higher one wait."""
        return sum(len(entries) for level, entries in self._waiting.items() if level >= priority)

    def add(self, due: Iterable[DueJob]) -> None:
        turns: dict[tuple[TenantId, Priority, datetime], int] = {}
        new: dict[Priority, list[_Entry]] = {}
        for job in due:
            priority = self._priority_of(job.lane_id)
            kind = (job.tenant_id, priority, job.next_fire_at)
            turns[kind] = turn = turns.get(kind, 0) + 1
            self._added += 1
            new.setdefault(priority, []).append((job.next_fire_at, turn, self._added, job))
        for priority, entries in new.items():
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
