"""Intake of unique jobs: the field, the key of a job, and what another submission with the key does to the job that has
it. The server and the test box of the SDK share this code."""

from __future__ import annotations

import hashlib
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import Conflict, InvalidInput
from mainspring.domain.intake.kind_checks import calls_in
from mainspring.domain.job import JobDefinition, line_of
from mainspring.domain.limits import NotAKey, Slot
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.domain.texts import check_line, shown
from mainspring.wire.execution import RunSetup
from mainspring.wire.unique import UNIQUE_CHOICES, UNIQUE_STATES, Unique, UniqueIn

SCHEDULED, HELD, QUEUED, RUNNING = UNIQUE_STATES
KEEP, REPLACE, LATER = UNIQUE_CHOICES
KEPT, REPLACED = "kept", "replaced"
_DEFAULT_FOR = 86400.0
_LONGEST_FOR = 366 * 86400.0
_MOST_FIELDS = 16
_LONGEST_FIELD = 200
_FIELDS = "task, name, queue, labels.<name> or payload.<path>"
_OUTSIDE = "change unique.by to name one value outside of arrays"
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_unique(given: bool | UniqueIn) -> Unique | None:
    """False: not unique, whatever its task declares."""
    if given is False:
        return None
    if given is True:
        raise InvalidInput(
            "true does not say by what the job is unique", field="unique", expected="an object or false",
            hint='such as {"by": ["payload.account"]}',
        )  # fmt: skip
    choice = KEEP if given.else_ is None else given.else_.lower()
    if choice not in UNIQUE_CHOICES:
        raise InvalidInput(
            f"{shown(given.else_)} is not a choice", field="unique.else", expected=", ".join(UNIQUE_CHOICES)
        )
    window = _DEFAULT_FOR
    if given.for_ is not None:
        window = parse_duration(given.for_, "unique.for", least=0.001, most=_LONGEST_FOR)
    return Unique(_fields(given.by), window, _states(given.while_, choice), choice)


def unique_as_given(unique: Unique | None) -> UniqueIn | None:
    """The field as a request, with all values."""
    return None if unique is None else UniqueIn(unique.by, unique.for_, unique.while_, unique.else_)


def check_unique(definition: JobDefinition) -> None:
    """Raise InvalidInput if the job recurs, or if a value cannot be part of its key."""
    if not definition.schedule.one_time:
        raise InvalidInput(
            "only a job that runs once can be unique", field="unique",
            hint="use a job without unique; overlap says whether runs of a recurring job may overlap",
        )  # fmt: skip
    unique_key(definition)


def check_time(definition: JobDefinition) -> None:
    """Raise InvalidInput if the submission is to push the time of another one, and has no time."""
    unique = definition.spec.unique
    if unique is not None and unique.else_ == LATER and definition.schedule.kind is not ScheduleKind.AT:
        raise InvalidInput(
            "later goes with a time, and this job runs now", field="unique.else",
            hint='give delay ("delay": "30s") or schedule_time, or use keep or replace',
        )  # fmt: skip


def check_unchanged(stored: JobDefinition, changed: JobDefinition) -> None:
    """Raise InvalidInput if a change of the job would change its key."""
    if stored.spec.unique is None or changed.spec.unique is None:
        return
    before, after = _values(stored, stored.spec.unique), _values(changed, changed.spec.unique)
    for (field, old), (_, new) in zip(before, after, strict=True):
        if old != new:
            raise InvalidInput(
                f"the job is unique by {field}, which cannot be changed", field=field,
                hint="cancel the job and create another one",
            )  # fmt: skip


def unique_key(definition: JobDefinition) -> bytes:
    """The key of a unique job: a hash of the fields and their values. Jobs with other fields have other keys. Raises
    InvalidInput if a value is an object or an array."""
    unique = definition.spec.unique
    if unique is None:
        raise ValueError("the job is not unique")
    return hashlib.sha256(msgspec.json.encode(_values(definition, unique))).digest()


def with_work_of(
    stored: JobDefinition, new: JobDefinition, job_id: str, line: list[Slot] | None = None
) -> JobDefinition:
    """`stored` with the payload of `new`, and its command or HTTP call. `line`: the slots that its runs need, if they
    have limits. Raises Conflict if it is of another task, or if its runs would need other slots."""
    if stored.task != new.task:
        raise Conflict(
            f"the job that has the unique key is of the task {shown(stored.task)}, not {shown(new.task)}",
            code="unique_other_task", field="unique", hint='add "task" to unique.by',
        )  # fmt: skip
    setup = msgspec.structs.replace(stored.spec.setup or RunSetup(), **calls_in(new.spec.setup or RunSetup()))
    spec = msgspec.structs.replace(stored.spec, command=new.spec.command, setup=None if setup == RunSetup() else setup)
    changed = msgspec.structs.replace(stored, payload=new.payload, spec=spec)
    if line is not None and not _needs(changed, job_id, line):
        raise is_limited(job_id, REPLACE)
    return changed


def _needs(definition: JobDefinition, job_id: str, line: list[Slot]) -> bool:
    try:
        return line_of(definition, job_id) == line
    except (NotAKey, msgspec.DecodeError, RecursionError):
        return False


def pushed(current: datetime | None, schedule: Schedule, until: datetime) -> datetime:
    """The time of a waiting job after a submission that pushes it. It is never earlier than before, and a push ends
    `for` after the first submission, so that a job that is pushed again and again runs at last."""
    if schedule.at is None:
        raise ValueError("the submission has no time")
    wanted = min(schedule.at, until)
    return wanted if current is None else max(current, wanted)


