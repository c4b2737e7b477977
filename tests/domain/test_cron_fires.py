"""Cron fires at the times that the reference implementation finds, also when the offset of the zone changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.cron import check_cron
from mainspring.domain.schedules.fires import count_fires, fires, newest_fires, next_fire
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from tests.domain.cron_oracle import (
    CHANGES,
    STEADY_ZONES,
    Policy,
    day_fields,
    days,
    five_fields,
    hours,
    minutes,
    policies,
    scan,
    six_fields,
)

zones = st.sampled_from(STEADY_ZONES + sorted({zone for zone, _ in CHANGES}))
moments = st.datetimes(datetime(2001, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC))
around_changes = st.builds(
    lambda change, seconds: (change[0], change[1] + timedelta(seconds=seconds)),
    st.sampled_from(CHANGES),
    st.integers(-30 * 3600, 6 * 3600),
)


DEBIAN: Policy = (None, None)


def cron(expression: str, zone: str = "UTC", policy: Policy = DEBIAN) -> Schedule:
    return Schedule(kind=ScheduleKind.CRON, cron=expression, timezone=zone, gap=policy[0], fold=policy[1])


def fires_between(
    expression: str, zone: str, after: datetime, until: datetime, policy: Policy = DEBIAN
) -> list[datetime]:
    return list(takewhile(lambda moment: moment <= until, fires(cron(expression, zone, policy), after)))


def local(expression: str, zone: str, start: str, count: int) -> list[str]:
    """The next fires as wall times with offsets. The start has the same form."""
    schedule = cron(expression, zone)
    here = datetime.fromisoformat(start).astimezone(UTC)
    return [
        moment.astimezone(ZoneInfo(zone)).isoformat(timespec="minutes")
        for moment in islice(fires(schedule, here), count)
    ]


@settings(max_examples=50)
@given(five_fields, zones, moments)
def test_five_fields_fire_as_a_scan_of_every_minute_says(expression: str, zone: str, after: datetime) -> None:
    until = after + timedelta(hours=20)
    assert fires_between(expression, zone, after, until) == scan(expression, zone, after, until)


@settings(max_examples=60)
@given(five_fields, around_changes)
@example("30 * * * *", ("Australia/Lord_Howe", datetime(2026, 10, 3, 12, tzinfo=UTC)))
@example("0 */3 * * *", ("Australia/Lord_Howe", datetime(2026, 4, 4, 12, tzinfo=UTC)))
@example("* 0 * * SUN", ("America/Sao_Paulo", datetime(2018, 11, 3, 3, tzinfo=UTC)))
@example("30 12 * * *", ("Pacific/Apia", datetime(2011, 12, 29, 12, tzinfo=UTC)))
def test_five_fields_fire_as_debian_cron_does_when_clocks_are_moved(
    expression: str, place: tuple[str, datetime]
) -> None:
    zone, after = place
    until = after + timedelta(hours=36)
    assert fires_between(expression, zone, after, until) == scan(expression, zone, after, until)


@settings(max_examples=100)
@given(five_fields, around_changes, policies)
@example("30 2 * * *", ("Europe/Berlin", datetime(2026, 10, 24, 12, tzinfo=UTC)), ("skip", "last"))
@example("*/20 * * * *", ("Europe/Dublin", datetime(2026, 10, 24, 12, tzinfo=UTC)), ("shift", "last"))
@example("15 * * * *", ("Australia/Lord_Howe", datetime(2026, 10, 3, 12, tzinfo=UTC)), ("shift", "both"))
@example("30 12 * * *", ("Pacific/Apia", datetime(2011, 12, 29, 12, tzinfo=UTC)), ("skip", "both"))
def test_five_fields_fire_as_their_policy_says_when_clocks_are_moved(
    expression: str, place: tuple[str, datetime], policy: Policy
) -> None:
    zone, after = place
    until = after + timedelta(hours=36)
    expected = scan(expression, zone, after, until, *policy)
    assert fires_between(expression, zone, after, until, policy) == expected
    schedule = cron(expression, zone, policy)
    assert count_fires(schedule, after, until) == len(expected)
    assert newest_fires(schedule, after, until, 3) == expected[-3:]


@settings(max_examples=40)
@given(six_fields, around_changes, policies)
def test_six_fields_fire_as_their_policy_says_when_clocks_are_moved(
    expression: str, place: tuple[str, datetime], policy: Policy
) -> None:
    zone, after = place
    until = after + timedelta(minutes=40)
    expected = scan(expression, zone, after, until, *policy)
    assert fires_between(expression, zone, after, until, policy) == expected
    assert count_fires(cron(expression, zone, policy), after, until) == len(expected)


@settings(max_examples=60)
@given(minutes, hours, st.sampled_from(CHANGES), st.integers(2, 300))
@example("*/30", "2", ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)), 200)
@example("*/30", "2", ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)), 200)
def test_a_day_of_change_looks_the_same_from_far_away(
    minute: str, hour: str, change: tuple[str, datetime], days_before: int
) -> None:
    zone, moment = change
    day = moment.astimezone(ZoneInfo(zone))
    expression = f"{minute} {hour} {day.day} {day.month} *"
    begin, end = moment - timedelta(days=2), moment + timedelta(days=2)
    expected = scan(expression, zone, begin, end)
    assert fires_between(expression, zone, moment - timedelta(days=days_before), end) == expected


@settings(max_examples=80)
@given(six_fields, around_changes | st.tuples(zones, moments))
def test_six_fields_fire_as_a_scan_of_every_second_says(expression: str, place: tuple[str, datetime]) -> None:
    zone, after = place
    until = after + timedelta(minutes=40)
    assert fires_between(expression, zone, after, until) == scan(expression, zone, after, until)


@settings(max_examples=120)
@given(day_fields, moments)
def test_days_months_and_weekdays_meet_as_a_scan_of_nine_years_says(expression: str, after: datetime) -> None:
    expected = days(expression, after, 5)
    try:
        check_cron(expression, "UTC", "cron", after)
    except InvalidInput as refused:
        assert refused.code == "cron_never_fires"
        assert expected == []
        return
    found = list(islice(fires(cron(expression), after), max(1, len(expected))))
    assert found[: len(expected)] == expected


@given(five_fields | six_fields, around_changes, st.integers(0, 3 * 3600), st.integers(0, 999_999))
def test_the_next_fire_lies_ahead_and_never_comes_sooner_for_a_later_start(
    expression: str, place: tuple[str, datetime], later: int, microseconds: int
) -> None:
    zone, start = place
    first = start + timedelta(microseconds=microseconds)
    second = first + timedelta(seconds=later)
    schedule = cron(expression, zone)
    after_first, after_second = next_fire(schedule, first), next_fire(schedule, second)
    assert after_first is not None and after_second is not None
    assert after_first > first and after_second > second
    assert after_first <= after_second
    assert after_second == after_first or after_first <= second  # nothing between two starts is lost
    assert after_first.tzinfo is UTC and after_first.microsecond == 0


GOLDEN = [
    # A fixed time that is skipped runs right after the gap. A repeated one runs the first time.
    ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+01:00", ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]),
    ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00+02:00", ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
    ("0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+01:00", ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"]),
    ("30 2 * * *", "America/New_York", "2026-03-07T12:00-05:00", ["2026-03-08T03:00-04:00", "2026-03-09T02:30-04:00"]),
    ("30 1 * * *", "America/New_York", "2026-10-31T12:00-04:00", ["2026-11-01T01:30-04:00", "2026-11-02T01:30-05:00"]),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00+10:30",
     ["2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"]),
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00+11:00",
     ["2026-04-05T01:45+11:00", "2026-04-06T01:45+10:30"]),
    ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00-03:00", ["2018-11-04T01:00-02:00", "2018-11-05T00:00-02:00"]),
    ("30 23 * * *", "America/Sao_Paulo", "2018-02-17T12:00-02:00",
     ["2018-02-17T23:30-02:00", "2018-02-18T23:30-03:00"]),
    ("30 2 * * *", "Asia/Kolkata", "2026-03-28T12:00+05:30", ["2026-03-29T02:30+05:30", "2026-03-30T02:30+05:30"]),
    # A star in the minute or the hour follows real time.
    ("30 * * * *", "Europe/Berlin", "2026-03-29T01:00+01:00", ["2026-03-29T01:30+01:00", "2026-03-29T03:30+02:00"]),
    ("30 * * * *", "Europe/Berlin", "2026-10-25T02:00+02:00",
     ["2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00", "2026-10-25T03:30+01:00"]),
    ("*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+01:00", ["2026-03-30T02:00+02:00", "2026-03-30T02:30+02:00"]),
    ("30 * * * *", "Australia/Lord_Howe", "2026-10-04T01:00+10:30",
     ["2026-10-04T01:30+10:30", "2026-10-04T02:30+11:00", "2026-10-04T03:30+11:00"]),
    ("30 * * * *", "Australia/Lord_Howe", "2026-04-05T01:00+11:00",
     ["2026-04-05T01:30+11:00", "2026-04-05T01:30+10:30", "2026-04-05T02:30+10:30"]),
    ("0 */3 * * *", "Australia/Lord_Howe", "2026-04-05T00:00+11:00",
     ["2026-04-05T03:00+10:30", "2026-04-05T06:00+10:30"]),
    ("*/30 0 * * SUN", "America/Sao_Paulo", "2018-11-03T12:00-03:00",
     ["2018-11-11T00:00-02:00", "2018-11-11T00:30-02:00"]),
    # Expressions with six fields follow real time.
    ("0 30 2 * * *", "Europe/Berlin", "2026-10-25T00:00+02:00",
     ["2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00", "2026-10-26T02:30+01:00"]),
    ("0 30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+01:00", ["2026-03-30T02:30+02:00"]),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "zone", "start", "expected"), GOLDEN)
def test_clock_changes_by_hand(expression: str, zone: str, start: str, expected: list[str]) -> None:
    assert local(expression, zone, start, len(expected)) == expected


@pytest.mark.parametrize("minute", range(0, 120, 7))
def test_every_instant_of_the_repeated_hour_leads_to_the_same_next_day(minute: int) -> None:
    start = datetime(2026, 10, 25, 0, 30, tzinfo=UTC) + timedelta(minutes=minute)  # 02:30 CEST is the first fire
    assert next_fire(cron("30 2 * * *", "Europe/Berlin"), start) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 L * *", ["2026-11-30T00:00+00:00", "2026-12-31T00:00+00:00"]),
        ("0 0 LW * *", ["2026-11-30T00:00+00:00", "2026-12-31T00:00+00:00", "2027-01-29T00:00+00:00"]),
        ("0 0 * * MON#1", ["2026-12-07T00:00+00:00", "2027-01-04T00:00+00:00"]),
        ("0 0 * * 5L", ["2026-11-27T00:00+00:00", "2026-12-25T00:00+00:00"]),
        ("0 0 29 2 *", ["2028-02-29T00:00+00:00", "2032-02-29T00:00+00:00"]),
        ("0 0 13 * FRI", ["2026-11-20T00:00+00:00", "2026-11-27T00:00+00:00"]),  # a date or a weekday: either
        ("0 0 */13 * FRI", ["2026-11-27T00:00+00:00", "2027-01-01T00:00+00:00"]),  # a star: both
        ("0 9 * * mon-fri", ["2026-11-16T09:00+00:00", "2026-11-17T09:00+00:00"]),
    ],
)
def test_last_days_nth_weekdays_and_rare_days(expression: str, expected: list[str]) -> None:
    assert local(expression, "UTC", "2026-11-15T12:00+00:00", len(expected)) == expected


def test_a_fire_is_never_asked_for_past_the_end_of_the_calendar() -> None:
    last = datetime(9999, 12, 31, 23, 59, 30, tzinfo=UTC)
    assert next_fire(cron("* * * * *"), last) is None
    assert next_fire(cron("0 0 * * *", "Europe/Berlin"), last) is None
    assert next_fire(cron("* * * * *", "Asia/Tokyo"), last) is None
