"""Intake of a workflow: its own fields become the definition of a job, its steps those of jobs without a schedule.

The parts are called one by one, because a workflow of 100,000 steps takes seconds: `request_of_step` and `read_step`
for each step, or once for steps of one shape, then `join_steps` for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from mainspring.domain.errors import InvalidInput, MainspringError
from mainspring.domain.intake.declaration import TaskDeclaration
from mainspring.domain.intake.kind_checks import KINDS_BY_TASK, checks_of, given_calls
from mainspring.domain.intake.maps import read_map
from mainspring.domain.intake.request import define
from mainspring.domain.intake.task_options import fill
from mainspring.domain.intake.waits import check_parameters, wait_of, waits, with_callback
from mainspring.domain.job import JobDefinition
from mainspring.domain.texts import meant, shown
from mainspring.domain.workflows.definition import ALL_SUCCESS, SKIP, StepDefinition, WorkflowDefinition
from mainspring.domain.workflows.flow import SERVER_TASKS, WAIT_TASK, WORKFLOW_TASK
from mainspring.domain.workflows.graph import Graph, build, layers, not_upstream, too_many_steps
from mainspring.domain.workflows.references import (
    DEEPEST,
    FROM,
    ITEM,
    OF_A_MEMBER,
    PARAMETER,
    ParsedReference,
    collect,
    is_deeper,
    may_refer,
    without_references,
)
from mainspring.kinds.registry import TaskKind, task_kinds
from mainspring.wire.jobs import JobPatch, JobRequest, MisfireIn
from mainspring.wire.states import PriorityIn
from mainspring.wire.workflows import MAX_STEPS, RULES, UPSTREAM_FAILURES, StepIn, WorkflowPatch, WorkflowRequest

_SHARED = ("name", "schedule", "overlap", "queue", "priority", "owner", "description", "labels", "declared_by")
_OF_A_STEP = (
    "sleep", "wait", "workflow", "parameters", "callback", "depends_on", "rule", "on_upstream_failure", "map", "queue",
    "priority",
)  # fmt: skip
_OF_A_JOB = tuple(name for name in StepIn.__struct_fields__ if name not in _OF_A_STEP)
_of_a_job = attrgetter(*_OF_A_JOB)
_NAMES = {"job_id": "workflow_id", "payload": "parameters", "run_timeout": "timeout"}
_encode = msgspec.json.Encoder().encode


class WorkflowSource(msgspec.Struct, omit_defaults=True):
    """What of a workflow its steps are made from, as it was given."""

    steps: list[StepIn]
    queue: str | None = None
    priority: PriorityIn | None = None


class ReadStep(msgspec.Struct, frozen=True):
    """A step without its place in the graph, and the steps that it refers to."""

    step: StepDefinition
    refers_to: list[ParsedReference] = []


def define_workflow(request: WorkflowRequest, now: datetime) -> JobDefinition:
    """The job that a workflow is. Without a schedule it runs by run-now alone."""
    given: dict[str, Any] = {name: getattr(request, name) for name in _SHARED} | {"run_timeout": request.timeout}
    if request.schedule is None:
        given["schedule"] = "manual"
    job = JobRequest(
        job_id=request.workflow_id,
        task=WORKFLOW_TASK,
        payload=parameters_as_payload(request.parameters),
        keep_payload=True,
        misfire=_misfire(request.misfire),
        idempotency_key=request.idempotency_key,
        **given,
    )
    try:
        definition = define(job, now)
    except MainspringError as error:
        raise renamed(error) from None
    return with_version(definition, 1)


def with_version(definition: JobDefinition, version: int) -> JobDefinition:
    """The job of a workflow whose definition has this version."""
    return msgspec.structs.replace(definition, spec=msgspec.structs.replace(definition.spec, workflow=version))


def patch_of_job(patch: WorkflowPatch) -> JobPatch | None:
    """The change of the job that a change of its workflow is. None if it leaves the job as it is."""
    given = {name: value for name in _SHARED if (value := getattr(patch, name)) is not UNSET}
    if patch.timeout is not UNSET:
        given["run_timeout"] = patch.timeout
    if patch.misfire is not UNSET:
        given["misfire"] = _misfire(patch.misfire)
    if patch.parameters is not UNSET:
        given["payload"] = parameters_as_payload(patch.parameters) if patch.parameters else msgspec.Raw(b"null")
    return JobPatch(**given) if given else None


def parameters_as_payload(parameters: dict[str, Any] | None) -> msgspec.Raw:
    """Raises InvalidInput if they are nested too deeply to be put into payloads."""
    for name, value in (parameters or {}).items():
        if is_deeper(value):
            raise InvalidInput(
                "the value is nested too deeply", field=f"parameters.{name}", expected=f"at most {DEEPEST} levels"
            )
    return msgspec.Raw(_encode(parameters)) if parameters else msgspec.Raw()


def run_parameters(
    stored: Mapping[str, Any], given: Mapping[str, Any] | None, field: str = "parameters"
) -> dict[str, Any]:
    """The parameters of a run. Raises InvalidInput for one that the workflow does not have."""
    for name in given or {}:
        if name not in stored:
            raise InvalidInput(
                f"the workflow has no parameter {shown(name)}", code="unknown_parameter", field=f"{field}.{name}",
                hint="it has " + ", ".join(list(stored)[:20]) if stored else "it has none",
            )  # fmt: skip
    return {**stored, **(given or {})}


def check_count(steps: Sequence[StepIn]) -> None:
    """Check the number of steps before any of them is read."""
    if not steps:
        raise InvalidInput("a workflow needs a step", field="steps", expected=f"1 to {MAX_STEPS:,} steps")
    if len(steps) > MAX_STEPS:
        raise too_many_steps(len(steps))


def shape_of(step: StepIn) -> tuple[bool, bytes]:
    """A key that is equal for steps that differ only in their names and parents. A check of one of them holds for
    all."""
    return bool(step.depends_on), _encode(msgspec.structs.replace(step, name="", depends_on=None))


def request_of_step(step: StepIn, source: WorkflowSource) -> JobRequest:
    """The request of the job that a step is. What it does not say comes from the workflow."""
    return JobRequest(
        queue=source.queue if step.queue is None else step.queue,
        priority=source.priority if step.priority is None else step.priority,
        **{name: value for name, value in zip(_OF_A_JOB, _of_a_job(step), strict=True) if value is not None},
    )


def read_step(
    index: int,
    step: StepIn,
    request: JobRequest,
    now: datetime,
    known: Mapping[str, TaskDeclaration],
    parameters: Collection[str],
) -> ReadStep:
    """Check a step by itself. Raises a MainspringError whose field begins with `steps[index]`."""
    try:
        return _read_step(step, request, now, known, parameters)
    except MainspringError as error:
        error.field = f"steps[{index}]" if error.field in (None, "$") else f"steps[{index}].{error.field}"
        raise


def _read_step(
    step: StepIn, request: JobRequest, now: datetime, known: Mapping[str, TaskDeclaration], parameters: Collection[str]
) -> ReadStep:
    if waits(step):
        return _read_wait(step, request, now, parameters)
    check_parameters(step)
    payload, references = _payload_of(step)
    refers = may_refer(payload)
    kind, call = _call_of(step)
    if kind is not None and payload is None:
        payload, references, known_call = checks_of(kind).in_step(call)
        refers = payload is not None
        if refers:
            request = msgspec.structs.replace(request, **{kind.field: known_call})
    elif refers:
        request = msgspec.structs.replace(
            request, payload=msgspec.Raw(_encode(without_references(_decoded(payload or "{}"))))
        )
    is_payload = kind is None or not checks_of(kind).payload_is_call
    job = _job(request, now, known, payload if references and is_payload else None)
    mapped = None if step.map is None else read_map(step.map)
    if mapped is not None and mapped.parameter is not None:
        references = [*references, ParsedReference(PARAMETER, mapped.parameter, where="map.over")]
    for reference in references:
        _check_reference(reference, parameters, step)
    if mapped is not None and mapped.source is not None:
        source = mapped.source
        references = [*references, ParsedReference(FROM, source.step, source.path, "map.over")]
    return ReadStep(
        StepDefinition(
            name=step.name,
            task=job.task,
            payload=payload,
            queue=job.queue,
            priority=job.priority,
            spec=job.spec if step.callback is None else with_callback(step, kind, job.spec),
            required_labels=job.required_labels,
            rule=_word(step.rule, RULES, ALL_SUCCESS, "rule", step),
            on_upstream_failure=_word(step.on_upstream_failure, UPSTREAM_FAILURES, SKIP, "on_upstream_failure", step),
            map=mapped,
            refers=refers,
        ),
        [reference for reference in references if reference.kind == FROM],
    )


def _read_wait(step: StepIn, request: JobRequest, now: datetime, parameters: Collection[str]) -> ReadStep:
    """A step that waits. What it waits for is its payload, and is read again when the step is ready."""
    wait = wait_of(step)
    references = [reference for field, value in wait.items() for reference in collect(value, field)]
    for reference in references:
        _check_reference(reference, parameters, step)
    job = define(msgspec.structs.replace(request, task=WAIT_TASK), now)
    return ReadStep(
        StepDefinition(
            name=step.name,
            task=WAIT_TASK,
            payload=_encode(wait).decode(),
            queue=job.queue,
            priority=job.priority,
            spec=job.spec,
            rule=_word(step.rule, RULES, ALL_SUCCESS, "rule", step),
            on_upstream_failure=_word(step.on_upstream_failure, UPSTREAM_FAILURES, SKIP, "on_upstream_failure", step),
            refers=bool(references),
        ),
        [reference for reference in references if reference.kind == FROM],
    )


def _job(
    request: JobRequest, now: datetime, known: Mapping[str, TaskDeclaration], referring: str | None
) -> JobDefinition:
    """The job, with the options that its task declares. A step is not unique, whatever its task declares. `referring`:
    its payload, if that has references."""
    job = define(request, now)
    if job.task in SERVER_TASKS:
        raise InvalidInput(
            f"the task {job.task} is reserved for workflows", field="task", hint="name a task of a worker"
        )
    declaration = known.get(job.task)
    if declaration is None:
        return job
    if referring is None:
        declaration.check(job.payload)
    else:
        _check_known(declaration, _decoded(referring))
    if declaration.options is None:
        return job
    options = msgspec.structs.replace(declaration.options, unique=None)
    try:
        return define(fill(_with_retry(request), options), now)
    except InvalidInput as error:  # the step is valid without the options
        hint = f"some values are defaults that {job.task} declares"
        error.hint = f"{error.hint}; {hint}" if error.hint else hint
        raise


def _with_retry(request: JobRequest) -> JobRequest:
    if request.retry_policy is None:
        return request
    return msgspec.structs.replace(request, retry=request.retry_policy, retry_policy=None)


def _payload_of(step: StepIn) -> tuple[str | None, list[ParsedReference]]:
    """The payload as text, and its references."""
    try:
        text = str(step.payload, "utf-8").strip()
    except UnicodeDecodeError:
        raise InvalidInput("the payload is not UTF-8", code="invalid_json", field="payload") from None
    if text in ("", "null"):
        return None, []
    if not may_refer(text):
        return text, []
    is_call = (step.task or step.job_type) in KINDS_BY_TASK
    return text, collect(_decoded(text), secrets=is_call)


def _call_of(step: StepIn) -> tuple[TaskKind | None, Any]:
    """The kind and the call of a step, if it has the field of a kind."""
    for kind, call in zip(task_kinds(), given_calls(step), strict=True):
        if call is not None:
            return kind, call
    return None, None


def _check_known(declaration: TaskDeclaration, payload: Any) -> None:
    """Check the parameters without references. A value is not known yet if a part of it is a reference."""
    if not isinstance(payload, dict) or any(name.startswith("$") for name in payload):
        return
    late = {name for name, value in payload.items() if collect(value)}
    declaration.check_known({name: without_references(value) for name, value in payload.items()}, late)


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"the payload cannot be decoded: {error}", field="payload") from None


def _check_reference(reference: ParsedReference, parameters: Collection[str], step: StepIn) -> None:
    if reference.kind == PARAMETER and reference.of not in parameters:
        raise InvalidInput(
            f"the workflow has no parameter {shown(reference.of)}", code="unknown_parameter", field=reference.where,
            hint=meant(reference.of, parameters, "add it to parameters of the workflow"),
        )  # fmt: skip
    if reference.kind in OF_A_MEMBER and step.map is None:
        raise InvalidInput(
            f"{reference.kind} is only known in the members of a map", code="invalid_reference", field=reference.where,
            hint="give the step a map",
        )  # fmt: skip
    if reference.kind == ITEM and step.map is not None and step.map.workers is not None:
        raise InvalidInput(
            "a map over workers has no items", code="invalid_reference", field=reference.where,
            hint='use {"$index": true} and {"$total": true}',
        )  # fmt: skip


def _word(given: str | None, words: Sequence[str], default: str, field: str, step: StepIn) -> str:
    if given is None:
        return default
    if given.lower() not in words:
        raise InvalidInput(f"{shown(given)} is not known", field=field, expected=", ".join(words))
    if not step.depends_on and given.lower() != default:
        raise InvalidInput(f"{field} needs depends_on", field=field, hint="name the steps, or leave it out")
    return given.lower()


def join_steps(given: Sequence[StepIn], read: Sequence[ReadStep]) -> WorkflowDefinition:
    """The definition of the workflow. Raises InvalidInput for names that are double or unknown, for a cycle, and for a
    reference to a step that does not come before."""
    graph, _ = check_graph(given, read)
    steps = [
        msgspec.structs.replace(item.step, name=name, waits_for=join)
        for item, name, join in zip(read, graph.names, graph.waits_for, strict=True)
    ]
    return WorkflowDefinition(steps, graph.joins, graph.last())


def check_graph(given: Sequence[StepIn], read: Sequence[ReadStep]) -> tuple[Graph, int]:
    """The graph of the steps, and how many layers it has. Raises as join_steps does. Steps may share what was read of
    them, but for their names."""
    names = [step.name for step in given]
    graph = build(names, [step.depends_on or () for step in given])
    layer = layers(graph)
    numbers = {name: number for number, name in enumerate(names)}
    places: dict[tuple[int, int], str] = {}
    for index, item in enumerate(read):
        for reference in item.refers_to:
            other = numbers.get(reference.of)
            where = f"steps[{index}].{reference.where}"
            if other is None:
                raise InvalidInput(
                    f"there is no step {shown(reference.of)}", code="unknown_step", field=where,
                    hint=meant(reference.of, numbers, "name a step of this workflow"),
                )  # fmt: skip
            places.setdefault((index, other), where)
    if wrong := not_upstream(graph, layer, places):
        step, other = min(wrong)
        hint = f"add {shown(names[other])} to depends_on of {shown(names[step])}"
        raise InvalidInput(
            f"{shown(names[other])} does not come before {shown(names[step])}", code="not_upstream",
            field=places[step, other], hint="refer to a step before it" if step == other else hint,
        )  # fmt: skip
    return graph, max(layer) + 1


def _misfire(given: str | MisfireIn | UnsetType | None) -> MisfireIn | None:
    return MisfireIn(policy=given) if isinstance(given, str) else None if given is UNSET else given


def renamed(error: MainspringError) -> MainspringError:
    """An error about the job, in the words of its workflow."""
    first, dot, rest = (error.field or "").partition(".")
    if first in _NAMES:
        error.field = f"{_NAMES[first]}{dot}{rest}"
        error.detail = error.detail.replace("the payload", "the object of parameters")
    if error.hint is not None:
        error.hint = error.hint.replace("/v1/jobs", "/v1/workflows").replace("job_id", "workflow_id")
    return error
