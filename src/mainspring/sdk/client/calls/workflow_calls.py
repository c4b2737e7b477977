"""Calls for workflows and their runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from mainspring.kernel.ids import uuid7
from mainspring.sdk.client.calls.common import match_header, query_of, verb
from mainspring.sdk.client.core import Call, encode, json_of, segment
from mainspring.sdk.client.server_warnings import warning_of
from mainspring.wire.jobs import RunNowAccepted
from mainspring.wire.protocol import GENERATED_KEY
from mainspring.wire.workflows import (
    StepRunList,
    WorkflowCheck,
    WorkflowCreated,
    WorkflowList,
    WorkflowRunList,
    WorkflowRunView,
    WorkflowView,
)

_created = warning_of(WorkflowCreated)
_check = warning_of(WorkflowCheck)
_workflow = json_of(WorkflowView)
_changed_workflow = warning_of(WorkflowView)
_workflow_list = json_of(WorkflowList)
_run_now = warning_of(RunNowAccepted)
_run = json_of(WorkflowRunView)
_run_list = json_of(WorkflowRunList)
_step_list = json_of(StepRunList)


class BuiltWorkflow(Protocol):
    """A workflow that was built in Python."""

    def definition(self) -> dict[str, Any]:
        """Return the workflow as `POST /v1/workflows` takes it."""


def create_workflow(workflow: BuiltWorkflow | Mapping[str, Any]) -> Call[WorkflowCreated]:
    """Create a workflow: one built in Python, or the body of `POST /v1/workflows`. Without an idempotency key it gets a
    generated one, so that the request can be repeated safely."""
    body = _definition(workflow)
    body.setdefault("idempotency_key", f"{GENERATED_KEY}{uuid7()}")
    return Call("POST", "/v1/workflows", _created, body=encode(body))


def check_workflow(workflow: BuiltWorkflow | Mapping[str, Any]) -> Call[WorkflowCheck]:
    """Check a workflow as `create_workflow` does, without creating it."""
    return Call("POST", "/v1/workflows:validate", _check, body=encode(_definition(workflow)))


def workflow(workflow_id: str, *, generation: int | None = None, definition: int | None = None) -> Call[WorkflowView]:
    """The workflow with its definition, or an earlier generation of it. With `definition` its steps are those of an
    earlier `definition_version`."""
    params = query_of({"generation": generation, "definition": definition})
    return Call("GET", _path(workflow_id), _workflow, params=params)


def workflows(
    *, q: str | None = None, status: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[WorkflowList]:
    """One page of workflows, newest first, without their steps. `q` searches names and ids."""
    params = query_of({"q": q, "status": status, "limit": limit, "cursor": cursor})
    return Call("GET", "/v1/workflows", _workflow_list, params=params)


def replace_workflow(
    workflow_id: str, workflow: BuiltWorkflow | Mapping[str, Any], *, if_version: int | None = None
) -> Call[WorkflowView]:
    """Give the workflow this definition. Runs that have fired keep theirs. With `if_version`, only if the workflow
    still has that version."""
    body = _definition(workflow)
    for name in ("workflow_id", "idempotency_key"):
        body.pop(name, None)
    return _change("PUT", workflow_id, body, if_version)


def update_workflow(workflow_id: str, *, if_version: int | None = None, **changes: Any) -> Call[WorkflowView]:
    """Change some fields of the workflow. `steps` and `parameters` replace all of them. None resets a field."""
    return _change("PATCH", workflow_id, changes, if_version)


def delete_workflow(workflow_id: str, *, if_version: int | None = None) -> Call[WorkflowView]:
    """Cancel the workflow and its live runs. Returns it as it is then. With `if_version`, only that version."""
    headers = match_header(if_version)
    return Call("DELETE", _path(workflow_id), _workflow, headers=headers, repeatable=if_version is None)


def pause_workflow(workflow_id: str, *, if_version: int | None = None) -> Call[WorkflowView]:
    """Stop firing the workflow until it is resumed. Runs that have fired continue."""
    return verb(_path(workflow_id, ":pause"), _workflow, only_if=if_version)


def resume_workflow(workflow_id: str, *, if_version: int | None = None) -> Call[WorkflowView]:
    """Resume the workflow from its next fire time on."""
    return verb(_path(workflow_id, ":resume"), _workflow, only_if=if_version)


def start_workflow(
    workflow_id: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    idempotency_key: str | None = None,
    if_version: int | None = None,
) -> Call[RunNowAccepted]:
    """Run the workflow once now, in addition to its schedule, with these values of its parameters. The answer has the
    status of the run: SKIPPED if another run of the workflow is alive. It is repeated after a lost response only with
    an idempotency key, which stands for one run of this workflow."""
    body: dict[str, Any] = {} if not parameters else {"parameters": dict(parameters)}
    if idempotency_key is not None:
        body["idempotency_key"] = idempotency_key
    path, headers = _path(workflow_id, ":runNow"), match_header(if_version)
    return Call("POST", path, _run_now, body=encode(body), headers=headers, repeatable=idempotency_key is not None)


def workflow_runs(
    workflow_id: str, *, status: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[WorkflowRunList]:
    """One page of the runs of the workflow, newest first."""
    params = query_of({"status": status, "limit": limit, "cursor": cursor})
    return Call("GET", _path(workflow_id, "/runs"), _run_list, params=params)


def workflow_run(run_id: str) -> Call[WorkflowRunView]:
    """A run of a workflow with up to 1,000 of its steps."""
    return Call("GET", _run_path(run_id), _run)


def workflow_steps(
    run_id: str,
    *,
    status: str | None = None,
    name: str | None = None,
    members: bool | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[StepRunList]:
    """One page of the steps of a workflow run. With a `name` and `members`, the members of that mapped step."""
    shown = "true" if members else None
    params = query_of({"status": status, "name": name, "members": shown, "limit": limit, "cursor": cursor})
    return Call("GET", _run_path(run_id, "/steps"), _step_list, params=params)


def cancel_workflow_run(
    run_id: str, *, reason: str | None = None, if_match: str | None = None
) -> Call[WorkflowRunView]:
    """Cancel the workflow run and all of its steps that have not ended. It is CANCELLED when the last of them has.
    With `if_match`, only if it still has that `etag`."""
    body = encode({} if reason is None else {"reason": reason})
    return verb(_run_path(run_id, ":cancel"), _run, body=body, only_if=if_match)


def rerun_workflow(
    run_id: str, from_step: str | None = None, *, definition: str | None = None, if_match: str | None = None
) -> Call[WorkflowRunView]:
    """Run a part of an ended workflow run again, within that run: the steps that did not succeed and what follows them,
    or the step `from_step` and what follows it. `definition="current"` takes the settings of these steps from the
    workflow as it is now. Not repeated after a lost response. With `if_match`, only if it still has that `etag`."""
    given = {"from": from_step, "definition": definition}
    body = encode({name: value for name, value in given.items() if value is not None})
    return verb(_run_path(run_id, ":rerun"), _run, body=body, repeatable=False, only_if=if_match)


def _definition(workflow: BuiltWorkflow | Mapping[str, Any]) -> dict[str, Any]:
    return dict(workflow) if isinstance(workflow, Mapping) else workflow.definition()


def _change(method: str, workflow_id: str, body: dict[str, Any], if_version: int | None) -> Call[WorkflowView]:
    return Call(
        method,
        _path(workflow_id),
        _changed_workflow,
        body=encode(body),
        headers=match_header(if_version),
        repeatable=if_version is None,  # the first request has changed the version
    )


def _path(workflow_id: str, rest: str = "") -> str:
    return f"/v1/workflows/{segment(workflow_id)}{rest}"


def _run_path(run_id: str, rest: str = "") -> str:
    return f"/v1/workflow-runs/{segment(run_id)}{rest}"
