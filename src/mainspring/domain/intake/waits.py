"""Intake of waits: the steps that wait without a slot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mainspring.domain.durations import format_duration, parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.kind_checks import checks_of
from mainspring.domain.intake.times import parse_time
from mainspring.domain.job import CallbackOf, Delivery, Spec
from mainspring.domain.texts import check_line, meant, shown
from mainspring.domain.workflows.waits import FAIL, ApprovalField, Wait, WaitKind
from mainspring.kernel.public_url import is_known
from mainspring.kinds.registry import TaskKind
from mainspring.wire.fields import LONGEST_DURATION
from mainspring.wire.workflows import FIELD_TYPES, ON_TIMEOUT, StepIn

_FIELDS = ("sleep", "wait", "workflow")
_ROLES = ("admin", "operator", "submitter")
_BY = ("role", "user", "token")
_DEFAULT_BY = ["role:operator"]
_MOST_BY, _MOST_FIELDS, _MOST_OPTIONS = 20, 20, 100
_LONGEST_FIELD = 64
_LONGEST_KEY = 200
_SINCE = 300.0  # seconds before the wait in which an event counts
_OF_ONE = {"approval": ("by", "fields", "details"), "event": ("key", "since")}
_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "number": (int, float), "integer": (int,), "boolean": (bool,)}
_NOT_WITH_CALLBACK = ("map", "concurrency", "rate_limit", "rate", "circuit_breaker")
_NO_PAYLOAD = msgspec.Raw()
_ALLOWED = frozenset(
    {
        *_FIELDS, "parameters", "name", "depends_on", "rule", "on_upstream_failure", "queue", "priority", "owner",
        "description", "labels",
    }
)  # fmt: skip


def waits(step: StepIn) -> bool:
    """Whether the step waits and runs nothing."""
    return any(getattr(step, name) is not None for name in _FIELDS)


def wait_of(step: StepIn) -> dict[str, Any]:
    """The payload that says what the step waits for. Raises InvalidInput."""
    given = [name for name in _FIELDS if getattr(step, name) is not None]
    if len(given) > 1:
        raise InvalidInput(
            f"a step has {given[0]} or {given[1]}, not both",
            field=given[1],
            hint="make it two steps, one after the other",
        )
    [own] = given
    for name in step.__struct_fields__:
        if name not in _ALLOWED and getattr(step, name) not in (None, _NO_PAYLOAD):
            raise InvalidInput(
                f"a step with {own} runs nothing, so it has no {name}", field=name,
                hint=f"leave it out, or make it a step of its own that depends on {shown(step.name)}",
            )  # fmt: skip
    check_parameters(step)
    value = {own: msgspec.to_builtins(getattr(step, own))}
    if step.parameters:
        value["parameters"] = step.parameters
    read_wait(value)
    return value


def check_parameters(step: StepIn) -> None:
    """Raise InvalidInput for parameters of a step that runs no workflow."""
    if step.parameters is not None and step.workflow is None:
        raise InvalidInput(
            "parameters are those of a workflow, and the step runs none", field="parameters",
            hint='add "workflow", or put them into the payload',
        )  # fmt: skip


def with_callback(step: StepIn, kind: TaskKind | None, spec: Spec) -> Spec:
    """The spec of a step whose service may answer later. Raises InvalidInput."""
    assert step.callback is not None
    if kind is None or not checks_of(kind).takes_callback:
        raise InvalidInput("callback needs http", field="callback", hint="leave it out, or make it an http step")
    for name in _NOT_WITH_CALLBACK:
        if getattr(step, name) is not None:
            raise InvalidInput(
                f"callback and {name} cannot be combined", field="callback",
                hint="make the call a step of its own, or limit its queue",
            )  # fmt: skip
    if spec.delivery is Delivery.AT_MOST_ONCE:
        raise InvalidInput("callback and at_most_once cannot be combined", field="callback", hint="leave one out")
    if not is_known():
        raise InvalidInput(
            "the servers have no public URL, so no service can call back", field="callback",
            hint="start them with --public-url, such as https://jobs.example.com",
        )  # fmt: skip
    timeout, word = _timeout(msgspec.to_builtins(step.callback), "callback")
    return msgspec.structs.replace(spec, callback=CallbackOf(timeout, word))


def read_wait(value: dict[str, Any]) -> Wait:
    """The wait that a payload describes. Raises InvalidInput that names the field. References that it still has count
    as values that are right."""
    if "sleep" in value:
        return _sleep(value["sleep"])
    if "workflow" in value:
        return _workflow(value)
    wait = value["wait"]
    _check_fields(wait)
    return _event(wait) if wait.get("event") is not None else _approval(wait)


def _workflow(value: dict[str, Any]) -> Wait:
    parameters = value.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise InvalidInput("the parameters are no object", field="parameters", expected="an object")
    return Wait(WaitKind.WORKFLOW, name=value["workflow"], details=parameters)


def is_late(value: Any) -> bool:
    """Whether it is a reference: its value is known when the step is ready."""
    return isinstance(value, dict) and any(name.startswith("$") for name in value)


def _sleep(value: Any) -> Wait:
    kind = WaitKind.SLEEP
    if is_late(value):
        return Wait(kind)
    if isinstance(value, dict):
        for name in value:
            if name != "until":
                raise InvalidInput(
                    f"{shown(name)} does not belong to a sleep", code="unknown_field", field=f"sleep.{name}",
                    hint=meant(name, ["until"], '{"until": "2030-12-31T23:59:59Z"}'),
                )  # fmt: skip
        until = value.get("until")
        if is_late(until):
            return Wait(kind)
        if not isinstance(until, str):
            raise InvalidInput(
                "the time is missing or not a text", field="sleep.until", expected="RFC 3339",
                hint='such as {"until": "2030-12-31T23:59:59Z"}',
            )  # fmt: skip
        return Wait(kind, until=parse_time(until, "sleep.until"))
    return Wait(kind, seconds=_duration(value, "sleep"))


def _duration(value: Any, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InvalidInput(
            f"{shown(value)} is not a duration", code="invalid_duration", field=field,
            expected=f"at most {format_duration(LONGEST_DURATION)}",
            hint='write "90s", "15m", "3d" or a number of seconds',
        )  # fmt: skip
    return parse_duration(value, field)


def _check_fields(value: dict[str, Any]) -> None:
    """It waits for one thing, and has no fields of another one."""
    given = [name for name in _OF_ONE if value.get(name) is not None]
    if len(given) > 1:
        raise InvalidInput(
            "a step waits for an approval or for an event, not for both", field="wait.event",
            hint="make it two steps, one after the other",
        )  # fmt: skip
    if not given:
        raise InvalidInput(
            "the wait does not say for what", field="wait", expected="approval or event",
            hint='such as {"approval": "release"} or {"event": "order.paid"}',
        )  # fmt: skip
    for of, names in _OF_ONE.items():
        for name in names:
            if of != given[0] and value.get(name) is not None:
                raise InvalidInput(
                    f"{name} belongs to a wait for an {of}", field=f"wait.{name}",
                    hint=f"leave it out: the step waits for an {given[0]}",
                )  # fmt: skip


def _event(value: dict[str, Any]) -> Wait:
    name = value["event"]
    check_line(name, "wait.event")
    if not name.strip():
        raise InvalidInput("the name of the event is empty", field="wait.event", expected='such as "order.paid"')
    since = value.get("since")
    timeout, on_timeout = _timeout(value)
    return Wait(
        WaitKind.EVENT,
        timeout=timeout,
        on_timeout=on_timeout,
        name=name,
        key=_key(value["key"]) if "key" in value else "",
        since=_SINCE if since is None or is_late(since) else _duration(since, "wait.since"),
    )


def _key(value: Any) -> str:
    """The key of the event. A reference may stand for a number. Nothing is no key: it would be another event."""
    if is_late(value):
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not 1 <= len(value) <= _LONGEST_KEY:
        raise InvalidInput(
            f"{shown(str(value))} is not the key of an event", field="wait.key",
            expected=f"a text of 1 to {_LONGEST_KEY} characters, or an integer",
        )  # fmt: skip
    check_line(value, "wait.key")
    return value


def _approval(value: dict[str, Any]) -> Wait:
    name = value["approval"]
    check_line(name, "wait.approval")
    timeout, on_timeout = _timeout(value)
    return Wait(
        WaitKind.APPROVAL,
        timeout=timeout,
        on_timeout=on_timeout,
        name=name,
        by=_by(value.get("by")),
        fields=_approval_fields(value.get("fields") or {}),
        details=value.get("details"),
    )


def _timeout(value: dict[str, Any], of: str = "wait") -> tuple[float | None, str]:
    given, word = value.get("timeout"), value.get("on_timeout")
    if word is not None and word.lower() not in ON_TIMEOUT:
        raise InvalidInput(f"{shown(word)} is not known", field=f"{of}.on_timeout", expected=", ".join(ON_TIMEOUT))
    if word is not None and given is None:
        raise InvalidInput("on_timeout needs a timeout", field=f"{of}.on_timeout", hint='add "timeout": "2d"')
    timeout = None if given is None or is_late(given) else _duration(given, f"{of}.timeout")
    return timeout, FAIL if word is None else word.lower()


def _by(given: list[str] | None) -> list[str]:
    if given is None:
        return _DEFAULT_BY
    if not 1 <= len(given) <= _MOST_BY:
        raise InvalidInput(f"{len(given)} may decide", field="wait.by", expected=f"1 to {_MOST_BY}")
    for place, one in enumerate(given):
        kind, colon, name = one.partition(":")
        field = f"wait.by[{place}]"
        if kind not in _BY or not colon or not name:
            raise InvalidInput(
                f"{shown(one)} says not who may decide", field=field,
                expected="role:ROLE, user:NAME or token:NAME", hint='such as "role:operator"',
            )  # fmt: skip
        check_line(name, field)
        if kind == "role" and name not in _ROLES:
            raise InvalidInput(
                f"the role {shown(name)} cannot decide", field=field, expected=", ".join(_ROLES),
                hint=meant(name, _ROLES, "name one of these"),
            )  # fmt: skip
    return given


def _approval_fields(given: dict[str, Any]) -> dict[str, ApprovalField]:
    if len(given) > _MOST_FIELDS:
        raise InvalidInput(f"there are {len(given)} fields", field="wait.fields", expected=f"at most {_MOST_FIELDS}")
    found: dict[str, ApprovalField] = {}
    for name, value in given.items():
        where = f"wait.fields.{name}"
        if not name.isidentifier() or len(name) > _LONGEST_FIELD:
            raise InvalidInput(
                f"{shown(name)} is not the name of a field", field=where,
                expected=f"letters, digits and _, at most {_LONGEST_FIELD}",
            )  # fmt: skip
        field = msgspec.convert(value, ApprovalField)
        if field.type not in FIELD_TYPES:
            raise InvalidInput(
                f"{shown(field.type)} is not known", field=f"{where}.type", expected=", ".join(FIELD_TYPES)
            )
        if field.title is not None:
            check_line(field.title, f"{where}.title")
        if field.options is not None and not 1 <= len(field.options) <= _MOST_OPTIONS:
            raise InvalidInput("there are too many options or none", field=f"{where}.options",
                               expected=f"1 to {_MOST_OPTIONS}")  # fmt: skip
        for option in field.options or ():
            _check_type(option, field.type, f"{where}.options")
        found[name] = field
    return found


def read_answer(fields: Mapping[str, ApprovalField], given: Mapping[str, Any]) -> dict[str, Any]:
    """What who approves has filled in. Raises InvalidInput."""
    for name in given:
        if name not in fields:
            raise InvalidInput(
                f"the approval has no field {shown(name)}", code="unknown_field", field=f"fields.{name}",
                hint=meant(name, fields, "it has none" if not fields else "it has " + ", ".join(fields)),
            )  # fmt: skip
    for name, field in fields.items():
        value, where = given.get(name), f"fields.{name}"
        if value is None:
            if field.required:
                raise InvalidInput("a value is needed", field=where, expected=f"a {field.type}")
            continue
        _check_type(value, field.type, where)
        if field.options is not None and value not in field.options:
            options = ", ".join(str(option) for option in field.options)
            raise InvalidInput(f"{shown(str(value))} is not one of the options", field=where, expected=options)
    return {name: value for name, value in given.items() if value is not None}


def _check_type(value: Any, word: str, field: str) -> None:
    if not isinstance(value, _TYPES[word]) or (isinstance(value, bool) and word != "boolean"):
        raise InvalidInput(f"{shown(str(value))} has another type", field=field, expected=f"a {word}")
