"""Intake of the plain fields: each value is checked by its kind and bounds, as the table of fields gives them."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import check_line, shown
from mainspring.wire.fields import COUNT, DURATION, PLAIN_FIELDS, PLAIN_NAMES, Field
from mainspring.wire.jobs import JobRequest

_given = attrgetter(*PLAIN_NAMES)
_NONE_GIVEN = _given(JobRequest())


def no_plain_field(request: JobRequest) -> bool:
    """Whether the request gives none of them: one call for all, since each submission comes here."""
    return bool(_given(request) == _NONE_GIVEN)


def read_plain(request: JobRequest) -> dict[str, Any]:
    """The plain fields that the request gives, as the spec stores them; raises InvalidInput."""
    return {
        field.name: read_value(field, value)
        for field in PLAIN_FIELDS
        if (value := getattr(request, field.name)) is not None
    }


def read_value(field: Field, value: Any) -> float | int | str:
    """The value that is stored, or InvalidInput that names the field."""
    if field.kind == DURATION:
        return parse_duration(value, field.name, least=field.least, most=field.most)
    if field.kind == COUNT:
        if not field.least <= value <= field.most:
            raise InvalidInput(
                f"{shown(value)} is out of range",
                field=field.name,
                expected=f"a whole number from {field.least:,} to {field.most:,}",
            )
        return int(value)
    if not field.least <= len(value) <= field.most:
        raise InvalidInput(
            f"{field.name} is {'empty' if len(value) < field.least else 'too long'}",
            field=field.name,
            expected=f"{field.least:,} to {field.most:,} characters",
        )
    check_line(value, field.name)
    return str(value)