def has_started(job_id: str, choice: str) -> Conflict:
    what = "its payload cannot be replaced" if choice == REPLACE else "its time cannot be pushed"
    return Conflict(
        f"job {job_id!r} has the unique key and has started; {what}", code="unique_started", field="unique",
        hint="send it again when that job has ended, or use keep",
    )  # fmt: skip


def taken_outside(field: str = "unique") -> Conflict:
    """The answer to a narrowed token, which learns nothing of the job: neither its id nor its state."""
    return Conflict(
        "a job that this token does not reach has the unique key", code="unique_taken", field=field,
        hint="use another key, such as one by queue or task, or a token that reaches that job",
    )  # fmt: skip


def is_limited(job_id: str, choice: str) -> Conflict:
    what = "the payload has another key of it" if choice == REPLACE else "its time cannot be pushed any more"
    return Conflict(
        f"job {job_id!r} has the unique key and waits under a limit; {what}", code="limited", field="unique",
        hint="send it again when that job has ended, or use keep",
    )  # fmt: skip


def _fields(given: list[str]) -> list[str]:
    if not 1 <= len(given) <= _MOST_FIELDS:
        raise InvalidInput(
            f"{len(given)} fields are given", field="unique.by", expected=f"1 to {_MOST_FIELDS} of {_FIELDS}"
        )
    for index, field in enumerate(given):
        place = f"unique.by[{index}]"
        check_line(field, place)
        first, _, rest = field.partition(".")
        if len(field) > _LONGEST_FIELD:
            raise InvalidInput(
                f"{shown(field)} is too long", field=place, expected=f"at most {_LONGEST_FIELD} characters"
            )
        if not (field in ("task", "name", "queue") or (first == "labels" and rest) or _is_path(first, rest)):
            hint = 'name one value, such as "payload.account"' if first in ("payload", "labels") else None
            raise InvalidInput(f"{shown(field)} is not a field of a key", field=place, expected=_FIELDS, hint=hint)
        if field in given[:index]:
            raise InvalidInput(f"{shown(field)} is given twice", field=place, hint="leave one of them out")
    return given


def _is_path(first: str, rest: str) -> bool:
    return first == "payload" and all(rest.split("."))


def _states(given: list[str] | None, choice: str) -> list[str]:
    if given is None:
        return [state for state in UNIQUE_STATES if choice == KEEP or state != RUNNING]
    states = [state.lower() for state in given]
    if not states:
        raise InvalidInput("no state is given", field="unique.while", expected=f"some of {', '.join(UNIQUE_STATES)}")
    for index, state in enumerate(states):
        if state not in UNIQUE_STATES:
            raise InvalidInput(
                f"{shown(given[index])} is not a state", field=f"unique.while[{index}]",
                expected=f"some of {', '.join(UNIQUE_STATES)}",
            )  # fmt: skip
    if RUNNING in states and choice != KEEP:
        raise InvalidInput(
            f"{choice} does not go with running: a job that runs has started", field="unique.while",
            expected=", ".join(state for state in UNIQUE_STATES if state != RUNNING),
            hint="leave running out, or use keep",
        )  # fmt: skip
    return [state for state in UNIQUE_STATES if state in states]


def _values(definition: JobDefinition, unique: Unique) -> list[tuple[str, Any]]:
    """The fields of the key in order, with their values. A number is a list, so that no text equals it."""
    return [(field, _value(definition, field)) for field in sorted(unique.by)]


def _value(definition: JobDefinition, field: str) -> Any:
    first, _, rest = field.partition(".")
    match first:
        case "task":
            return definition.task
        case "name":
            return definition.name
        case "queue":
            return definition.queue
        case "labels":
            return (definition.spec.labels or {}).get(rest)
        case _:
            return _in_payload(definition.payload, field)


def _in_payload(payload: str | None, field: str) -> Any:
    """The value at a path. None if it is absent."""
    text = b"null" if payload is None else payload.encode()
    try:
        for name in field.split(".")[1:]:
            if text[:1] == b"[":
                raise _no_value(field, "meets an array", _OUTSIDE)
            if text[:1] != b"{":
                return None
            found = _members(text).get(name)
            text = b"null" if found is None else bytes(memoryview(found))
        match text[:1]:
            case b"{":
                raise _no_value(field, "is an object", f"change unique.by to name one value inside {field}")
            case b"[":
                raise _no_value(field, "is an array", _OUTSIDE)
            case b'"' | b"t" | b"f" | b"n":
                return msgspec.json.decode(text)
            case _:
                return _number(text.decode())
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"{field} cannot be decoded: {error}", field=field) from None


def _number(text: str) -> list[str]:
    """A number as it is, however it is written: 1, 1.0 and 10e-1 are equal, and no digit of a long one is lost."""
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:  # an exponent of many digits
        return [text.lower()]
    shortened = "".join(map(str, digits)).rstrip("0")
    if not shortened.lstrip("0") or not isinstance(exponent, int):
        return ["0"]
    exponent += len(digits) - len(shortened)
    return [f"{'-' if sign else ''}{shortened.lstrip('0')}e{exponent}"]


def _no_value(field: str, what: str, hint: str) -> InvalidInput:
    return InvalidInput(
        f"{field} {what}, and cannot be part of a key", field=field,
        expected="a text, a number, a boolean or null", hint=hint,
    )  # fmt: skip
