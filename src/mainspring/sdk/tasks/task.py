"""A task: a Python function with a name and default options. Converts payloads to calls of the function.

`submit` is typed by three overloads. The first takes exactly the parameters of the function. The others put options of
the job before them: checkers match keywords by name wherever they stand (docs/decisions/0026-typed-submissions.md).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import msgspec
from msgspec import UNSET

from mainspring.domain.errors import InvalidInput
from mainspring.sdk.client.field_types import Priority
from mainspring.sdk.client.if_exists import IfExists
from mainspring.sdk.client.job_fields import Duration, JobFields, JobOptions, When, recurrence
from mainspring.sdk.errors import BadPayload
from mainspring.sdk.tasks.context import Context
from mainspring.sdk.tasks.middleware import Middlewares
from mainspring.sdk.tasks.signature import payload_schema
from mainspring.sdk.tasks.task_function import (
    ExecutorName,
    check_delay,
    check_executor,
    check_name,
    check_worker_concurrency,
    context_parameter,
    lacks_context,
    needs_context,
    payload_parameters,
    payload_shape,
    readable,
    type_hints,
)
from mainspring.sdk.tasks.task_options import (
    SAYS_WHEN,
    SCHEDULE_OPTIONS,
    SUBMITS_ELSEWHERE,
    check_search,
    limits_of_task,
    nearest_option,
    parameter_of_events,
    plain,
    split_options,
    with_defaults,
)

if TYPE_CHECKING:
    from mainspring.sdk.client.async_client import AsyncClient
    from mainspring.sdk.client.client import Client
    from mainspring.sdk.client.handle import AsyncHandle, Handle

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["async", "thread", "process"]


class Application(Protocol):
    """What a task needs of its application: the clients that submit its jobs. `Mainspring` is one."""

    @property
    def client(self) -> Client:
        """The client that `task.submit` uses."""

    @property
    def async_client(self) -> AsyncClient:
        """The client that `task.submit_async` uses."""

    @property
    def middlewares(self) -> Middlewares:
        """What is around attempts and submissions."""

    def declare_schedule(
        self, task: Task[Any, Any], options: Mapping[str, Any], written: str, payload: Mapping[str, Any] | None = None
    ) -> str:
        """Add a schedule of the task."""


class Task(Generic[P, R]):
    """A registered function. Calling the task calls the function. `submit` creates a job.

    P are the parameters that come from the payload, without `ctx`. R is the result of a run. For an async function that
    is what awaiting it returns.

    kind is how a worker runs it: "async" on its event loop, "thread" in a thread, "process" in a child interpreter.
    worker_concurrency is how many runs of it one worker executes at a time. defaults are the options of its jobs, and
    default_delay is the delay of a job that does not say when it runs.
    declared_options are the same options in the form that a worker declares, so that they apply to all jobs of the
    task.
    """

    def __init__(
        self,
        app: Application,
        function: Callable[..., Any],
        name: str | None = None,
        defaults: JobOptions | None = None,
        *,
        executor: ExecutorName | None = None,
        worker_concurrency: int | None = None,
        delay: Duration | None = None,
    ) -> None:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__name__} is a generator. A task must return its result.")
        functools.update_wrapper(self, function)
        self.app = app
        self.function = function
        self.name = check_name(name if name is not None else getattr(function, "__name__", ""))
        self.executor = check_executor(executor)
        self.worker_concurrency = check_worker_concurrency(worker_concurrency)
        self.default_delay = check_delay(self.name, delay)
        self.is_async = inspect.iscoroutinefunction(function)
        self.kind: Kind = self.executor or ("async" if self.is_async else "thread")
        self.defaults: JobOptions = defaults or {}
        declared = self.defaults if delay is None else {**self.defaults, "delay": delay}
        self.declared_options = plain(self.name, declared, own_process=self.kind == "process")
        if self.declared_options is not None:
            self.defaults = limits_of_task(self.defaults, self.declared_options)
        self.signature = inspect.signature(function)
        self.parameters = payload_parameters(self.name, self.signature)
        self.context_parameter = context_parameter(self.signature)
        self.takes_any = any(p.kind is p.VAR_KEYWORD for p in self.signature.parameters.values())
        if not self.takes_any:
            check_search(self.name, self.defaults.get("search") or (), self.parameters)

    @property
    def wants_context(self) -> bool:
        """Whether an attempt needs a context: for its function, or for a middleware of the application."""
        return self.context_parameter is not None or bool(self.app.middlewares.attempts)

    @property
    def queue(self) -> str | None:
        """The default queue of its jobs."""
        return self.defaults.get("queue")

    @property
    def priority(self) -> Priority | None:
        """The default priority of its jobs."""
        return self.defaults.get("priority")

    @property
    def timeout(self) -> Any:
        """The default time limit of an attempt."""
        return self.defaults.get("timeout")

    @property
    def retries(self) -> int | None:
        """How often its jobs are retried by default."""
        return self.defaults.get("retries")

    if TYPE_CHECKING:

        @property
        def __call__(self) -> Callable[..., Any]:
            """Call the function."""

    else:

        def __call__(self, *args, **kwargs):
            """Call the function."""
            try:
                return self.function(*args, **kwargs)
            except TypeError as error:
                if error.__traceback__.tb_next is not None or not lacks_context(self.signature, args, kwargs):
                    raise
                raise TypeError(needs_context(self.name, self.context_parameter)) from None

        def __getattr__(self, name):
            """Names that tasks have elsewhere are refused with what to call. Type checkers do not see this."""
            task = self.__dict__.get("name", "task")
            hint = f": write {task}.submit(...)" if name in SUBMITS_ELSEWHERE else ""
            raise AttributeError(f"the task {task} has no {name}{hint}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<task {self.name} ({self.kind})>"

    @overload
    def submit(self, *args: P.args, **params: P.kwargs) -> Handle[R]: ...

    @overload
    def submit(
        self,
        at: When | None = ...,
        delay: Duration | None = ...,
        every: Duration | None = ...,
        cron: str | None = ...,
        timezone: str | None = ...,
        priority: Priority | None = ...,
        queue: str | None = ...,
        idempotency_key: str | None = ...,
        job_id: str | None = ...,
        timeout: Duration | None = ...,
        retries: int | None = ...,
        if_exists: IfExists | None = ...,
        *args: P.args,
        **params: P.kwargs,
    ) -> Handle[R]: ...

    @overload
    def submit(
        self,
        name: str | None = ...,
        at: When | None = ...,
        delay: Duration | None = ...,
        every: Duration | None = ...,
        cron: str | None = ...,
        timezone: str | None = ...,
        priority: Priority | None = ...,
        queue: str | None = ...,
        idempotency_key: str | None = ...,
        job_id: str | None = ...,
        timeout: Duration | None = ...,
        retries: int | None = ...,
        if_exists: IfExists | None = ...,
        *args: P.args,
        **params: P.kwargs,
    ) -> Handle[R]: ...

    def submit(self, *args: Any, **params: Any) -> Handle[R]:
        """Create a job of this task. The function's parameters become the payload. at=, delay=, every=, cron=,
        timezone=, priority=, queue=, idempotency_key=, job_id=, timeout=, retries= and name= are options of the job,
        unless the function has a parameter with that name (use `options` then). at= is a time, or a delay such as
        "5m" or a timedelta. if_exists= says what to do if a job has the job_id: "keep" it, or "replace" its fields."""
        if_exists, options, payload = split_options(params, self.parameters)
        return Submission(self, options)._submit(args, payload, if_exists)

    @overload
    async def submit_async(self, *args: P.args, **params: P.kwargs) -> AsyncHandle[R]: ...

    @overload
    async def submit_async(
        self,
        at: When | None = ...,
        delay: Duration | None = ...,
        every: Duration | None = ...,
        cron: str | None = ...,
        timezone: str | None = ...,
        priority: Priority | None = ...,
        queue: str | None = ...,
        idempotency_key: str | None = ...,
        job_id: str | None = ...,
        timeout: Duration | None = ...,
        retries: int | None = ...,
        if_exists: IfExists | None = ...,
        *args: P.args,
        **params: P.kwargs,
    ) -> AsyncHandle[R]: ...

    @overload
    async def submit_async(
        self,
        name: str | None = ...,
        at: When | None = ...,
        delay: Duration | None = ...,
        every: Duration | None = ...,
        cron: str | None = ...,
        timezone: str | None = ...,
        priority: Priority | None = ...,
        queue: str | None = ...,
        idempotency_key: str | None = ...,
        job_id: str | None = ...,
        timeout: Duration | None = ...,
        retries: int | None = ...,
        if_exists: IfExists | None = ...,
        *args: P.args,
        **params: P.kwargs,
    ) -> AsyncHandle[R]: ...

    async def submit_async(self, *args: Any, **params: Any) -> AsyncHandle[R]:
        """Create a job of this task from async code, with the same parameters and options as `submit`."""
        if_exists, options, payload = split_options(params, self.parameters)
        return await Submission(self, options)._submit_async(args, payload, if_exists)

    @overload
    def schedule(self, when: Duration, /, *args: P.args, **params: P.kwargs) -> str: ...

    @overload
    def schedule(
        self,
        when: Duration,
        /,
        timezone: str | None = ...,
        job_id: str | None = ...,
        priority: Priority | None = ...,
        queue: str | None = ...,
        timeout: Duration | None = ...,
        retries: int | None = ...,
        name: str | None = ...,
        *args: P.args,
        **params: P.kwargs,
    ) -> str: ...

    def schedule(self, when: Duration, /, *args: Any, **params: Any) -> str:
        """Declare a schedule of this task, as `@app.cron` does: `report.schedule("0 3 * * *", region="eu")`. `when` is
        a cron line, an interval such as "15m", or a recurrence rule. The function's parameters become the payload;
        timezone=, job_id=, priority=, queue=, timeout=, retries= and name= are options, unless the function has a
        parameter with that name. Returns the id of the job: the task's name and the values of the payload."""
        taken = SCHEDULE_OPTIONS - self.parameters.keys()
        options: Any = {name: value for name, value in params.items() if name in taken}
        payload = {name: value for name, value in params.items() if name not in taken}
        return Submission(self, options)._schedule(when, args, payload)

    def options(self, **options: Unpack[JobOptions]) -> Submission[P, R]:
        """Add options of the job to a submission: `charge.options(at="2026-12-31T23:59:59Z").submit(name="a1")`. All
        options of a job can be given, also those that have the name of a parameter of the function."""
        return Submission(self, options)

    def with_key(self, key: str) -> Submission[P, R]:
        """A submission with this idempotency key. `ctx.submit` uses it."""
        return Submission(self, {"idempotency_key": key})

    def bind(self, payload: Mapping[str, Any], ctx: Context | None = None) -> Callable[[], Any]:
        """A call of the function with `payload` (decoded JSON). Raises BadPayload if it does not match."""
        try:
            fields = msgspec.convert(payload, self._shape, str_keys=True)
        except msgspec.MsgspecError as error:
            raise self._bad(error) from None
        return self._call(fields, payload, ctx)

    def bind_json(self, payload: bytes | msgspec.Raw, ctx: Context | None = None) -> Callable[[], Any]:
        """A call of the function with a payload that is JSON text, decoded in one pass. null is an empty payload. The
        worker uses it."""
        raw = bytes(memoryview(payload))
        if raw in (b"", b"null"):
            raw = b"{}"
        try:
            fields = self._decoder.decode(raw)
        except msgspec.MsgspecError as error:
            raise self._bad(error) from None
        return self._call(fields, msgspec.json.decode(raw) if self.takes_any else {}, ctx)

    def payload_of(
        self, args: tuple[Any, ...], params: Mapping[str, Any], *, later: str | None = None
    ) -> dict[str, Any]:
        """The payload for a call with these arguments. `later`: a parameter that each run gets when it starts. Raises
        InvalidInput that names a parameter that does not match."""
        if later is not None and later not in self.parameters and not self.takes_any:
            raise InvalidInput(
                f"{self.name} has no parameter {later}, with which events start it", field="schedule.event",
                hint=f"write def {self.name.rpartition('.')[2]}({later}): ...",
            )  # fmt: skip
        if len(args) > len(self.parameters):
            raise InvalidInput(
                f"{self.name} takes {len(self.parameters)} parameter(s), not {len(args)}", field="payload"
            )
        payload = dict(zip(self.parameters, args, strict=False))
        for name, value in params.items():
            if name in payload:
                raise InvalidInput(f"{self.name} got the parameter {name} twice", field=f"payload.{name}")
            if name not in self.parameters and not self.takes_any:
                raise InvalidInput(
                    f"{self.name} has no parameter {name}",
                    field=f"payload.{name}",
                    hint=nearest_option(self.name, self.parameters, self.context_parameter, name),
                )
            payload[name] = value
        for name, parameter in self.parameters.items():
            if name not in payload and name != later and parameter.default is parameter.empty:
                raise InvalidInput(f"{self.name} needs the parameter {name}", field=f"payload.{name}")
        return payload

    def _call(self, fields: msgspec.Struct, payload: Mapping[str, Any], ctx: Context | None) -> Callable[[], Any]:
        given = dict(payload) if self.takes_any else {}
        for name in self.parameters:
            if (value := getattr(fields, name)) is not UNSET:
                given[name] = value
        if self.context_parameter is not None and ctx is not None:
            given[self.context_parameter] = ctx
        call = functools.partial(self.function, **given)
        around = self.app.middlewares
        if not around.attempts or ctx is None:
            return call
        return around.around_attempt(call, ctx, is_async=self.is_async)

    def _bad(self, error: Exception) -> BadPayload:
        return BadPayload(f"the payload does not match {self.name}: {error}", field="payload")

    @functools.cached_property
    def _shape(self) -> type[msgspec.Struct]:
        """The payload as a struct, so that one call into C checks and converts all parameters.

        It is created on first use, because annotations can name types that are defined later in the user's module.
        """
        return payload_shape(self.function, self.parameters, takes_any=self.takes_any)

    @functools.cached_property
    def result_type(self) -> Any:
        """The annotated type of the result, to which `Handle.result` converts. Any if there is none that JSON can be
        converted to."""
        return readable(type_hints(self.function).get("return", Any))

    @functools.cached_property
    def payload_schema(self) -> dict[str, Any] | None:
        """The JSON Schema of the payload. None if the task accepts anything. When a worker has declared it, the server
        checks submissions with it."""
        return payload_schema(self.name, self._shape)

    @functools.cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self._shape)


