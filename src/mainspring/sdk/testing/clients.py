"""Clients and handles of a box. They are those of the SDK, with a local server and the clock of the box."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from mainspring.domain.errors import NotSupportedYet
from mainspring.sdk.client.async_client import AsyncClient
from mainspring.sdk.client.backfill_handle import AsyncBackfill, Backfill, BackfillWait
from mainspring.sdk.client.backfill_handle import Seen as SeenBackfill
from mainspring.sdk.client.client import Client
from mainspring.sdk.client.connection import ServerConnection
from mainspring.sdk.client.core import Call
from mainspring.sdk.client.handle import AsyncHandle, Handle, Seen, WaitLoop
from mainspring.sdk.client.log_stream import LogEvent
from mainspring.sdk.client.workflow_handle import AsyncWorkflowRun, WorkflowRun, WorkflowWait
from mainspring.sdk.client.workflow_handle import Seen as SeenRun
from mainspring.sdk.testing.driver import Driver
from mainspring.sdk.testing.local_server import LocalServer
from mainspring.wire.backfills import BackfillView
from mainspring.wire.runs import RunView
from mainspring.wire.workflows import WorkflowRunView

T = TypeVar("T")
_ADDRESS = ServerConnection("http://box.invalid")


class BoxClient(Client):
    """A `Client` whose server is a box."""

    def __init__(self, local_server: LocalServer, driver: Driver) -> None:
        self.connection = _ADDRESS
        self.patience = 0.0
        self._local_server = local_server
        self._driver = driver

    def send(self, call: Call[T], *, patience: float | None = None, persist: bool = False) -> T:
        return self._local_server.answer(call)

    def log_events(self, run_id: str, attempt: int | None = None, after: str | None = None) -> Iterator[LogEvent]:
        raise NotSupportedYet("the logs of a box cannot be followed", hint="use run.logs or client.logs(run_id)")

    def handle(self, job_id: str, run_id: str | None = None) -> Handle[Any]:
        return BoxHandle(self, self._driver, job_id, run_id)

    def backfill_handle(self, backfill_id: str) -> Backfill:
        return BoxBackfillHandle(self, self._driver, backfill_id)

    def workflow_run_handle(self, run_id: str) -> WorkflowRun:
        return BoxWorkflowRun(self, self._driver, run_id)

    def close(self) -> None:
        """There is nothing to close."""


class BoxAsyncClient(AsyncClient):
    """An `AsyncClient` whose server is a box."""

    def __init__(self, local_server: LocalServer, driver: Driver) -> None:
        self.connection = _ADDRESS
        self.patience = 0.0
        self._local_server = local_server
        self._driver = driver

    async def send(self, call: Call[T], *, patience: float | None = None, persist: bool = False) -> T:
        return self._local_server.answer(call)

    def log_events(self, run_id: str, attempt: int | None = None, after: str | None = None) -> AsyncIterator[LogEvent]:
        raise NotSupportedYet("the logs of a box cannot be followed", hint="use run.logs or await client.logs(run_id)")

    def handle(self, job_id: str, run_id: str | None = None) -> AsyncHandle[Any]:
        return BoxAsyncHandle(self, self._driver, job_id, run_id)

    def backfill_handle(self, backfill_id: str) -> AsyncBackfill:
        return BoxAsyncBackfillHandle(self, self._driver, backfill_id)

    def workflow_run_handle(self, run_id: str) -> AsyncWorkflowRun:
        return BoxAsyncWorkflowRun(self, self._driver, run_id)

    async def close(self) -> None:
        """There is nothing to close."""


class BoxHandle(Handle[Any]):
    """A `Handle` that advances the clock of the box instead of waiting."""

    def __init__(self, client: Client, driver: Driver, job_id: str, run_id: str | None) -> None:
        super().__init__(client, job_id, run_id)
        self._driver = driver

    def wait(self, timeout: float | None = None, *, seen: Seen | None = None) -> RunView:
        watch = WaitLoop(self.job_id, timeout, self._driver.engine, seen)
        while (run := watch.ended(self.look())) is None:
            self._driver.drive(self._driver.moment(watch.left()))
        return run


class BoxAsyncHandle(AsyncHandle[Any]):
    """An `AsyncHandle` that advances the clock of the box instead of waiting."""

    def __init__(self, client: AsyncClient, driver: Driver, job_id: str, run_id: str | None) -> None:
        super().__init__(client, job_id, run_id)
        self._driver = driver

    async def wait(self, timeout: float | None = None, *, seen: Seen | None = None) -> RunView:
        watch = WaitLoop(self.job_id, timeout, self._driver.engine, seen)
        while (run := watch.ended(await self.look())) is None:
            await self._driver.drive_async(self._driver.moment(watch.left()))
        return run


class BoxBackfillHandle(Backfill):
    """A `Backfill` that advances the clock of the box instead of waiting."""

    def __init__(self, client: Client, driver: Driver, backfill_id: str) -> None:
        super().__init__(client, backfill_id)
        self._driver = driver

    def wait(self, timeout: float | None = None, *, seen: SeenBackfill | None = None) -> BackfillView:
        watch = BackfillWait(timeout, seen, self._driver.engine)
        while not watch.over(view := self.view()):
            self._driver.drive(self._driver.moment(watch.left))
        return view


class BoxAsyncBackfillHandle(AsyncBackfill):
    """An `AsyncBackfill` that advances the clock of the box instead of waiting."""

    def __init__(self, client: AsyncClient, driver: Driver, backfill_id: str) -> None:
        super().__init__(client, backfill_id)
        self._driver = driver

    async def wait(self, timeout: float | None = None, *, seen: SeenBackfill | None = None) -> BackfillView:
        watch = BackfillWait(timeout, seen, self._driver.engine)
        while not watch.over(view := await self.view()):
            await self._driver.drive_async(self._driver.moment(watch.left))
        return view


class BoxWorkflowRun(WorkflowRun):
    """A `WorkflowRun` that advances the clock of the box instead of waiting."""

    def __init__(self, client: Client, driver: Driver, run_id: str) -> None:
        super().__init__(client, run_id)
        self._driver = driver

    def wait(self, timeout: float | None = None, *, seen: SeenRun | None = None) -> WorkflowRunView:
        watch = WorkflowWait(timeout, seen, self._driver.engine)
        while not watch.over(view := self.view()):
            self._driver.drive(self._driver.moment(watch.left))
        return view


class BoxAsyncWorkflowRun(AsyncWorkflowRun):
    """An `AsyncWorkflowRun` that advances the clock of the box instead of waiting."""

    def __init__(self, client: AsyncClient, driver: Driver, run_id: str) -> None:
        super().__init__(client, run_id)
        self._driver = driver

    async def wait(self, timeout: float | None = None, *, seen: SeenRun | None = None) -> WorkflowRunView:
        watch = WorkflowWait(timeout, seen, self._driver.engine)
        while not watch.over(view := await self.view()):
            await self._driver.drive_async(self._driver.moment(watch.left))
        return view
