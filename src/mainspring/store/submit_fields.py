"""The fields of a job in `mainspring.submit`, as SQL text that is generated from the table of fields.

Routines name these parts as constants, such as `{{SUBMIT_KNOWN}}` (store/queries.py). So a new field in the table needs
no change of their text. In the text, `job` is the body of the submission and
`options` is what the task declares; both are jsonb.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.kinds.registry import task_kinds
from mainspring.wire.fields import COUNT, DURATION, PLAIN_FIELDS, Field, Place, fields_in, task_options

_READERS = {DURATION: "intake_seconds", COUNT: "intake_whole"}


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


def _spec_members() -> str:
    """The plain fields as arguments of jsonb_build_object: checked, and null if the job does not set them."""
    return ",\n        ".join(f"'{field.name}', {_read(field)}" for field in PLAIN_FIELDS)


def _option_members() -> str:
    """The options of a task that SQL takes and does not merge by member, as arguments of jsonb_build_object."""
    names = [field.name for field in task_options() if Place.SQL in field.places and not field.kind.merged]
    return ", ".join(f"'{name}', options -> '{name}'" for name in names)


def _read(field: Field) -> str:
    reader = _READERS.get(field.kind, "intake_line")
    return f"mainspring.{reader}(job -> '{field.name}', '{field.name}', {_number(field.least)}, {_number(field.most)})"


def _number(value: float) -> str:
    """A number without an exponent. Whole numbers have no fraction, because hints show them."""
    return str(int(value)) if value == int(value) else f"{value:.6f}".rstrip("0")


def _array(names: Iterable[str]) -> str:
    return "array[" + ", ".join(f"'{name}'" for name in names) + "]"


CONSTANTS = {
    "SUBMIT_KNOWN": _array(known_fields()),
    "SUBMIT_ELSEWHERE": _array(fields_elsewhere()),
    "SUBMIT_KINDS_ELSEWHERE": _array(kinds_elsewhere()),
    "SUBMIT_SPEC_MEMBERS": _spec_members(),
    "SUBMIT_OPTION_MEMBERS": _option_members(),
}
