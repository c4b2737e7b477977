"""The fires of schedules with a calendar, compared with a plain look at every fire of the rule."""

from __future__ import annotations

import time
from bisect import bisect_left
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.calendar import read_calendar
from mainspring.domain.schedules.calendar_fires import MOST_MOVED
from mainspring.domain.schedules.calendar_rules import RulesNotLoaded, know_rules, rules_to_text
from mainspring.domain.schedules.fires import count_fires, fires, newest_fires, next_fire
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.wire.calendars import CalendarRequest

NOW = datetime(2026, 3, 20, tzinfo=UTC)
DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
WORKDAYS = list(DAYS[:5])


def digest(**members: Any) -> str:
    return know_rules(rules_to_text(read_calendar(msgspec.convert(members, CalendarRequest), NOW)))


def cron(line: str, rules: dict[str, Any] | None, outside: str | None = None, zone: str = "Europe/Berlin") -> Schedule:
    plain = Schedule(kind=ScheduleKind.CRON, cron=line, timezone=zone)
    return plain if rules is None else in_calendar(plain, rules, outside)


def in_calendar(plain: Schedule, rules: dict[str, Any], outside: str | None = None) -> Schedule:
    return msgspec.structs.replace(
        plain, calendar="c", calendar_version=1, calendar_rules=digest(**rules), outside=outside
    )


def first(schedule: Schedule, count: int, after: datetime = NOW) -> list[str]:
    """The next fires on the clock of the schedule's zone."""
    found = []
    for moment in fires(schedule, after):
        found.append(moment.astimezone(ZoneInfo(schedule.timezone)).strftime("%a %m-%d %H:%M"))
        if len(found) == count:
            break
    return found


RULES = [
    ({"weekdays": WORKDAYS}, "0 9 * * *", ["Fri 03-20 09:00", "Mon 03-23 09:00"]),
    ({"dates": ["2026-03-20", {"from": "2026-03-21", "to": "2026-03-24"}]}, "0 9 * * *", ["Wed 03-25 09:00"]),
    ({"holidays": {"country": "DE"}}, "0 9 3,7 4 *", ["Tue 04-07 09:00"]),
    ({"holidays": {"country": "DE", "subdivision": "BE"}}, "0 9 7,8 3 *", ["Sun 03-07 09:00", "Tue 03-07 09:00"]),
    ({"hours": {"from": "09:00", "to": "17:00"}}, "0 8,9,17 * * *", ["Fri 03-20 09:00", "Sat 03-21 09:00"]),
    ({"hours": {"FRI": {"from": "10:00", "to": "12:00"}}}, "0 * * * *", ["Fri 03-20 10:00", "Fri 03-20 11:00"]),
    ({"hours": [{"from": "09:00", "to": "10:00"}, {"from": "13:00", "to": "14:00"}]}, "0 9-13 * * *",
     ["Fri 03-20 09:00", "Fri 03-20 13:00"]),
    ({"blackouts": [{"from": "2026-03-20T00:00", "to": "2026-03-20T09:00"}]}, "0 8,9 * * *",
     ["Fri 03-20 09:00", "Sat 03-21 08:00"]),
    ({"blackouts": [{"days": ["FRI"], "from": "02:00", "to": "24:00"}]}, "0 3 * * *", ["Sat 03-21 03:00"]),
    ({"timezone": "America/New_York", "hours": {"from": "00:00", "to": "12:00"}}, "0 * * * *",
     ["Fri 03-20 05:00", "Fri 03-20 06:00"]),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "line", "expected"), RULES, ids=lambda value: str(value)[:40])
def test_each_rule_leaves_fires_out(rules: dict[str, Any], line: str, expected: list[str]) -> None:
    assert first(cron(line, rules), len(expected)) == expected
    assert first(cron(line, None), len(expected)) != expected


def test_a_holiday_of_a_subdivision_is_none_elsewhere() -> None:
    """8 March is a holiday in Berlin."""
    after = datetime(2027, 3, 1, tzinfo=UTC)
    berlin = cron("0 9 8 3 *", {"holidays": {"country": "DE", "subdivision": "BE"}})
    munich = cron("0 9 8 3 *", {"holidays": {"country": "DE", "subdivision": "BY"}})
    assert first(munich, 1, after) == ["Mon 03-08 09:00"]
    assert next_fire(berlin, after) is None


def test_a_fire_on_a_closed_day_moves_to_the_same_time_of_the_next_open_day() -> None:
    weekly = cron("30 10 * * SAT", {"weekdays": WORKDAYS}, "next")
    assert first(weekly, 2) == ["Mon 03-23 10:30", "Mon 03-30 10:30"]


def test_a_fire_at_a_closed_time_moves_to_the_opening() -> None:
    rules = {"weekdays": WORKDAYS, "hours": {"from": "09:00", "to": "17:00"}}
    assert first(cron("0 20 * * *", rules, "next"), 3) == ["Fri 03-20 09:00", "Mon 03-23 09:00", "Tue 03-24 09:00"]
    assert first(cron("0 10,20 * * FRI", rules, "next"), 3) == ["Fri 03-20 10:00", "Mon 03-23 09:00", "Fri 03-27 10:00"]


