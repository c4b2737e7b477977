"""Divides the slots of a worker among its queues by weight. No I/O and no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.config import DEFAULT_QUEUE
from mainspring.wire.exchange import QueueShare

QUICK = 1.0  # seconds; a slot that a quicker run occupies is free again soon
_MOST_WEIGHT = 10_000
_FORGET = 0.1


def parse_queues(text: str, slots: int) -> tuple[tuple[str, ...], dict[str, int] | None]:
    """The queues in `a,b`, and their weights if the text is like `a=1,b=8`. A queue without a weight then has 1."""
    queues, weights = _read(text)
    if weights is not None and len(weights) > slots:
        raise InvalidInput(
            f"queues: {len(weights)} queues share {slots} slot(s), and each needs one",
            field="queues",
            hint="give more --slots, or serve fewer queues",
        )
    return queues, weights


def _read(text: str) -> tuple[tuple[str, ...], dict[str, int] | None]:
    weights: dict[str, int] = {}
    weighted = False
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, number = (part.strip() for part in piece.partition("="))
        if not name:
            raise InvalidInput(f"queues: {piece!r} names no queue", field="queues", hint="such as heavy=1,light=8")
        if name in weights:
            raise InvalidInput(f"queues: {name} is named twice", field="queues", hint="name each queue once")
        weights[name] = _weight(name, number) if equals else 1
        weighted = weighted or bool(equals)
    if not weights:
        raise InvalidInput("queues: no queue is named", field="queues", hint=f"such as {DEFAULT_QUEUE}")
    return tuple(weights), weights if weighted else None


def _weight(name: str, number: str) -> int:
    if not (number.isascii() and number.isdigit() and 1 <= int(number) <= _MOST_WEIGHT):
        raise InvalidInput(
            f"queues: {name} has the weight {number or 'nothing'!r}",
            field="queues",
            expected=f"a whole number from 1 to {_MOST_WEIGHT}",
            hint="such as heavy=1,light=8",
        )
    return int(number)


class SlotDivision(msgspec.Struct, frozen=True):
    """What one exchange asks for. below: runs that bring queues up to their shares. kept: queues for which a slot is
    kept free."""

    shares: list[QueueShare]
    below: dict[str, int]
    kept: frozenset[str]


NOTHING = SlotDivision([], {}, frozenset())


class QueueWeights:
    """While several queues have work, each occupies slots in proportion to its weight, and at least one. Slots that a
    queue does not use are lent to the others. Queues whose runs take less than a second may borrow all of them. Queues
    whose runs take longer, or have not been measured yet, leave one slot free for each queue that runs nothing: so
    light work never waits for a slot behind heavy work.
    """

    def __init__(self, slots: int, weights: Mapping[str, int]) -> None:
        if len(weights) > slots:
            raise ValueError(f"{len(weights)} queues cannot share {slots} slot(s)")
        self.shares = _shares(slots, weights)
        self._usual: dict[str, float] = {}

    def ended(self, queue: str, seconds: float) -> None:
        """A run took this many seconds. One long run counts at once, and is forgotten after about 40 quick ones: heavy
        work that fails fast for a while is not mistaken for light work."""
        usual = self._usual.get(queue, seconds)
        self._usual[queue] = max(seconds, usual + _FORGET * (seconds - usual))

    def divide(
        self,
        free: int,
        held: Mapping[str, int],
        in_flight: Iterable[SlotDivision] = (),
        lasting: Collection[str] = (),
    ) -> SlotDivision:
        """What to ask for, the queue furthest below its share first.

        held: runs of each queue that are here, started or not. in_flight: what other exchanges already ask for.
        lasting: queues with a run that has taken longer than `QUICK`.
        """
        if free <= 0:
            return NOTHING
        on_the_way: Counter[str] = Counter()
        kept: set[str] = set()
        for division in in_flight:
            on_the_way.update(division.below)
            kept |= division.kept
        order = sorted(self.shares, key=lambda queue: held.get(queue, 0) / self.shares[queue])
        idle = [queue for queue in order if not held.get(queue) and queue not in kept]
        keep_for = {
            queue: [] if self._quick(queue, lasting) else [other for other in idle if other != queue] for queue in order
        }
        most = {queue: free - len(keep_for[queue]) for queue in order}
        below = {}
        for queue in order:
            missing = min(self.shares[queue] - held.get(queue, 0) - on_the_way[queue], most[queue])
            if missing > 0:
                below[queue] = missing
        shares = [QueueShare(missing, queue, keep_for[queue]) for queue, missing in below.items()]
        return SlotDivision(shares + self._lent(order, most, keep_for), below, frozenset(idle))

    def _quick(self, queue: str, lasting: Collection[str]) -> bool:
        return queue not in lasting and self._usual.get(queue, QUICK) < QUICK

    def _lent(self, order: list[str], most: Mapping[str, int], keep_for: Mapping[str, list[str]]) -> list[QueueShare]:
        """Shares of the unused slots, in rounds that double. Only the server knows which queues have work; each of
        those gets about its weight's part of whatever is left."""
        shares = []
        factor, left = 1.0 / min(self.shares.values()), dict(most)
        while any(count > 0 for count in left.values()):
            for queue in order:
                if left[queue] > 0:
                    step = min(round(self.shares[queue] * factor), left[queue])
                    shares.append(QueueShare(step, queue, keep_for[queue]))
                    left[queue] -= step
            factor *= 2
        return shares


def _shares(slots: int, weights: Mapping[str, int]) -> dict[str, int]:
    """One slot for each queue. Every further slot goes to the queue that has the fewest for its weight."""
    shares = dict.fromkeys(weights, 1)
    for _ in range(slots - len(weights)):
        neediest = min(weights, key=lambda queue: (shares[queue] + 0.5) / weights[queue])
        shares[neediest] += 1
    return shares
