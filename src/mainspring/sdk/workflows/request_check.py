"""A request for a workflow, checked as a server checks it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from mainspring.domain.intake.declaration import TaskDeclaration
from mainspring.domain.intake.workflows import (
    WorkflowSource,
    check_count,
    define_workflow,
    join_steps,
    read_step,
    request_of_step,
)
from mainspring.domain.workflows.definition import WorkflowDefinition
from mainspring.wire.workflows import WorkflowRequest


def check_request(request: WorkflowRequest, now: datetime) -> None:
    """Raise a MainspringError that names the field, unless a server would accept the workflow."""
    define_workflow(request, now)
    source = WorkflowSource(request.steps, request.queue, request.priority)
    read_steps(source, now, {}, request.parameters or {})


def read_steps(
    source: WorkflowSource, now: datetime, known: Mapping[str, TaskDeclaration], parameters: Collection[str]
) -> WorkflowDefinition:
    """The definition of the steps. Raises a MainspringError that names the field."""
    check_count(source.steps)
    read = [
        read_step(index, step, request_of_step(step, source), now, known, parameters)
        for index, step in enumerate(source.steps)
    ]
    return join_steps(source.steps, read)
