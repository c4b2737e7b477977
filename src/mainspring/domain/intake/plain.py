"""Intake of the plain fields. The table of fields gives the type and the bounds of each value."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import check_line, read_word, shown
from mainspring.wire.fields import COUNT, DURATION, ON_DEADLINE, PLAIN_FIELDS, PLAIN_NAMES, Field
from mainspring.wire.jobs import JobRequest
from mainspring.wire.states import ON_DEADLINE as ON_DEADLINE_WORDS

# Each submission compares these two. One call reads all plain fields, because most requests have none.
plain_given = attrgetter(*PLAIN_NAMES)
NONE_GIVEN = plain_given(JobRequest())


def reader_of(field: Field) -> Callable[[Any], float | int | str]:
    """A function from the given value to the stored one. It raises InvalidInput that names the field."""
    name, least, most = field.name, field.least, field.most
    if field.kind is DURATION:
        return lambda value: parse_duration(value, name, least=least, most=most)
    if field.kind is ON_DEADLINE:
        return lambda value: read_word(value, name, ON_DEADLINE_WORDS)
    check = _count if field.kind is COUNT else _line
    return lambda value: check(field, value)


def read_plain(request: JobRequest) -> dict[str, Any]:
    """The plain fields of the request, as the spec stores them."""
    found = {}
    for name, read in _READERS:
        value = getattr(request, name)
        if value is not None:
            found[name] = read(value)
    return found


def _count(field: Field, value: int) -> int:
    if not field.least <= value <= field.most:
        raise InvalidInput(
            f"{shown(value)} is out of range",
            field=field.name,
            expected=f"a whole number from {field.least:,} to {field.most:,}",
        )
    return value


def _line(field: Field, value: str) -> str:
    if not field.least <= len(value) <= field.most:
        raise InvalidInput(
            f"{field.name} is {'empty' if len(value) < field.least else 'too long'}",
            field=field.name,
            expected=f"{field.least:,} to {field.most:,} characters",
        )
    check_line(value, field.name)
    return value


_READERS = [(field.name, reader_of(field)) for field in PLAIN_FIELDS]
