"""The box: runs an application inside a test, on a clock that the test controls."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

import msgspec

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.declaration import read_declaration
from mainspring.domain.intake.request import parse_time
from mainspring.sdk.app.app import Mainspring
from mainspring.sdk.client.async_client import AsyncClient
from mainspring.sdk.client.client import Client
from mainspring.sdk.client.handle import AsyncHandle, Handle
from mainspring.sdk.client.job_fields import Duration, Moment
from mainspring.sdk.tasks.declared import declared
from mainspring.sdk.tasks.task import Task
from mainspring.sdk.tasks.task_options import parameter_of_events
from mainspring.sdk.testing.clients import BoxAsyncClient, BoxClient
from mainspring.sdk.testing.driver import Driver
from mainspring.sdk.testing.engine import Engine
from mainspring.sdk.testing.local_server import LocalServer
from mainspring.sdk.testing.not_in_box import EVENTS, WORKFLOWS, check_ignored, not_in_box
from mainspring.sdk.testing.records import BoxRun
from mainspring.sdk.workflows.step import Step
from mainspring.sdk.workflows.workflow import Workflow
from mainspring.wire.calendars import CalendarView

_SETTLED_WITHIN = "30d"


class Box:
    """An application inside a test: no server, no worker, no waiting.

        with mainspring.testing.run(app, start="2026-01-01T00:00:00Z") as box:
            handle = charge.submit(account="a1", cents=1000)
            assert handle.result() == {"charged": 1000}       # runs what is due
            box.advance("1d")                                 # schedules fire at their times
            assert [run.status for run in box.runs_of(report)] == ["SUCCESS"]

    The start hooks of the application run at the beginning of the block, its stop hooks at the end. If they are
    coroutine functions, write `async with` in an async test.

    Inside the block, `task.submit` and the application's clients use the box instead of a server. Nothing runs until
    you call `advance`, `advance_to`, `run_pending`, `settle` or a handle's `result`. Async tasks run on an event loop
    of the box. In an async test, use the `..._async` methods. The tasks run on the loop of the test then.

    An attempt takes no time on the box's clock, and timeouts are not simulated. `datetime.now()` is the real time. A
    task that uses its context (`ctx.scheduled_for`) can be tested for any day.
    """

    def __init__(
        self,
        app: Mainspring,
        *,
        start: Moment | None = None,
        seed: int = 0,
        raise_errors: bool = False,
        calendars: Mapping[str, Mapping[str, Any]] | None = None,
        ignore: Collection[str] = (),
    ) -> None:
        """The arguments are those of `run`."""
        self.app = app
        ignored = check_ignored(ignore)
        begin = datetime.now(UTC).replace(microsecond=0) if start is None else _moment(start, "start")
        self._engine = Engine(app.tasks, begin, seed, raise_errors=raise_errors)
        self._driver = Driver(self._engine, app.hooks)
        found = {
            name: read_declaration(name, msgspec.json.decode(raw)) for name, raw in declared(app.tasks.values()).items()
        }
        local_server = LocalServer(
            self._engine, {name: declaration for name, declaration in found.items() if declaration is not None}, ignored
        )
        self._client = BoxClient(local_server, self._driver)
        self._async_client = BoxAsyncClient(local_server, self._driver)
        self._open = ExitStack()
        declared_calendars = {name: one.rules for name, one in app.calendars.items()}
        for name, rules in {**declared_calendars, **(calendars or {})}.items():
            self.calendar(name, rules)
        for schedule in app.schedules:
            if parameter_of_events(schedule.options) is not None:
                if EVENTS not in ignored:
                    raise not_in_box(EVENTS, field=EVENTS)
                continue
            self._client.submit(**schedule.declared_by(app.name))
        schedules = [one.definition().get("schedule", "manual") for one in app.workflows.values()]
        if WORKFLOWS not in ignored and any(one != "manual" for one in schedules):  # the box would not fire them
            raise not_in_box(WORKFLOWS, field=WORKFLOWS)

    def __enter__(self) -> Self:
        self._open.enter_context(self.app.speaking_to(self._client, self._async_client))
        with self._closed_on_error():
            self._driver.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._open.enter_context(self.app.speaking_to(self._client, self._async_client))
        with self._closed_on_error():
            await self._driver.start_async()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        with self._closed_on_error():
            await self._driver.stop_async()
        self.close()

    def close(self) -> None:
        """Run the application's stop hooks and restore its own clients. The runs can still be read."""
        try:
            self._driver.stop()
        finally:
            self._open.close()
            self._driver.close()

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        """A start hook that fails must not leave the application in the box."""
        try:
            yield
        except BaseException:
            self._open.close()
            raise

    # -- state

    @property
    def now(self) -> datetime:
        """The box's time, in UTC."""
        return self._engine.now

    @property
    def client(self) -> Client:
        """A client of the box, for code that expects one."""
        return self._client

    @property
    def async_client(self) -> AsyncClient:
        """A client of the box for async code."""
        return self._async_client

    @property
    def runs(self) -> list[BoxRun]:
        """All runs, in the order of their creation."""
        return list(self._engine.runs.values())

    def runs_of(
        self, what: Task[Any, Any] | Handle[Any] | AsyncHandle[Any] | Step[Any] | Workflow | str
    ) -> list[BoxRun]:
        """The runs of a task, of a handle's job, or of the job or task with this name."""
        if isinstance(what, Step | Workflow):
            raise not_in_box(WORKFLOWS)
        name = what.name if isinstance(what, Task) else what if isinstance(what, str) else what.job_id
        by_job = self._engine.jobs.get(name) if not isinstance(what, Task) else None
        if by_job is not None:
            return list(by_job.runs)
        return [run for run in self._engine.runs.values() if run.task == name]

    @property
    def dead_letters(self) -> list[BoxRun]:
        """The runs that failed after their last attempt and were neither replayed nor discarded."""
        return list(self._engine.dead.values())

    def calendar(self, name: str, rules: Mapping[str, Any] | None = None, **members: Any) -> CalendarView:
        """Create or change a calendar of the box, as `Client.set_calendar` does. Jobs follow the change at once."""
        return self._client.set_calendar(name, rules, **members)

    # -- time

    def advance(self, duration: Duration) -> list[BoxRun]:
        """Advance the clock by a duration ("90s", "1d", a timedelta). Fires and runs happen at their times. Returns the
        runs that ended."""
        return self.advance_to(self.now + _length(duration))

    def advance_to(self, moment: Moment) -> list[BoxRun]:
        """Advance the clock to `moment`, an aware datetime or RFC 3339 text."""
        return self._driver.drive(self._driver.until(self._ahead(moment)))

    def run_pending(self) -> list[BoxRun]:
        """Run everything that is ready, and what these runs submit, without advancing the clock."""
        return self.advance_to(self.now)

    def settle(self, within: Duration = _SETTLED_WITHIN) -> list[BoxRun]:
        """Advance the clock until no run is live, including retries. Raises TimeoutError if that exceeds `within`."""
        return self._driver.drive(self._driver.settling(self.now + _length(within)))

    def result(self, handle: Handle[Any] | str) -> Any:
        """The result of this handle's run, or of the job with this id. Advances the clock as needed."""
        return (self._client.handle(handle) if isinstance(handle, str) else handle).result()

    async def advance_async(self, duration: Duration) -> list[BoxRun]:
        """Advance the clock by a duration, as `advance` does. Tasks run on the loop of the async test."""
        return await self.advance_to_async(self.now + _length(duration))

    async def advance_to_async(self, moment: Moment) -> list[BoxRun]:
        """Advance the clock to `moment`, as `advance_to` does. Tasks run on the loop of the async test."""
        return await self._driver.drive_async(self._driver.until(self._ahead(moment)))

    async def run_pending_async(self) -> list[BoxRun]:
        """Run everything that is ready without advancing the clock. Tasks run on the loop of the async test."""
        return await self.advance_to_async(self.now)

    async def settle_async(self, within: Duration = _SETTLED_WITHIN) -> list[BoxRun]:
        """Advance the clock until no run is live, as `settle` does. Tasks run on the loop of the async test."""
        return await self._driver.drive_async(self._driver.settling(self.now + _length(within)))

    def _ahead(self, moment: Moment) -> datetime:
        target = _moment(moment, "moment")
        if target < self.now:
            raise InvalidInput(f"{target.isoformat()} is before {self.now.isoformat()}", field="moment")
        return target


def run(
    app: Mainspring,
    *,
    start: Moment | None = None,
    seed: int = 0,
    raise_errors: bool = False,
    calendars: Mapping[str, Mapping[str, Any]] | None = None,
    ignore: Collection[str] = (),
) -> Box:
    """Run the application in a box: `with mainspring.testing.run(app) as box:`. `start` is the initial time of the box,
    by default the real time. `seed` is for the jitter of retries. With `raise_errors`, the methods that run tasks raise
    their errors, except Retry and GiveUp. `calendars` are those that the application's schedules name: `{"de-business":
    {"holidays": {"country": "DE"}}}`. `ignore` names what the application declares, the box does not have, and the test
    is not about: concurrency, rate_limit, circuit_breaker, unique, workflows."""
    return Box(app, start=start, seed=seed, raise_errors=raise_errors, calendars=calendars, ignore=ignore)


def _length(duration: Duration) -> timedelta:
    if isinstance(duration, timedelta):
        return duration
    return timedelta(seconds=parse_duration(duration, "duration"))


def _moment(moment: Moment, field: str) -> datetime:
    return parse_time(moment if isinstance(moment, str) else moment.isoformat(), field)
