"""Jitter: each fire is later than its nominal time by an amount that looks random and never changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from mainspring.domain.schedules.occurrences import Occurrences

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND, _MICROSECOND = timedelta(milliseconds=1), timedelta(microseconds=1)
_STEPS = 8  # nominal times that are tried one by one


class Jittered:
    """Moves each of `nominal` later, by whole milliseconds from 0 to below `jitter` seconds. No fire reaches the next
    nominal time: before that one there is less room. So fires keep their order and never meet."""

    def __init__(self, nominal: Occurrences, jitter: float, seed: int) -> None:
        self._nominal = nominal
        self._jitter = timedelta(seconds=jitter)
        self._seed = seed.to_bytes(8, "big")

    def next(self, after: datetime) -> datetime | None:
        latest, following = self._around(after)
        if latest is not None and (fire := self._fire(latest, following)) > after:
            return fire
        return None if following is None else self._fire(following, self._nominal.next(following))

    def count(self, after: datetime, until: datetime) -> int:
        return self._nominal.count(after, until) + self._pending(after) - self._pending(until)

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        # One that is nominal before `after` may fire in the range, and the last nominal one may fire after it.
        nominal = self._nominal.newest(self._back(after), until, count + 1)
        fires = [self._fire(one, self._nominal.next(one)) for one in nominal]
        return [fire for fire in fires if after < fire <= until][-count:]

    def nominal_of(self, fire: datetime) -> datetime | None:
        """The nominal time of a fire: the newest one up to it, since no fire reaches the next one. None if there is
        none within the jitter."""
        return self._around(fire)[0]

    def around(self, fire: datetime) -> tuple[datetime | None, datetime | None]:
        """The nominal time of a fire, and the fire that follows: the one of the next nominal time."""
        latest, following = self._around(fire)
        return latest, None if following is None else self._fire(following, self._nominal.next(following))

    def _pending(self, moment: datetime) -> int:
        """Whether the last nominal time up to `moment` fires after it."""
        latest, following = self._around(moment)
        return int(latest is not None and self._fire(latest, following) > moment)

    def _around(self, moment: datetime) -> tuple[datetime | None, datetime | None]:
        """The last nominal time up to `moment`, if it can fire after it, and the one that follows."""
        latest = self._nominal.next(self._back(moment))
        if latest is None or latest > moment:
            return None, latest
        for _ in range(_STEPS):
            following = self._nominal.next(latest)
            if following is None or following > moment:
                return latest, following
            latest = following
        # The nominal times are dense here: there is little room, and many of them within the jitter.
        if latest < moment:
            latest = [latest, *self._nominal.newest(latest, moment, 1)][-1]
        return latest, self._nominal.next(latest)

    def _back(self, moment: datetime) -> datetime:
        try:
            return moment - self._jitter
        except OverflowError:
            return moment

    def _fire(self, nominal: datetime, following: datetime | None) -> datetime:
        room = self._jitter if following is None else min(self._jitter, following - nominal)
        steps = -(-room // _MILLISECOND)  # rounded up: a room of less than a millisecond has one place, 0
        moment = b"%d" % ((nominal - _EPOCH) // _MICROSECOND)
        chance = int.from_bytes(blake2b(moment, digest_size=8, key=self._seed).digest(), "big")
        return nominal + chance % steps * _MILLISECOND