class FunctionTask(Task[P, R], Generic[P, R, F]):
    """A task as the decorators return it: F is the type of its function, so that calls of the task are checked too."""

    if TYPE_CHECKING:

        @property
        def __call__(self) -> F:
            """Call the function."""


class Submission(Generic[P, R]):
    """A task with the options of a job. `Task.options` returns it."""

    def __init__(self, task: Task[P, R], options: JobOptions) -> None:
        self.task = task
        self._options = options

    def with_key(self, key: str) -> Submission[P, R]:
        """This submission with the idempotency key, unless it has one already."""
        given = self._options.get("idempotency_key")
        return self if given is not None else Submission(self.task, {**self._options, "idempotency_key": key})

    def fields(self, *args: P.args, **params: P.kwargs) -> JobFields:
        """The fields of the job, for `Client.submit` and `Client.submit_batch`."""
        return self._fields(args, params)

    def submit(self, *args: P.args, **params: P.kwargs) -> Handle[R]:
        """Create the job. All arguments are parameters of the function."""
        return self._submit(args, params)

    async def submit_async(self, *args: P.args, **params: P.kwargs) -> AsyncHandle[R]:
        """Create the job from async code. All arguments are parameters of the function."""
        return await self._submit_async(args, params)

    def schedule(self, when: Duration, /, *args: P.args, **params: P.kwargs) -> str:
        """Declare a schedule of the task with these options. All arguments are parameters of the function."""
        return self._schedule(when, args, params)

    def _schedule(self, when: Duration, args: tuple[Any, ...], params: Mapping[str, Any]) -> str:
        written = f"{self.task.name}.schedule({when!r})"
        try:
            payload = self.task.payload_of(args, params)
        except InvalidInput as error:
            raise ValueError(f"{written}: {error.in_sentences()}") from None
        return self.task.app.declare_schedule(self.task, {**self._options, **recurrence(when)}, written, payload)

    def _fields(self, args: tuple[Any, ...], params: Mapping[str, Any]) -> JobFields:
        options = with_defaults(self._options, self.task.defaults)
        if self.task.default_delay is not None and not any(options.get(name) is not None for name in SAYS_WHEN):
            options["delay"] = self.task.default_delay
        for name in ("task", "payload"):
            if name in options:
                raise InvalidInput(
                    f"{name} is not an option of a job of {self.task.name}",
                    field=name,
                    hint="the payload is the parameters of the function; a schedule takes payload={...}",
                )
        payload = self.task.payload_of(args, params, later=parameter_of_events(options))
        return cast(JobFields, {**options, "task": self.task.name, "payload": payload})

    def _submit(self, args: tuple[Any, ...], params: Mapping[str, Any], if_exists: IfExists | None = None) -> Handle[R]:
        app, fields = self.task.app, self._fields(args, params)
        handle = app.middlewares.submit(cast(Any, fields), lambda: app.client.submit(if_exists=if_exists, **fields))
        return handle.returning(self.task.result_type)

    async def _submit_async(
        self, args: tuple[Any, ...], params: Mapping[str, Any], if_exists: IfExists | None = None
    ) -> AsyncHandle[R]:
        app, fields = self.task.app, self._fields(args, params)
        handle = await app.middlewares.submit_async(
            cast(Any, fields), lambda: app.async_client.submit(if_exists=if_exists, **fields)
        )
        return handle.returning(self.task.result_type)
