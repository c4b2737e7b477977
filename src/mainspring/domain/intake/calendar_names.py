"""Names of calendars."""

from __future__ import annotations

import difflib
from collections.abc import Collection

import msgspec

from mainspring.domain.errors import InvalidInput, NotFound
from mainspring.domain.texts import shown
from mainspring.wire.formats import ChosenJobId


def check_calendar_name(name: str, field: str = "name") -> str:
    try:
        checked: str = msgspec.convert(name, ChosenJobId)
    except msgspec.ValidationError:
        checked = ""
    if checked in ("", ".", ".."):
        raise InvalidInput(
            f"{shown(name)} cannot be the name of a calendar", field=field,
            expected="at most 200 letters, digits, and . _ -",
        )  # fmt: skip
    return checked


def unknown_calendar(name: str, known: Collection[str]) -> InvalidInput:
    """The calendar of a schedule does not exist."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    close = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return InvalidInput(
        f"there is no calendar {name!r}", code="unknown_calendar", field="schedule.calendar",
        hint=f"{close}create it first: PUT /v1/calendars/{name}",
    )  # fmt: skip


def leaves_no_fire(name: str) -> InvalidInput:
    return InvalidInput(
        f"the calendar {name!r} leaves no fire of this schedule", code="calendar_leaves_no_fire",
        field="schedule.calendar",
        hint='change the times of the schedule, or let fires move: "outside": "next"',
    )  # fmt: skip


def no_calendar(name: str) -> NotFound:
    return NotFound(f"there is no calendar {name!r}", hint="see GET /v1/calendars")
