"""How many jobs fire in each minute of the days ahead. Pure; whoever makes one decides how long a slice of work is.

Jobs with equal fires are one group: the same schedule, the same line after `H` has its values, or intervals with the
same phase. A group is counted once, whatever its size. What exceeds the effort is spread evenly, and the jitter of very
many jobs is spread over its length: then the forecast is an estimate, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise

import msgspec

from mainspring.domain.schedules.cron_hash import has_hash, without_hash
from mainspring.domain.schedules.minutes import (
    MINUTE,
    cost_of_a_minute,
    cost_of_counting,
    fires_in,
    floor_minute,
    is_plain,
    minutes_of,
)
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind

DAYS_AHEAD = 8
MOST_EXAMPLES = 5
MOST_PARTS = 5  # of a minute that are named
_HOUR = 60  # minutes
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_SEEDS = 200  # jobs of a schedule with jitter that are counted one by one
_MOST_GROUPS = 50_000
_GROUP_COST = 30  # of a group as such, in fires
_PIECE = 200  # minutes between two looks at the clock
_SAMPLE = 50  # groups by which the rest is estimated
_SAMPLE_EFFORT = 100_000


class ForecastPart(msgspec.Struct):
    """Jobs that share a schedule. schedule: None for one-time jobs. hashed: the line has `H`, so each job has a time of
    its own already."""

    schedule: Schedule | None
    jobs: int
    job_ids: list[str]
    hashed: bool = False


class Peak(msgspec.Struct):
    """The fullest minute of an hour. parts: (place in `parts`, its fires in this minute), the largest first."""

    minute: int
    fires: int
    parts: list[tuple[int, int]]


class Forecast(msgspec.Struct):
    """counts: the fires of each minute from `start` on."""

    start: datetime
    jobs: int
    estimated: bool
    counts: list[int]
    peaks: list[Peak]
    parts: list[ForecastPart]


class _Group(msgspec.Struct):
    part: ForecastPart
    seeds: list[int]


class Census:
    """The jobs of a tenant in groups. What counts begins with the minute of `now`."""

    def __init__(self, now: datetime) -> None:
        self.begin = floor_minute(now)
        self.jobs = 0
        self.uncounted = 0  # jobs beyond the last group that is kept
        self.inexact = False
        self.once: dict[datetime, ForecastPart] = {}
        self.groups: dict[Schedule, _Group] = {}

    def add_once(self, minute: datetime, jobs: int, job_ids: list[str]) -> None:
        self.jobs += jobs
        part = self.once.get(minute)
        if part is None:
            self.once[minute] = ForecastPart(None, jobs, sorted(job_ids)[:MOST_EXAMPLES])
        else:
            _grow(part, jobs, job_ids)

    def add(self, schedule: Schedule, jobs: int, job_ids: list[str]) -> None:
        if not schedule.recurring:
            return
        self.jobs += jobs
        if schedule.max_runs is not None:
            self.inexact = True  # how many are left is not part of the schedule
        hashed = has_hash(schedule.cron)
        key = self._alike(schedule)
        group = self.groups.get(key)
        if group is None:
            if len(self.groups) >= _MOST_GROUPS:
                self.uncounted += jobs
                return
            group = self.groups[key] = _Group(ForecastPart(key, 0, [], hashed), [])
        _grow(group.part, jobs, job_ids)
        if key.jitter is not None and schedule.seed is not None and len(group.seeds) <= _MOST_SEEDS:
            group.seeds.append(schedule.seed)

    def _alike(self, schedule: Schedule) -> Schedule:
        """What all jobs of a group have. A seed stays out: without jitter it decides only about `H`."""
        if has_hash(schedule.cron) and schedule.cron is not None:
            # Not through its cache, which belongs to the jobs that fire now.
            line = without_hash.__wrapped__(schedule.cron, schedule.seed or 0)
            schedule = msgspec.structs.replace(schedule, cron=line, seed=None)
        elif schedule.seed is not None:
            schedule = msgspec.structs.replace(schedule, seed=None)
        if schedule.kind is not ScheduleKind.EVERY or not is_plain(schedule):
            return schedule
        assert schedule.every is not None and schedule.anchor is not None
        if schedule.anchor > self.begin:
            return schedule
        step = timedelta(seconds=schedule.every)
        phase = (schedule.anchor - _EPOCH) % step
        if not step % MINUTE:
            phase -= phase % MINUTE
        return msgspec.structs.replace(schedule, anchor=_EPOCH + phase)


def _grow(part: ForecastPart, jobs: int, job_ids: list[str]) -> None:
    part.jobs += jobs
    if len(part.job_ids) < MOST_EXAMPLES:
        part.job_ids = sorted({*part.job_ids, *job_ids})[:MOST_EXAMPLES]


class Forecaster:
    """Makes a forecast of `minutes` minutes from `census.begin` on. `work` does it, piece by piece, and
    then `forecast` is there. effort: about how many fires it may look at."""

    def __init__(self, census: Census, minutes: int, effort: int) -> None:
        self._census = census
        self._minutes = minutes
        self._effort = effort
        self._start = census.begin
        self._counts = [0] * minutes
        self._spread = [0.0] * (minutes + 1)  # changes of what is spread, from minute to minute
        self._parts: list[ForecastPart] = []
        self._top: dict[int, list[tuple[int, int]]] = {}  # by minute: (fires, place in parts)
        self._least = [0] * minutes  # what a part needs more than, to be among them
        self._estimated = census.inexact

    def work(self) -> Iterator[None]:
        """Do a piece of the work at each step."""
        census = self._census
        for minute, part in census.once.items():
            number = (minute - self._start) // MINUTE
            if 0 <= number < self._minutes:
                self._add(number, part.jobs, self._named(part))
        yield
        groups = sorted(census.groups.values(), key=lambda group: -group.part.jobs)
        for place, group in enumerate(groups):
            if self._effort <= 0:
                yield from self._rest(groups[place:])
                break
            yield from self._count(group)
        else:
            if census.uncounted:
                yield from self._rest(groups[-_SAMPLE:], counted=True)

    def forecast(self) -> Forecast:
        if self._estimated:
            # Sums are rounded, not terms: a third of a fire in each minute is one in three minutes.
            sums = [0, *map(round, accumulate(accumulate(self._spread)))]
            more = [after - before for before, after in pairwise(sums)]
            counts = [count + more[minute] for minute, count in enumerate(self._counts)]
        else:
            counts = self._counts
        peaks = [peak for hour in range(0, self._minutes, _HOUR) if (peak := self._peak(hour, counts)) is not None]
        return self._with_used_parts(counts, peaks)

    def _count(self, group: _Group) -> Iterator[None]:
        schedule = group.part.schedule
        assert schedule is not None
        place = self._named(group.part)
        if schedule.jitter is None:
            yield from self._lay(schedule, group.part.jobs, place)
        elif len(group.seeds) <= _MOST_SEEDS and len(group.seeds) == group.part.jobs:
            for seed in group.seeds:
                yield from self._lay(msgspec.structs.replace(schedule, seed=seed), 1, place)
        else:
            nominal = msgspec.structs.replace(schedule, jitter=None)
            yield from self._smear(nominal, schedule.jitter, group.part.jobs)

    def _lay(self, schedule: Schedule, jobs: int, place: int) -> Iterator[None]:
        cost = cost_of_a_minute(schedule, self._start, self._minutes)
        self._effort -= _GROUP_COST + cost_of_counting(schedule, self._minutes)
        total = 0
        for minute, fires in minutes_of(schedule, self._start, self._minutes):
            self._effort -= cost
            total += fires
            self._add(minute, fires * jobs, place)
            if cost > 1 or not minute % _PIECE:
                yield
                if self._effort < 0 and cost > 1 and minute + 1 < self._minutes:
                    # It goes on as it has begun.
                    self._estimated = True
                    self._spread[minute + 1] += total * jobs / (minute + 1)
                    break
        yield

    def _smear(self, nominal: Schedule, jitter: float, jobs: int) -> Iterator[None]:
        """Spread each fire over the minutes into which jitter can move it. Also those of just before the start."""
        self._estimated = True
        length = max(1, round(jitter / 60))
        before = min(length, 24 * _HOUR)
        cost = cost_of_a_minute(nominal, self._start, self._minutes)
        self._effort -= _GROUP_COST
        for minute, fires in minutes_of(nominal, self._start - before * MINUTE, self._minutes + before):
            self._effort -= cost
            low, high = max(0, minute - before), min(self._minutes, minute - before + length)
            if low < high:
                self._spread[low] += fires * jobs / length
                self._spread[high] -= fires * jobs / length
            if not minute % _PIECE:
                yield

    def _rest(self, groups: list[_Group], *, counted: bool = False) -> Iterator[None]:
        """Spread the fires of the other jobs evenly: as many as a sample has."""
        self._estimated = True
        sample = groups[:: max(1, len(groups) // _SAMPLE)][:_SAMPLE]
        fires = jobs = 0
        effort = _SAMPLE_EFFORT
        for group in sample:
            schedule = group.part.schedule
            assert schedule is not None
            effort -= cost_of_counting(schedule, self._minutes)
            if effort < 0 and jobs:
                break
            fires += group.part.jobs * fires_in(schedule, self._start, self._minutes)
            jobs += group.part.jobs
            yield
        others = self._census.uncounted + (0 if counted else sum(group.part.jobs for group in groups))
        if jobs:
            self._spread[0] += fires / jobs * others / self._minutes

    def _named(self, part: ForecastPart) -> int:
        self._parts.append(part)
        return len(self._parts) - 1

    def _add(self, minute: int, fires: int, place: int) -> None:
        self._counts[minute] += fires
        schedule = self._parts[place].schedule
        if schedule is not None and schedule.jitter is not None and self._joins(minute, fires, place):
            return
        if fires <= self._least[minute]:
            return
        top = self._top.setdefault(minute, [])
        if len(top) < MOST_PARTS:
            top.append((fires, place))
        else:
            top[top.index(min(top))] = (fires, place)
        if len(top) == MOST_PARTS:
            self._least[minute] = min(top)[0]

    def _joins(self, minute: int, fires: int, place: int) -> bool:
        """Add the fires to those of another job of the same part, which has a jitter of its own."""
        top = self._top.get(minute, [])
        for index, (others, known) in enumerate(top):
            if known == place:
                top[index] = (others + fires, place)
                if len(top) == MOST_PARTS:
                    self._least[minute] = min(top)[0]
                return True
        return False

    def _peak(self, hour: int, counts: list[int]) -> Peak | None:
        end = min(hour + _HOUR, self._minutes)
        minute = max(range(hour, end), key=lambda number: (counts[number], -number))
        if counts[minute] < 2:
            return None
        top = sorted(self._top.get(minute, []), key=lambda each: (-each[0], each[1]))
        return Peak(minute, counts[minute], [(place, fires) for fires, place in top])

    def _with_used_parts(self, counts: list[int], peaks: list[Peak]) -> Forecast:
        places: dict[int, int] = {}
        for peak in peaks:
            peak.parts = [(places.setdefault(place, len(places)), fires) for place, fires in peak.parts]
        parts = [self._parts[place] for place in places]
        return Forecast(self._start, self._census.jobs, self._estimated, counts, peaks, parts)
