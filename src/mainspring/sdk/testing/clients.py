"""Clients and handles of a box. They are those of the SDK, with a local server and the clock of the box."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from mainspring.sdk.client.async_client import AsyncClient
from mainspring.sdk.client.change_stream import ChangeEvent
from mainspring.sdk.client.client import Client
from mainspring.sdk.client.connection import ServerConnection
from mainspring.sdk.client.core import Call
from mainspring.sdk.client.handle import AsyncHandle, Handle, Seen, WaitLoop
from mainspring.sdk.client.log_stream import LogEvent
from mainspring.sdk.testing.driver import Driver
from mainspring.sdk.testing.local_server import LocalServer
from mainspring.sdk.testing.not_in_box import not_in_box
from mainspring.wire.runs import RunView

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
        raise not_in_box("live logs")

    def events(self, *topics: str) -> Iterator[ChangeEvent]:
        raise not_in_box("live events")

    def handle(self, job_id: str, run_id: str | None = None) -> Handle[Any]:
        return BoxHandle(self, self._driver, job_id, run_id)

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
        raise not_in_box("live logs")

    def events(self, *topics: str) -> AsyncIterator[ChangeEvent]:
        raise not_in_box("live events")

    def handle(self, job_id: str, run_id: str | None = None) -> AsyncHandle[Any]:
        return BoxAsyncHandle(self, self._driver, job_id, run_id)

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
