"""The application: its tasks, its schedules, and the clients that submit its jobs.

app = Mainspring("billing")

@app.task("billing.charge", queue="heavy", timeout="5m")
async def charge(account: str, cents: int, ctx: Context) -> dict: ...

@app.task("reports.render", executor="process", concurrency=2)
def render(report: str) -> None: ...

@app.cron("0 9 * * MON-FRI", timezone="Europe/Berlin")
@app.task
def report() -> None: ...

handle = charge.submit(account="a1", cents=1000, priority="high")
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload
from weakref import WeakKeyDictionary

from mainspring.kernel.config import DEFAULT_QUEUE
from mainspring.sdk.app.declared_schedules import (
    AppSchedule,
    as_written,
    check_application_name,
    creator_of,
    default_application_name,
    full_name,
    source_of,
)
from mainspring.sdk.app.task import ExecutorName, Task
from mainspring.sdk.client.job_fields import Duration, JobOptions
from mainspring.wire.fields import PlainKeywords

if TYPE_CHECKING:
    # Imported with the first client, because httpx takes 80 ms. An application in a worker or a warm child often
    # submits no jobs.
    from mainspring.sdk.client.client import AsyncClient, Client

P = ParamSpec("P")
R = TypeVar("R")


class _FirstOptions(TypedDict, total=False):
    executor: ExecutorName | None
    concurrency: int | None

    queue: str
    priority: str | int
    timeout: Duration


class TaskOptions(_FirstOptions, PlainKeywords, total=False):
    """Defaults for every job of a task, and how a worker runs it. `executor="process"` runs it in a child interpreter,
    so that a crash or a leak affects only that run. `concurrency` limits how many runs one worker executes at a
    time."""

    kill_grace: Duration
    retries: int
    retry: dict[str, Any]
    delivery: str
    env: dict[str, str]
    limits: dict[str, Any]
    required_labels: dict[str, str]


class Mainspring:
    """A Mainspring application. Without `url` it finds the server when it first needs one.

    The schedules of an application belong to its `name` (default: the module that creates it). Schedules that it
    declared earlier and no longer declares are reported when a worker starts. With `prune_schedules` they are paused.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        data: str | Path | None = None,
        prune_schedules: bool = False,
    ) -> None:
        self._creator = creator_of(self)
        self.named = name is not None
        self.name = default_application_name(self._creator) if name is None else check_application_name(name)
        self.prune_schedules = prune_schedules
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.schedules: list[AppSchedule] = []
        self._url = url
        self._token = token
        self._data = data
        self._lock = threading.Lock()
        self._async_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = WeakKeyDictionary()
        self._instead: tuple[Client, AsyncClient] | None = None

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self, name: str | None = None, /, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

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
        self, expression: str, **options: Unpack[JobOptions]
    ) -> Callable[[Task[P, R] | Callable[P, R]], Task[P, R]]:
        """Run the task at the times of a cron expression: 5 fields, 6 fields with seconds first, or an alias like
        @daily. It stands above @app.task. Raises ValueError for a schedule that no server would accept.

        The default `timezone` is UTC. The job's id is the task's name. A second schedule of the same task needs its own
        job_id.
        """
        return self._scheduled({**options, "cron": expression}, as_written("cron", expression, options))

    def every(
        self, interval: Duration, **options: Unpack[JobOptions]
    ) -> Callable[[Task[P, R] | Callable[P, R]], Task[P, R]]:
        """Run the task at an interval: "90s", "15m", "1h30m" or a number of seconds. It stands above @app.task. Raises
        ValueError for a schedule that no server would accept."""
        return self._scheduled({**options, "every": interval}, as_written("every", interval, options))

    @property
    def queues(self) -> list[str]:
        """The default queue and the queues of the tasks and schedules. A worker uses them unless it gets a list."""
        named = [task.queue for task in self.tasks.values()]
        named += [schedule.options.get("queue") for schedule in self.schedules]
        return list(dict.fromkeys([DEFAULT_QUEUE, *filter(None, named)]))

    def adopt(self, url: str, token: str) -> None:
        """Use this server if the application names none. A worker calls it, so that its tasks can submit jobs."""
        if self._url is None and self._token is None and self._data is None:
            self._url, self._token = url, token

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

        return Client(self._url, self._token, data=self._data)

    @property
    def async_client(self) -> AsyncClient:
        """The client that `task.submit_async` uses. There is one for each event loop, because connections belong to
        one."""
        if self._instead is not None:
            return self._instead[1]
        from mainspring.sdk.client.client import AsyncClient

        loop = asyncio.get_running_loop()
        with self._lock:
            client = self._async_clients.get(loop)
            if client is None:
                client = self._async_clients[loop] = AsyncClient(self._url, self._token, data=self._data)
        return client

    def _register(self, function: Callable[..., Any], name: str | None, options: TaskOptions) -> Task[Any, Any]:
        if isinstance(function, Task):
            raise TypeError(_twice(function, scheduled=any(one.task is function for one in self.schedules)))
        unknown = options.keys() - TaskOptions.__annotations__.keys()
        if unknown:
            known = ", ".join(TaskOptions.__annotations__)
            raise ValueError(f"{', '.join(sorted(unknown))}: not an option of a task. The options are: {known}.")
        defaults = options.copy()
        executor, concurrency = defaults.pop("executor", None), defaults.pop("concurrency", None)
        task: Task[Any, Any] = Task(
            self, function, name, cast(JobOptions, defaults), executor=executor, concurrency=concurrency
        )
        if task.name in self.tasks:
            raise ValueError(f"the task {task.name!r} already exists. Give this one another name: @app.task('name')")
        self.tasks[task.name] = task
        return task

    def _scheduled(self, options: Any, decorator: str) -> Callable[[Task[P, R] | Callable[P, R]], Task[P, R]]:
        def add(below: Task[P, R] | Callable[P, R]) -> Task[P, R]:
            task = below if isinstance(below, Task) else self.task(below)
            job_id = options.get("job_id") or task.name
            schedule = AppSchedule(job_id, task, cast(JobOptions, {**options, "job_id": job_id}))
            if any(other.job_id == job_id for other in self.schedules):
                raise ValueError(
                    f"{decorator} over {full_name(task.function)}: the schedule {job_id!r} already exists. "
                    "Give this one its own job_id='...'."
                )
            task.payload_of((), {})
            schedule.check(decorator)
            self.schedules.append(schedule)
            return task

        return add


def _twice(task: Task[Any, Any], *, scheduled: bool) -> str:
    name = full_name(task.function)
    if scheduled:
        return f"{name}: @app.task stands above its schedule. Swap them: @app.cron or @app.every above @app.task."
    return f"{name} is a task already ({task.name!r}). Leave the second @app.task out."
