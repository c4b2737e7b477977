"""Creates and updates the workflows that an application declares."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.transitions import JobStatus
from mainspring.sdk.app.differences import as_shown, differences
from mainspring.sdk.client.core import encode
from mainspring.sdk.client.if_exists import IfExists
from mainspring.sdk.workflows.workflow import Workflow
from mainspring.wire.jobs import JobView
from mainspring.wire.workflows import StepIn, WorkflowView

if TYPE_CHECKING:
    from mainspring.sdk.client.async_client import AsyncClient

Done = Literal["created", "updated", "resumed", "unchanged", "left cancelled", "kept"]
_OF_ITS_JOB = ("schedule", "misfire")
_SHOWN_PLAIN = ("name", "overlap", "queue", "priority", "owner", "description", "labels", "declared_by")
_steps = msgspec.json.Decoder(list[StepIn])


def declared_workflow(workflow: Workflow, application: str) -> dict[str, Any]:
    """The body of the workflow that belongs to the application."""
    return {**workflow.definition(), "declared_by": application}


async def put_workflow(
    client: AsyncClient, wanted: dict[str, Any], present: JobView | None, if_exists: IfExists | None = None
) -> Done:
    """Create the workflow, or change what differs. `present` is its job. A cancelled one stays cancelled. One that no
    application declares, because it was made by hand, is taken over only if `if_exists` says so."""
    if present is None:
        await client.create_workflow(wanted)
        return "created"
    if present.status == JobStatus.CANCELLED:
        return "left cancelled"
    shown = await client.workflow(present.job_id)
    changes = workflow_differences(shown, present, wanted)
    if not changes:
        return "unchanged"
    if present.declared_by is None and changes.keys() - {"declared_by"}:
        if if_exists == "keep":
            return "kept"
        if if_exists is None:
            raise InvalidInput(
                f"there is a workflow {present.job_id} that no application declares, and it differs in "
                f"{', '.join(sorted(changes.keys() - {'declared_by'}))}",
                field="if_exists",
                hint="write if_exists='replace' to take it over, if_exists='keep' to leave it as it is, or another id",
            )
    await client.update_workflow(present.job_id, if_version=shown.version, **changes)
    return "updated"


def workflow_differences(shown: WorkflowView, job: JobView, wanted: dict[str, Any]) -> dict[str, Any]:
    """The fields of the body `wanted` that differ from the workflow at the server, which is also a job. Fields that it
    does not set stay as operators set them."""
    request = {name: wanted[name] for name in (*_OF_ITS_JOB, *_SHOWN_PLAIN) if name in wanted}
    if isinstance(request.get("misfire"), str):
        request["misfire"] = {"policy": request["misfire"]}
    request |= {"task": "workflow", "schedule": request.get("schedule", "manual")}
    described = as_shown(job, request)
    differing = differences(job, request).keys() & set(_OF_ITS_JOB) & wanted.keys()
    differing |= {name for name in _SHOWN_PLAIN if name in wanted and getattr(shown, name) != getattr(described, name)}
    if "timeout" in wanted and _seconds(wanted["timeout"]) != shown.timeout:
        differing.add("timeout")
    if _plain(wanted.get("parameters", {})) != _plain(shown.parameters):
        differing.add("parameters")
    if _plain(_steps.decode(encode(wanted["steps"]))) != _plain(shown.steps):
        differing.add("steps")
    return {name: wanted.get(name) for name in wanted | {"parameters": None} if name in differing}


def _seconds(timeout: Any) -> float:
    return parse_duration(timeout.total_seconds() if isinstance(timeout, timedelta) else timeout, "timeout")


def _plain(value: Any) -> Any:
    return msgspec.json.decode(encode(value))
