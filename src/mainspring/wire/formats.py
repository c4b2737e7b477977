"""Texts with a form of their own: cron lines, durations, sizes, time zones, times. The OpenAPI document names the form.

Intake checks them (domain/intake/). The decoder sees plain texts and numbers. JSON Schema calls another form `duration`
(ISO 8601), so ours is a `timespan`.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta


def _form(name: str, description: str, *examples: Any) -> Meta:
    return Meta(description=description, extra_json_schema={"format": name, "examples": list(examples)})


Cron = Annotated[
    str,
    _form("cron", "Five fields, or six with seconds first, or an alias such as @daily.", "0 9 * * MON-FRI", "@daily"),
]
ScheduleText = Annotated[
    str, _form("schedule", 'A cron line, "now" or "manual" (only run-now).', "*/15 * * * *", "now", "manual")
]
TimeZone = Annotated[str, _form("timezone", "The name of an IANA time zone.", "Europe/Berlin", "UTC")]
Moment = Annotated[str, _form("date-time", "RFC 3339.", "2030-12-31T23:59:59Z")]
DurationIn = (
    Annotated[str, _form("timespan", "Numbers with units: ms, s, m, h, d, w, y.", "90s", "15m", "1h30m")]
    | Annotated[int, Meta(description="Seconds.", extra_json_schema={"minimum": 0})]
    | Annotated[float, Meta(description="Seconds.", extra_json_schema={"minimum": 0})]
)
SizeIn = (
    Annotated[str, _form("size", "Bytes, with a unit such as kB, MB or MiB.", "512MB", "1GiB")]
    | Annotated[int, Meta(description="Bytes.", extra_json_schema={"minimum": 0})]
)
KeptSizeIn = Annotated[bool, Meta(description="All of it, or nothing.")] | SizeIn
Name = Annotated[str, Meta(min_length=1, max_length=200)]
LONGEST_JOB_ID = 200
ChosenJobId = Annotated[str, Meta(min_length=1, max_length=LONGEST_JOB_ID, pattern=r"^[A-Za-z0-9._-]+$")]
