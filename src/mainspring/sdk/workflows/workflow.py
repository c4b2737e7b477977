"""A workflow built in Python.

nightly = app.workflow("nightly", cron="0 2 * * *", timezone="Europe/Berlin", parameters={"region": "eu"})

extract = nightly.step(extract_rows, region=nightly.parameter("region"))
resize = nightly.step(resize_image, row=nightly.item).map(extract.result["rows"], max_parallel=50)
report = nightly.step(send_report, counts=resize.result, rule="all_done")
nightly.add("clean-up", command="rm -rf /tmp/rows", after=report)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, cast, overload

import msgspec

from mainspring.domain.errors import InvalidInput, MainspringError
from mainspring.domain.texts import meant, sentence
from mainspring.kinds.registry import task_kinds
from mainspring.sdk.client.core import encode
from mainspring.sdk.client.field_types import (
    DstOptions,
    MisfireOptions,
    MisfirePolicy,
    OnUpstreamFailure,
    Outside,
    Overlap,
    Priority,
    Rule,
)
from mainspring.sdk.client.if_exists import IfExists
from mainspring.sdk.client.job_fields import Duration, ExecutionFields, Moment, job_request
from mainspring.sdk.tasks.task import Application, Submission, Task
from mainspring.sdk.workflows.references import INDEX, ITEM, PARAMETER, TOTAL, Reference, owner_of
from mainspring.sdk.workflows.step import MAY_REFER, Step, flat
from mainspring.sdk.workflows.waits import OnTimeout, duration_field, sleep_field, wait_field
from mainspring.wire.formats import ChosenJobId
from mainspring.wire.kind_fields import KindKeywords
from mainspring.wire.workflows import StepIn, StepName, WorkflowRequest

if TYPE_CHECKING:
    from mainspring.sdk.client.workflow_handle import AsyncWorkflowRun, WorkflowRun
    from mainspring.sdk.tasks.decorators import Async, TaskDecorator

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
After = Step[Any] | Iterable[Step[Any]]
_OF_A_STEP = ("name", "after", "rule", "on_upstream_failure")
# The options that `workflow.step(...)` accepts beside the parameters of the task.
_STEP_OPTIONS = frozenset({*_OF_A_STEP, "queue", "priority", "timeout", "retries"})
_NOT_OF_A_STEP = frozenset({"job_id", "idempotency_key", "unique", "declared_by"})


class WorkflowOptions(TypedDict, total=False):
    """The fields of a workflow beside its steps. `cron`, `every`, `rrule` or `at` say when it runs; without them it
    runs only when it is told to. `timeout` is for a whole run. `queue` and `priority` are for steps without their own.
    """

    name: str | None
    schedule: str | Mapping[str, Any] | None
    cron: str | None
    every: Duration | None
    rrule: str | None
    at: Moment | None
    exdates: Sequence[Moment] | None
    jitter: Duration | None
    start: Moment | None
    end: Moment | None
    max_runs: int | None
    timezone: str | None
    dst: DstOptions | None
    calendar: str | None
    outside: Outside | None
    misfire: MisfirePolicy | MisfireOptions | None
    overlap: Overlap | None
    timeout: Duration | None
    queue: str | None
    priority: Priority | None
    owner: str | None
    description: str | None
    labels: Mapping[str, str] | None


class _OwnStepOptions(TypedDict, total=False):
    after: After | None
    rule: Rule | None
    on_upstream_failure: OnUpstreamFailure | None


class StepFields(_OwnStepOptions, ExecutionFields, KindKeywords, total=False):
    """The fields of a step that is not a function of the application."""

    task: str | None
    payload: Any
    callback: Mapping[str, Any] | None


class StepDecorator(Protocol):
    """Turns a task, or a function, into a step."""

    @overload
    def __call__(self, work: Task[..., R], /) -> Step[R]: ...

    @overload
    def __call__(self, work: Callable[..., Async[R]], /) -> Step[R]: ...

    @overload
    def __call__(self, work: Callable[..., R], /) -> Step[R]: ...

    def __call__(self, work: Any, /) -> Any:
        """Add the step."""


class Registry(Application, Protocol):
    """What a workflow needs of its application: it registers functions as tasks, too."""

    def task(self, name: str, /) -> TaskDecorator:
        """Register a function as a task with this name."""


class Workflow:
    """A graph of steps that runs as a whole: at the times of its schedule, or when it is told to.

    `app.workflow(...)` makes one that belongs to an application: workers create it at the server and keep it as the
    code says. A workflow without an application is created with `client.create_workflow(workflow)`.
    """

    def __init__(
        self,
        workflow_id: str,
        *,
        app: Registry | None = None,
        parameters: Mapping[str, Any] | None = None,
        **options: Unpack[WorkflowOptions],
    ) -> None:
        unknown = options.keys() - WorkflowOptions.__annotations__.keys()
        if unknown:
            known = ", ".join(WorkflowOptions.__annotations__)
            raise ValueError(f"{', '.join(sorted(unknown))}: not an option of a workflow. The options are: {known}.")
        self.if_exists: IfExists | None = None
        self.workflow_id = _checked(workflow_id, ChosenJobId, "the id of a workflow: at most 200")
        self.app = app
        self.parameters = dict(parameters or {})
        self.steps: dict[str, Step[Any]] = {}
        self._options = options

    def __repr__(self) -> str:
        return f"<workflow {self.workflow_id} of {len(self.steps)} steps>"

    # -- values that are known when it runs

    @overload
    def parameter(self, name: str) -> Any: ...

    @overload
    def parameter(self, name: str, default: T) -> T: ...

    def parameter(self, name: str, default: Any = ...) -> Any:
        """A parameter of the workflow, for the payload of a step. With `default` it is declared here."""
        if default is not ...:
            if self.parameters.setdefault(name, default) != default:
                raise ValueError(f"the parameter {name} of {self.workflow_id} has another default already")
        elif name not in self.parameters:
            raise ValueError(
                f"{self.workflow_id} has no parameter {name}. Write parameters={{{name!r}: ...}}, or give a default: "
                f"workflow.parameter({name!r}, ...)."
            )
        return Reference(PARAMETER, name)

    @property
    def item(self) -> Any:
        """The value of the member, in the payload of a mapped step. `workflow.item["id"]` is a part of it."""
        return Reference(ITEM, "")

    @property
    def index(self) -> int:
        """The number of the member, from 0 on, in the payload of a mapped step."""
        return cast(int, Reference(INDEX, True))

    @property
    def total(self) -> int:
        """How many members there are, in the payload of a mapped step."""
        return cast(int, Reference(TOTAL, True))

    # -- steps

    @overload
    def step(self, work: Task[P, R] | Submission[P, R], /, *args: P.args, **params: P.kwargs) -> Step[R]: ...

    @overload
    def step(
        self,
        work: Task[P, R] | Submission[P, R],
        /,
        after: After | None = ...,
        rule: Rule | None = ...,
        on_upstream_failure: OnUpstreamFailure | None = ...,
        queue: str | None = ...,
        priority: Priority | None = ...,
        timeout: Duration | None = ...,
        retries: int | None = ...,
        *args: P.args,
        **params: P.kwargs,
    ) -> Step[R]: ...

    @overload
    def step(
        self,
        work: Task[P, R] | Submission[P, R],
        /,
        name: str | None = ...,
        after: After | None = ...,
        rule: Rule | None = ...,
        on_upstream_failure: OnUpstreamFailure | None = ...,
        queue: str | None = ...,
        priority: Priority | None = ...,
        timeout: Duration | None = ...,
        retries: int | None = ...,
        *args: P.args,
        **params: P.kwargs,
    ) -> Step[R]: ...

    @overload
    def step(self, /, **params: Any) -> StepDecorator: ...

    def step(self, work: Any = None, /, *args: Any, **params: Any) -> Any:
        """Add a step that runs a task. The parameters of the task are its payload, and may be references. name=,
        after=, rule=, on_upstream_failure=, queue=, priority=, timeout= and retries= are options of the step, unless
        the task has a parameter with that name. `task.options(...)` in place of the task takes every option of a job.

        Without a task it is a decorator: `@workflow.step(rows=extract.result)` above `@app.task`, or above a plain
        function, which becomes the task `<workflow>.<function>`."""
        if work is None:
            return lambda below: self._split_step(self._task(below), args, params)
        return self._split_step(self._task(work), args, params)

    def add(self, name: str, **fields: Unpack[StepFields]) -> Step[Any]:
        """Add a step by its fields: `task=` with the name of a task of another application, `command=` or `http=`. The
        payload may have references."""
        unknown = fields.keys() - StepFields.__annotations__.keys() - {kind.field for kind in task_kinds()}
        if unknown:
            known = [*StepFields.__annotations__, *(kind.field for kind in task_kinds())]
            hint = sentence(meant(min(unknown), known, "known are: " + ", ".join(known)))
            raise ValueError(f"step {name}: {', '.join(sorted(unknown))} is not a field of a step. {hint}")
        return self._add(name, dict(fields), None)

    def sleep(
        self,
        name: str,
        duration: Duration | None = None,
        /,
        *,
        until: Moment | None = None,
        after: After | None = None,
        rule: Rule | None = None,
        on_upstream_failure: OnUpstreamFailure | None = None,
    ) -> Step[None]:
        """Add a step that sleeps without a slot: for a duration, or until a time. Both may be references."""
        fields = {"sleep": sleep_field(duration, until), "after": after, "rule": rule}
        fields["on_upstream_failure"] = on_upstream_failure
        return self._add(name, {key: value for key, value in fields.items() if value is not None}, None)

    def approval(
        self,
        name: str,
        approval: str | None = None,
        /,
        *,
        by: Sequence[str] | None = None,
        fields: Mapping[str, Mapping[str, Any]] | None = None,
        details: Any = None,
        timeout: Duration | None = None,
        on_timeout: OnTimeout | None = None,
        after: After | None = None,
        rule: Rule | None = None,
        on_upstream_failure: OnUpstreamFailure | None = None,
    ) -> Step[Any]:
        """Add a step that waits for a person: one of `by`, such as "role:operator", "user:anna@example.com" or
        "token:release". `fields` is what who approves fills in; the result has it under "fields". `details` is shown,
        and may have references."""
        wait = wait_field(
            {"approval": approval or name, "by": by, "fields": fields, "details": details},
            timeout=timeout,
            on_timeout=on_timeout,
        )
        options = {"wait": wait, "after": after, "rule": rule, "on_upstream_failure": on_upstream_failure}
        return self._add(name, {key: value for key, value in options.items() if value is not None}, None)

    def wait_for_event(
        self,
        name: str,
        event: str,
        /,
        *,
        key: str | Reference | None = None,
        since: Duration | None = None,
        timeout: Duration | None = None,
        on_timeout: OnTimeout | None = None,
        after: After | None = None,
        rule: Rule | None = None,
        on_upstream_failure: OnUpstreamFailure | None = None,
    ) -> Step[Any]:
        """Add a step that waits for an event. `key` may be a reference; without it an event without a key counts. An
        event counts that came up to `since` before the wait, 5 minutes by default. The result has it under "event"."""
        given = {"event": event, "key": key, "since": duration_field(since)}
        wait = wait_field(given, timeout=timeout, on_timeout=on_timeout)
        options = {"wait": wait, "after": after, "rule": rule, "on_upstream_failure": on_upstream_failure}
        return self._add(name, {key: value for key, value in options.items() if value is not None}, None)

    def run_workflow(
        self,
        name: str,
        workflow: str | Workflow,
        /,
        *,
        parameters: Mapping[str, Any] | Reference | None = None,
        after: After | None = None,
        rule: Rule | None = None,
        on_upstream_failure: OnUpstreamFailure | None = None,
    ) -> Step[Any]:
        """Add a step that runs another workflow, and waits for that run. The parameters may have references. The result
        has the results of the last steps of that run under "results", by their names."""
        called = workflow.workflow_id if isinstance(workflow, Workflow) else workflow
        options = {"workflow": called, "after": after, "rule": rule, "on_upstream_failure": on_upstream_failure}
        fields = {key: value for key, value in options.items() if value is not None}
        return self._add(name, fields if parameters is None else {**fields, "parameters": parameters}, None)

    def _task(self, work: Any) -> Submission[Any, Any]:
        if isinstance(work, Submission):
            return work
        if isinstance(work, Task):
            return Submission(work, {})
        if not inspect.isfunction(work):
            raise TypeError(f"{work!r} is neither a task nor a function. For a command or an http call use add().")
        if self.app is None:
            raise TypeError(f"{work.__qualname__} is not a task. Put @app.task above it, or use app.workflow(...).")
        return Submission(self.app.task(f"{self.workflow_id}.{work.__name__}")(work), {})

    def _split_step(self, work: Submission[Any, Any], args: tuple[Any, ...], params: dict[str, Any]) -> Step[Any]:
        taken = _STEP_OPTIONS - work.task.parameters.keys()
        options = {name: value for name, value in params.items() if name in taken and value is not None}
        payload = {name: value for name, value in params.items() if name not in taken}
        return self._task_step(work, args, payload, options)

    def _task_step(
        self, work: Submission[Any, Any], args: tuple[Any, ...], payload: dict[str, Any], options: dict[str, Any]
    ) -> Step[Any]:
        task = work.task
        name = options.pop("name", None) or task.function.__name__
        fields = {**work._fields(args, payload), **options}
        fields.pop("unique", None)  # an option of the task; a step is never merged
        return self._add(name, fields, task.function)

    def _add(self, name: str, fields: dict[str, Any], function: Callable[..., Any] | None) -> Step[Any]:
        _checked(name, StepName, "the name of a step: at most 100")
        if name in self.steps:
            raise ValueError(f"{self.workflow_id} has a step {name} already. Give this one another name=.")
        wrong = [field for field in fields if field in _NOT_OF_A_STEP or field not in _fields_of_a_step()]
        if wrong:
            raise InvalidInput(
                f"{wrong[0]} is not an option of a step", field=wrong[0], hint="a schedule belongs to the workflow"
            )
        after = fields.pop("after", None)
        step: Step[Any] = Step(self, name, _as_request(fields), function)
        if after is not None:
            step.after(*flat([after]))
        self.steps[name] = step
        return step

    def owner_of(self, reference: Reference) -> Step[Any] | None:
        """The step to whose result a reference leads. Raises ValueError if it is one of another workflow."""
        owner: Step[Any] | None = owner_of(reference)
        if owner is not None and owner.workflow is not self:
            raise ValueError(f"{reference!r} is a result of {owner.workflow!r}, not of {self!r}")
        return owner

    # -- what it is to a server

    @property
    def job_id(self) -> str:
        """The id of the job that the workflow is."""
        return self.workflow_id

    @property
    def queues(self) -> list[str]:
        """The queues that the workflow and its steps name."""
        named = [self._options.get("queue"), *(step.queue for step in self.steps.values())]
        return [queue for queue in named if queue is not None]

    def definition(self) -> dict[str, Any]:
        """The workflow as `POST /v1/workflows` takes it."""
        fields = dict(self._options)
        zone = fields.get("timezone")
        if isinstance(fields.get("schedule"), str) and zone is not None:
            fields["cron"] = fields.pop("schedule")
        body = job_request(fields)
        if "delay" in body:
            raise InvalidInput("a workflow has no delay", field="at", expected="a time such as 2030-12-31T23:59:59Z")
        if self.parameters:
            body["parameters"] = self.parameters
        return {"workflow_id": self.workflow_id, **body, "steps": [one.definition() for one in self.steps.values()]}

    def check(self) -> None:
        """Raise ValueError that says what is wrong, unless a server would accept the workflow."""
        from datetime import UTC, datetime

        from mainspring.sdk.workflows.request_check import check_request

        try:
            check_request(msgspec.json.decode(encode(self.definition()), type=WorkflowRequest), datetime.now(UTC))
        except MainspringError as error:
            if error.field == "schedule.end" and error.code in ("time_passed", "never_fires"):
                return  # the schedule was right once; the application still starts when it has ended
            raise ValueError(f"workflow {self.workflow_id}: {error.in_sentences()}") from None
        except msgspec.ValidationError as error:
            raise ValueError(f"workflow {self.workflow_id}: {error}") from None

    def run(self, *, idempotency_key: str | None = None, **parameters: Any) -> WorkflowRun:
        """Run the workflow now, with these values of its parameters. It must exist at the server: a worker of the
        application creates it."""
        return self._own_app.client.run_workflow(self.workflow_id, parameters, idempotency_key=idempotency_key)

    async def run_async(self, *, idempotency_key: str | None = None, **parameters: Any) -> AsyncWorkflowRun:
        """Run the workflow now from async code, with these values of its parameters."""
        client = self._own_app.async_client
        return await client.run_workflow(self.workflow_id, parameters, idempotency_key=idempotency_key)

    @property
    def _own_app(self) -> Registry:
        if self.app is None:
            raise TypeError(f"{self!r} belongs to no application. Use client.run_workflow({self.workflow_id!r}).")
        return self.app


def _checked(name: object, form: Any, what: str) -> str:
    try:
        return cast(str, msgspec.convert(name, form))
    except msgspec.ValidationError:
        raise ValueError(f"{name!r} is not {what} letters, digits, '.', '_' and '-'.") from None


def _fields_of_a_step() -> frozenset[str]:
    return frozenset({*StepIn.__struct_fields__, "after"})


def _as_request(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields in the form of a request. The payload keeps its references."""
    kept = {name: fields.pop(name) for name in MAY_REFER if name in fields}
    return {**job_request(fields), **kept}
