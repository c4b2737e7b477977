"""Messages about calendars: which days and times a schedule may use."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.wire.formats import TimeZone
from mainspring.wire.states import words

WeekdayWord = Annotated[str, words("Weekday", "MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")]
DayText = Annotated[str, Meta(description="A date.", extra_json_schema={"examples": ["2026-12-24"]})]
TimeOfDay = Annotated[
    str,
    Meta(description="A time of day, from 00:00 to 24:00.", extra_json_schema={"examples": ["09:00", "17:30"]}),
]
WallTime = Annotated[
    str,
    Meta(
        description="A time of day; or, in a blackout without days, a date and a time without an offset.",
        extra_json_schema={"examples": ["02:00", "2026-12-20T00:00"]},
    ),
]


class HolidaysIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The public holidays of a country (ISO 3166: "DE"), or of a part of it ("BE")."""

    country: str
    subdivision: str | None = None


class DateSpanIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"first": "from", "last": "to"}):
    """All days from the one to the other, both included."""

    first: DayText
    last: DayText


class TimeSpanIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"start": "from", "end": "to"}):
    """The times of a day from the one to the other, which is not included."""

    start: TimeOfDay
    end: TimeOfDay


class HoursIn(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={
        "start": "from",
        "end": "to",
        **{day: day.upper() for day in ("mon", "tue", "wed", "thu", "fri", "sat", "sun")},
    },
):
    """Business hours: from and to for all weekdays, or hours for each weekday. Then one without hours is closed."""

    start: TimeOfDay | None = None
    end: TimeOfDay | None = None
    mon: TimeSpanIn | list[TimeSpanIn] | None = None
    tue: TimeSpanIn | list[TimeSpanIn] | None = None
    wed: TimeSpanIn | list[TimeSpanIn] | None = None
    thu: TimeSpanIn | list[TimeSpanIn] | None = None
    fri: TimeSpanIn | list[TimeSpanIn] | None = None
    sat: TimeSpanIn | list[TimeSpanIn] | None = None
    sun: TimeSpanIn | list[TimeSpanIn] | None = None


class BlackoutIn(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"start": "from", "end": "to"},
):
    """No fire from the one time to the other, which is not included. With days: in every week."""

    start: WallTime
    end: WallTime
    days: list[WeekdayWord] | None = None


class CalendarRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `PUT /v1/calendars/{name}`: all rules of the calendar. timezone: by default the zone of each job.
    holidays, dates: days that are excluded. weekdays: those that are allowed; by default all. hours: the times of an
    allowed day that are allowed. blackouts: times that are excluded."""

    timezone: TimeZone | None = None
    holidays: HolidaysIn | list[HolidaysIn] | None = None
    dates: list[DayText | DateSpanIn] | None = None
    weekdays: list[WeekdayWord] | None = None
    hours: HoursIn | list[TimeSpanIn] | None = None
    blackouts: list[BlackoutIn] | None = None
    description: str | None = None


class CalendarView(msgspec.Struct, omit_defaults=True):
    """A calendar. jobs: how many use it. pending: how many of them have a next fire that an earlier version decided and
    that is not worked out anew yet. recomputed: how many have been, for this version. A list leaves these three out."""

    name: str
    version: int
    created_at: datetime
    updated_at: datetime
    timezone: TimeZone | None = None
    holidays: list[HolidaysIn] = []
    dates: list[DayText | DateSpanIn] = []
    weekdays: list[WeekdayWord] = []
    hours: HoursIn | list[TimeSpanIn] | None = None
    blackouts: list[BlackoutIn] = []
    description: str | None = None
    jobs: int | None = None
    pending: int | None = None
    recomputed: int | None = None


class CalendarList(msgspec.Struct):
    calendars: list[CalendarView]
    next: str | None = None


ClosedBecause = Annotated[str, words("ClosedBecause", "weekday", "holiday", "date", "blackout")]
Year = Annotated[int, Meta(ge=1970, le=2200)]


class CalendarPreviewRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/calendars/{name}:preview`. rules: as in PUT; without them those that the calendar has.
    year: which days are listed; by default those of the present year."""

    rules: CalendarRequest | None = None
    year: Year | None = None


class ClosedDay(msgspec.Struct, omit_defaults=True):
    """A day without a fire. name: of the holiday. partly: a blackout leaves some of the day open."""

    date: DayText
    because: ClosedBecause
    name: str | None = None
    partly: bool = False


class MovedFires(msgspec.Struct):
    """What becomes of the fires of one job from now on and up to `until`: how many go and how many come, and the first
    20 of each. Both are 0 for a job whose fires stay as they are."""

    job_id: str
    schedule: str
    paused: bool
    next_fire_at: datetime | None
    until: datetime
    go: int
    come: int
    going: list[datetime]
    coming: list[datetime]


class CalendarPreview(msgspec.Struct):
    """What rules would do. version: that of the stored calendar, or null if there is none. closed: the days of the year
    without a fire, and those that a blackout divides. jobs: how many use the calendar. compared: for how many of them
    the fires of the next 366 days were compared, at most 1,000 fires of each. changed: how many of these would fire at
    other times. moved: at most 100 jobs, those first that fire at other times."""

    name: str
    version: int | None
    year: int
    timezone: TimeZone | None
    open_days: int
    closed: list[ClosedDay]
    jobs: int
    compared: int
    changed: int
    moved: list[MovedFires]
