"""FEATURES 7.1, 7.8, 8.1: every route except health requires a token, an allowed Host and Origin, also on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import asyncpg
import httpx
import pytest

from mainspring.api.auth import hosts_for
from mainspring.kernel.clock import ManualClock
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.roles.assembly import Assembly
from mainspring.store import tokens
from tests.api.bookkeeping import problem, rows
from tests.conftest import TOKEN
from tests.operations.servers import another_server
from tests.processes.cluster import SLOW, eventually

pytestmark = pytest.mark.anyio

ROUTES = [
    ("GET", "/v1/jobs"), ("GET", "/jobs"), ("POST", "/v1/jobs"), ("POST", "/jobs"), ("POST", "/v1/jobs:batch"),
    ("GET", "/v1/jobs/j"), ("PATCH", "/v1/jobs/j"), ("PUT", "/v1/jobs/j"), ("DELETE", "/v1/jobs/j"),
    ("POST", "/v1/jobs/j:pause"), ("POST", "/v1/jobs/j/runNow"), ("GET", "/v1/jobs/j/status"),
    ("GET", "/v1/jobs/j/runs"), ("GET", "/v1/jobs/j/upcoming"), ("GET", "/v1/jobs/j/missed"), ("GET", "/v1/runs"),
    ("GET", "/v1/runs/x"), ("GET", "/v1/runs/x/why"), ("POST", "/v1/runs/x:cancel"), ("POST", "/v1/runs/x/cancel"),
    ("GET", "/v1/queues"), ("GET", "/v1/queues/q"), ("GET", "/v1/workers"), ("GET", "/v1/dead-letters"),
    ("GET", "/v1/dead-letters/x"), ("POST", "/v1/exchange"), ("GET", "/schema/openapi.json"), ("GET", "/schema"),
    ("GET", "/metrics"),
]  # fmt: skip


@pytest.fixture
async def stranger(assembly: Assembly) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the same server without a token."""
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as client:
        yield client


