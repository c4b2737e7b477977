"""Ad-hoc jobs that are submitted together, with one that runs when all of them have ended: a workflow that runs once.

batch = app.batch("imports")
for path in paths:
    batch.add(import_file, path=path)
batch.then(send_report, count=len(paths))
handle = batch.submit()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.ids import uuid7
from mainspring.sdk.tasks.task import Submission, Task
from mainspring.sdk.workflows.step import Step
from mainspring.sdk.workflows.workflow import Registry, Workflow

if TYPE_CHECKING:
    from mainspring.sdk.client.workflow_handle import AsyncWorkflowRun, WorkflowRun

P = ParamSpec("P")
R = TypeVar("R")


class Batch:
    """Jobs that are submitted together, all or none. `workflow` is the workflow that they become."""

    def __init__(self, app: Registry, name: str) -> None:
        self._app = app
        self.workflow = Workflow(f"{name}-{uuid7()}", app=app, name=name, schedule="now")
        self._members: list[Step[Any]] = []
        self._last: Step[Any] | None = None
        self._submitted = False

    def __repr__(self) -> str:
        return f"<batch {self.workflow.workflow_id} of {len(self._members)} jobs>"

    def __len__(self) -> int:
        return len(self._members)

    def add(self, work: Task[P, R] | Submission[P, R], /, *args: P.args, **params: P.kwargs) -> Step[R]:
        """Add a job. All arguments are parameters of the task; its options are given with `task.options(...)`."""
        self._check_open()
        if self._last is not None:
            raise InvalidInput("the batch has its last job already", field="then", hint="call add before then")
        task = work.task if isinstance(work, Submission) else work
        options: Any = {"name": f"{task.function.__name__}-{len(self._members) + 1}"}
        step = self.workflow._task_step(_submission(work), args, dict(params), options)
        self._members.append(step)
        return step

    def then(self, work: Task[P, R] | Submission[P, R], /, *args: P.args, **params: P.kwargs) -> Step[R]:
        """Set the job that runs when all others have ended, whether they succeeded or not."""
        self._check_open()
        if self._last is not None or not self._members:
            wrong = "has its last job already" if self._members else "has no jobs yet"
            raise InvalidInput(f"the batch {wrong}", field="then", hint="add the jobs, then call then once")
        options: Any = {"name": "then", "after": self._members, "rule": "all_done"}
        self._last = self.workflow._task_step(_submission(work), args, dict(params), options)
        return self._last

    def submit(self) -> WorkflowRun:
        """Submit all jobs and return the handle of the workflow run. Calling it again submits nothing more."""
        client = self._app.client
        client.create_workflow(self._body())
        self._submitted = True
        [run] = client.workflow_runs(self.workflow.workflow_id, limit=1).runs
        return client.workflow_run_handle(run.run_id)

    async def submit_async(self) -> AsyncWorkflowRun:
        """Submit all jobs from async code and return the handle of the workflow run."""
        client = self._app.async_client
        await client.create_workflow(self._body())
        self._submitted = True
        [run] = (await client.workflow_runs(self.workflow.workflow_id, limit=1)).runs
        return client.workflow_run_handle(run.run_id)

    def _check_open(self) -> None:
        if self._submitted:
            raise InvalidInput("the batch was submitted already", field="steps", hint="make another with app.batch()")

    def _body(self) -> dict[str, Any]:
        if not self._members:
            raise InvalidInput("the batch has no jobs", field="steps", hint="add one with batch.add(task, ...)")
        return {**self.workflow.definition(), "idempotency_key": self.workflow.workflow_id}


def _submission(work: Any) -> Submission[Any, Any]:
    return work if isinstance(work, Submission) else Submission(work, {})
