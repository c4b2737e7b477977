"""Slow clients, floods of connections, and requests that two programs would read differently.

Needs: PostgreSQL, loopback. One test starts a server process with `ulimit -n`, which every POSIX shell has.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from mainspring.api.early_refusals import SAFE_HEADERS
from mainspring.kernel import descriptors
from mainspring.roles.assembly import Assembly
from mainspring.worker.processes.command import SpawnOrder
from mainspring.worker.processes.watchdog_client import WatchdogClient
from tests.attack.edge import HEAD, Edge, an_edge
from tests.conftest import TOKEN
from tests.operations.waiting import until
from tests.processes.cluster import free_port

pytestmark = pytest.mark.anyio

HALF = "GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture
async def edge(assembly: Assembly) -> AsyncIterator[Edge]:
    async with an_edge(assembly) as made:
        yield made


def received(edge: Edge) -> int:
    """Bytes of the body that the server has read, on its only connection."""
    [connection] = edge.connections.open
    count: int = connection._body_bytes  # type: ignore[attr-defined]
    return count


# --- slow clients


async def test_a_head_that_comes_byte_by_byte_has_10_seconds(edge: Edge) -> None:
    slow, silent = await edge.connect(), await edge.connect()
    for byte in HALF[:9]:
        slow.send(byte)
        await edge.wait(1)
    await until(lambda: sum(one._unaccounted for one in edge.connections.open) == 9)  # type: ignore[attr-defined]
    assert edge.serves(silent)
    await edge.wait(2)
    status, headers, body = await slow.answer()
    assert (status, json.loads(body)["code"], headers["connection"]) == (408, "request_timeout", ["close"])
    assert await silent.rest() == b""  # it has asked for nothing
    await until(lambda: not edge.connections.open)


async def test_a_second_head_has_10_seconds_from_its_first_byte(edge: Edge) -> None:
    client = await edge.connect()
    assert await client.ask("GET", "/v1/jobs") == 200
    await edge.wait(60)
    client.send(HALF)
    [connection] = edge.connections.open
    await until(lambda: not connection.idle)
    await edge.wait(9)
    assert edge.serves(client)
    await edge.wait(2)
    assert (await client.answer())[0] == 408


async def test_an_idle_connection_is_closed_after_75_seconds(edge: Edge) -> None:
    client = await edge.connect()
    assert await client.ask("GET", "/v1/jobs") == 200
    await edge.wait(74)
    assert await client.ask("GET", "/v1/jobs") == 200
    await edge.wait(77)
    assert await client.rest() == b""


@pytest.mark.parametrize("head", [HEAD, "Host: 127.0.0.1\r\n"], ids=["with a token", "without"])
async def test_a_body_that_trickles_in_is_cut(edge: Edge, head: str) -> None:
    client = await edge.connect()
    path, length = ("/v1/jobs", 1_000_000) if head == HEAD else ("/v1/session", 4000)
    head = head if head == HEAD else head + "Content-Type: application/json\r\n"
    client.send(f"POST {path} HTTP/1.1\r\n{head}Content-Length: {length}\r\n\r\n")
    step = length // 250
    for sent in range(step, 30 * step, step):
        client.send(b" " * step)
        await until(lambda sent=sent: received(edge) == sent)  # type: ignore[misc]
        await edge.wait(1)
    assert edge.serves(client)
    await edge.wait(2)
    assert (await client.answer())[0] == 408
    await until(lambda: not edge.connections.open)


async def test_a_slow_line_may_take_as_long_as_it_needs(edge: Edge) -> None:
    body = json.dumps({"task": "x", "payload": {"a": "x" * 200_000}})
    client = await edge.connect()
    client.send(f"POST /v1/jobs HTTP/1.1\r\n{HEAD}Content-Length: {len(body)}\r\n\r\n")
    for start in range(0, len(body), 4200):  # 34 kbit/s
        client.send(body[start : start + 4200])
        if start + 4200 < len(body):
            await until(lambda end=start + 4200: received(edge) == end)  # type: ignore[misc]
        await edge.wait(1)
    assert (await client.answer())[0] == 201


async def test_what_is_worked_on_has_no_limit(edge: Edge, api: httpx.AsyncClient) -> None:
    run_id = (await api.post("/v1/jobs", json={"task": "x"})).json()["job_id"]
    follower = await edge.connect()
    follower.send(f"GET /v1/runs/{run_id}/logs?follow=true HTTP/1.1\r\n{HEAD}\r\n")
    assert b": the log of a run" in await follower.reader.readuntil(b"the log of a run\n\n")
    await edge.wait(600)
    assert edge.serves(follower)


async def test_a_client_that_does_not_read_is_cut_and_one_that_reads_slowly_is_not(
    edge: Edge, api: httpx.AsyncClient
) -> None:
    jobs = [{"task": "x", "payload": {"a": "x" * 200_000}, "schedule": "manual"} for _ in range(20)]
    assert (await api.post("/v1/jobs:batch", json=jobs)).status_code == 201
    clients = [await edge.connect(receive_buffer=65_536) for _ in range(2)]
    for client in clients:
        client.send(f"GET /v1/jobs HTTP/1.1\r\n{HEAD}Connection: close\r\n\r\n")
    await until(lambda: sum(one.flow.write_paused for one in edge.connections.open) == 2)  # type: ignore[attr-defined]
    total = 0
    while read := await clients[1].read_at_least(300_000):
        total += read
        await edge.wait(30)
    assert total > 4_000_000
    await until(lambda: not edge.connections.open)
    assert len(await clients[0].rest()) < 4_000_000


async def test_a_server_that_stood_still_blames_nobody(edge: Edge) -> None:
    client = await edge.connect()
    client.send(HALF)
    edge._now += 60
    edge.connections.sweep()
    client.send("Authorization: Bearer " + TOKEN + "\r\n\r\n")
    assert (await client.answer())[0] == 200


# --- too many connections


async def test_an_address_has_256_connections_without_a_token(assembly: Assembly) -> None:
    async with an_edge(assembly, per_address=4) as edge:
        known = await edge.connect()
        assert await known.ask("GET", "/v1/jobs") == 200
        clients = [await edge.connect() for _ in range(6)]  # they have just come: they may be about to ask
        assert [await client.ask("GET", "/v1/jobs") for client in clients] == [200] * 6
        halves = [await edge.connect() for _ in range(4)]
        for half in halves:
            half.send(HALF)
        await edge.wait(2)
        late = await edge.connect()
        assert (await halves[0].answer())[0] == 503
        assert await late.ask("GET", "/v1/jobs") == 200
        assert await known.ask("GET", "/v1/jobs") == 200
        assert [edge.serves(half) for half in halves[1:]] == [True] * 3
        refused = [await edge.connect() for _ in range(3)]
        for one in refused:
            assert await one.ask("GET", "/v1/jobs", head="Host: 127.0.0.1\r\nAuthorization: Bearer no\r\n") == 401
        assert edge.connections.waiting_at("127.0.0.1") == 4  # each of them closed one that had waited
        assert await (await edge.connect()).ask("GET", "/healthz") == 200


async def test_half_open_requests_make_room_for_others(assembly: Assembly) -> None:
    async with an_edge(assembly, connections=5) as edge:
        known = await edge.connect()
        assert await known.ask("GET", "/v1/jobs") == 200
        halves = [await edge.connect() for _ in range(12)]
        assert len(edge.connections.open) <= 6
        client = await edge.connect()
        assert await client.ask("GET", "/v1/jobs") == 200
        assert await known.ask("GET", "/v1/jobs") == 200
        assert await halves[0].rest() != b""


async def test_a_full_server_still_tells_how_it_is_and_takes_exchanges(assembly: Assembly) -> None:
    async with an_edge(assembly, connections=5) as edge:
        known = [await edge.connect() for _ in range(5)]
        assert [await client.ask("GET", "/v1/jobs") for client in known] == [200] * 5
        for path in ("/healthz", "/readyz", "/metrics"):
            late = await edge.connect()
            assert await late.ask("GET", path) in (200, 503 if path == "/readyz" else 200)
            assert await late.rest() == b""
        worker = await edge.connect()
        assert await worker.ask("POST", "/v1/exchange", "{}") == 422
        late = await edge.connect()
        late.send(f"GET /v1/jobs HTTP/1.1\r\n{HEAD}\r\n")
        status, headers, body = await late.answer()
        assert (status, headers["retry-after"], json.loads(body)["code"]) == (503, ["1"], "too_many_connections")
        await edge.wait(7)  # idle connections have 5 s when a server is nearly full
        assert [await client.rest() for client in known] == [b""] * 5
        assert await (await edge.connect()).ask("GET", "/v1/jobs") == 200


@pytest.mark.slow
async def test_half_open_requests_do_not_use_up_the_descriptors(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "admin-token").write_text(TOKEN)
    port = free_port()
    command = [sys.executable, "-m", "mainspring", "server", "--port", str(port), "--data", str(tmp_path)]
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(
            ["sh", "-c", 'ulimit -n 128 && exec "$@"', "sh", *command],
            env={**os.environ, "MAINSPRING_DATABASE_URL": database_url}, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log,
        )  # fmt: skip
    halves: list[socket.socket] = []
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            await until(lambda: _healthy(client))
            for _ in range(300):
                half = socket.create_connection(("127.0.0.1", port), timeout=10)
                half.sendall(HALF.encode())
                halves.append(half)
            for number in range(5):
                async with httpx.AsyncClient(base_url=client.base_url, timeout=10) as healthy:
                    answer = await healthy.get("/v1/jobs", headers={"Authorization": f"Bearer {TOKEN}"})
                    assert (number, answer.status_code) == (number, 200), answer.text
        assert "Too many open files" not in (tmp_path / "server.log").read_text()
    finally:
        for half in halves:
            half.close()
        server.kill()
        server.wait(30)


async def _healthy(client: httpx.AsyncClient) -> bool:
    with suppress(httpx.TransportError):
        return (await client.get("/healthz")).status_code == 200
    return False


async def test_commands_get_the_limit_of_open_files_that_the_user_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "_original", None)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    watchdog = WatchdogClient()
    reading, writing = os.pipe()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, before[1]))
        raised = descriptors.raise_limit(500)
        assert (raised.before, raised.now, raised.for_connections) == (300, 500, 375)
        watchdog.start()
        command = await watchdog.spawn(
            SpawnOrder(["sh", "-c", "ulimit -Sn"], dict(os.environ), "/"), output=writing
        )  # fmt: skip
        os.close(writing)
        assert os.read(reading, 100) == b"300\n"
        await command.gone.wait()
    finally:
        watchdog.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        os.close(reading)


# --- one request, two readings


@pytest.mark.parametrize(
    ("lines", "code", "field"),
    [
        ("Host: 127.0.0.1\r\nHost: 127.0.0.1", "duplicate_header", "host"),
        ("Host: 127.0.0.1\r\nHOST: evil.example", "duplicate_header", "host"),
        (f"Host: 127.0.0.1\r\nAuthorization: Bearer no\r\nauthorization: Bearer {TOKEN}", "duplicate_header",
         "authorization"),
        ("Host: 127.0.0.1\r\nContent-Type: text/plain\r\nContent-Type: application/json", "duplicate_header",
         "content-type"),
        ("Host: 127.0.0.1\r\nOrigin: null\r\nOrigin: http://127.0.0.1", "duplicate_header", "origin"),
        ("Host: 127.0.0.1\r\nContent-Length: 0\r\nContent-Length: 0", "malformed_request", None),
        ("Host: 127.0.0.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked", "malformed_request", None),
        ("Host: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 2", "malformed_request", None),
        ("Host: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked", None, None),
        ("Host: 127.0.0.1\r\nTransfer-Encoding: chunked, identity", "malformed_request", None),
        ("Host : 127.0.0.1", "malformed_request", None),
        ("Host: 127.0.0.1\r\n Authorization: x", "malformed_request", None),
    ],
)  # fmt: skip
async def test_a_header_that_could_be_read_in_two_ways_is_refused(
    edge: Edge, lines: str, code: str | None, field: str | None
) -> None:
    client = await edge.connect()
    client.send(f"POST /v1/jobs HTTP/1.1\r\n{lines}\r\n\r\n")
    status, headers, body = await client.answer()
    problem = json.loads(body)
    assert (status, headers["content-type"], headers["connection"]) == (400, ["application/problem+json"], ["close"])
    assert code is None or (problem["code"], problem.get("field")) == (code, field)
    assert problem["detail"] and problem["hint"]
    assert await client.rest() == b""


async def test_a_refusal_is_never_taken_for_the_answer_to_an_earlier_request(
    edge: Edge, api: httpx.AsyncClient
) -> None:
    run_id = (await api.post("/v1/jobs", json={"task": "x"})).json()["job_id"]
    client = await edge.connect()
    client.send(f"GET /v1/runs/{run_id}/logs?follow=true HTTP/1.1\r\n{HEAD}\r\n" + "GET / HTTP/1.1\r\nHost : x\r\n\r\n")
    assert b"HTTP/1.1 400" not in await client.rest()


# --- every answer


def _safe(headers: dict[str, list[str]]) -> bool:
    return all(headers.get(name) == [value] for name, value in SAFE_HEADERS)


async def test_no_answer_may_be_sniffed_framed_or_cached(edge: Edge, api: httpx.AsyncClient) -> None:
    run_id = (await api.post("/v1/jobs", json={"task": "x"})).json()["job_id"]
    requests: dict[str, tuple[str, int]] = {
        "list": (f"GET /v1/jobs HTTP/1.1\r\n{HEAD}", 200),
        "health": ("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n", 200),
        "metrics": (f"GET /metrics HTTP/1.1\r\n{HEAD}", 200),
        "schema": (f"GET /schema/openapi.json HTTP/1.1\r\n{HEAD}", 200),
        "log": (f"GET /v1/runs/{run_id}/logs HTTP/1.1\r\n{HEAD}", 200),
        "token": (f"POST /v1/tokens HTTP/1.1\r\n{HEAD}Content-Length: 31\r\n", 201),
        "no token": ("GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n", 401),
        "wrong host": ("GET /v1/jobs HTTP/1.1\r\nHost: evil.example\r\n", 403),
        "no route": ("GET /favicon.ico HTTP/1.1\r\nHost: 127.0.0.1\r\n", 404),
        "method": ("TRACE /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n", 405),
        "options": ("OPTIONS /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n", 401),
        "malformed": ("GET /v1/jobs HTTP/9.9\r\nHost: 127.0.0.1\r\n", 400),
        "upgrade": ("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", 400),
        "large head": ("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + "x" * 70_000 + "\r\n", 431),
    }
    found = {}
    for name, (head, _) in requests.items():
        client = await edge.connect()
        client.send(head + "\r\n" + ('{"name": "a", "role": "worker"}' if name == "token" else ""))
        status, headers, _ = await client.answer()
        found[name] = (status, _safe(headers))
    assert found == {name: (status, True) for name, (_, status) in requests.items()}


async def test_a_refusal_because_of_load_has_the_same_headers(
    assembly: Assembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    always: Callable[[object], bool] = lambda _self: True  # noqa: E731
    monkeypatch.setattr("mainspring.api.load_shedding.LoadShedder._full", property(always))
    async with an_edge(assembly) as edge:
        client = await edge.connect()
        client.send(f"GET /v1/jobs HTTP/1.1\r\n{HEAD}\r\n")
        status, headers, _ = await client.answer()
        assert (status, _safe(headers)) == (429, True)
