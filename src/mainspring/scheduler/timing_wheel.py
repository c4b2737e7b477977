"""A hierarchical timing wheel: add, cancel and tick take constant time, whatever the number of jobs.

Level 0 has 1024 slots of one tick. Each slot of a higher level covers a full turn of the level below and is emptied
into it when its turn begins. A key is never returned before its due time, and at most one tick after it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_BITS = 10  # a turn of level 0 takes 4 s: what the due-scan loads is never moved to a lower level
_SLOTS = 1 << _BITS
_MASK = _SLOTS - 1
_LEVELS = 4


class TimingWheel(Generic[K, V]):
    """Keys and values by due time. Times are seconds of any monotonic clock, such as the database's."""

    def __init__(self, now: float, tick: float = 0.004) -> None:
        self._tick = tick
        self._current = math.floor(now / tick)
        self._levels: list[list[dict[K, int]]] = [[{} for _ in range(_SLOTS)] for _ in range(_LEVELS)]
        self._entries: dict[K, tuple[V, int, dict[K, int]]] = {}
        self._overdue: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def add(self, key: K, value: V, due: float) -> None:
        """Add `key`, or move it if it is present, to be returned at `due`."""
        self.cancel(key)
        self._place(key, value, math.ceil(due / self._tick))

    def cancel(self, key: K) -> bool:
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        del entry[2][key]
        return True

    def advance(self, now: float) -> list[V]:
        """Remove and return everything that is due at `now`, in the order of the due times."""
        target = math.floor(now / self._tick)
        due: list[tuple[int, V]] = []
        self._take(self._overdue, due)
        while self._current < target:
            if not self._entries:
                self._current = target
                break
            self._current += 1
            self._cascade()
            slot = self._levels[0][self._current & _MASK]
            if slot:
                self._take(slot, due)
        due.sort(key=lambda item: item[0])
        return [value for _, value in due]

    def wait(self, now: float, longest: float) -> float:
        """Seconds until something can be due, at most `longest`."""
        if self._overdue:
            return 0.0
        level = self._levels[0]
        # Counted from the tick of the last advance, which can be before `now`. A full turn always contains its end.
        reach = min(math.ceil((now + longest) / self._tick) - self._current, _SLOTS)
        for ahead in range(1, reach + 1):
            tick = self._current + ahead
            if level[tick & _MASK] or tick & _MASK == 0:  # at the end of a turn a higher level can be emptied
                return max(0.0, min(longest, tick * self._tick - now))
        return longest

    def _place(self, key: K, value: V, tick: int) -> None:
        ahead = tick - self._current
        if ahead <= 0:
            slot = self._overdue
        else:
            level = 0
            while level < _LEVELS - 1 and ahead >= _SLOTS << (_BITS * level):
                level += 1
            reach = min(tick, self._current + (_SLOTS << (_BITS * level)) - 1)
            slot = self._levels[level][(reach >> (_BITS * level)) & _MASK]
        slot[key] = tick
        self._entries[key] = (value, tick, slot)

    def _cascade(self) -> None:
        """At the end of a level's turn, empty the next slot of the level above into the lower levels."""
        for level in range(1, _LEVELS):
            if self._current & ((1 << (_BITS * level)) - 1):
                return
            slot = self._levels[level][(self._current >> (_BITS * level)) & _MASK]
            for key, tick in list(slot.items()):
                value = self._entries[key][0]
                del slot[key]
                if tick <= self._current:
                    self._levels[0][self._current & _MASK][key] = tick
                    self._entries[key] = (value, tick, self._levels[0][self._current & _MASK])
                else:
                    self._place(key, value, tick)

    def _take(self, slot: dict[K, int], due: list[tuple[int, V]]) -> None:
        for key, tick in slot.items():
            due.append((tick, self._entries.pop(key)[0]))
        slot.clear()
