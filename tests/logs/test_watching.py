"""The log watch: one query for all followed logs of a server, none without readers, and none for local output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import asyncpg
import httpx
import pytest

from mainspring.domain.errors import Unavailable
from mainspring.kernel.clock import SystemClock
from mainspring.operations.logs.log_bytes import LogBytes
from mainspring.roles.assembly import Assembly, assemble
from mainspring.store.log_files import LogFiles
from mainspring.wire.exchange import RunOrder
from tests.conftest import TOKEN
from tests.eventually import PATIENCE
from tests.logs.scene import IN_A_FOLDER, Follower, a_run, chunk, claim_soon, ship
from tests.logs.sockets import on_a_socket
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio

RETRY = {"max_attempts": 3, "base": "1ms", "backoff": "constant"}


@pytest.fixture
async def served(assembly: Assembly) -> AsyncIterator[httpx.AsyncClient]:
    """A server on a socket, with a log watch that only queries when a test calls it."""
    async with on_a_socket(assembly, watching=False) as api:
        yield api


@contextmanager
def statements_of(assembly: Assembly) -> Iterator[list[str]]:
    """The statements that this server sends to PostgreSQL from now on."""
    asked: list[str] = []

    def note(record: asyncpg.connection.LoggedQuery) -> None:
        asked.append(record.query)

    connections = list(assembly.store.connections)
    for connection in connections:
        connection.add_query_logger(note)
    yield asked
    for connection in connections:
        connection.remove_query_logger(note)
    assert set(assembly.store.connections) == set(connections), "a new connection was not listened to"


async def following(api: httpx.AsyncClient, order: RunOrder) -> tuple[Follower, asyncio.Task[None]]:
    """A reader that has received the existing output."""
    follower = Follower(api, order.run_id)
    reading = asyncio.create_task(follower.run())
    await until(lambda: bool(follower.events))
    return follower, reading


async def test_one_statement_tells_of_all_that_is_followed_and_none_is_asked_when_nobody_follows(
    assembly: Assembly, worker: HandWorker, served: httpx.AsyncClient
) -> None:
    watch = assembly.services.logs.watch
    await worker.api.post("/v1/jobs:batch", json=[{"task": "noop"}] * 20)
    orders = await worker.claim(20)
    await ship(worker, *(chunk(order, 0, b"begun\n") for order in orders))
    with statements_of(assembly) as asked:
        assert await watch.run_once() == 0
        assert asked == []
    readers = [await following(served, order) for order in [*orders, *orders[:5]]]
    await worker.report(*(outcome(order) for order in orders))
    with statements_of(assembly) as asked:
        assert await watch.run_once() == 20
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(reading for _, reading in readers))
        assert len(asked) == 1
        await until(lambda: watch.runs == 0)
        assert await watch.run_once() == 0
        assert len(asked) == 1
    assert {(follower.output, follower.names[-1]) for follower, _ in readers} == {("begun\n", "end")}


async def test_what_arrives_here_is_told_without_a_look(
    assembly: Assembly, worker: HandWorker, served: httpx.AsyncClient, log_files: LogFiles | None
) -> None:
    order = await a_run(worker)
    await ship(worker, chunk(order, 0, b"one\n"))
    readers = [await following(served, order) for _ in range(3)]
    with statements_of(assembly) as asked:
        await ship(worker, chunk(order, 4, b"two\n"))
        for follower, _ in readers:
            await until(lambda follower=follower: follower.output == "one\ntwo\n")  # type: ignore[misc]
        asked = [statement for statement in asked if not statement.startswith("select c.first_byte")]  # the bytes
        if log_files is None:
            assert len(asked) == 1, "one stores the chunk and advances the log, as for any shipment"
        else:
            assert len(asked) == 2, "one reads the holder of the run, one advances the log, as for any shipment"
    for _, reading in readers:
        reading.cancel()
    await asyncio.wait([reading for _, reading in readers])
    await until(lambda: assembly.services.logs.watch.runs == 0)


async def test_a_further_attempt_is_seen_at_once_and_nothing_of_the_one_before_is_left_out(
    assembly: Assembly, worker: HandWorker, served: httpx.AsyncClient, database_url: str, log_files: LogFiles | None
) -> None:
    """The last output of the first attempt arrives at another server. This server does not know it yet."""
    there = await assemble(database_url, SystemClock(), scheduler=False, log_files=log_files)
    transport = httpx.ASGITransport(app=there.app)  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    order = await a_run(worker, retry=RETRY)
    await ship(worker, chunk(order, 0, b"first\n"))
    follower, reading = await following(served, order)
    here = worker.api
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers) as elsewhere:
        worker.api = elsewhere
        await ship(worker, chunk(order, 6, b"last words\n", end=True))
        worker.api = here
    await worker.report(outcome(order, "FAILED", error="no"))
    (again,) = await claim_soon(worker)
    await ship(worker, chunk(again, 0, b"second\n"))
    await until(lambda: follower.output == "first\nlast words\nsecond\n")
    assert follower.names == ["output", "output", "attempt", "output"]
    await worker.report(outcome(again))
    await assembly.services.logs.watch.run_once()
    async with asyncio.timeout(PATIENCE):
        await reading
    await there.close()


async def test_a_reader_who_takes_nothing_holds_up_nobody(
    assembly: Assembly, worker: HandWorker, served: httpx.AsyncClient
) -> None:
    order = await a_run(worker)
    piece = b"x" * 1_000_000
    await ship(worker, chunk(order, 0, piece))
    async with served.stream("GET", f"/v1/runs/{order.run_id}/logs?follow=true") as stuck:
        assert stuck.status_code == 200
        follower, reading = await following(served, order)
        for number in range(1, 20):
            await ship(worker, chunk(order, number * len(piece), piece))
        await worker.report(outcome(order))
        await assembly.services.logs.watch.run_once()
        async with asyncio.timeout(PATIENCE):
            await reading
        assert len(follower.output) == 20 * len(piece)
        assert assembly.services.logs.watch.runs == 1
    await until(lambda: assembly.services.logs.watch.runs == 0)


async def test_a_run_that_expires_lets_its_reader_go(
    assembly: Assembly, worker: HandWorker, served: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    order = await a_run(worker)
    await ship(worker, chunk(order, 0, b"one\n"))
    follower, reading = await following(served, order)
    await connection.execute("delete from mainspring.runs where run_id = $1", order.run_id)
    await assembly.services.logs.watch.run_once()
    async with asyncio.timeout(PATIENCE):
        await reading
    assert follower.names == ["output"]


@IN_A_FOLDER
async def test_a_log_store_that_comes_back_is_read_on(
    assembly: Assembly, worker: HandWorker, served: httpx.AsyncClient
) -> None:
    failures = 0

    class AwayAtFirst(LogFiles):
        async def get(self, folder: str, offset: int) -> bytes | None:
            nonlocal failures
            if not failures:
                failures += 1
                raise Unavailable("the log store fails")
            return await super().get(folder, offset)

    (files,) = assembly.services.logs.stores.files
    assembly.services.logs.bytes = LogBytes(AwayAtFirst(files._objects, files.where))
    order = await a_run(worker)
    await ship(worker, chunk(order, 0, b"one\n"))
    follower, reading = await following(served, order)
    assert (failures, follower.output) == (1, "one\n")
    reading.cancel()
    await asyncio.wait([reading])
