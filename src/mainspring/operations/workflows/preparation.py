"""What is worked out of a workflow before it is stored: its steps by themselves, its graph, and its text.

For the largest allowed workflow this takes some seconds. So that of a large one is worked out in a child process
(large_preparation.py), and this module imports nothing that a child would load in vain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import islice

import msgspec

from mainspring.domain.intake.canonical import canonical_json
from mainspring.domain.intake.declaration import TaskDeclaration
from mainspring.domain.intake.job_secrets import named_secrets
from mainspring.domain.intake.waits import is_late
from mainspring.domain.intake.workflows import (
    ReadStep,
    WorkflowSource,
    check_count,
    check_graph,
    join_steps,
    read_step,
    request_of_step,
    shape_of,
)
from mainspring.domain.worker_needs import WorkerNeeds, needs_of
from mainspring.domain.workflows.definition import definition_to_text
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.signatures.slow_checks import prepare_checks
from mainspring.wire.jobs import JobRequest
from mainspring.wire.workflows import WorkflowCheck, WorkflowRequest

_SHOWN = 100
_MOST_NEEDS = 1000
_encode = msgspec.json.Encoder().encode


class NamedByStep(msgspec.Struct, frozen=True, array_like=True):
    """The secrets that a step names, each with its field, and the queue and task of the step."""

    named: dict[str, str]
    queue: str
    task: str


class CallByStep(msgspec.Struct, frozen=True, array_like=True):
    """The workflow that a step runs, and the parameters that it gives it, if they are known."""

    field: str
    workflow: str
    parameters: list[str] | None = None


class Version(msgspec.Struct, frozen=True):
    """A definition that is about to be stored, as JSON. needs: what its steps need from workers."""

    steps: int
    definition: str
    source: str
    needs: list[WorkerNeeds] = []
    secrets: list[NamedByStep] = []
    calls: list[CallByStep] = []


class Checked(msgspec.Struct, frozen=True):
    """What is said about a workflow that is valid. needs: what its steps need from workers."""

    answer: WorkflowCheck
    needs: list[WorkerNeeds]
    secrets: list[NamedByStep] = []
    calls: list[CallByStep] = []


async def check(
    source: WorkflowSource, parameters: Collection[str], now: datetime, known: Mapping[str, TaskDeclaration]
) -> Checked:
    """Raises InvalidInput."""
    read = await _read(source, parameters, now, known)
    graph, layers = check_graph(source.steps, read)
    first = (step for step, join in enumerate(graph.waits_for) if join is None)
    answer = WorkflowCheck(
        steps=len(graph.names),
        edges=graph.edges,
        layers=layers,
        first=[graph.names[step] for step in islice(first, _SHOWN)],
        last=[graph.names[step] for step in graph.last()[:_SHOWN]],
    )
    return Checked(answer, _needs(read), _secrets(read), _calls(source))


async def version_of(
    source: WorkflowSource, parameters: Collection[str], now: datetime, known: Mapping[str, TaskDeclaration]
) -> Version:
    """What is stored of a workflow. Raises InvalidInput."""
    read = await _read(source, parameters, now, known)
    definition = join_steps(source.steps, read)
    return Version(
        len(source.steps), definition_to_text(definition), _encode(source).decode(), _needs(read), _secrets(read),
        _calls(source),
    )  # fmt: skip


def _needs(read: Sequence[ReadStep]) -> list[WorkerNeeds]:
    shapes = {id(each): each for each in read}  # steps of one shape share what was read
    return list(dict.fromkeys(needs_of(each.step) for each in shapes.values()))[:_MOST_NEEDS]


def _secrets(read: Sequence[ReadStep]) -> list[NamedByStep]:
    """Of the first step of each shape that names some."""
    shapes: dict[int, tuple[int, ReadStep]] = {}
    for index, each in enumerate(read):
        shapes.setdefault(id(each), (index, each))
    found = []
    for index, each in shapes.values():
        if named := named_secrets(each.step.task, each.step.spec.setup):
            fields = {name: f"steps[{index}].{field}" for name, field in named.items()}
            found.append(NamedByStep(fields, each.step.queue, each.step.task))
    return found


def _calls(source: WorkflowSource) -> list[CallByStep]:
    """One for each workflow and set of parameters."""
    found: dict[tuple[str, tuple[str, ...] | None], CallByStep] = {}
    for index, step in enumerate(source.steps):
        if step.workflow is not None:
            given = step.parameters or {}
            names = None if is_late(given) else sorted(given)
            key = step.workflow, None if names is None else tuple(names)
            found.setdefault(key, CallByStep(f"steps[{index}]", step.workflow, names))
    return list(found.values())


def digest_of(request: WorkflowRequest) -> bytes:
    return hashlib.sha256(canonical_json(_encode(request))).digest()


async def _read(
    source: WorkflowSource, parameters: Collection[str], now: datetime, known: Mapping[str, TaskDeclaration]
) -> list[ReadStep]:
    """What each step is by itself. Steps of one shape are read once: large workflows have few."""
    check_count(source.steps)
    slices = TimeSlices()
    places: dict[tuple[bool, bytes], int] = {}
    firsts: list[int] = []  # the first step of each shape
    shapes: list[int] = []
    requests: list[JobRequest] = []
    for index, step in enumerate(source.steps):
        shape = places.setdefault(shape_of(step), len(places))
        shapes.append(shape)
        if shape == len(firsts):
            firsts.append(index)
            requests.append(request_of_step(step, source))
        if slices.over:
            await slices.pause()
    await prepare_checks(requests)
    read: list[ReadStep] = []
    for index, request in zip(firsts, requests, strict=True):
        read.append(read_step(index, source.steps[index], request, now, known, parameters))
        if slices.over:
            await slices.pause()
    return [read[shape] for shape in shapes]
