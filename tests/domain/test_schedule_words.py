"""Schedules in words: people read when a job runs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mainspring.domain.schedules.schedule import MANUAL, NOW, Schedule, ScheduleKind
from mainspring.domain.schedules.words import explain
from tests.domain.cron_oracle import Matcher, days_of_month, hours, minutes, months, six_fields, weekdays

T0 = datetime(2026, 11, 15, 12, tzinfo=UTC)


def cron(expression: str, zone: str = "UTC", **members: object) -> Schedule:
    return Schedule(kind=ScheduleKind.CRON, cron=expression, timezone=zone, **members)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 9 * * MON-FRI", "At 09:00, Monday to Friday"),
        ("0 9 * * *", "At 09:00, every day"),
        ("0 9,17 * * *", "At 09:00 and 17:00, every day"),
        ("* * * * *", "Every minute"),
        ("*/15 * * * *", "Every 15 minutes"),
        ("*/7 * * * *", "At every 7th minute from 0 to 56 of every hour"),
        ("5-59/15 * * * *", "At every 15th minute from 5 to 50 of every hour"),
        ("30 * * * *", "At minute 30 of every hour"),
        ("*/15 9-17 * * *", "Every 15 minutes from 09:00 to 17:59, every day"),
        ("0 */2 * * *", "At minute 0 of every 2nd hour from 0 to 22, every day"),
        ("5-10,20 3 * * *", "At minutes 5 to 10 and 20 of hour 3, every day"),
        ("* * * * * *", "Every second"),
        ("*/10 * * * * *", "Every 10 seconds"),
        ("15 30 2 * * *", "At 02:30:15, every day"),
        ("7 */5 * * * *", "At second 7 of every 5th minute from 0 to 55 of every hour"),
        ("0 0 1 * *", "At 00:00, on day 1 of the month"),
        ("0 0 1,15 JAN,JUL *", "At 00:00, on days 1 and 15 of January and July"),
        ("0 0 L * *", "At 00:00, on the last day of the month"),
        ("0 0 LW 2 *", "At 00:00, on the last weekday (Monday to Friday) of February"),
        ("0 0 * * 5L", "At 00:00, on the last Friday of the month"),
        ("0 0 * * MON#2", "At 00:00, on the second Monday of the month"),
        ("0 0 * * 6,7", "At 00:00, on Saturday and Sunday"),
        ("0 0 * 1-3 SUN", "At 00:00, on Sunday, in January to March"),
        ("0 0 13 * FRI", "At 00:00, on day 13 of the month or on Friday"),
        ("0 0 */13 * FRI", "At 00:00, on days 1, 14 and 27 of the month, but only on Friday"),
        ("0 0 1-31 * FRI", "At 00:00, every day"),  # a date or a weekday: every date matches
    ],
)
def test_a_cron_line_is_explained(expression: str, words: str) -> None:
    assert explain(cron(expression, "Europe/Berlin")) == f"{words}, Europe/Berlin"


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (NOW, "Once, as soon as possible"),
        (MANUAL, "Only when somebody runs it"),
        (Schedule(kind=ScheduleKind.AT, at=T0), "Once, at 2026-11-15 12:00:00 UTC"),
        (Schedule(kind=ScheduleKind.EVERY, every=3600.0), "Every hour"),
        (
            Schedule(kind=ScheduleKind.EVERY, every=5400.0, anchor=T0),
            "Every 1 hour 30 minutes from 2026-11-15 12:00:00 UTC on",
        ),
        (Schedule(kind=ScheduleKind.EVERY, every=1.5), "Every 1.5 seconds"),
        (cron("H H * * *"), "At minute H of hour H, every day, where H is a fixed value per job, UTC"),
        (
            cron("H(0-29)/10 * * * MON-FRI"),
            "At minute H(0-29)/10 of every hour, Monday to Friday, where H is a fixed value per job, UTC",
        ),
        (cron("H H * * *", seed=4711), "At 15:06, every day, UTC"),
        (
            cron("30 2 * * *", "Europe/Berlin", gap="skip", fold="last"),
            "At 02:30, every day, Europe/Berlin, a skipped time does not run, a repeated time runs the second time",
        ),
        (
            cron("0 9 * * *", jitter=600.0, start=T0, max_runs=3),
            "At 09:00, every day, UTC, each up to 10 minutes later, not before 2026-11-15 12:00:00 UTC, at most 3 runs",
        ),
        (
            cron("0 9 * * *", calendar="de", outside="next"),
            "At 09:00, every day, UTC, if the calendar de allows it, otherwise at the next time that it allows",
        ),
    ],
)
def test_a_schedule_is_explained(schedule: Schedule, words: str) -> None:
    assert explain(schedule) == words


days_with_marks = days_of_month | st.sampled_from(["L", "LW", "L,5", "1,LW"])
weekdays_with_marks = weekdays | st.sampled_from(["5L", "MON#2", "SUN#5,1", "0L,7#1"])
lines = st.builds("{} {} {} {} {}".format, minutes, hours, days_with_marks, months, weekdays_with_marks)


@settings(max_examples=150)
@given(lines | six_fields, st.none() | st.integers(0, 2**32))
def test_every_line_has_words(expression: str, seed: int | None) -> None:
    assert explain(cron(expression, seed=seed)).endswith(", UTC")


@settings(max_examples=150)
@given(st.builds("{} {} {} {} {}".format, minutes, hours, days_of_month, months, st.just("*")), st.data())
def test_lines_that_match_other_times_have_other_words(first: str, data: st.DataObject) -> None:
    fields = first.split()
    index = data.draw(st.integers(0, 3))
    fields[index] = data.draw((minutes, hours, days_of_month, months)[index])
    one, other = Matcher(first), Matcher(" ".join(fields))
    differ = (one.minutes, one.hours, one.days, one.months) != (other.minutes, other.hours, other.days, other.months)
    assume(differ)
    assert explain(cron(first)) != explain(cron(" ".join(fields)))
