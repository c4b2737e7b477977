"""Intake of the fields that executors read: environment, limits, sandbox, user. And of required labels."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.kind_checks import checks_of
from mainspring.domain.secret_names import check_no_mask
from mainspring.domain.sizes import parse_size
from mainspring.domain.texts import check_line, check_prose, shown
from mainspring.kinds.registry import TaskKind
from mainspring.wire.execution import ResourceLimits, RunSetup
from mainspring.wire.fields import bounds_of
from mainspring.wire.jobs import JobRequest, ResourceLimitsIn
from mainspring.wire.secrets import SecretRef, Variables

SANDBOXES = ("bubblewrap",)
_OUR_PREFIX = "MAINSPRING_"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_STATUS_CLASS = re.compile(r"[1-5]xx\Z", re.ASCII)
_, _MOST_LABELS = bounds_of("required_labels")
_MOST_VARIABLES = 256
_MOST_ENV_BYTES = 64 * 1024
_LONGEST_GRACE = 3600.0
_LEAST_MEMORY = 16 * 1024 * 1024
_LEAST_FILES = 16
_LEAST_DISK = 64 * 1024
_MOST_OUTPUT = 10 * 1024**3
_MOST_STATUSES = 100
_USER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,31}\Z")


def read_setup(request: JobRequest, kind: TaskKind | None, call: Any) -> RunSetup | None:
    """The execution settings of the request, with the call of its kind. None if it has none."""
    field = None if kind is None or not kind.in_setup else kind.field
    if (
        field is None
        and request.env is None
        and request.secrets is None
        and request.limits is None
        and request.sandbox is None
        and request.run_as is None
        and request.kill_grace is None
    ):
        return None
    grace = request.kill_grace
    setup = RunSetup(
        env=_env(request.env),
        secrets=list(dict.fromkeys(request.secrets)) if request.secrets else None,
        limits=None if request.limits is None else _limits(request.limits),
        sandbox=read_sandbox(request.sandbox),
        run_as=_run_as(request.run_as),
        kill_grace=None if grace is None else parse_duration(grace, "kill_grace", most=_LONGEST_GRACE),
        **({} if field is None else {field: call}),
    )
    if kind is not None:
        checks_of(kind).check_setup(setup)
    return None if setup == RunSetup() else setup


def read_required_labels(labels: dict[str, str] | None) -> dict[str, str] | None:
    if not labels:
        return None
    if len(labels) > _MOST_LABELS:
        raise InvalidInput("too many labels", field="required_labels", expected=f"at most {_MOST_LABELS}")
    for name, value in labels.items():
        for text in (name, value):
            check_line(text, "required_labels")
            if not 1 <= len(text) <= 200:
                raise InvalidInput(
                    f"the label {shown(name)} is empty or too long",
                    field="required_labels",
                    expected="names and values of 1 to 200 characters",
                )
    return dict(sorted(labels.items()))


def limits_as_given(limits: ResourceLimits | None) -> ResourceLimitsIn | None:
    return None if limits is None else ResourceLimitsIn(*msgspec.structs.astuple(limits))


def _env(env: Variables | None) -> Variables | None:
    if not env:
        return None
    size = sum(len(name) + (len(value) if isinstance(value, str) else 0) for name, value in env.items())
    if len(env) > _MOST_VARIABLES or size > _MOST_ENV_BYTES:
        raise InvalidInput(
            "the environment is too large",
            field="env",
            expected=f"at most {_MOST_VARIABLES} variables and {_MOST_ENV_BYTES} characters",
        )
    for name, value in env.items():
        if not _VARIABLE.match(name):
            raise InvalidInput(
                f"{shown(name)} is not the name of a variable", field="env", expected="letters, digits and _"
            )
        if name.startswith(_OUR_PREFIX):
            raise InvalidInput(f"{name} is set by Mainspring itself", field=f"env.{name}", hint="choose another name")
        if isinstance(value, SecretRef):
            continue
        check_prose(value, f"env.{name}")
        check_no_mask(name, value, f"env.{name}")
    return env


def _limits(given: ResourceLimitsIn) -> ResourceLimits | None:
    limits = ResourceLimits(
        memory=None if given.memory is None else parse_size(given.memory, "limits.memory", least=_LEAST_MEMORY),
        cpu=None if given.cpu is None else parse_duration(given.cpu, "limits.cpu", least=0.1),
        processes=_count(given.processes, "limits.processes", 1),
        files=_count(given.files, "limits.files", _LEAST_FILES),
        output=None if given.output is None else parse_size(given.output, "limits.output", least=0, most=_MOST_OUTPUT),
        disk=None if given.disk is None else parse_size(given.disk, "limits.disk", least=_LEAST_DISK),
    )
    return None if limits == ResourceLimits() else limits


def _count(value: int | None, field: str, least: int) -> int | None:
    if value is not None and not least <= value <= 1_000_000:
        raise InvalidInput(
            f"{shown(value)} is out of range", field=field, expected=f"a whole number from {least} to 1,000,000"
        )
    return value


def read_sandbox(word: str | None) -> str | None:
    """The name of a known sandbox. None for no sandbox."""
    if word is None or word.lower() == "none":
        return None
    if word.lower() not in SANDBOXES:
        raise InvalidInput(f"{shown(word)} is not a sandbox", field="sandbox", expected=" or ".join(SANDBOXES))
    return word.lower()


def _run_as(name: str | None) -> str | None:
    """The name of a user of the worker's machine, which only the worker knows."""
    if name is not None and not _USER.match(name):
        raise InvalidInput(
            f"{shown(name)} is not the name of a user",
            field="run_as",
            expected="1 to 32 letters, digits, '_', '-' and '.', not beginning with '-'",
        )
    return name


def check_statuses(statuses: list[int | str], field: str) -> None:
    """Check a list of statuses: numbers from 100 to 599, and classes such as "5xx"."""
    if len(statuses) > _MOST_STATUSES:
        raise InvalidInput("too many statuses", field=field, expected=f"at most {_MOST_STATUSES}")
    for status in statuses:
        good = _STATUS_CLASS.match(status) if isinstance(status, str) else 100 <= status <= 599
        if not good or isinstance(status, bool):
            raise InvalidInput(f"{shown(status)} is not an HTTP status", field=field, expected='such as 404 or "5xx"')
