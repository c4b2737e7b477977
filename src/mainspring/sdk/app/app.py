"""The application: its tasks, its schedules, and the clients that submit its jobs.

app = Mainspring("billing")

@app.task("billing.charge", queue="heavy", timeout="5m")
async def charge(ctx: Context, account: str, cents: int) -> dict: ...

@app.task("reports.render", executor="process", worker_concurrency=2)
def render(report: str) -> None: ...

@app.cron("0 9 * * MON-FRI", timezone="Europe/Berlin")
@app.task
def report() -> None: ...

handle = charge.submit(account="a1", cents=1000, priority="high")
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload
from weakref import WeakKeyDictionary

from msgspec import UNSET, UnsetType

from mainspring.domain.errors import InvalidInput
from mainspring.domain.rates import parse_rate
from mainspring.kernel.config import DEFAULT_QUEUE
from mainspring.sdk.app.declared_schedules import (
    AppSchedule,
    as_written,
    check_application_name,
    creator_of,
    default_application_name,
    full_name,
    schedule_id,
    source_of,
)
from mainspring.sdk.app.declared_settings import CalendarOptions, DeclaredCalendar, DeclaredLimits, DeclaredSetting
from mainspring.sdk.app.worker_hooks import HookT, WorkerHooks, checked_hook
from mainspring.sdk.client.field_types import (
    CircuitBreakerOptions,
    ConcurrencyOptions,
    Delivery,
    Priority,
    RateLimitOptions,
    ResourceLimitOptions,
    RetryOptions,
    UniqueOptions,
    Variables,
)
from mainspring.sdk.client.if_exists import IfExists
from mainspring.sdk.client.job_fields import Duration, JobOptions
from mainspring.sdk.client.patience import DEFAULT_PATIENCE, checked_patience
from mainspring.sdk.tasks.decorators import Async, TakesContext, TaskDecorator, Ts
from mainspring.sdk.tasks.middleware import Around, Middlewares, MiddlewareT
from mainspring.sdk.tasks.task import FunctionTask, Task
from mainspring.sdk.tasks.task_function import ExecutorName
from mainspring.wire.fields import PlainKeywords

if TYPE_CHECKING:
    # Imported with the first client, because httpx takes 80 ms. An application in a worker or a warm child often
    # submits no jobs.
    from asyncio import AbstractEventLoop

    from mainspring.sdk.client.async_client import AsyncClient
    from mainspring.sdk.client.client import Client
    from mainspring.sdk.tasks.context import Context
    from mainspring.sdk.workflows.batch import Batch
    from mainspring.sdk.workflows.workflow import Workflow, WorkflowOptions

_WAYS = ("cron", "every", "rrule", "event")
_WHEN = "Write @app.cron('0 9 * * MON-FRI'), @app.every('15m') or @app.on_event('order.paid')."

P = ParamSpec("P")
R = TypeVar("R")


class _FirstOptions(TypedDict, total=False):
    executor: ExecutorName | None
    worker_concurrency: int | None

    queue: str
    priority: Priority
    timeout: Duration


class TaskOptions(_FirstOptions, PlainKeywords, total=False):
    """Defaults for every job of a task, and how a worker runs it. `executor="process"` runs it in a child interpreter,
    so that a crash or a leak affects only that run. `worker_concurrency` limits how many runs one worker executes at
    a time, `concurrency` how many run at once on all workers: 3, {"limit": 1, "key": "payload.account"}, or a list.
    `rate` limits how often runs start: "100/m". `circuit_breaker` stops the runs after failures in a row. `secrets`
    are for `ctx.secret`. `delay` is for jobs that do not say when they run: with `unique` it debounces. `search` names
    values of the payload by which runs are found: ["account", "customer.id"]."""

    kill_grace: Duration
    retries: int
    retry: RetryOptions
    delivery: Delivery
    env: Variables
    secrets: Sequence[str]
    limits: ResourceLimitOptions
    required_labels: dict[str, str]
    keep_payload: bool | int | str
    concurrency: bool | int | ConcurrencyOptions | Sequence[ConcurrencyOptions]
    rate: str
    rate_limit: bool | str | RateLimitOptions | Sequence[RateLimitOptions]
    circuit_breaker: bool | CircuitBreakerOptions
    unique: bool | UniqueOptions
    search: Sequence[str]
    delay: Duration


class Mainspring:
    """A Mainspring application. Without `url` it finds the server when it first needs one.

    The schedules of an application belong to its `name` (default: the module that creates it). Schedules that it
    declared earlier and no longer declares are reported when a worker starts. With `prune_schedules` they are paused.

    `patience` is for how long a submission is repeated while no server answers: a number of seconds, "30s" or a
    timedelta. By default it is 15 s, and 2 s while connections are refused. Inside a worker it is 15 s in any case.

    `state` is for what tasks share, such as a connection pool: set attributes of it in `on_worker_start`. Each process
    has its own.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        data: str | Path | None = None,
        prune_schedules: bool = False,
        patience: Duration | None = None,
    ) -> None:
        self._creator = creator_of(self)
        self.named = name is not None
        self.name = default_application_name(self._creator) if name is None else check_application_name(name)
        self.prune_schedules = prune_schedules
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.schedules: list[AppSchedule] = []
        self.workflows: dict[str, Workflow] = {}
        self.calendars: dict[str, DeclaredCalendar] = {}
        self.limits: dict[str, DeclaredLimits] = {}
        self.state: Any = SimpleNamespace()
        self.hooks = WorkerHooks()
        self.middlewares = Middlewares()
        self._url = url
        self._token = token
        self._data = data
        self._patience = patience
        if patience is not None:
            checked_patience(patience)
        self._lock = threading.Lock()
        self._async_clients: WeakKeyDictionary[AbstractEventLoop, AsyncClient] = WeakKeyDictionary()
        self._instead: tuple[Client, AsyncClient] | None = None

    @overload
    def task(self, function: TakesContext[P, Async[R]], /) -> FunctionTask[P, R, TakesContext[P, Async[R]]]: ...  # type: ignore[overload-overlap]

    @overload
    def task(self, function: TakesContext[P, R], /) -> FunctionTask[P, R, TakesContext[P, R]]: ...

    @overload
    def task(
        self, function: Callable[[Unpack[Ts], Context], Async[R]], /
    ) -> FunctionTask[..., R, Callable[..., Async[R]]]: ...

    @overload
    def task(self, function: Callable[[Unpack[Ts], Context], R], /) -> FunctionTask[..., R, Callable[..., R]]: ...

    @overload
    def task(self, function: Callable[P, Async[R]], /) -> FunctionTask[P, R, Callable[P, Async[R]]]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> FunctionTask[P, R, Callable[P, R]]: ...

    @overload
    def task(self, name: str | None = None, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...

    def task(self, name_or_function: Any = None, /, **options: Unpack[TaskOptions]) -> Any:
        """Register a function as a task under its own name or the given one. The options are defaults for all its jobs,
        however they are submitted. Raises ValueError for an invalid option."""
        if callable(name_or_function):
            return self._register(name_or_function, None, {})
        return lambda function: self._register(function, name_or_function, options)

    @property
    def source(self) -> str:
        """Where the code of the application lies, as a digest of host and file. It tells two applications with the same
        default name apart."""
        return source_of(self._creator)

    def cron(
        self, expression: str, *, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]
    ) -> TaskDecorator:
        """Run the task at the times of a cron expression: 5 fields, 6 fields with seconds first, or an alias like
        @daily. It stands above @app.task. `payload` are parameters of the task. Raises ValueError for a schedule that
        no server would accept.

        The default `timezone` is UTC. The job's id is the task's name, with the values of `payload` behind it. Another
        schedule of the task with the same id needs its own job_id.
        """
        return self._scheduled({**options, "cron": expression}, as_written("cron", expression, options), payload)

    def every(
        self, interval: Duration, *, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]
    ) -> TaskDecorator:
        """Run the task at an interval: "90s", "15m", "1h30m" or a number of seconds. It stands above @app.task.
        `payload` are parameters of the task. Raises ValueError for a schedule that no server would accept."""
        return self._scheduled({**options, "every": interval}, as_written("every", interval, options), payload)

    def rrule(
        self, rule: str, /, *, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]
    ) -> TaskDecorator:
        """Run the task at the times of a recurrence rule of RFC 5545: "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17". It stands
        above @app.task. `payload` are parameters of the task. Raises ValueError for a schedule that no server would
        accept."""
        return self._scheduled({**options, "rrule": rule}, as_written("rrule", rule, options), payload)

    def on_event(
        self, name: str, /, *, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]
    ) -> TaskDecorator:
        """Run the task for each event with this name: `@app.on_event("order.paid", if_="payload.total > 100")`. The
        task has a parameter `event`, a dict with id, name, key, at and payload. With `batch={"size": 100, "wait":
        "10s"}` events share a run, and the parameter is the list `events`. With `debounce="30s"` it runs with the last
        event of a key. It stands above @app.task. `payload` are further parameters of the task. Raises ValueError for a
        schedule that no server would accept."""
        return self._scheduled({**options, "event": name}, as_written("on_event", name, options), payload)

    def calendar(self, name: str, **rules: Unpack[CalendarOptions]) -> str:
        """Declare a calendar: `berlin = app.calendar("berlin", holidays={"country": "DE", "subdivision": "BE"})`.
        Workers create it at the server and keep it as the code says, before the schedules. Returns its name, for
        `calendar=`. Raises ValueError for rules that no server would accept."""
        if name in self.calendars:
            raise ValueError(f"the calendar {name!r} exists already in this application")
        declared = DeclaredCalendar(name, rules)
        declared.check()
        self.calendars[name] = declared
        return name

    def limit(
        self,
        queue: str,
        *,
        concurrency: int | UnsetType | None = UNSET,
        rate: str | UnsetType | None = UNSET,
        burst: int | None = None,
        max_depth: int | UnsetType | None = UNSET,
    ) -> None:
        """Declare limits of a queue: how many of its runs run at once, how often they start ("100/m"), and how many may
        wait. Workers set them at the server when they start. None removes a limit, and what is left out stays as it
        is."""
        given = {"concurrency": concurrency, "rate": rate, "burst": burst, "max_depth": max_depth}
        limits = {name: value for name, value in given.items() if value is not (None if name == "burst" else UNSET)}
        if not limits:
            raise ValueError(f"the limit of the queue {queue!r} says nothing. Give concurrency=, rate= or max_depth=.")
        if isinstance(rate, str):
            try:
                parse_rate(rate, "rate")
            except InvalidInput as error:
                raise ValueError(f"app.limit({queue!r}): {error}") from None
        if queue in self.limits:
            raise ValueError(f"the queue {queue!r} has limits already in this application")
        self.limits[queue] = DeclaredLimits(queue, limits)

    def workflow(
        self,
        workflow_id: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        if_exists: IfExists | None = None,
        **options: Unpack[WorkflowOptions],
    ) -> Workflow:
        """Declare a workflow, to which steps are added: `nightly = app.workflow("nightly", cron="0 2 * * *")`. Workers
        create it at the server and keep it as the code says, as they do with schedules. One with this id that no
        application declares and that says something else is refused, unless `if_exists` says "replace" or "keep"."""
        from mainspring.sdk.workflows.workflow import Workflow  # takes 10 ms to import

        workflow = Workflow(workflow_id, app=self, parameters=parameters, **options)
        workflow.if_exists = if_exists
        if workflow_id in self.workflows or any(one.job_id == workflow_id for one in self.schedules):
            raise ValueError(f"{workflow_id!r} exists already in this application. Give the workflow another id.")
        self.workflows[workflow_id] = workflow
        return workflow

    def batch(self, name: str = "batch") -> Batch:
        """A set of jobs that are submitted together, with a job that runs when all of them have ended."""
        from mainspring.sdk.workflows.batch import Batch

        return Batch(self, name)

    def on_worker_start(self, hook: HookT) -> HookT:
        """Call this function when a worker starts, before it takes a run: to open a pool, for example. It has no
        parameters. A coroutine function runs on the loop of async tasks, a plain function in a thread. If it fails, the
        worker ends. Each child process of process tasks calls it too."""
        self.hooks.starts.append(checked_hook(hook))
        return hook

    def on_worker_stop(self, hook: HookT) -> HookT:
        """Call this function when a worker stops, after its last run has ended. The last function that was declared is
        called first. All of them together have 5 seconds. They are called after a failed start hook as well, so one
        must not rely on what a start hook has opened. A worker that is killed calls none."""
        self.hooks.stops.append(checked_hook(hook))
        return hook

    @overload
    def middleware(self, function: MiddlewareT, /) -> MiddlewareT: ...

    @overload
    def middleware(self, /, *, around: Around) -> Callable[[MiddlewareT], MiddlewareT]: ...

    def middleware(self, function: Callable[..., Any] | None = None, /, *, around: Around = "attempt") -> Any:
        """Put a generator function around each attempt of the tasks: it gets the context, and its `yield` is the
        attempt. With `around="submission"` around each submission of a task: it gets the fields of the job, and may
        change them. The one that was declared first is the outermost. Raises TypeError for a function that is no
        generator."""
        if function is None:
            return lambda middleware: self.middlewares.add(middleware, around)
        return self.middlewares.add(function, around)

    @property
    def declares(self) -> bool:
        """Whether the application has schedules, workflows, calendars or limits, which workers create at the server."""
        return bool(self.schedules or self.workflows or self.settings)

    @property
    def settings(self) -> list[DeclaredSetting]:
        """What the application declares beside jobs: calendars, which schedules may name, and limits of queues."""
        return [*self.calendars.values(), *self.limits.values()]

    @property
    def queues(self) -> list[str]:
        """The default queue and the queues of the tasks and schedules. A worker uses them unless it gets a list."""
        named = [task.queue for task in self.tasks.values()]
        named += [schedule.options.get("queue") for schedule in self.schedules]
        named += [queue for workflow in self.workflows.values() for queue in workflow.queues]
        return list(dict.fromkeys([DEFAULT_QUEUE, *filter(None, named)]))

    def adopt(self, url: str, token: str) -> None:
        """Use this server if the application names none. A worker calls it, so that its tasks can submit jobs. From now
        on submissions wait also for a server that refuses connections: it restarts, and the worker waits for it too."""
        if self._patience is None:
            self._patience = DEFAULT_PATIENCE
        if self._url is None and self._token is None and self._data is None:
            self._url, self._token = url, token

    @property
    def namespace(self) -> Mapping[str, Any]:
        """The globals of the module that created the application."""
        return self._creator

    @contextmanager
    def speaking_to(self, client: Client, async_client: AsyncClient) -> Iterator[None]:
        """Submit through these clients inside the block. `mainspring.testing` uses this."""
        before, self._instead = self._instead, (client, async_client)
        try:
            yield
        finally:
            self._instead = before

    @property
    def client(self) -> Client:
        """The client that `task.submit` uses."""
        return self._own_client if self._instead is None else self._instead[0]

    @cached_property
    def _own_client(self) -> Client:
        from mainspring.sdk.client.client import Client

        return Client(self._url, self._token, data=self._data, patience=self._patience)

    @property
    def async_client(self) -> AsyncClient:
        """The client that `task.submit_async` uses. There is one for each event loop, because connections belong to
        one."""
        if self._instead is not None:
            return self._instead[1]
        from asyncio import get_running_loop

        from mainspring.sdk.client.async_client import AsyncClient

        loop = get_running_loop()
        with self._lock:
            client = self._async_clients.get(loop)
            if client is None:
                client = self._async_clients[loop] = AsyncClient(
                    self._url, self._token, data=self._data, patience=self._patience
                )
        return client

    def _register(self, function: Callable[..., Any], name: str | None, options: TaskOptions) -> Task[Any, Any]:
        if isinstance(function, Task):
            raise TypeError(_twice(function, scheduled=any(one.task is function for one in self.schedules)))
        unknown = options.keys() - TaskOptions.__annotations__.keys()
        if unknown:
            from mainspring.domain.intake.decoding_errors import other_word
            from mainspring.domain.texts import meant

            known = list(TaskOptions.__annotations__)
            hint = other_word(min(unknown), known) or meant(
                min(unknown), known, f"The options are: {', '.join(known)}."
            )
            raise ValueError(f"{', '.join(sorted(unknown))}: not an option of a task. {hint[0].upper()}{hint[1:]}")
        defaults = options.copy()
        executor, at_once = defaults.pop("executor", None), defaults.pop("worker_concurrency", None)
        delay = defaults.pop("delay", None)
        task: Task[Any, Any] = FunctionTask(
            self, function, name, cast(JobOptions, defaults), executor=executor, worker_concurrency=at_once, delay=delay
        )
        if task.name in self.tasks:
            raise ValueError(f"the task {task.name!r} already exists. Give this one another name: @app.task('name')")
        self.tasks[task.name] = task
        return task

    def declare_schedule(
        self, task: Task[Any, Any], options: Mapping[str, Any], written: str, payload: Mapping[str, Any] | None = None
    ) -> str:
        """Add a schedule of the task, and return the id of its job. `task.schedule(...)` and the decorators use it."""
        payload = payload or {}
        job_id = options.get("job_id") or schedule_id(task.name, payload)
        schedule = AppSchedule(job_id, task, cast(JobOptions, {**options, "job_id": job_id}), payload)
        if job_id in self.workflows or any(other.job_id == job_id for other in self.schedules):
            raise ValueError(
                f"{written} over {full_name(task.function)}: the schedule {job_id!r} already exists. "
                "Give this one its own job_id='...'."
            )
        schedule.check(written)
        self.schedules.append(schedule)
        return job_id

    def _scheduled(self, options: Any, decorator: str, payload: Mapping[str, Any] | None) -> TaskDecorator:
        if callable(when := next((options[way] for way in _WAYS if way in options), None)):
            # Otherwise `@app.cron` without parentheses would replace the function and schedule nothing.
            raise TypeError(f"{full_name(when)}: the schedule does not say when. {_WHEN}")

        def add(below: Any) -> Any:
            task = below if isinstance(below, Task) else self._register(below, None, {})
            self.declare_schedule(task, options, decorator, payload)
            return task

        return add


def _twice(task: Task[Any, Any], *, scheduled: bool) -> str:
    name = full_name(task.function)
    if scheduled:
        return f"{name}: @app.task stands above its schedule. Swap them: @app.cron or @app.every above @app.task."
    return f"{name} is a task already ({task.name!r}). Leave the second @app.task out."
