"""Recurrence rules have the fires that RFC 5545 says. dateutil is the oracle; what clocks do to its wall times is
worked out here moment by moment."""

from __future__ import annotations

import calendar
import datetime as datetime_module
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

import dateutil.rrule
import pytest
from dateutil.rrule import rrulestr
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import mainspring.domain.schedules.fires as fires_module
from mainspring.domain.errors import InvalidInput
from mainspring.domain.schedules import rule_years
from mainspring.domain.schedules.fires import count_fires, fires, newest_fires, next_fire
from mainspring.domain.schedules.rrule_text import read_text
from mainspring.domain.schedules.rule import Frequency, RecurrenceRule, read_rule
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from tests.domain.cron_oracle import CHANGES
from tests.effort import calls_of

T0 = datetime(2026, 11, 15, 12, tzinfo=UTC)
DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
A_SECOND = timedelta(seconds=1)


def rule(
    text: str, start: datetime = T0, zone: str = "UTC", exdates: tuple[datetime, ...] | None = None, **policy: str
) -> Schedule:
    """The rule from DTSTART on, which is `start` on the clocks of the zone."""
    anchor = start.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    line = f"DTSTART:{start:%Y%m%dT%H%M%S}\nRRULE:{text}"
    return Schedule(
        kind=ScheduleKind.RRULE, rrule=line, timezone=zone, anchor=anchor, exdates=exdates, gap=policy.get("gap"),
        fold=policy.get("fold"),
    )  # fmt: skip


def lists(low: int, high: int, *, negative: bool = False) -> st.SearchStrategy[list[int]]:
    values = st.integers(low, high)
    if negative:
        values |= st.integers(-high, -low)
    return st.lists(values, min_size=1, max_size=3, unique=True)


