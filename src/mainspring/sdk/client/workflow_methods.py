"""The methods of the clients that are about workflows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, cast

from mainspring.sdk.client import calls
from mainspring.sdk.client.methods import awaited, awaited_search, blocking, blocking_search
from mainspring.sdk.client.sender import AsyncSender, Sender
from mainspring.sdk.client.workflow_handle import AsyncWorkflowRun, WorkflowRun
from mainspring.wire.workflows import StepRunView


class WorkflowMethods:
    """Workflows, for `Client`."""

    def run_workflow(
        self, workflow_id: str, parameters: Mapping[str, Any] | None = None, *, idempotency_key: str | None = None
    ) -> WorkflowRun:
        """Run the workflow once now, with these values of its parameters, and return the handle of the run."""
        made = self._sender.send(calls.start_workflow(workflow_id, parameters, idempotency_key=idempotency_key))
        return self.workflow_run_handle(made.run_id)

    def workflow_run_handle(self, run_id: str) -> WorkflowRun:
        """A handle of a workflow run. Nothing is sent."""
        return WorkflowRun(self._sender, run_id)

    def all_workflow_steps(
        self, run_id: str, *, status: str | None = None, name: str | None = None, members: bool | None = None
    ) -> Iterator[StepRunView]:
        """All steps of a workflow run that match, or all members of a mapped step. Pages are fetched as needed."""
        for page in self._sender.pages(calls.workflow_steps(run_id, status=status, name=name, members=members)):
            yield from page.steps

    create_workflow = blocking(lambda: calls.create_workflow)
    check_workflow = blocking(lambda: calls.check_workflow)
    workflow = blocking(lambda: calls.workflow)
    workflows = blocking_search(lambda: calls.workflows)
    replace_workflow = blocking(lambda: calls.replace_workflow)
    update_workflow = blocking(lambda: calls.update_workflow)
    delete_workflow = blocking(lambda: calls.delete_workflow)
    pause_workflow = blocking(lambda: calls.pause_workflow)
    resume_workflow = blocking(lambda: calls.resume_workflow)
    start_workflow = blocking(lambda: calls.start_workflow)
    workflow_runs = blocking(lambda: calls.workflow_runs)
    workflow_run = blocking(lambda: calls.workflow_run)
    workflow_steps = blocking(lambda: calls.workflow_steps)
    cancel_workflow_run = blocking(lambda: calls.cancel_workflow_run)
    rerun_workflow = blocking(lambda: calls.rerun_workflow)
    approvals = blocking(lambda: calls.approvals)
    approve = blocking(lambda: calls.approve)
    reject = blocking(lambda: calls.reject)

    @property
    def _sender(self) -> Sender:
        return cast(Sender, self)


class AsyncWorkflowMethods:
    """Workflows, for `AsyncClient`."""

    async def run_workflow(
        self, workflow_id: str, parameters: Mapping[str, Any] | None = None, *, idempotency_key: str | None = None
    ) -> AsyncWorkflowRun:
        """Run the workflow once now, with these values of its parameters, and return the handle of the run."""
        made = await self._sender.send(calls.start_workflow(workflow_id, parameters, idempotency_key=idempotency_key))
        return self.workflow_run_handle(made.run_id)

    def workflow_run_handle(self, run_id: str) -> AsyncWorkflowRun:
        """A handle of a workflow run. Nothing is sent."""
        return AsyncWorkflowRun(self._sender, run_id)

    async def all_workflow_steps(
        self, run_id: str, *, status: str | None = None, name: str | None = None, members: bool | None = None
    ) -> AsyncIterator[StepRunView]:
        """All steps of a workflow run that match, or all members of a mapped step. Pages are fetched as needed."""
        call = calls.workflow_steps(run_id, status=status, name=name, members=members)
        async for page in self._sender.pages(call):
            for step in page.steps:
                yield step

    create_workflow = awaited(lambda: calls.create_workflow)
    check_workflow = awaited(lambda: calls.check_workflow)
    workflow = awaited(lambda: calls.workflow)
    workflows = awaited_search(lambda: calls.workflows)
    replace_workflow = awaited(lambda: calls.replace_workflow)
    update_workflow = awaited(lambda: calls.update_workflow)
    delete_workflow = awaited(lambda: calls.delete_workflow)
    pause_workflow = awaited(lambda: calls.pause_workflow)
    resume_workflow = awaited(lambda: calls.resume_workflow)
    start_workflow = awaited(lambda: calls.start_workflow)
    workflow_runs = awaited(lambda: calls.workflow_runs)
    workflow_run = awaited(lambda: calls.workflow_run)
    workflow_steps = awaited(lambda: calls.workflow_steps)
    cancel_workflow_run = awaited(lambda: calls.cancel_workflow_run)
    rerun_workflow = awaited(lambda: calls.rerun_workflow)
    approvals = awaited(lambda: calls.approvals)
    approve = awaited(lambda: calls.approve)
    reject = awaited(lambda: calls.reject)

    @property
    def _sender(self) -> AsyncSender:
        return cast(AsyncSender, self)
