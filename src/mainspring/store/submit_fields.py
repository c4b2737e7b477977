"""The fields of a job in `mainspring.submit`, as SQL text that is generated from the table of fields.

Routines name these parts as constants, such as `{{SUBMIT_KNOWN}}`, which are filled in when routines are loaded
(store/routine_loader.py). So a new field in the table needs no change of their text: it is taken by its type and
bounds, or refused by name. The types and words are those of the request (wire/jobs.py), and the defaults those of the
stored spec (domain/job.py). In the text, `job` is the body of the submission and `options` is what the task declares;
both are jsonb.

Rules that concern several fields (what to run, when, how often) are in routines/*.sql.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, get_args

import msgspec

from mainspring.domain.job import DEFAULT_SPEC, Overlap, Priority
from mainspring.domain.retry import DEFAULT_RETRY
from mainspring.kernel.config import DEFAULT_QUEUE, MAX_PAYLOAD_BYTES, MAX_SHELL_PAYLOAD_BYTES
from mainspring.kinds.registry import task_kinds
from mainspring.wire import jobs as requests
from mainspring.wire.fields import (
    CALL_FIELDS,
    PAIRS,
    PAYLOAD,
    PROSE,
    SCHEDULE,
    UNIQUE,
    Field,
    Member,
    Place,
    fields_in,
    task_options,
)
from mainspring.wire.schedules import ScheduleIn

_READERS = {
    "DurationIn": "intake_seconds",
    "int": "intake_whole",
    "float": "intake_number",
    "str": "intake_line",
    "dict[str, str]": "intake_pairs",
}
_MOST_PAIRS = 40  # a function has at most 100 arguments
_SETUP = "spec.setup."


def known_fields() -> list[str]:
    """The fields that SQL takes, in the order in which its hint names them."""
    return [field.name for field in fields_in(Place.SQL)]


def fields_elsewhere() -> list[str]:
    """The fields that are accepted over HTTP but not in SQL."""
    foreign = {kind.field for kind in task_kinds() if kind.package is not None}  # routines are the same everywhere
    return [
        field.name for field in fields_in(Place.REQUEST) if Place.SQL not in field.places and field.name not in foreign
    ]


def kinds_elsewhere() -> list[str]:
    """The kinds of task that are accepted over HTTP but not in SQL."""
    return [kind.name for kind in task_kinds() if not kind.in_sql and kind.package is None]


def submit_constants() -> dict[str, str]:
    """What routines say about the fields of a job."""
    [schedule] = [field for field in fields_in(Place.SQL) if field.kind is SCHEDULE]
    return {
        "SUBMIT_KNOWN": _array(known_fields()),
        "SUBMIT_ELSEWHERE": _array(fields_elsewhere()),
        "SUBMIT_KINDS_ELSEWHERE": _array(kinds_elsewhere()),
        "SUBMIT_VALUES": _object((field.name, _read(field)) for field in _values() if _struct_of(field) is None),
        "SUBMIT_OBJECTS": "\n".join(_read_object(field) for field in _values() if _struct_of(field) is not None),
        "SUBMIT_SCHEDULE": f"(select {_members_of(schedule)} from {_named_members(schedule)} as members)",
        "SUBMIT_SPEC_MEMBERS": _object(
            (field.name, _unless_default(f"job -> '{field.name}'", _default_of(field)))
            for field in _values()
            if field.stored == f"spec.{field.name}"
        ),
        "SUBMIT_OPTION_MEMBERS": _options(field for field in _sql_options() if not field.kind.merged),
        "SUBMIT_OPTIONS_BY_NAME": _array(field.name for field in _sql_options() if field.kind is PAIRS),
        "SUBMIT_SETUP_OPTIONS": _options(field for field in _options_elsewhere() if _in_setup(field)),
        "SUBMIT_OPTIONS_REFUSED": _array(
            field.name
            for field in _options_elsewhere()
            if not _in_setup(field) and field.kind is not UNIQUE and field.stored is not None
        ),
        "SUBMIT_QUEUE": _text(DEFAULT_QUEUE),
        "SUBMIT_PRIORITY": str(int(Priority.NORMAL)),
        "SUBMIT_OVERLAP_ALLOW": str(int(Overlap.ALLOW)),
        "SUBMIT_ATTEMPTS": str(DEFAULT_RETRY.max_attempts),
        "SUBMIT_BACKOFF_CAP": _number(DEFAULT_RETRY.cap),
        "MAX_PAYLOAD": str(MAX_PAYLOAD_BYTES),
        "MAX_SHELL_PAYLOAD": str(MAX_SHELL_PAYLOAD_BYTES),
    }


def _values() -> list[Field]:
    """The fields that SQL reads by their type. Those that say what runs and when have rules of their own."""
    return [
        field
        for field in fields_in(Place.SQL)
        if field.kind not in (PAYLOAD, SCHEDULE) and field.name not in {call.name for call in CALL_FIELDS}
    ]


def _read(field: Field) -> str:
    """An expression with the value of a field as it is stored. It is null if the job does not set it, and raises if the
    value is wrong."""
    if field.kind is PROSE:
        return f"mainspring.intake_prose(job -> '{field.name}', '{field.name}', {_number(field.most)})"
    return _read_value(field.kind.wire, f"job -> '{field.name}'", field.name, field)


def _struct_of(field: Field) -> type[msgspec.Struct] | None:
    """The type of an object in the request."""
    if field.kind is SCHEDULE:
        return ScheduleIn
    found = getattr(requests, field.kind.wire, None)
    return found if isinstance(found, type) and issubclass(found, msgspec.Struct) else None


def _read_object(field: Field) -> str:
    """A statement that reads an object. As a subquery among the other values it would cost each submission 200 µs."""
    return (
        f"if job ? '{field.name}' then\n    members := {_named_members(field)};\n"
        f"    found := found || jsonb_build_object('{field.name}', {_members_of(field)});\nend if;"
    )


def _named_members(field: Field) -> str:
    """A call that returns the members of an object. Those that SQL does not take are refused by name."""
    struct = _struct_of(field)
    assert struct is not None
    taken = [member.name for member in field.members]
    elsewhere = [name for name in struct.__struct_fields__ if name not in taken]
    return f"mainspring.intake_members(job -> '{field.name}', '{field.name}', {_array(taken)}, {_array(elsewhere)})"


def _members_of(field: Field) -> str:
    """An expression with the members of an object as they are stored."""
    struct = _struct_of(field)
    assert struct is not None
    types = {name: struct.__annotations__[name].removesuffix(" | None") for name in struct.__struct_fields__}
    values = (
        (each.name, _read_value(types[each.name], f"members -> '{each.name}'", f"{field.name}.{each.name}", each))
        for each in field.members
    )
    return f"jsonb_strip_nulls({_object(values)})"


def _read_value(wire: str, value: str, path: str, bounds: Field | Member) -> str:
    """An expression with a value. wire: its type in the request."""
    given = f"{value}, '{path}'"
    if wire in _READERS:
        return f"mainspring.{_READERS[wire]}({given}, {_number(bounds.least)}, {_number(bounds.most)})"
    if wire == "Moment":
        return f"mainspring.intake_moment({given})"
    if wire == "KeptSizeIn":
        return f"mainspring.intake_kept({given})"
    if wire == "PriorityIn":
        return f"mainspring.intake_level({given}, {_array(level.word for level in Priority)})"
    for form in _forms(wire):
        if form.min_length is not None and form.max_length is not None:
            return f"mainspring.intake_line({given}, {form.min_length}, {form.max_length})"
        if words := [str(word).lower() for word in (form.extra_json_schema or {}).get("enum", ())]:
            taken = bounds.sql_words if isinstance(bounds, Field) and bounds.sql_words else words
            others = [word for word in words if word not in taken]
            return f"mainspring.intake_word({given}, {_array(taken)}, {_array(others)})"
    raise ValueError(f"{path}: SQL cannot read the type {wire}; leave Place.SQL out of its places")


def _forms(wire: str) -> Sequence[msgspec.Meta]:
    return [form for form in get_args(getattr(requests, wire, None)) if isinstance(form, msgspec.Meta)]


def _default_of(field: Field) -> Any:
    return {} if field.kind is PAIRS else getattr(DEFAULT_SPEC, field.name, None)


def _unless_default(value: str, default: Any) -> str:
    """A value, or null if it is the default."""
    if isinstance(default, msgspec.Struct):
        names = default.__struct_fields__
        members = ((name, _unless_default(f"{value} -> '{name}'", getattr(default, name))) for name in names)
        return f"nullif(jsonb_strip_nulls({_object(members)}), '{{}}')"
    return value if default is None else f"nullif({value}, '{msgspec.json.encode(default).decode()}')"


def _in_setup(field: Field) -> bool:
    return field.stored is not None and field.stored.startswith(_SETUP)


def _sql_options() -> list[Field]:
    """The options of a task that a job in SQL could also give itself."""
    return [field for field in task_options() if Place.SQL in field.places]


def _options_elsewhere() -> list[Field]:
    return [field for field in task_options() if Place.SQL not in field.places]


def _options(fields: Iterable[Field]) -> str:
    return _object((field.name, f"options -> '{field.name}'") for field in fields)


def _object(members: Iterable[tuple[str, str]]) -> str:
    """An expression with an object. Members that are null are in it."""
    pairs = [f"'{name}', {value}" for name, value in members]
    parts = [pairs[start : start + _MOST_PAIRS] for start in range(0, len(pairs), _MOST_PAIRS)]
    return " || ".join("jsonb_build_object(\n    " + ",\n    ".join(part) + ")" for part in parts)


def _number(value: float) -> str:
    """A number without an exponent. Whole numbers have no fraction, because hints show them."""
    return str(int(value)) if value == int(value) else f"{value:.6f}".rstrip("0")


def _array(names: Iterable[str]) -> str:
    return "array[" + ", ".join(_text(name) for name in names) + "]::text[]"


def _text(value: str) -> str:
    return f"'{value}'"