@st.composite
def rules(draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """A rule whose meaning dateutil and RFC 5545 agree on."""
    freq = draw(st.sampled_from(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY"]))
    parts = [f"FREQ={freq}"]

    def add(name: str, values: list[Any]) -> None:
        parts.append(f"{name}={','.join(map(str, values))}")

    def maybe(often: int = 3) -> bool:
        return bool(draw(st.integers(1, often)) == 1)

    if maybe(2):
        large = {"HOURLY": 100, "MINUTELY": 5000}.get(freq, 6)
        parts.append(f"INTERVAL={draw(st.integers(1, large))}")
    if maybe():
        add("BYMONTH", draw(lists(1, 12)))
    plain_days = False
    match draw(st.integers(0, 4)):
        case 1 if freq != "WEEKLY":
            add("BYMONTHDAY", draw(lists(1, 31, negative=True)))
        case 2 if freq in ("YEARLY", "HOURLY", "MINUTELY"):
            add("BYYEARDAY", draw(lists(1, 366, negative=True)))
        case 3 if freq == "YEARLY":
            add("BYWEEKNO", draw(lists(2, 51, negative=True)))
            plain_days = True
        case 4 if freq in ("YEARLY", "MONTHLY"):
            number = st.integers(1, 5) | st.integers(-5, -1)
            add("BYDAY", [f"{draw(number)}{draw(st.sampled_from(DAYS))}" for _ in range(draw(st.integers(1, 2)))])
    if plain_days or (maybe() and "BYDAY" not in "".join(parts)):
        add("BYDAY", draw(st.lists(st.sampled_from(DAYS), min_size=1, max_size=3, unique=True)))
    if maybe():
        add("BYHOUR", draw(lists(0, 23)))
    if maybe():
        add("BYMINUTE", draw(lists(0, 59)))
    if maybe(4):
        add("BYSECOND", draw(lists(0, 59)))
    if maybe(4) and "BY" in "".join(parts):
        add("BYSETPOS", draw(lists(1, 12, negative=True)))
    if maybe(4):
        parts.append(f"WKST={draw(st.sampled_from(DAYS))}")
    if maybe(5):
        parts.append(f"COUNT={draw(st.integers(1, 40))}")
    elif maybe(5):
        parts.append(f"UNTIL={draw(st.datetimes(datetime(2020, 1, 1), datetime(2032, 1, 1))):%Y%m%dT%H%M%S}Z")
    return ";".join(parts)


def oracle(text: str, start: datetime, until: datetime) -> list[datetime]:
    """The wall times up to `until`."""
    if "HOURLY" in text or "MINUTELY" in text:
        return minute_by_minute(read_rule(text), start, until)
    with patch.object(dateutil.rrule, "datetime", SimpleNamespace(**{**vars(datetime_module), "MAXYEAR": until.year})):
        # dateutil looks for a match up to the last year, and some rules have none.
        return list(takewhile(lambda wall: wall <= until, rrulestr(text.replace("Z", ""), dtstart=start)))


def minute_by_minute(rule: RecurrenceRule, start: datetime, until: datetime) -> list[datetime]:
    """The same for short periods. dateutil steps through all of them, up to the year 9999."""
    found: list[datetime] = []
    period, hourly = list[datetime](), rule.freq is Frequency.HOURLY
    unit = timedelta(hours=1) if hourly else timedelta(minutes=1)
    here = start.replace(minute=0, second=0) if hourly else start.replace(second=0)
    while here <= until + unit and (rule.count is None or len(found) < rule.count):
        day = here.date()
        month_end = calendar.monthrange(day.year, day.month)[1]
        year_day, year_end = day.timetuple().tm_yday, 366 if calendar.isleap(day.year) else 365
        if (
            (not rule.by_month or day.month in rule.by_month)
            and (not rule.by_month_day or {day.day, day.day - month_end - 1} & set(rule.by_month_day))
            and (not rule.by_year_day or {year_day, year_day - year_end - 1} & set(rule.by_year_day))
            and (not rule.by_day or (0, day.weekday()) in rule.by_day)
            and (not rule.by_hour or here.hour in rule.by_hour)
            and (hourly or not rule.by_minute or here.minute in rule.by_minute)
        ):
            minutes = (rule.by_minute or (start.minute,)) if hourly else (here.minute,)
            period = [
                here.replace(minute=minute, second=second)
                for minute in minutes
                for second in rule.by_second or (start.second,)
            ]
            if rule.by_position:
                places = {place - 1 if place > 0 else len(period) + place for place in rule.by_position}
                period = [period[place] for place in sorted(places) if 0 <= place < len(period)]
            found += [wall for wall in period if wall >= start]
        here += rule.interval * unit
    found = found[: rule.count]
    last = datetime.max if rule.until is None else datetime.strptime(rule.until, "%Y%m%dT%H%M%SZ")
    return [wall for wall in found if wall <= until and wall <= last]


def spoilt_first_week(text: str, start: datetime) -> bool:
    """dateutil begins the first week of a rule with DTSTART. RFC 5545 counts BYSETPOS from the start of the week."""
    wkst = read_rule(text).week_start
    return "WEEKLY" in text and "BYSETPOS" in text and start.weekday() != wkst


def check(schedule: Schedule, expected: list[datetime], after: datetime, until: datetime) -> None:
    inside = [moment for moment in expected if after < moment <= until]
    assert list(takewhile(lambda moment: moment <= until, fires(schedule, after))) == inside
    assert count_fires(schedule, after, until) == len(inside)
    for count in (1, 3, len(inside) + 1):
        assert newest_fires(schedule, after, until, count) == inside[-count:]


starts = st.datetimes(datetime(2019, 1, 1), datetime(2029, 12, 31)).map(lambda wall: wall.replace(microsecond=0))


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(rules(), starts, st.integers(0, 700))
@example("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", datetime(2026, 1, 1, 9), 400)
@example("FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO,SU", datetime(2019, 1, 1, 9), 700)
@example("FREQ=YEARLY;BYWEEKNO=1,-1;BYDAY=MO,TH,SU", datetime(2019, 1, 1, 9), 700)
@example("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", datetime(2024, 2, 29, 9), 700)
@example("FREQ=YEARLY;BYYEARDAY=-1,366", datetime(2023, 12, 31, 9), 700)
@example("FREQ=WEEKLY;INTERVAL=2;WKST=SU;BYDAY=TU,SU", datetime(1997, 8, 5, 9), 100)
@example("FREQ=MINUTELY;INTERVAL=90;BYHOUR=9,10,11", datetime(2026, 1, 1, 9), 20)
@example("FREQ=MONTHLY;INTERVAL=18;BYMONTHDAY=10,11,12,13,14,15;COUNT=10", datetime(1997, 9, 10, 9), 700)
def test_a_rule_fires_when_rfc_5545_says(text: str, start: datetime, days: int) -> None:
    assume(not spoilt_first_week(text, start))
    dense = "HOURLY" in text or "MINUTELY" in text
    until = start + timedelta(days=min(days, 12) if dense else days)
    expected = [wall.replace(tzinfo=UTC) for wall in oracle(text, start, until)]
    schedule = rule(text, start)
    end = until.replace(tzinfo=UTC)
    check(schedule, expected, start.replace(tzinfo=UTC) - A_SECOND, end)
    middle = start.replace(tzinfo=UTC) + (until - start) / 3
    check(schedule, expected, middle, end)


def moments_of(walls: list[datetime], zone: ZoneInfo, gap: str, fold: str) -> list[datetime]:
    found: set[datetime] = set()
    for wall in walls:
        both = [wall.replace(tzinfo=zone, fold=number).astimezone(UTC) for number in (0, 1)]
        if both[0] > both[1]:
            if gap == "shift":
                moment = both[1].replace(minute=both[1].minute // 30 * 30, second=0)
                before = moment.astimezone(zone).utcoffset()
                while moment.astimezone(zone).utcoffset() == before:
                    moment += timedelta(minutes=30)
                found.add(moment)
        else:
            found |= {"first": {both[0]}, "last": {both[1]}, "both": set(both)}[fold]
    return sorted(found)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(CHANGES),
    st.sampled_from(
        ["FREQ=HOURLY", "FREQ=MINUTELY;INTERVAL=10", "FREQ=DAILY;BYHOUR=0,1,2;BYMINUTE=9", "FREQ=MINUTELY;INTERVAL=45"]
    ),
    st.sampled_from(["shift", "skip"]),
    st.sampled_from(["first", "last", "both"]),
    st.integers(-30 * 3600, 6 * 3600),
    st.integers(0, 40 * 3600),
)  # fmt: skip
def test_where_clocks_are_moved_the_policy_decides(
    change: tuple[str, datetime], text: str, gap: str, fold: str, offset: int, span: int
) -> None:
    zone = ZoneInfo(change[0])
    start = (change[1].astimezone(zone) - timedelta(days=4)).replace(hour=0, minute=0, second=0, tzinfo=None)
    schedule = rule(text, start, change[0], gap=gap, fold=fold)
    expected = moments_of(oracle(text, start, start + timedelta(days=10)), zone, gap, fold)
    after = change[1] + timedelta(seconds=offset)
    check(schedule, expected, after, after + timedelta(seconds=span))


def test_by_default_a_skipped_time_fires_after_the_change_and_the_first_of_two_fires() -> None:
    daily = rule("FREQ=DAILY;BYHOUR=2;BYMINUTE=30", datetime(2026, 1, 1), "Europe/Berlin")
    assert next_fire(daily, datetime(2026, 3, 29, tzinfo=UTC)) == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert list(islice(fires(daily, datetime(2026, 10, 24, 12, tzinfo=UTC)), 2)) == [
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 26, 1, 30, tzinfo=UTC),
    ]  # fmt: skip


def test_exdates_are_left_out_and_still_count() -> None:
    start = datetime(2026, 1, 1, 9)
    days = [datetime(2026, 1, day, 9, tzinfo=UTC) for day in range(1, 6)]
    schedule = rule("FREQ=DAILY;COUNT=5", start, exdates=(days[1], days[3]))
    before, end = days[0] - A_SECOND, days[-1] + timedelta(days=9)
    check(schedule, [days[0], days[2], days[4]], before, end)
    check(schedule, [days[0], days[2], days[4]], days[1], days[3])


@given(st.sets(st.integers(0, 60), max_size=30), st.integers(0, 70), st.integers(0, 70))
def test_exdates_agree_with_a_list(left_out: set[int], after: int, span: int) -> None:
    start = datetime(2026, 1, 1, 9, tzinfo=UTC)
    moments = [start + timedelta(hours=hour) for hour in range(0, 120, 2)]
    exdates = tuple(start + timedelta(hours=hour) for hour in left_out)
    schedule = rule("FREQ=HOURLY;INTERVAL=2", start.replace(tzinfo=None), exdates=exdates)
    begin = start + timedelta(minutes=after * 60 - 1)
    check(schedule, [one for one in moments if one not in exdates], begin, begin + timedelta(hours=min(span, 50)))


def open_rule(text: str, zone: str = "UTC") -> Schedule:
    """A rule without DTSTART, of a job that was created at 12:34:56."""
    return Schedule(kind=ScheduleKind.RRULE, rrule=text, timezone=zone, anchor=T0.replace(minute=34, second=56))


def test_what_a_rule_without_start_leaves_open_comes_from_the_creation_and_below_a_given_hour_is_zero() -> None:
    now = T0.replace(minute=34, second=56)
    assert next_fire(open_rule("FREQ=DAILY;BYHOUR=15"), now) == T0.replace(hour=15)
    assert next_fire(open_rule("FREQ=DAILY;BYHOUR=15;BYMINUTE=7"), now) == T0.replace(hour=15, minute=7)
    assert next_fire(open_rule("FREQ=HOURLY;BYMINUTE=40"), now) == T0.replace(minute=40)
    assert next_fire(open_rule("FREQ=HOURLY"), now) == T0.replace(hour=13, minute=34, second=56)
    assert next_fire(open_rule("FREQ=DAILY"), now) == now + timedelta(days=1)


def test_a_rule_without_start_has_as_many_fires_as_its_count_says() -> None:
    now = T0.replace(minute=34, second=56)
    assert list(fires(open_rule("FREQ=DAILY;COUNT=2"), now)) == [now + timedelta(days=1), now + timedelta(days=2)]
    assert len(list(fires(open_rule("FREQ=DAILY;BYHOUR=12;COUNT=3"), now))) == 3


EVERY_SECOND = "FREQ=DAILY;BYHOUR={};BYMINUTE={};BYSECOND={}".format(
    *(",".join(map(str, range(n))) for n in (24, 60, 60))
)
HOSTILE = [
    "FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=30",
    "FREQ=YEARLY;BYMONTHDAY=31;BYMONTH=2",
    "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO;BYWEEKNO=1",
    "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO",
    "FREQ=MINUTELY;INTERVAL=1000000000",
    "FREQ=YEARLY;INTERVAL=1000000000",
    "FREQ=DAILY;INTERVAL=999999937;COUNT=1000000000",
    "FREQ=MINUTELY;COUNT=1000000000",
    "FREQ=MINUTELY;INTERVAL=1439;COUNT=1000000000;BYMINUTE=" + ",".join(map(str, range(60))),
    "FREQ=DAILY;INTERVAL=366;COUNT=1000000",
    "FREQ=MINUTELY;INTERVAL=2;COUNT=1000000000;BYSECOND=0,1,2;BYSETPOS=1,-1",
    "FREQ=HOURLY;INTERVAL=5;COUNT=1000000000;BYSECOND=0,1,2;BYSETPOS=1,-1",
    EVERY_SECOND,
    "FREQ=YEARLY;BYSETPOS=366,-366;BYDAY=MO,TU;BYHOUR={};BYMINUTE={};BYSECOND={}".format(
        *(",".join(map(str, range(n))) for n in (24, 60, 60))
    ),
    "FREQ=YEARLY;BYYEARDAY=" + ",".join(str(n) for n in range(-366, 367) if n)[:1900].rpartition(",")[0],
    "FREQ=YEARLY;BYWEEKNO=" + ",".join(str(n) for n in range(-53, 54) if n) + ";BYDAY=MO,TU,WE,TH,FR,SA;BYSETPOS=300",
    "FREQ=MONTHLY;INTERVAL=7;BYDAY=5MO;BYMONTHDAY=29,30,31;BYSETPOS=-1;COUNT=100000",
    "FREQ=HOURLY;INTERVAL=8761;BYMONTH=2;BYMONTHDAY=29",
    "FREQ=WEEKLY;INTERVAL=1000;BYMONTH=2;BYSETPOS=1;BYDAY=MO,TU,WE",
    "FREQ=HOURLY;INTERVAL=25;BYYEARDAY=366,-1;BYHOUR=0;BYSETPOS=1",
]  # fmt: skip


def effort_of(work: Callable[[], object]) -> int:
    """The effort of the work, with nothing kept from before."""
    forget_rules()
    return calls_of(work)


def forget_rules() -> None:
    for module in (fires_module, rule_years):
        for cached in vars(module).values():
            if hasattr(cached, "cache_clear"):
                cached.cache_clear()


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("start", [datetime(1900, 1, 1), datetime(2026, 1, 1)])
def test_no_rule_costs_more_than_100_000_calls(text: str, start: datetime) -> None:
    schedule = rule(text, start, "Europe/Berlin")
    end = T0 + timedelta(days=366)
    for work in (
        lambda: next_fire(schedule, T0),
        lambda: count_fires(schedule, T0, end),
        lambda: newest_fires(schedule, T0, end, 3),
    ):
        assert effort_of(work) < 100_000


def test_a_rule_that_began_long_ago_is_not_stepped_through() -> None:
    schedule = rule("FREQ=MINUTELY;INTERVAL=7", datetime(1900, 1, 1))

    def thousand() -> None:
        following = next_fire(schedule, T0)
        for _ in range(1000):
            assert following is not None
            following = next_fire(schedule, following)

    assert effort_of(thousand) < 60_000


def test_a_year_of_seconds_is_counted_in_milliseconds() -> None:
    every_second = rule(EVERY_SECOND, datetime(2020, 1, 1))
    assert count_fires(every_second, T0, T0 + timedelta(days=365)) == 365 * 86400


@pytest.mark.parametrize(
    "text", ["FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30", "FREQ=DAILY;UNTIL=20200101"]
)  # fmt: skip
def test_a_rule_that_never_matches_has_no_fire(text: str) -> None:
    assert next_fire(rule(text, datetime(2019, 1, 1)), T0) is None


def test_until_a_date_includes_that_day() -> None:
    schedule = rule("FREQ=DAILY;UNTIL=20260103", datetime(2026, 1, 1, 9), "Europe/Berlin")
    assert [one.day for one in fires(schedule, datetime(2025, 12, 31, tzinfo=UTC))] == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("FREQ=SECONDLY", "every"),
        ("FREQ=YEARLY;BYEASTER=0", "BYEASTER"),
        ("BYDAY=MO", "FREQ"),
        ("FREQ=DAILY;COUNT=0", "1 to 1000000000"),
        ("FREQ=DAILY;INTERVAL=99999999999", "1 to 1000000000"),
        ("FREQ=DAILY;COUNT=1;UNTIL=20300101", "cannot be combined"),
        ("FREQ=DAILY;FREQ=DAILY", "twice"),
        ("FREQ=DAILY;BYHOUR=24", "0 to 23"),
        ("FREQ=DAILY;BYHOUR=", "0 to 23"),
        ("FREQ=DAILY;BYDAY=1MO", "numbered"),
        ("FREQ=MONTHLY;BYDAY=0MO", "not a day"),
        ("FREQ=WEEKLY;BYMONTHDAY=1", "BYMONTHDAY"),
        ("FREQ=DAILY;BYSETPOS=1", "another BY"),
        ("FREQ=DAILY;BYHUOR=1", "BYHOUR"),
        ("FREQ=DAILY;UNTIL=2030", "not a time"),
    ],
)
def test_a_bad_rule_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_rule(text)
    assert says in refused.value.in_sentences()


