"""Intake of `depends_on`, `schedule.after` and the fields that go with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mainspring.domain.dependencies import ALL_SUCCESS, MAX_PARENTS, SKIP, has_references, parents_of
from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.kind_checks import KINDS_BY_TASK, checks_of, stored_call
from mainspring.domain.job import JobDefinition
from mainspring.domain.schedules.schedule import ScheduleKind
from mainspring.domain.texts import check_line, read_word, shown
from mainspring.domain.workflows.references import FROM, collect
from mainspring.wire.formats import LONGEST_JOB_ID
from mainspring.wire.states import ON_UPSTREAM_FAILURE, TRIGGER_RULES

_OWN_FIELDS = ("rule", "on_upstream_failure")


def read_names(given: Sequence[str], field: str) -> list[str]:
    """The names of parents: each once, and not too many."""
    if len(given) > MAX_PARENTS:
        raise InvalidInput(f"{field} names {len(given)} jobs", field=field, expected=f"at most {MAX_PARENTS}")
    seen: set[str] = set()
    for place, name in enumerate(given):
        where = f"{field}[{place}]"
        if not 1 <= len(name) <= LONGEST_JOB_ID:
            raise InvalidInput(f"{where} is not a job_id", field=where, expected=f"1 to {LONGEST_JOB_ID} characters")
        check_line(name, where)
        if name in seen:
            raise InvalidInput(f"{shown(name)} is named twice", field=where, hint="name it once")
        seen.add(name)
    return list(given)


def read_rule(given: str | None) -> str | None:
    """None: the default."""
    word = None if given is None else read_word(given, "rule", TRIGGER_RULES)
    return None if word == ALL_SUCCESS else word


def read_on_upstream_failure(given: str | None) -> str | None:
    word = None if given is None else read_word(given, "on_upstream_failure", ON_UPSTREAM_FAILURE)
    return None if word == SKIP else word


def check_dependencies(definition: JobDefinition) -> None:
    """Raise InvalidInput for fields that contradict each other or have no effect, and for references in the payload to
    jobs that are no parents."""
    spec, schedule = definition.spec, definition.schedule
    if spec.depends_on is None and schedule.after is None:
        for field in _OWN_FIELDS:
            if getattr(spec, field) is not None:
                raise InvalidInput(
                    f"{field} has no effect without depends_on", field=field, hint="give depends_on, or leave it out"
                )
        return
    if spec.depends_on is not None:
        if schedule.after is not None:
            raise InvalidInput(
                "depends_on and schedule.after cannot be combined", field="depends_on",
                hint="schedule.after fires after all of them; leave out depends_on",
            )  # fmt: skip
        if schedule.kind is ScheduleKind.EVENT:
            raise InvalidInput(
                "depends_on has no effect on a job that events start", field="depends_on",
                hint="make it a workflow with steps that depend on each other, or leave it out",
            )  # fmt: skip
        if schedule.kind is ScheduleKind.MANUAL:
            raise InvalidInput(
                "depends_on has no effect on a job that runs by hand", field="depends_on",
                hint='to run it after others: "schedule": {"after": [...]}',
            )  # fmt: skip
    elif spec.on_upstream_failure is not None:
        raise InvalidInput(
            "on_upstream_failure has no effect with schedule.after: the job does not fire", field="on_upstream_failure",
            hint="leave it out; rule all_done fires after failures too",
        )  # fmt: skip
    if spec.unique is not None:
        raise InvalidInput("unique and depends_on cannot be combined", field="unique", hint="leave one of them out")
    _check_references(definition)


def _check_references(definition: JobDefinition) -> None:
    if not has_references(definition):
        _check_call(definition)
        return
    assert definition.payload is not None
    try:
        payload = msgspec.json.decode(definition.payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"the payload cannot be decoded: {error}", field="payload") from None
    parents = set(parents_of(definition))
    is_call = definition.task in KINDS_BY_TASK
    for reference in collect(payload, secrets=is_call):
        if reference.kind != FROM:
            raise InvalidInput(
                f"{reference.kind} stands for nothing in a job", code="invalid_reference", field=reference.where,
                expected='{"$from": job_id, "path": ...} or {"$literal": ...}',
            )  # fmt: skip
        if reference.of not in parents:
            raise InvalidInput(
                f"{shown(reference.of)} is not a parent of this job", code="invalid_reference",
                field=f"{reference.where}.{FROM}", expected="a job of depends_on or schedule.after",
            )  # fmt: skip


def _check_call(definition: JobDefinition) -> None:
    """Results are put into payloads, and a call is none unless it is given as one."""
    found = stored_call(definition.task, definition.spec.command, definition.spec.setup)
    if found is not None and definition.payload is None:
        kind, call = found
        checks_of(kind).check_references(call, parents_of(definition))


def without_idle_rules(changed: JobDefinition, given: Mapping[str, Any]) -> JobDefinition:
    """A change that takes away the parents of a job also takes away what is said about them."""
    spec = changed.spec
    if spec.depends_on is None and spec.on_upstream_failure is not None and "on_upstream_failure" not in given:
        spec = msgspec.structs.replace(spec, on_upstream_failure=None)
    if not parents_of(changed) and spec.rule is not None and "rule" not in given:
        spec = msgspec.structs.replace(spec, rule=None)
    return changed if spec is changed.spec else msgspec.structs.replace(changed, spec=spec)