async def test_every_route_asks_for_a_token(stranger: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    before = await rows(connection)
    for method, url in ROUTES:
        body = {"task": "noop"} if method in ("POST", "PUT", "PATCH") else None
        answer = await stranger.request(method, url, json=body)
        refused = problem(answer)
        assert (refused["status"], refused["code"], refused["field"]) == (401, "unauthorized", "Authorization"), url
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "Bearer" in refused["hint"]
    assert await rows(connection) == before


async def test_a_wrong_token_opens_nothing(stranger: httpx.AsyncClient) -> None:
    wrong = [
        "Bearer nope",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"bearer {TOKEN.upper()}",
        "Bearer ä",
        "Bearer \xff",
    ]
    missing = ["", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer{TOKEN}", "Digest x"]
    for codes, headers in (("invalid_token", wrong), ("unauthorized", missing)):
        for header in headers:
            answer = await stranger.get("/v1/jobs", headers={b"Authorization": header.encode("latin-1")})
            assert (answer.status_code, problem(answer)["code"]) == (401, codes), header
            assert answer.headers["www-authenticate"] == "Bearer"
    assert (await stranger.get("/v1/jobs", headers={"Authorization": f"bearer  {TOKEN}"})).status_code == 200


async def test_health_is_open(stranger: httpx.AsyncClient) -> None:
    up = await stranger.get("/healthz")
    assert (up.status_code, up.json()["status"]) == (200, "ok")

    async def ready() -> bool:
        return (await stranger.get("/readyz")).json()["checks"]["database"] == "ok"

    await eventually(ready, SLOW, "the database has answered in time")


async def test_a_foreign_host_is_refused_even_with_a_token(api: httpx.AsyncClient) -> None:
    """A host name that an attacker resolves to 127.0.0.1 (DNS rebinding) is refused."""
    for host in ("evil.example", "evil.example:8700", "127.0.0.1.evil.example", "[::2]:8700", "localhost.", "10.0.0.1"):
        for url in ("/v1/jobs", "/healthz"):
            refused = problem(await api.get(url, headers={"Host": host}))
            assert (refused["status"], refused["code"], refused["field"]) == (403, "wrong_host", "Host"), host
    for host in ("127.0.0.1", "127.0.0.1:8700", "localhost:1", "LOCALHOST", "[::1]:8700", "[::1]"):
        assert (await api.get("/v1/jobs", headers={"Host": host})).status_code == 200, host


async def test_a_foreign_origin_is_refused_even_with_a_token(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    before = await rows(connection)
    for origin in (
        "https://evil.example",
        "http://127.0.0.1.evil.example",
        "null",
        "",
        "http://[::1",
        "file://",
        "x:y",
    ):
        refused = problem(await api.post("/v1/jobs", json={"task": "noop"}, headers={"Origin": origin}))
        assert (refused["status"], refused["code"], refused["field"]) == (403, "wrong_origin", "Origin"), origin
    assert await rows(connection) == before
    for origin in ("http://127.0.0.1:8700", "http://localhost:8700", "http://[::1]:8700"):
        answer = await api.post("/v1/jobs", json={"task": "noop"}, headers={"Origin": origin})
        assert answer.status_code == 201, origin


def test_a_server_answers_to_loopback_to_its_own_address_and_to_names_that_it_is_given() -> None:
    loopback = {"localhost", "127.0.0.1", "::1"}
    assert hosts_for("127.0.0.1") == loopback
    assert hosts_for("10.1.2.3", ["Jobs.Example"]) == loopback | {"10.1.2.3", "jobs.example"}
    assert hosts_for("[::1]") == loopback
    assert "*" in hosts_for("0.0.0.0") and "*" in hosts_for("::")


async def test_a_revoked_and_an_expired_token_are_refused_once_the_server_looks_again(
    database_url: str, connection: asyncpg.Connection
) -> None:
    for name, ending in (("a", "revoked_at = clock_timestamp()"), ("b", "expires_at = clock_timestamp()")):
        clock = ManualClock(datetime(2026, 11, 15, tzinfo=UTC))
        await tokens.insert(connection, DEFAULT_TENANT, f"ms_{name}", "admin", name)
        async with another_server(database_url, clock=clock, token=f"ms_{name}") as client:
            assert (await client.get("/v1/jobs")).status_code == 200
            await connection.execute(f"update mainspring.tokens set {ending} where name = $1", name)
            clock.advance(4.9)
            assert (await client.get("/v1/jobs")).status_code == 200, "remembered for five seconds"
            clock.advance(0.2)
            refused = problem(await client.get("/v1/jobs"))
            assert (refused["status"], refused["code"]) == (401, "invalid_token")
            assert (await client.get("/v1/jobs")).status_code == 401


async def test_a_token_that_is_not_known_yet_works_as_soon_as_it_is(
    stranger: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    headers = {"Authorization": "Bearer ms_new"}
    assert (await stranger.get("/v1/jobs", headers=headers)).status_code == 401
    await tokens.insert(connection, DEFAULT_TENANT, "ms_new", "admin", "new")
    assert (await stranger.get("/v1/jobs", headers=headers)).status_code == 200


async def test_a_token_is_stored_hashed(connection: asyncpg.Connection) -> None:
    [row] = await connection.fetch("select * from mainspring.tokens")
    assert row["token_hash"] == tokens.hash_token(TOKEN) and len(row["token_hash"]) == 32
    assert TOKEN not in str(dict(row))


async def test_requests_that_arrive_together_look_a_token_up_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    find = tokens.find

    async def counted(connection: asyncpg.Connection, digest: bytes) -> object:
        nonlocal looks
        looks += 1
        return await find(connection, digest)

    monkeypatch.setattr(tokens, "find", counted)
    async with another_server(database_url) as client:
        answers = await asyncio.gather(*(client.get("/v1/jobs") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert looks == 1
