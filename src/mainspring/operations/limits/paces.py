"""The lines with a rate among locked lines: how many runs each admits, and when these may start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from mainspring.domain.pacing import Pace, looked_at_later, most_unstarted
from mainspring.store import limits
from mainspring.store.limits import Line
from mainspring.store.pool import Connection


class Paces(msgspec.Struct):
    """`pending`: lines that say themselves when to look again; they admit no run before."""

    lines: dict[int, Pace] = {}
    pending: set[int] = set()
    spent: Counter[int] = msgspec.field(default_factory=Counter)

    @classmethod
    async def of(cls, connection: Connection, lines: Sequence[Line], freed: Mapping[int, int]) -> Paces:
        """The caller has locked the lines. A line that is to be checked later is checked now if a run has ended:
        that one has started."""
        paces = cls()
        now: dict[int, tuple[Line, float, int]] = {}
        for line in lines:
            if line.every is None or line.burst is None:
                continue
            if line.key_id not in freed and looked_at_later(line.now, line.next_at, line.every):
                paces.pending.add(line.key_id)
            else:
                now[line.key_id] = (line, line.every, line.burst)
        if now:
            most = max(most_unstarted(every, burst) for _, every, burst in now.values())
            counts = await limits.unstarted(connection, list(now), most)
            for key, (line, every, burst) in now.items():
                paces.lines[key] = Pace(line.now, every, burst, line.tat, counts[key])
        return paces

    def __contains__(self, key: int) -> bool:
        return key in self.lines or key in self.pending

    def spend(self, keys: Collection[int]) -> datetime | None:
        """A run gets a token of each of its lines with a rate. Returns when it may start."""
        moments = []
        for key in keys:
            if (pace := self.lines.get(key)) is not None:
                self.spent[key] += 1
                moments.append(pace.moment(self.spent[key]))
        return max(moments, default=None)

    def states(self, waiting: Collection[int]) -> dict[int, tuple[datetime | None, datetime | None]]:
        """`tat` and `next_at` of each line. `waiting`: the lines in which runs still wait."""
        return {
            key: (
                pace.tat_after(self.spent[key]),
                pace.look_again(self.spent[key]) if key in waiting else None,
            )
            for key, pace in self.lines.items()
        }
