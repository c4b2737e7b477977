"""The kinds of schedules, and the checks of cron expressions and time zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.cron import ALIASES, check_cron
from mainspring.domain.schedules.fires import fires, next_fire
from mainspring.domain.schedules.schedule import MANUAL, NOW, Schedule, ScheduleKind
from mainspring.domain.schedules.zones import check_timezone

T0 = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
moments = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))
A_MICROSECOND = timedelta(microseconds=1)


def every(seconds: float, anchor: datetime = T0) -> Schedule:
    return Schedule(kind=ScheduleKind.EVERY, every=seconds, anchor=anchor)


@given(moments, st.integers(1_000_000, 400 * 86400 * 10**6), moments)
def test_an_interval_fires_on_the_grid_of_its_anchor_and_nowhere_else(
    anchor: datetime, microseconds: int, after: datetime
) -> None:
    schedule = every(microseconds / 10**6, anchor)
    found = next_fire(schedule, after)
    assert found is not None and found > after
    steps, rest = divmod((found - anchor) // A_MICROSECOND, microseconds)
    assert rest == 0 and steps >= 0
    assert steps == 0 or found - timedelta(microseconds=microseconds) <= after


def test_the_millionth_step_of_an_odd_interval_has_not_drifted() -> None:
    schedule = every(1.1)
    assert next_fire(schedule, T0 + timedelta(seconds=1_100_000 - 1)) == T0 + timedelta(seconds=1_100_000)


def test_an_interval_begins_with_its_anchor() -> None:
    assert list(islice(fires(every(60), T0 - timedelta(days=1)), 2)) == [T0, T0 + timedelta(seconds=60)]
    assert next_fire(every(60), T0) == T0 + timedelta(seconds=60)
    assert next_fire(every(60), T0 - A_MICROSECOND) == T0


def test_an_interval_ends_with_the_calendar() -> None:
    assert next_fire(every(86400.0), datetime(9999, 12, 31, 13, tzinfo=UTC)) is None


def test_a_one_time_schedule_fires_once() -> None:
    at = Schedule(kind=ScheduleKind.AT, at=T0)
    assert list(fires(at, T0 - A_MICROSECOND)) == [T0]
    assert next_fire(at, T0) is None


@pytest.mark.parametrize("schedule", [NOW, MANUAL])
def test_now_and_manual_have_no_fire_of_their_own(schedule: Schedule) -> None:
    assert next_fire(schedule, T0) is None
    assert not schedule.recurring


@pytest.mark.parametrize(
    ("schedule", "recurring", "one_time", "words"),
    [
        (NOW, False, True, "now"),
        (MANUAL, False, False, "manual"),
        (Schedule(kind=ScheduleKind.AT, at=T0), False, True, "at 2026-11-15T12:00:00+00:00"),
        (every(5400.0), True, False, "every 1h30m"),
        (every(1234567.5), True, False, "every 1234567.5s"),
        (Schedule(kind=ScheduleKind.CRON, cron="0 0 * * *"), True, False, "0 0 * * * (UTC)"),
    ],
)
def test_each_kind_says_what_it_is(schedule: Schedule, recurring: bool, one_time: bool, words: str) -> None:
    assert (schedule.recurring, schedule.one_time, schedule.words()) == (recurring, one_time, words)


@pytest.mark.parametrize(
    ("alias", "first"),
    [
        ("@yearly", datetime(2027, 1, 1, tzinfo=UTC)),
        ("@annually", datetime(2027, 1, 1, tzinfo=UTC)),
        ("@monthly", datetime(2026, 12, 1, tzinfo=UTC)),
        ("@weekly", datetime(2026, 11, 22, tzinfo=UTC)),
        ("@daily", datetime(2026, 11, 16, tzinfo=UTC)),
        ("@midnight", datetime(2026, 11, 16, tzinfo=UTC)),
        (" @Hourly ", datetime(2026, 11, 15, 13, tzinfo=UTC)),
    ],
)
def test_an_alias_is_expanded(alias: str, first: datetime) -> None:
    expanded = check_cron(alias, "UTC", "cron", T0)
    assert expanded == ALIASES[alias.strip().lower()]
    assert next_fire(Schedule(kind=ScheduleKind.CRON, cron=expanded), T0) == first


def test_blanks_in_an_expression_are_put_in_order() -> None:
    assert check_cron("  0\t9 *  *\n MON-FRI ", "UTC", "cron", T0) == "0 9 * * MON-FRI"


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 30 2 *",
        "0 0 31 2,4,6,9,11 *",
        "0 0 0 31 FEB *",
        "0 0 30-31 2 */2",
        "* * 31 4 *",
        "0 0 */31 2 1#5",
        "0 0 */31 * 1#5",
    ],
)
def test_an_expression_that_never_fires_is_refused_as_such(expression: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_cron(expression, "UTC", "schedule.cron", T0)
    assert (refused.value.code, refused.value.field) == ("cron_never_fires", "schedule.cron")


def test_an_expression_that_only_names_times_that_are_left_out_never_fires() -> None:
    check_cron("*/30 2 * 3 7L", "UTC", "cron", T0)
    with pytest.raises(InvalidInput) as refused:
        check_cron(
            "*/30 2 * 3 7L", "Europe/Berlin", "cron", T0
        )  # the hour that is skipped every year when summer time begins
    assert refused.value.code == "cron_never_fires"


@pytest.mark.parametrize("expression", ["0 0 30 2 MON", "0 0 29 2 *", "0 0 * 2 MON#5", "0 0 L 2 *", "0 0 31 * *"])
def test_a_rare_expression_is_let_in(expression: str) -> None:
    assert check_cron(expression, "Europe/Berlin", "cron", T0) == expression


@pytest.mark.parametrize(
    "expression",
    [
        "", " ", "0", "0 0 * *", "0 0 0 0 * * *", "61 * * * *", "* 24 * * *", "0 0 32 * *", "0 0 0 * *", "0 0 * 13 *",
        "0 0 * * 8", "*/0 * * * *", "5-1 * * * *", "a * * * *", "0 0 * FOO *", "0 0 * * MON#6", "1,,2 * * * *", "@",
        "@often", "-1 * * * *", "1.5 * * * *", "² * * * *", "9" * 900 + " * * * *", "0 " * 3000, "\ud800 * * * *", 
        "0 0 30 2 9", "0 0 32 2 *", "every 10m", "5-5/0 * * * *", "\x00 * * * *",
    ],
)  # fmt: skip
def test_an_expression_that_cannot_be_read_is_refused(expression: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_cron(expression, "UTC", "cron_expression", T0)
    assert (refused.value.code, refused.value.field) == ("invalid_cron", "cron_expression")
    assert refused.value.expected and refused.value.hint and len(refused.value.detail) < 200


def test_thursday_is_no_hashed_value() -> None:
    assert check_cron("0 0 * MAR THU", "UTC", "cron", T0) == "0 0 * MAR THU"


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "Etc/GMT+5", "Asia/Calcutta", "Zulu"])
def test_any_iana_zone_is_known(name: str) -> None:
    assert check_timezone(name, "timezone") == name


@pytest.mark.parametrize(
    "name", ["", "Mars/Olympus", "localtime", "Factory", "../etc/passwd", "Europe/Berlin\x00", "\ud800", "x" * 5000]
)
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_timezone(name, "schedule.timezone")
    assert (refused.value.code, refused.value.field) == ("unknown_timezone", "schedule.timezone")
    assert len(refused.value.detail) < 120


def test_a_zone_in_the_wrong_case_is_refused_with_the_right_one() -> None:
    with pytest.raises(InvalidInput) as refused:
        check_timezone("europe/berlin", "timezone")
    assert refused.value.hint == "did you mean 'Europe/Berlin'?"
