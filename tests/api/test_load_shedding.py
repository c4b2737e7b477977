"""When the loop lags: submissions and reads are refused before their body is read; what is urgent never is."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from mainspring.api import load_shedding
from mainspring.api.app import app_without_a_server
from mainspring.api.front import Front
from mainspring.api.handlers import permissions_of, routed_handlers
from mainspring.api.routing import public_path
from mainspring.kernel.loop_monitor import LoopMonitor
from mainspring.operations.access.urgency import URGENT
from mainspring.roles.assembly import Assembly
from mainspring.store.fair_queue import queue_of
from tests.conftest import TOKEN

pytestmark = pytest.mark.anyio

NEVER_REFUSED = {
    "health.live", "health.ready", "worker.exchange", "worker.ship_logs", "worker.gone", "jobs.cancel", "jobs.pause",
    "runs.cancel", "sessions.end", "tokens.revoke", "user.revoke_token", "users.disable", "users.remove",
}  # fmt: skip


@pytest.fixture
def lagging() -> LoopMonitor:
    monitor = LoopMonitor()
    for _ in range(100):
        monitor.note(1.0, 1.0)
    return monitor


def client(app: Any) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1:8700", headers=headers)


def test_only_operations_that_exist_are_urgent() -> None:
    assert NEVER_REFUSED <= URGENT <= permissions_of(app_without_a_server()).keys()


async def test_each_route_is_refused_or_urgent(assembly: Assembly, lagging: LoopMonitor) -> None:
    seen = set()
    async with client(Front(assembly.app, lagging, assembly.store)) as api:
        for route, handler in routed_handlers(assembly.app):
            operation = handler.operation
            for path in {route.path, public_path(route, handler)}:
                answer = await api.request(handler.method, path.replace("{", "").replace("}", ""))
                assert (answer.status_code != 429) == (operation in URGENT), (handler.method, path)
                seen.add(operation)
    assert seen == permissions_of(assembly.app).keys()


async def test_a_refusal_says_when_to_come_again_and_reads_nothing(assembly: Assembly, lagging: LoopMonitor) -> None:
    async def unread() -> Any:
        raise AssertionError("the body was read")

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope: Any = {
        "type": "http", "method": "POST", "path": "/v1/jobs:batch", "headers": [(b"content-length", b"60000000")],
        "query_string": b"",
    }  # fmt: skip
    await Front(assembly.app, lagging, assembly.store)(scope, unread, send)
    start, body = sent
    headers = dict(start["headers"])
    assert (start["status"], headers[b"retry-after"]) == (429, b"1")
    assert headers[b"content-type"] == b"application/problem+json"
    assert b'"code":"overloaded"' in body["body"]


async def test_all_is_served_again_when_the_loop_keeps_up(assembly: Assembly, lagging: LoopMonitor) -> None:
    async with client(Front(assembly.app, lagging, assembly.store)) as api:
        body = {"task": "x"}
        assert (await api.post("/v1/jobs", json=body)).status_code == 429
        for _ in range(100):
            lagging.note(0.0, 1.0)
        assert (await api.post("/v1/jobs", json=body)).status_code == 201


async def test_more_at_once_than_the_database_gets_done_is_refused_too(
    assembly: Assembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_shedding, "MOST_OPEN", 1)
    monkeypatch.setattr(load_shedding, "MOST_OPEN_BUSY", 1)
    async with (
        client(Front(assembly.app, LoopMonitor(), assembly.store)) as api,
        assembly.store.hot.acquire() as held,
    ):
        await held.execute("begin; lock table mainspring.runs")
        both = [asyncio.create_task(api.post("/v1/jobs", json={"task": "x"})) for _ in range(2)]
        [refused], [waiting] = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        assert refused.result().status_code == 429
        assert (await api.get("/healthz")).status_code == 200
        await held.execute("rollback")
        assert (await waiting).status_code == 201
        assert (await api.get("/v1/jobs")).status_code == 200


async def test_one_client_is_served_on_a_machine_that_is_busy_with_other_things(
    assembly: Assembly, lagging: LoopMonitor
) -> None:
    lagging.cpu_share = 0.1
    async with client(Front(assembly.app, lagging, assembly.store)) as api:
        assert (await api.post("/v1/jobs", json={"task": "x"})).status_code == 201
        assert (await api.get("/v1/jobs")).status_code == 200


async def test_many_at_once_are_refused_while_exchanges_wait_for_the_database(
    assembly: Assembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_shedding, "MOST_OPEN_BUSY", 1)
    monkeypatch.setattr(load_shedding, "LONGEST_WAIT", 0.0)
    pool = assembly.store.reads
    async with client(Front(assembly.app, LoopMonitor(), assembly.store)) as api, AsyncExitStack() as all_held:
        for _ in range(pool.get_max_size()):
            await all_held.enter_async_context(pool.acquire())
        exchange = asyncio.create_task(pool.fetchval("select 1"))
        reading = asyncio.create_task(api.get("/v1/queues"))
        while not queue_of(pool)._others:
            await asyncio.sleep(0)
        assert (await api.get("/v1/jobs")).status_code == 429
        await all_held.aclose()
        assert (await exchange, (await reading).status_code) == (1, 200)
        assert (await api.get("/v1/jobs")).status_code == 200
