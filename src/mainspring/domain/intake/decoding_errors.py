"""The decoder's complaints in our words: the field's path, what was expected, the nearest known name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.kind_checks import unknown_kind
from mainspring.kinds.registry import package_of, task_kinds
from mainspring.wire.calendars import BlackoutIn, DateSpanIn, HolidaysIn, HoursIn
from mainspring.wire.exchange import Outcome, WorkerHello
from mainspring.wire.jobs import JobRequest, MisfireIn, ResourceLimitsIn, RetryIn, RetryRuleIn
from mainspring.wire.limits import CircuitBreakerIn, ConcurrencyIn, RateLimitIn
from mainspring.wire.logs import LogChunk
from mainspring.wire.rules import NotifyIn
from mainspring.wire.schedules import DstIn, ScheduleIn
from mainspring.wire.secrets import REFERENCE
from mainspring.wire.unique import UniqueIn
from mainspring.wire.workflows import MapIn, StepIn, WorkflowRequest

_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_PATH = re.compile(r" - at `\$?([^`]*)`$")
_INDEX = re.compile(r"\[[^\]]*\]")
_NESTED: dict[str, type[msgspec.Struct]] = {
    "schedule": ScheduleIn,
    "dst": DstIn,
    "retry": RetryIn,
    "retry_policy": RetryIn,
    "misfire": MisfireIn,
    "limits": ResourceLimitsIn,
    "concurrency": ConcurrencyIn,
    "rate_limit": RateLimitIn,
    "circuit_breaker": CircuitBreakerIn,
    "rules": RetryRuleIn,
    "unique": UniqueIn,
    "steps": StepIn,
    "map": MapIn,
    "holidays": HolidaysIn,
    "dates": DateSpanIn,
    "hours": HoursIn,
    "blackouts": BlackoutIn,
    "hello": WorkerHello,
    "outcomes": Outcome,
    "chunks": LogChunk,
    "notify": NotifyIn,
}
_CALLS: dict[str, type[msgspec.Struct]] = {}  # of the kinds of task
for _kind in task_kinds():
    _types = _kind.part("call")
    if isinstance(_types.CALL, type):
        _CALLS[_kind.field] = _types.CALL
        _NESTED.update(getattr(_types, "NESTED", {}))
_NESTED.update(_CALLS)
_OTHER_WORDS: dict[type[msgspec.Struct], dict[str, str]] = {  # what other schedulers call it
    JobRequest: dict.fromkeys(("args", "kwargs", "arguments", "params", "parameters", "input", "data"), "payload")
    | dict.fromkeys(("cmd", "script", "shell"), "command")
    | dict.fromkeys(("run_at", "eta", "start_at", "scheduled_at", "scheduled_for", "when"), "schedule.at")
    | dict.fromkeys(("countdown", "wait"), "delay")
    | dict.fromkeys(("func", "function", "handler"), "task")
    | dict.fromkeys(("id", "key"), "job_id")
    | dict.fromkeys(("tags",), "labels")
    | dict.fromkeys(("tz",), "timezone")
    | dict.fromkeys(("needs", "after", "requires", "upstream"), "depends_on"),
    RetryIn: dict.fromkeys(("delay", "initial_delay", "min_delay", "interval", "wait", "retry_delay"), "base")
    | dict.fromkeys(("max_delay", "max_interval", "max_backoff", "backoff_max"), "cap")
    | dict.fromkeys(("attempts", "tries", "max_tries", "limit"), "max_attempts")
    | dict.fromkeys(("strategy", "type", "policy"), "backoff"),
    ScheduleIn: {"tz": "timezone", "interval": "every", "expression": "cron", "time": "at", "run_at": "at"},
    StepIn: dict.fromkeys(("after", "needs", "requires", "upstream", "dependencies", "depends"), "depends_on")
    | dict.fromkeys(("id", "step", "step_id"), "name")
    | dict.fromkeys(("run", "cmd", "script", "shell"), "command")
    | dict.fromkeys(("trigger_rule", "when"), "rule")
    | dict.fromkeys(("args", "arguments", "params", "input", "inputs", "with"), "payload")
    | dict.fromkeys(("for_each", "foreach", "with_items", "matrix"), "map"),
    WorkflowRequest: dict.fromkeys(("id", "job_id", "dag_id"), "workflow_id")
    | dict.fromkeys(("jobs", "tasks"), "steps")
    | dict.fromkeys(("params", "inputs", "variables"), "parameters"),
}
_DURATION = '"90s", "15m" or a number of seconds'
_EXAMPLES = {
    "schedule": '"0 9 * * MON-FRI" or {"every": "15m"}',
    "retry": '{"max_attempts": 5}; "retries": 4 means the same',
    "retry_policy": '{"max_attempts": 5}',
    "rules": '[{"error": "ValueError", "then": "give_up"}]',
    "misfire": '{"policy": "once"}',
    "limits": '{"memory": "512MB"}',
    "concurrency": '1 or {"limit": 1, "key": "payload.account"}',
    "rate_limit": '"100/m" or {"rate": "100/m", "key": "payload.account"}',
    "rate": '"100/m"',
    "circuit_breaker": '{"failures": 5}',
    "unique": '{"by": ["payload.account"]}',
    "dst": '{"gap": "skip"}',
    "labels": '{"team": "billing"}',
    "required_labels": '{"zone": "a"}',
    "env": '{"REGION": "eu"}',
    "headers": '{"Accept": "application/json"}',
    "http": '{"url": "https://example.com/hook", "method": "POST"}',
    "sql": '{"connection": "warehouse", "statement": "select 1"}',
    "command": '"echo hello" or ["echo", "hello"]',
    "steps": '[{"name": "first", "command": "echo hello"}]',
    "map": '{"range": 10}',
    "timeout": _DURATION,
    "run_timeout": _DURATION,
    "expires_in": _DURATION,
    "late_after": _DURATION,
    "keep_logs": _DURATION,
    "expected_duration": _DURATION,
    "deadline": _DURATION,
    "on_deadline": '"cancel"',
    "kill_grace": _DURATION,
    "delay": _DURATION,
    "every": _DURATION,
    "jitter": _DURATION,
    "at": '"2026-12-31T23:59:59Z"',
    "schedule_time": '"2026-12-31T23:59:59Z"',
    "notify": '[{"on": ["failure"], "to": ["oncall"]}]',
    "depends_on": '["extract"]',
}
_TYPES = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_LENGTH = re.compile(r"`(str|array)` of length (>=|<=) (\d+)")
_BOUND = re.compile(r"(int|float) (>=|<=) (\S+)")
_EMPTY = "Expected `str` of length >= 1"
_PATTERN = re.compile(r"matching regex '(.*)'")
_ALLOWED = {"^[A-Za-z0-9._-]+$": "letters, digits, dots, underscores and hyphens", "^[0-9a-f]+$": "digits and a to f"}
_NOT_IN_JSON = "JSON has no comments, no trailing commas and no single quotes"
_LONGEST_NAME = 100  # of an unknown field, in an answer


def in_words(
    error: Exception, struct: type[msgspec.Struct], nested: Mapping[str, type[msgspec.Struct]] | None = None
) -> InvalidInput:
    """The decoder's message as ours: the field's path, what was expected, the nearest known name. `nested`: the objects
    in `struct` that no request has."""
    text = str(error)
    if isinstance(error, UnicodeDecodeError):
        return InvalidInput("the body is not UTF-8", code="invalid_json", field="$", expected="JSON in UTF-8")
    if isinstance(error, RecursionError):
        return InvalidInput(
            "the body is nested too deeply", code="invalid_json", field="$", hint="store it elsewhere, or flatten it"
        )
    if not isinstance(error, msgspec.ValidationError):
        return InvalidInput(
            f"the body is not JSON: {text}", code="invalid_json", field="$", expected="a JSON object", hint=_NOT_IN_JSON
        )
    found = _PATH.search(text)
    path = found.group(1).lstrip(".") if found else ""
    words = text[: found.start()] if found else text
    if unknown := _UNKNOWN.search(text):
        name = unknown.group(1)[:_LONGEST_NAME]
        part = _INDEX.sub("", path).rpartition(".")[2]
        whole = "job_type" in _NESTED.get(part, struct).__struct_encode_fields__
        if whole and (package := package_of(name)) is not None:
            return unknown_kind(name, package, f"{path}.{name}" if path else name)
        return InvalidInput(
            f"unknown field {name!r}",
            code="unknown_field",
            field=f"{path}.{name}" if path else name,
            hint=_instead(name, part, (nested or {}).get(part, struct)),
        )
    if missing := _MISSING.match(text):
        name = missing.group(1)
        return InvalidInput(f"{name} is missing", field=f"{path}.{name}" if path else name, hint=f"give {name}")
    if pattern := _PATTERN.search(words):
        return InvalidInput(
            f"{path} contains a character that is not allowed", field=path, expected=_ALLOWED.get(pattern.group(1))
        )
    if words == _EMPTY:
        return InvalidInput(f"{path} is empty", field=path, hint="give it, or leave the field out")
    if not words.startswith("Expected "):
        return InvalidInput(words.replace("`", ""), field=path or "$")
    wanted, _, got = words.removeprefix("Expected ").partition(", got ")
    expected = _types_in_words(wanted)
    detail = f"Expected {expected}" + (f", got {_types_in_words(got)}" if got else "")
    part = _INDEX.sub("", path).rpartition(".")[2]
    return InvalidInput(detail, field=path or "$", expected=expected, hint=_example(part, path, words, struct))


def _types_in_words(types: str) -> str:
    """`str | null` in words. That a field may be null is left out: who wants no value leaves the field out."""
    if found := _LENGTH.fullmatch(types):
        least = "at least" if found[2] == ">=" else "at most"
        return f"a text of {least} {found[3]} characters" if found[1] == "str" else f"{least} {found[3]} of them"
    named = [name for name in types.replace("`", "").split(" | ") if name != "null"] or ["null"]
    *others, last = [_BOUND.sub(_bound_in_words, _TYPES.get(name, name)) for name in named]
    return f"{', '.join(others)} or {last}" if others else last


def _bound_in_words(found: re.Match[str]) -> str:
    return f"{_TYPES[found[1]]} of {'at least' if found[2] == '>=' else 'at most'} {found[3]}"


def _example(part: str, path: str, words: str, struct: type[msgspec.Struct]) -> str | None:
    """What to write in place of a value of the wrong type."""
    wanted, _, got = words.partition(", got ")
    if not path and got == "`array`" and struct is JobRequest:
        return "one job is an object; send a list of jobs to jobs:batch"
    if "`array" in wanted.replace(" | ", "`") and got == "`str`" and part not in _EXAMPLES:
        return "write a list: [...]"
    if part == "steps" and path.endswith("]"):
        return 'a step is such as {"name": "first", "command": "echo hello"}'
    if not path.endswith("]") and part in _EXAMPLES:
        return f"such as {_EXAMPLES[part]}"
    if got == "`str`" and "int" in wanted:
        return "write a number without quotes"
    if got in ("`int`", "`float`", "`bool`") and "str" in wanted:
        return "write a text with quotes"
    return None


def _known(owner: type[msgspec.Struct]) -> str:
    names = owner.__struct_encode_fields__
    return "known are: " + ", ".join(names) if names else "this takes no fields; leave the body out"


def _instead(name: str, part: str, struct: type[msgspec.Struct]) -> str:
    """What to write instead of an unknown field of `part`. A field of the whole request belongs beside that part."""
    owner = _NESTED.get(part, struct)
    if owner.__struct_encode_fields__ == ("jobs",) and name in JobRequest.__struct_encode_fields__:
        return 'write {"jobs": [...]}, or send one job to POST /v1/jobs'
    if (word := _OTHER_WORDS.get(owner, {}).get(name.lower())) is not None:
        return f"did you mean {word!r}?"
    if owner is not struct and {part, name} <= set(struct.__struct_encode_fields__):
        return f"{name} stands beside {part}, not in it; {_known(owner)}"
    if name.startswith("$"):
        return f'write {{"{REFERENCE}": "name of the secret"}}'
    if part == "notify" and name in ("url", "address", "channel", "channels"):
        return 'write "to": ["oncall"]: the names of channels, which have the addresses (PUT /v1/channels/oncall)'
    near = _nearest(name, owner)
    return f"did you mean {near!r}?" if near else _known(owner)


def other_word(name: str, options: Collection[str]) -> str | None:
    """A hint for a keyword of Python that is none of `options`, if a job calls it otherwise: `max_attempts`."""
    option, _, member = (_nearest(name, JobRequest) or "").partition(".")
    if option not in options:
        return None
    return f"did you mean {option}={{{member!r}: ...}}?" if member else f"did you mean {option!r}?"


def _nearest(name: str, owner: type[msgspec.Struct]) -> str | None:
    """The known name that was meant: another word for it, the same one a level down (`every`: schedule.every), or one
    spelt alike."""
    if (word := _OTHER_WORDS.get(owner, {}).get(name.lower())) is not None:
        return word
    for part in ("retry", "misfire", "schedule", "limits", *_CALLS, "unique"):
        if part in owner.__struct_encode_fields__ and name in _NESTED[part].__struct_encode_fields__:
            return f"{part}.{name}"
    close = difflib.get_close_matches(name, owner.__struct_encode_fields__, n=1, cutoff=0.6)
    return close[0] if close else None