def test_fires_that_move_to_one_time_are_one() -> None:
    daily = cron("0 9 * * *", {"weekdays": WORKDAYS}, "next")
    assert first(daily, 3) == ["Fri 03-20 09:00", "Mon 03-23 09:00", "Tue 03-24 09:00"]
    assert count_fires(daily, NOW, NOW + timedelta(days=7)) == 5


def test_of_very_many_fires_on_closed_days_the_last_one_moves() -> None:
    every_minute = cron("* * * * SAT", {"weekdays": WORKDAYS}, "next")
    assert MOST_MOVED < 24 * 60
    assert first(every_minute, 2) == ["Mon 03-23 23:59", "Mon 03-30 23:59"]


def test_the_zone_is_that_of_the_calendar_or_else_of_the_job() -> None:
    hours = {"hours": {"from": "09:00", "to": "10:00"}}
    every = Schedule(kind=ScheduleKind.EVERY, every=3600.0, anchor=NOW, timezone="Asia/Tokyo")
    assert next_fire(in_calendar(every, hours), NOW) == NOW + timedelta(hours=24)
    assert next_fire(in_calendar(every, {**hours, "timezone": "UTC"}), NOW) == NOW + timedelta(hours=9)


def test_without_its_rules_a_schedule_is_not_evaluated() -> None:
    unknown = msgspec.structs.replace(cron("0 9 * * *", {"weekdays": WORKDAYS}), calendar_rules="0" * 32)
    unresolved = msgspec.structs.replace(unknown, calendar_rules=None)
    for schedule in (unknown, unresolved):
        with pytest.raises(RulesNotLoaded):
            next_fire(schedule, NOW)


# Against a plain look at every fire

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo")
STARTS = (
    datetime(2026, 3, 25, tzinfo=UTC),
    datetime(2026, 10, 22, tzinfo=UTC),
    datetime(2011, 12, 27, tzinfo=UTC),
    datetime(2018, 11, 1, tzinfo=UTC),
    datetime(2026, 4, 2, tzinfo=UTC),
)
times_of_day = st.integers(0, 48).map(lambda half: f"{half // 2:02}:{half % 2 * 30:02}")
spans = st.tuples(times_of_day, times_of_day).filter(lambda pair: pair[0] < pair[1])
days = st.integers(0, 25)


@st.composite
def calendars(draw: st.DrawFn, start: datetime) -> dict[str, Any]:
    def day(number: int) -> str:
        return (start.date() + timedelta(days=number)).isoformat()

    rules: dict[str, Any] = {}
    if draw(st.booleans()):
        rules["weekdays"] = draw(st.lists(st.sampled_from(DAYS), min_size=1, max_size=6))
    if draw(st.booleans()):
        rules["dates"] = [day(number) for number in draw(st.lists(days, max_size=6))]
    if draw(st.booleans()):
        found = draw(st.lists(spans, min_size=1, max_size=2))
        rules["hours"] = [{"from": low, "to": high} for low, high in found]
    rules["blackouts"] = []
    for low, high in draw(st.lists(spans, max_size=2)):
        rules["blackouts"].append({"days": draw(st.lists(st.sampled_from(DAYS), min_size=1)), "from": low, "to": high})
    for number, length in draw(st.lists(st.tuples(days, st.integers(1, 60)), max_size=2)):
        begin = datetime.fromisoformat(day(number))
        end = begin + timedelta(hours=length)
        rules["blackouts"].append({"from": begin.isoformat(), "to": end.isoformat()})
    return rules


def seconds(text: str) -> int:
    return int(text[:2]) * 3600 + int(text[3:5]) * 60


