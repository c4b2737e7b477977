"""`make oracle`: compares cron with the reference implementation at every change of clocks of every IANA zone.

It takes minutes, so it is not part of `make test`. Expressions are random; --seed repeats a run.

1. Every change from 2020 to 2035, three days before and after it: random lines under every DST policy. And the days
   that Apia (2011), Kwajalein (1993) and Manila never had or had twice.
2. Windows at random times from 1975 to 2037 in random zones.
3. Six fields, second by second, around random changes.
4. Dates: days, months and weekdays that meet rarely or never, over 60 years.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, takewhile
from zoneinfo import ZoneInfo, available_timezones

from mainspring.domain.schedules.fires import count_fires, fires, newest_fires
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.domain.schedules.wall_clock import wall_clock
from tests.domain.cron_oracle import GAPS, MONTHS, OVERLAPS, WEEKDAYS, Instants, Matcher, Policy

DAY, MINUTE, SECOND = timedelta(days=1), timedelta(minutes=1), timedelta(seconds=1)
POLICIES: list[Policy] = [(gap, overlap) for gap in GAPS for overlap in OVERLAPS]
STRANGE_DAYS = [
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
    ("Pacific/Fakaofo", datetime(2011, 12, 30, 10, tzinfo=UTC)),
    ("Pacific/Kwajalein", datetime(1993, 8, 21, 12, tzinfo=UTC)),
    ("Pacific/Kiritimati", datetime(1994, 12, 31, 10, tzinfo=UTC)),
    ("Pacific/Guam", datetime(1969, 1, 25, 14, tzinfo=UTC)),
]
MOST_FIRES = 150  # of a line that is compared fire by fire; of others the hours around the change are


def changes(zone: str, first: int = 2020, last: int = 2035) -> Iterator[datetime]:
    """The noons (UTC) that are followed by a change of the offset within a day."""
    place, noon = ZoneInfo(zone), datetime(first, 1, 1, 12, tzinfo=UTC)
    offset = noon.astimezone(place).utcoffset()
    while noon.year <= last:
        new = (noon + DAY).astimezone(place).utcoffset()
        if new != offset:
            yield noon
        noon, offset = noon + DAY, new


def window(zone: str, around: datetime) -> tuple[object, ...]:
    """The offsets of the days around a change. Zones that have the same ones are scanned together."""
    place = ZoneInfo(zone)
    return (around, *((around + quarter * MINUTE * 15).astimezone(place).utcoffset() for quarter in range(-288, 289)))


def differences(zone: str, around: datetime, lines: list[str], instants: Instants, reach: timedelta) -> Iterator[str]:
    """What the product and the reference say differently about these lines."""
    begin, end = around - reach, around + reach
    for line in lines:
        for (gap, overlap), expected in instants.policies(Matcher(line), POLICIES).items():
            schedule = Schedule(kind=ScheduleKind.CRON, cron=line, timezone=zone, gap=gap, fold=overlap)
            low, high, near = begin, end, expected
            if len(expected) > MOST_FIRES:
                low, high = around - reach / 12, around + reach / 4
                near = [moment for moment in expected if low < moment <= high]
            found = list(takewhile(lambda moment, high=high: moment <= high, fires(schedule, low)))  # type: ignore[misc]
            said = f"{line!r} {zone} {around:%Y-%m-%d} gap={gap} overlap={overlap}"
            if found != near:
                yield f"{said}: {sorted({*found} ^ {*near})[:4]}"
            if count_fires(schedule, begin, end) != len(expected):
                yield f"{said}: counts {count_fires(schedule, begin, end)}, not {len(expected)}"
            if newest_fires(schedule, begin, end, 5) != expected[-5:]:
                yield f"{said}: the newest differ"


def random_line(dice: random.Random, seconds: bool = False) -> str:
    """Mostly every day, so that the days around a change have fires."""
    days = dice.choice(["* * *"] * 5 + ["*/2 * *", "* * */2", "1-28 * MON-SAT", "* * SUN", "L,LW * *", "15 * 1#2,0L"])
    fields = [_field(dice, 0, 59), _field(dice, 0, 23)]
    return " ".join([_field(dice, 0, 59)] * seconds + fields + [days])


def _field(dice: random.Random, low: int, high: int, names: tuple[str, ...] = ()) -> str:
    def term() -> str:
        first, second = sorted((dice.randint(low, high), dice.randint(low, high)))
        step = dice.randint(1, high)
        forms = [str(first), f"{first}-{second}", f"{first}-{second}/{dice.randint(1, 9)}", f"*/{step}"]
        return dice.choice([*forms, str(second), dice.choice(names) if names else f"{first}/{step}"])

    return dice.choice(["*", term(), term(), term(), f"{term()},{term()}"])


def check_changes(seed: int, lines: int, around: datetime, zones: list[str]) -> list[str]:
    """Zones whose clocks are moved in the same way at the same time."""
    instants = Instants(zones[0], around - 3 * DAY, around + 3 * DAY, MINUTE)
    wrong = []
    for zone in zones:
        dice = random.Random(f"{seed}/{zone}/{around}")
        wrong += differences(zone, around, [random_line(dice) for _ in range(lines)], instants, 3 * DAY)
    return wrong


def all_changes(zones: list[str]) -> list[tuple[datetime, list[str]]]:
    together = defaultdict[tuple[object, ...], list[str]](list)
    for zone in zones:
        for noon in changes(zone):
            together[window(zone, noon + DAY / 2)].append(zone)
    for zone, moment in STRANGE_DAYS:
        together[window(zone, moment)].append(zone)
    return [(shape[0], names) for shape, names in together.items() if isinstance(shape[0], datetime)]


def check_windows(seed: int, zones: list[str], number: int) -> list[str]:
    dice = random.Random(f"{seed}/windows/{number}")
    zone = dice.choice(zones)
    moment = datetime(1975, 1, 1, tzinfo=UTC) + dice.random() * 62 * 365 * DAY
    moment = moment.replace(microsecond=0)
    instants = Instants(zone, moment - DAY, moment + DAY, MINUTE)
    wrong = list(differences(zone, moment, [random_line(dice)], instants, DAY))
    if near := list(changes(zone, 2024, 2025)):
        # The second of the change is within this day. Half an hour around a random one is scanned by the second.
        place, noon = ZoneInfo(zone), dice.choice(near)
        low, high = noon, noon + DAY
        while high - low > SECOND:
            middle = low + (high - low) // 2
            same = middle.astimezone(place).utcoffset() == noon.astimezone(place).utcoffset()
            low, high = (middle, high) if same else (low, middle)
        at = high.replace(microsecond=0) + dice.choice([-1, 0, 1]) * timedelta(hours=1)
        reach = timedelta(minutes=20)
        instants = Instants(zone, at - reach, at + reach, SECOND)
        wrong += differences(zone, at, [random_line(dice, seconds=True)], instants, reach)
    return wrong


def check_dates(seed: int, number: int) -> list[str]:
    dice = random.Random(f"{seed}/dates/{number}")
    marks = ["L", "LW", "29", "30", "31", "*/29", "*/31", _field(dice, 1, 31)]
    weeks = ["*", "5L", "MON#5", "0#1", "*/6", "7", _field(dice, 0, 6, WEEKDAYS)]
    months = ["2", "FEB,APR", "*", _field(dice, 1, 12, MONTHS)]
    line = f"0 0 {dice.choice(marks)} {dice.choice(months)} {dice.choice(weeks)}"
    begin = datetime(dice.randint(1970, 2090), 1, 1, tzinfo=UTC)
    matcher = Matcher(line)
    expected = [day for index in range(60 * 365) if matcher.matches_day(day := begin + index * DAY)]
    if wall_clock(line).occurs != bool(expected):
        return [f"{line!r}: occurs is {wall_clock(line).occurs}, but {len(expected)} days match"]
    found = list(islice(fires(Schedule(kind=ScheduleKind.CRON, cron=line), begin - SECOND), 40))
    return [] if found[: len(expected)] == expected[:40] else [f"{line!r} from {begin:%Y}: {found[:3]}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", type=int, default=1, help="random lines at each change")
    parser.add_argument("--windows", type=int, default=300)
    parser.add_argument("--dates", type=int, default=300)
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    began, wrong = time.monotonic(), list[str]()
    zones = sorted(available_timezones() - {"localtime", "Factory"})
    together = all_changes(zones)
    with ProcessPoolExecutor(chosen.processes) as pool:
        check = partial(check_changes, chosen.seed, chosen.lines)
        for found in pool.map(check, *zip(*together, strict=True), chunksize=8):
            wrong += found
        for found in pool.map(partial(check_windows, chosen.seed, zones), range(chosen.windows), chunksize=8):
            wrong += found
        for found in pool.map(partial(check_dates, chosen.seed), range(chosen.dates), chunksize=8):
            wrong += found
    sys.stdout.write("".join(f"{said}\n" for said in wrong[:50]))
    sys.stdout.write(
        f"{sum(len(names) for _, names in together)} changes of {len(zones)} zones, {chosen.lines} line(s) each under "
        f"{len(POLICIES)} policies; {chosen.windows} windows; {chosen.dates} lines of dates: {len(wrong)} differences, "
        f"{time.monotonic() - began:.0f} s, seed {chosen.seed}\n"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