@given(st.text(max_size=80) | st.text(alphabet="FREQ=DAILYBUNTOHW;:,0123456789\n-Z", max_size=80))
def test_a_text_is_read_or_refused(text: str) -> None:
    try:
        read_rule(read_text(text).body)
    except InvalidInput as refused:
        assert refused.code == "invalid_rrule"


@pytest.mark.parametrize("gap", ["shift", "skip"])
@pytest.mark.parametrize("fold", ["first", "last", "both"])
def test_a_rule_and_a_cron_line_with_the_same_wall_times_fire_together(gap: str, fold: str) -> None:
    """They share one engine for clock changes."""
    start = datetime(2026, 1, 1)
    for zone in ("Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca", "America/St_Johns"):
        for cron, text in (
            ("30 2 * * *", "FREQ=DAILY;BYHOUR=2;BYMINUTE=30"),
            ("0,40 0-3 * * *", "FREQ=DAILY;BYHOUR=0,1,2,3;BYMINUTE=0,40"),
        ):
            line = Schedule(kind=ScheduleKind.CRON, cron=cron, timezone=zone, gap=gap, fold=fold)
            other = rule(text + ";BYSECOND=0", start, zone, gap=gap, fold=fold)
            low, high = datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
            found = [newest_fires(each, low, high, 10_000) for each in (line, other)]
            assert found[0] == found[1], (zone, cron)
            assert count_fires(line, low, high) == count_fires(other, low, high) == len(found[0])