class Plain:
    """The meaning of a calendar, moment by moment."""

    def __init__(self, rules: dict[str, Any], zone: str) -> None:
        self.rules = rules
        self.zone = ZoneInfo(zone)
        self.lasting = [
            tuple(datetime.fromisoformat(one[end]).replace(tzinfo=self.zone).timestamp() for end in ("from", "to"))
            for one in rules["blackouts"]
            if "days" not in one
        ]

    @cache  # noqa: B019 - as short-lived as the test
    def allows_day(self, day: date) -> bool:
        if DAYS[day.weekday()] not in self.rules.get("weekdays", DAYS) or day.isoformat() in self.rules.get(
            "dates", ()
        ):
            return False
        noon = datetime.combine(day, datetime.min.time())
        return any(self._in_windows(noon + timedelta(minutes=minute)) for minute in range(0, 24 * 60, 30))

    def _in_windows(self, local: datetime) -> bool:
        second = local.hour * 3600 + local.minute * 60 + local.second
        hours = self.rules.get("hours", [{"from": "00:00", "to": "24:00"}])
        if not any(seconds(one["from"]) <= second < seconds(one["to"]) for one in hours):
            return False
        name = DAYS[local.weekday()]
        return not any(
            name in one.get("days", ()) and seconds(one["from"]) <= second < seconds(one["to"])
            for one in self.rules["blackouts"]
        )

    def allows(self, moment: datetime) -> bool:
        local = moment.astimezone(self.zone)
        if not self.allows_day(local.date()) or not self._in_windows(local):
            return False
        return not any(low <= moment.timestamp() < high for low, high in self.lasting)

    def moved(self, moment: datetime) -> datetime | None:
        local = moment.astimezone(self.zone)
        if not self.allows_day(local.date()):
            day = local.date()
            for _ in range(400):
                day += timedelta(days=1)
                if self.allows_day(day):
                    break
            else:
                return None
            moment = datetime.combine(day, local.time(), tzinfo=self.zone).astimezone(UTC)
        for _ in range(60 * 48):  # clocks and windows change at half hours
            if self.allows(moment):
                return moment
            step = 1800 - moment.timestamp() % 1800
            moment += timedelta(seconds=step)
        return None


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_next_count_and_newest_are_those_of_a_plain_look(data: st.DataObject) -> None:
    start = data.draw(st.sampled_from(STARTS))
    zone = data.draw(st.sampled_from(ZONES))
    rules = data.draw(calendars(start))
    outside = data.draw(st.sampled_from([None, "next"]))
    if data.draw(st.booleans()):
        line = data.draw(st.sampled_from(["0 9 * * *", "30 2 * * *", "15 */5 * * *", "0 12 * * SAT", "45 23 * * *"]))
        rule = Schedule(kind=ScheduleKind.CRON, cron=line, timezone=zone)
    else:
        hours = data.draw(st.sampled_from([5.0, 7.0, 23.5, 49.0]))
        rule = Schedule(kind=ScheduleKind.EVERY, every=hours * 3600, anchor=start - timedelta(days=90), timezone=zone)
    try:
        schedule = in_calendar(rule, rules, outside)
    except InvalidInput as error:  # a calendar that allows nothing
        assert "allows nothing" in str(error)
        return
    plain = Plain(rules, zone)
    end = start + timedelta(days=21)
    wide = list[datetime]()
    moment = next_fire(rule, start - timedelta(days=60))
    while moment is not None and moment <= end:
        wide.append(moment)
        moment = next_fire(rule, moment)
    found = (plain.moved(one) for one in wide) if outside else (one for one in wide if plain.allows(one))
    expected = sorted({one for one in found if one is not None and start < one <= end})
    listed = []
    moment = next_fire(schedule, start)
    while moment is not None and moment <= end:
        listed.append(moment)
        moment = next_fire(schedule, moment)
    assert listed == expected
    low = start + data.draw(st.timedeltas(timedelta(0), timedelta(days=10)))
    high = low + data.draw(st.timedeltas(timedelta(0), timedelta(days=11)))
    part = [one for one in expected if low < one <= high]
    assert count_fires(schedule, low, high) == len(part)
    wanted = data.draw(st.integers(1, 40))
    assert newest_fires(schedule, low, high, wanted) == part[-wanted:]
    after = expected[bisect_left(expected, high) :]
    following = next_fire(schedule, high)
    if after and high not in after:
        assert following == after[0]


# Bounds

HARD = [
    ({"hours": {"from": "09:00", "to": "17:00"}}, "0 0 * * *"),
    ({"weekdays": ["MON"], "blackouts": [{"days": ["MON"], "from": "00:00", "to": "23:59"}]}, "0 12 * * *"),
    ({"dates": [{"from": "2026-01-01", "to": "2070-01-01"}]}, "0 12 29 2 *"),
    ({"weekdays": ["MON"], "hours": {"from": "00:00", "to": "00:01"}}, "30 12 29 2 *"),
    ({"holidays": {"country": "US"}, "weekdays": ["SUN"]}, "0 0 25 12 *"),
]


@pytest.mark.parametrize(("rules", "line"), HARD)
def test_a_calendar_that_excludes_nearly_everything_is_evaluated_quickly(rules: dict[str, Any], line: str) -> None:
    schedule = cron(line, rules)
    next_fire(cron("0 9 * * *", {"holidays": {"country": "US"}}), NOW)  # imports the library
    begin = time.process_time()
    next_fire(schedule, NOW)
    assert time.process_time() - begin < 0.25  # 50 ms on an idle machine


@pytest.mark.parametrize("outside", [None, "next"])
def test_a_year_of_every_second_is_counted_quickly(outside: str | None) -> None:
    rules = {"weekdays": WORKDAYS, "hours": {"from": "09:00", "to": "17:00"}}
    schedule = cron("* * * * * *", rules, outside, zone="UTC")
    begin = time.process_time()
    assert count_fires(schedule, NOW, NOW + timedelta(days=364)) == 52 * 5 * 8 * 3600
    assert len(newest_fires(schedule, NOW, NOW + timedelta(days=364), 10)) == 10
    assert time.process_time() - begin < 1.0
