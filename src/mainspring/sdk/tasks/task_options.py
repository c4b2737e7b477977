"""The options of a task: checked when the task is declared, and used as defaults of a submission."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from mainspring.domain.errors import MainspringError
from mainspring.sdk.client.if_exists import IfExists
from mainspring.sdk.client.job_fields import OPTION_NAMES, JobOptions, job_request
from mainspring.wire.fields import task_options
from mainspring.wire.jobs import JobRequest, ResourceLimitsIn
from mainspring.wire.tasks import DeclaredOptions

_LIMITS = ("concurrency", "rate_limit", "circuit_breaker")
_OBJECTS = tuple(field.name for field in task_options() if field.kind.merged)

# The job options that `task.submit(...)` accepts. The others are given with `task.options(...)`.
SUBMIT_OPTIONS = frozenset({
    "at", "delay", "every", "cron", "timezone", "priority", "queue", "idempotency_key", "job_id", "timeout", "retries",
    "name", "if_exists",
})  # fmt: skip
# The job options that `task.schedule(...)` accepts.
SCHEDULE_OPTIONS = frozenset({"timezone", "priority", "queue", "job_id", "timeout", "retries", "name"})
# What submits a job in other libraries.
SUBMITS_ELSEWHERE = frozenset({"delay", "apply_async", "send", "send_with_options", "enqueue", "defer", "kiq"})
SAYS_WHEN = frozenset({"at", "delay", "every", "cron", "rrule", "after", "event", "schedule", "schedule_time"})


def plain(task: str, options: Mapping[str, Any], *, own_process: bool) -> DeclaredOptions | None:
    """The options as a worker declares them to the server. None if there are none. Raises ValueError that names the
    invalid option."""
    if not options:
        return None
    from mainspring.domain.intake.declaration import plain_options  # takes 10 ms to import

    try:
        declared = plain_options(msgspec.convert(job_request(options), JobRequest))
    except MainspringError as error:
        raise ValueError(f"task {task}: {error.in_sentences()}") from None
    except msgspec.ValidationError as error:
        from mainspring.domain.intake.decoding_errors import in_words

        raise ValueError(f"task {task}: {in_words(error, JobRequest).in_sentences()}") from None
    if declared is not None and not own_process and (unused := _process_option(declared)):
        raise ValueError(f"task {task}: {unused} has an effect only on process tasks; add executor='process'")
    return declared


def check_search(task: str, paths: Iterable[str], parameters: Iterable[str]) -> None:
    """Raise ValueError if runs are to be found by a value that no payload of the task has."""
    known = list(parameters)
    for path in paths:
        name = path.partition(".")[0]
        if name not in known:
            from mainspring.domain.texts import meant

            hint = meant(name, known, f"it takes {', '.join(known)}" if known else "it takes no parameters")
            raise ValueError(f"task {task}: search: it has no parameter {name}. {hint[0].upper()}{hint[1:]}")


def limits_of_task(options: JobOptions, declared: DeclaredOptions) -> JobOptions:
    """`options` with the limits as declared. In a submission 3 would be a limit of the job; that of a task counts the
    runs of the task."""
    limits = {name: value for name in _LIMITS if (value := getattr(declared, name)) is not None}
    kept = {name: value for name, value in options.items() if name != "rate"}
    return cast("JobOptions", {**kept, **msgspec.to_builtins(limits)})


def with_defaults(given: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """`given` with `options` as defaults. The server applies the same rule (domain/intake/task_options.py)."""
    said = {name: value for name, value in given.items() if value is not None}
    under = dict(options)
    if _sets_attempts(said):
        under.pop("retries", None)
        under["retry"] = {name: value for name, value in _object(under, "retry").items() if name != "max_attempts"}
        if not under["retry"]:
            del under["retry"]
    if "rate" in said:
        under.pop("rate_limit", None)
    if _recurs(said):
        under.pop("unique", None)  # only a job that runs once is unique
    for name in _OBJECTS:
        if _object(under, name) and isinstance(said.get(name), Mapping):
            said[name] = {**under[name], **{key: value for key, value in said[name].items() if value is not None}}
    return {**under, **said}


def _process_option(options: DeclaredOptions) -> str | None:
    """The first option that only tasks with their own process support. Runs of other tasks would fail because of it."""
    limits = options.limits or ResourceLimitsIn()
    named = [
        f"limits.{name}"
        for name in ("memory", "cpu", "processes", "files", "disk")
        if getattr(limits, name) is not None
    ]
    return "env" if options.env else next(iter(named), None)


def _recurs(said: Mapping[str, Any]) -> bool:
    """Whether the job does not run just once."""
    schedule = said.get("schedule")
    if isinstance(schedule, Mapping):
        return "at" not in schedule
    return bool({"every", "cron", "rrule", "event"} & said.keys()) or (
        schedule is not None and str(schedule).strip().lower() != "now"
    )


def _sets_attempts(said: Mapping[str, Any]) -> bool:
    return (
        "retries" in said
        or "max_retries" in said
        or _object(said, "retry").get("max_attempts") is not None
        or str(said.get("delivery")).lower() == "at_most_once"
    )


def _object(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object in the field `name`. An empty one if it is missing or not an object, which the server refuses."""
    value = fields.get(name)
    return value if isinstance(value, Mapping) else {}


def parameter_of_events(fields: Mapping[str, Any]) -> str | None:
    """The parameter with which events start a run of this job. None if no event starts it."""
    said = fields["schedule"] if isinstance(fields.get("schedule"), Mapping) else fields
    if said.get("event") is None:
        return None
    return "event" if said.get("batch") is None else "events"


def split_options(
    params: Mapping[str, Any], parameters: Mapping[str, Any]
) -> tuple[IfExists | None, JobOptions, dict[str, Any]]:
    """The keywords of `task.submit(...)`: `if_exists`, the options of the job, and its payload. A parameter of the task
    goes before an option of that name."""
    taken = SUBMIT_OPTIONS - parameters.keys()
    options: Any = {name: value for name, value in params.items() if name in taken}
    payload = {name: value for name, value in params.items() if name not in taken}
    return options.pop("if_exists", None), options, payload


def nearest_option(task: str, parameters: Mapping[str, Any], context: str | None, name: str) -> str | None:
    """A hint for a keyword that is neither a parameter of the task nor an option of `task.submit(...)`."""
    if name == context:
        return "leave it out: the worker gives it to the task"
    near = difflib.get_close_matches(name, [*parameters, *SUBMIT_OPTIONS], n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"use {task}.options({name}=...) for options of the job" if name in OPTION_NAMES else None
