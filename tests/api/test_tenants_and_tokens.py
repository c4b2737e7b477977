"""FEATURES 7.1 to 7.3: tokens are shown once, are limited to their role, expire, and are revoked at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.api.auth import TokenRegistry
from mainspring.kernel.clock import ManualClock, SystemClock
from mainspring.kernel.ids import DEFAULT_TENANT, EVERY_TENANT, uuid7
from mainspring.roles.assembly import Assembly, assemble
from mainspring.store import tokens
from tests.api.bookkeeping import problem, rows
from tests.api.test_authentication import ROUTES
from tests.operations.hand_worker import HandWorker
from tests.operations.servers import another_server
from tests.operations.tenants import Tenants, several_tenants
from tests.operations.waiting import until
from tests.store.rows import until_blocking

pytestmark = pytest.mark.anyio

WORKER_ROUTES = {"/v1/exchange", "/v1/exchange/logs"}
ACCESS_ROUTES = [
    ("GET", "/v1/tenants"), ("POST", "/v1/tenants"), ("GET", "/v1/tokens"), ("POST", "/v1/tokens"),
    ("POST", f"/v1/tokens/{uuid7()}:revoke"), ("POST", "/v1/runs/x:retry"), ("GET", "/v1/runs/x/logs"),
    ("GET", "/v1/runs/x/timeline"), ("GET", "/v1/tasks"), ("POST", "/v1/dead-letters:replay"),
    ("POST", "/v1/dead-letters:discard"), ("POST", "/v1/dead-letters/x:replay"), ("POST", "/v1/workers/x:drain"),
    ("GET", "/v1/workers/x"),
]  # fmt: skip


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        yield made


def refusal(answer: httpx.Response) -> tuple[int, str, str | None]:
    found = problem(answer)
    return found["status"], found["code"], found.get("field")


# --- tenants


async def test_a_tenant_is_made_with_its_first_admin_token_which_works(tenants: Tenants) -> None:
    answer = await tenants.operator.post("/v1/tenants", json={"name": "acme"})
    assert answer.status_code == 201
    made = answer.json()
    assert (made["tenant_id"], made["name"], made["admin_token"]["role"]) == (2, "acme", "admin")
    assert (made["admin_token"]["tenants"], made["admin_token"]["expires_at"]) == ("own", None)
    acme = await tenants.client(made["admin_token"]["token"])
    assert [row["name"] for row in (await acme.get("/v1/tenants")).json()["tenants"]] == ["acme"]
    listed = (await tenants.operator.get("/v1/tenants")).json()["tenants"]
    assert [(row["tenant_id"], row["name"]) for row in listed] == [(1, "default"), (2, "acme")]
    job = await acme.post("/v1/jobs", json={"task": "noop", "job_id": "one"})
    assert job.status_code == 201
    assert (await acme.get("/v1/jobs/one")).status_code == 200


async def test_a_tenant_has_a_name_of_its_own(tenants: Tenants, connection: asyncpg.Connection) -> None:
    await tenants.add("acme")
    assert refusal(await tenants.operator.post("/v1/tenants", json={"name": "acme"})) == (409, "conflict", "name")
    for body, field in (
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "ä"}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": "a" * 201}, "name"),
        ({"name": 5}, "name"),
        ({}, "name"),
        ({"name": "x", "nmae": "y"}, "nmae"),
    ):
        assert refusal(await tenants.operator.post("/v1/tenants", json=body))[::2] == (422, field), body
    assert await connection.fetchval("select count(*) from mainspring.tenants") == 2
    assert await connection.fetchval("select count(*) from mainspring.tokens") == 2


async def test_only_the_operator_makes_tenants_and_shared_tokens(
    tenants: Tenants, connection: asyncpg.Connection
) -> None:
    [acme] = await tenants.add("acme")
    before = await connection.fetchval("select count(*) from mainspring.tokens")
    assert refusal(await acme.post("/v1/tenants", json={"name": "more"})) == (403, "instance_admin_only", None)
    shared = {"role": "worker", "name": "pool", "tenants": "all"}
    assert refusal(await acme.post("/v1/tokens", json=shared)) == (403, "instance_admin_only", "tenants")
    for name in ("default", "acme", "nobody"):
        body = {"role": "admin", "name": "theirs", "tenant": name}
        assert refusal(await acme.post("/v1/tokens", json=body)) == (403, "instance_admin_only", "tenant"), name
    assert await connection.fetchval("select count(*) from mainspring.tokens") == before
    assert await connection.fetchval("select count(*) from mainspring.tenants") == 2


# --- tokens


async def test_a_token_is_shown_once_and_kept_hashed(tenants: Tenants, connection: asyncpg.Connection) -> None:
    made = await tenants.token(role="worker", name="pool", tenants="all")
    other = await tenants.token(role="worker", name="pool", tenants="all")
    assert made["token"] != other["token"]
    assert made["token"].startswith("ms_") and len(made["token"]) == 3 + 43, "256 bits in base64"
    assert made["token"] not in (await tenants.operator.get("/v1/tokens")).text
    for row in await connection.fetch("select * from mainspring.tokens"):
        assert made["token"] not in str(dict(row))
    found = await tokens.find(connection, tokens.hash_token(made["token"]))
    assert found is not None and found.principal.tenant == EVERY_TENANT


async def test_tokens_are_listed_to_their_tenant_and_shared_ones_to_the_operator(tenants: Tenants) -> None:
    [acme] = await tenants.add("acme")
    await tenants.token(role="worker", name="pool", tenants="all")
    await tenants.token(role="worker", name="ours", expires_in="1h")
    assert (await acme.post("/v1/tokens", json={"role": "worker", "name": "theirs"})).status_code == 201
    listed = {row["name"]: row for row in (await tenants.operator.get("/v1/tokens")).json()["tokens"]}
    assert {name: row["tenants"] for name, row in listed.items()} == {"test": "own", "pool": "all", "ours": "own"}
    assert {name: row["expires_at"] is None for name, row in listed.items()} == {
        "test": True, "pool": True, "ours": False,
    }  # fmt: skip
    theirs = (await acme.get("/v1/tokens")).json()["tokens"]
    assert [(row["name"], row["role"]) for row in theirs] == [("theirs", "worker"), ("first admin", "admin")]
    assert "token" not in theirs[0]


async def test_the_operator_lets_a_tenant_in_again_that_has_lost_its_token(tenants: Tenants) -> None:
    [acme] = await tenants.add("acme")
    await acme.post("/v1/jobs", json={"task": "noop", "job_id": "theirs"})
    made = await tenants.token(role="admin", name="second", tenant="acme")
    assert (made["tenants"], made["tenant"]) == ("own", "acme")
    again = await tenants.client(made["token"])
    assert (await again.get("/v1/jobs/theirs")).status_code == 200
    listed = (await again.get("/v1/tokens")).json()["tokens"]
    assert [(row["name"], row["tenant"]) for row in listed] == [("second", "acme"), ("first admin", "acme")]
    assert (await again.post(f"/v1/tokens/{listed[1]['token_id']}:revoke")).status_code == 200, "the lost one"
    assert refusal(await acme.get("/v1/jobs"))[:2] == (401, "invalid_token")
    ours = (await tenants.operator.get("/v1/tokens")).json()["tokens"]
    assert [(row["name"], row["tenant"]) for row in ours] == [("test", "default")]
    worker = await tenants.token(role="worker", tenant="acme")
    await again.post("/v1/jobs", json={"task": "noop", "job_id": "more"})
    orders = (await HandWorker(await tenants.client(worker["token"])).hello(free=5)).runs
    assert [order.job_id for order in orders] == ["theirs", "more"]


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"role": "auditor"}, (422, "invalid_input", "role")),
        ({"role": "root"}, (422, "invalid_input", "role")),
        ({"role": "Admin"}, (422, "invalid_input", "role")),
        ({"role": None}, (422, "invalid_input", "role")),
        ({"name": ""}, (422, "invalid_input", "name")),
        ({"name": "two\nlines"}, (422, "invalid_input", "name")),
        ({"name": "x" * 201}, (422, "invalid_input", "name")),
        ({"tenants": "every"}, (422, "invalid_input", "tenants")),
        ({"tenants": ["all"]}, (422, "invalid_input", "tenants")),
        ({"role": "admin", "tenants": "all"}, (422, "invalid_input", "tenants")),
        ({"role": "viewer", "tenants": "all"}, (422, "invalid_input", "tenants")),
        ({"tenant": "nobody"}, (422, "invalid_input", "tenant")),
        ({"tenant": ""}, (422, "invalid_input", "tenant")),
        ({"tenant": "two\nlines"}, (422, "invalid_input", "tenant")),
        ({"tenant": "\x00"}, (422, "invalid_input", "tenant")),
        ({"tenant": 2}, (422, "invalid_input", "tenant")),
        ({"tenant": "default", "tenants": "all"}, (422, "invalid_input", "tenant")),
        ({"expires_in": "soon"}, (422, "invalid_duration", "expires_in")),
        ({"expires_in": 0}, (422, "invalid_duration", "expires_in")),
        ({"expires_in": -5}, (422, "invalid_duration", "expires_in")),
        ({"expires_in": "1000w1000w1000w1000w1000w1000w"}, (422, "invalid_duration", "expires_in")),
        ({"expires": "1h"}, (422, "unknown_field", "expires")),
    ],
    ids=str,
)
async def test_bad_input_is_refused_by_field_and_nothing_is_stored(
    tenants: Tenants, connection: asyncpg.Connection, change: dict[str, Any], refused: tuple[int, str, str]
) -> None:
    body = {"role": "worker", "name": "a token", **change}
    assert refusal(await tenants.operator.post("/v1/tokens", json=body)) == refused
    for missing in ("role", "name"):
        rest = {field: value for field, value in {"role": "worker", "name": "x"}.items() if field != missing}
        assert refusal(await tenants.operator.post("/v1/tokens", json=rest)) == (422, "invalid_input", missing)
    assert await connection.fetchval("select count(*) from mainspring.tokens") == 1


@pytest.mark.parametrize("shared", [True, False], ids=["shared worker", "worker of one tenant"])
async def test_a_worker_token_opens_what_workers_call_and_nothing_else(
    tenants: Tenants, connection: asyncpg.Connection, shared: bool
) -> None:
    made = await tenants.token(role="worker", tenants="all" if shared else "own")
    await tenants.operator.post("/v1/jobs", json={"task": "noop", "job_id": "j"})
    before, held = await rows(connection), await connection.fetchval("select count(*) from mainspring.tokens")
    client = await tenants.client(made["token"])
    for method, url in [*ROUTES, *ACCESS_ROUTES]:
        if url in WORKER_ROUTES:
            continue
        body = {"task": "noop"} if method in ("POST", "PUT", "PATCH") else None
        answer = await client.request(method, url, json=body)
        if url == "/schema" and answer.status_code == 404:
            continue  # this route does not exist for any role
        assert refusal(answer) == (403, "worker_token", "Authorization"), (method, url)
        assert "admin token" in problem(answer)["hint"]
    assert await rows(connection) == before
    assert await connection.fetchval("select count(*) from mainspring.tokens") == held
    worker = HandWorker(client)
    assert [order.job_id for order in (await worker.hello(free=5)).runs] == ["j"]


@pytest.mark.parametrize(
    ("tenant", "role"), [(DEFAULT_TENANT, "auditor"), (DEFAULT_TENANT, ""), (EVERY_TENANT, "admin")], ids=str
)
async def test_a_role_that_nobody_can_have_opens_nothing(
    tenants: Tenants, connection: asyncpg.Connection, tenant: Any, role: str
) -> None:
    await tokens.insert(connection, tenant, "ms_odd", role, "odd")
    client = await tenants.client("ms_odd")
    for method, url in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("POST", "/v1/exchange"), ("GET", "/metrics")):
        answer = await client.request(method, url, json={} if method == "POST" else None)
        assert refusal(answer) == (403, "role_not_allowed", "Authorization")


async def test_an_operator_pauses_and_cancels_and_may_not_create_or_reach_beyond_its_tenant(tenants: Tenants) -> None:
    await tenants.operator.post("/v1/jobs", json={"task": "noop", "job_id": "j", "schedule": "@daily"})
    made = await tenants.token(role="operator", name="on call")
    client = await tenants.client(made["token"])
    assert (await client.post("/v1/jobs/j:pause")).status_code == 200
    assert (await client.post("/v1/jobs/j:run-now")).status_code in (200, 201, 202)
    assert (await client.get("/metrics")).status_code == 200
    session = (await client.get("/v1/session")).json()
    assert session["role"] == "operator"
    assert "jobs.pause" in session["operations"] and "jobs.create" not in session["operations"]
    for method, url, body in (
        ("POST", "/v1/jobs", {"task": "noop"}),
        ("PUT", "/v1/jobs/j", {"task": "noop", "schedule": "@hourly"}),
        ("POST", "/v1/tokens", {"role": "viewer", "name": "more"}),
    ):
        answer = await client.request(method, url, json=body)
        assert refusal(answer) == (403, "role_not_allowed", "Authorization")
        assert "role admin" in problem(answer)["hint"]
    assert refusal(await client.post("/v1/pause", json={"all_tenants": True}))[:2] == (403, "instance_admin_only")
    assert (await client.post("/v1/pause")).status_code == 200


async def test_a_metrics_token_reads_metrics_and_does_not_sign_in(tenants: Tenants) -> None:
    made = await tenants.token(role="metrics", name="prometheus")
    client = await tenants.client(made["token"])
    assert "mainspring_queue_depth" in (await client.get("/metrics")).text
    for url in ("/v1/jobs", "/v1/session", "/v1/openapi.json", "/v1/overview"):
        assert (await client.get(url)).status_code in (403, 404), url
    answer = await client.post(
        "/v1/session", json={"token": made["token"]}, headers={"Origin": "http://127.0.0.1:8700"}
    )
    assert refusal(answer) == (403, "worker_token", "token")
    assert "programs that read metrics" in problem(answer)["detail"]


# --- revoked, expired


async def test_a_revoked_token_is_refused_at_once(tenants: Tenants) -> None:
    made = await tenants.token(role="admin")
    client = await tenants.client(made["token"])
    assert (await client.get("/v1/jobs")).status_code == 200  # the server now caches the token
    for _ in range(2):
        answer = await tenants.operator.post(f"/v1/tokens/{made['token_id']}:revoke")
        assert answer.status_code == 200
        assert answer.json()["revoked_at"] is not None
        assert refusal(await client.get("/v1/jobs")) == (401, "invalid_token", "Authorization")


async def test_a_revocation_is_heard_at_the_other_servers(
    database_url: str, assembly: Assembly, tenants: Tenants
) -> None:
    """The clock of the other server stands still, so its cache does not expire."""
    made = await tenants.token(role="admin")
    elsewhere = await assemble(database_url, ManualClock(datetime(2026, 11, 15, tzinfo=UTC)), scheduler=False)
    transport = httpx.ASGITransport(app=elsewhere.app)  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {made['token']}"}
    loops = [asyncio.create_task(elsewhere.signals.listen_forever())]
    loops.append(asyncio.create_task(assembly.signals.send_forever()))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1", headers=headers) as client:
            assert (await client.get("/v1/jobs")).status_code == 200

            async def refused() -> bool:
                """Repeated until the other server listens for the notification."""
                answer = await tenants.operator.post(f"/v1/tokens/{made['token_id']}:revoke")
                assert answer.status_code == 200
                return (await client.get("/v1/jobs")).status_code == 401

            await until(refused)
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await elsewhere.store.close()


async def test_a_look_that_was_under_way_when_a_token_was_revoked_is_not_remembered(
    assembly: Assembly, database_url: str, connection: asyncpg.Connection
) -> None:
    await tokens.insert(connection, DEFAULT_TENANT, "ms_x", "admin", "x")
    registry = TokenRegistry(assembly.store, SystemClock())
    observer = await asyncpg.connect(database_url)
    async with connection.transaction():
        await connection.execute("lock table mainspring.tokens in access exclusive mode")
        look = asyncio.create_task(registry.principal("ms_x"))
        await until_blocking(observer, connection.get_server_pid())
        registry.forget(DEFAULT_TENANT)
    await observer.close()
    assert await look is not None
    assert registry._known == {}
    assert await registry.principal("ms_x") is not None
    assert len(registry._known) == 1


async def test_an_expired_token_is_refused_the_moment_it_expires(
    database_url: str, tenants: Tenants, connection: asyncpg.Connection
) -> None:
    made = await tenants.token(role="admin", expires_in="1h")
    left = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["created_at"])
    assert 3599 <= left.total_seconds() <= 3601
    # The token is valid for two more seconds. A server caches it for no longer.
    await connection.execute(
        "update mainspring.tokens set expires_at = clock_timestamp() + interval '2 s' where token_id = $1",
        made["token_id"],
    )
    clock = ManualClock(datetime(2026, 11, 15, tzinfo=UTC))
    async with another_server(database_url, clock=clock, token=made["token"]) as client:
        first = (await client.get("/v1/jobs")).status_code
        clock.advance(2.0)
        await connection.execute(
            "update mainspring.tokens set expires_at = clock_timestamp() where token_id = $1", made["token_id"]
        )
        assert (await client.get("/v1/jobs")).status_code == 401
    assert first in (200, 401), "401 on a machine that took two seconds to ask"


async def test_the_last_admin_token_stays(tenants: Tenants) -> None:
    [row] = (await tenants.operator.get("/v1/tokens")).json()["tokens"]
    address = f"/v1/tokens/{row['token_id']}:revoke"
    assert refusal(await tenants.operator.post(address)) == (409, "last_admin", "token_id")
    await tenants.token(role="worker")
    assert refusal(await tenants.operator.post(address)) == (409, "last_admin", "token_id")
    another = await tenants.client((await tenants.token(role="admin"))["token"])
    assert (await tenants.operator.post(address)).status_code == 200
    assert (await tenants.operator.get("/v1/tokens")).status_code == 401
    assert (await another.get("/v1/tokens")).status_code == 200


async def test_a_token_of_somebody_else_cannot_be_revoked(tenants: Tenants) -> None:
    [acme] = await tenants.add("acme")
    ours, shared = await tenants.token(role="worker"), await tenants.token(role="worker", tenants="all")
    [theirs] = (await acme.get("/v1/tokens")).json()["tokens"]
    for made in (ours, shared):
        assert refusal(await acme.post(f"/v1/tokens/{made['token_id']}:revoke"))[:2] == (404, "not_found")
    assert refusal(await tenants.operator.post(f"/v1/tokens/{theirs['token_id']}:revoke"))[:2] == (404, "not_found")
    for address in ("/v1/tokens/nonsense:revoke", f"/v1/tokens/{uuid7()}:revoke", f"/v1/tokens/{ours['token_id']}:x"):
        assert (await tenants.operator.post(address)).status_code == 404
    assert (await acme.get("/v1/jobs")).status_code == 200
