"""The list of open sessions: what of them is shown, and who ends them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from uuid import UUID

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.roles.assembly import Assembly, assemble
from tests.api.browsers import BASE, COOKIE, Browser, browsers, refusal, sign_in
from tests.conftest import TOKEN
from tests.operations.tenants import Tenants, several_tenants

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        yield made


@pytest.fixture
async def browser(assembly: Assembly) -> AsyncIterator[Browser]:
    async with browsers(assembly) as another:
        yield another


async def test_the_open_sessions_of_the_tenant_are_listed(
    tenants: Tenants, browser: Browser, connection: asyncpg.Connection
) -> None:
    made = await tenants.token(role="viewer", name="eyes", expires_in="1h")
    first, second = browser(), browser()
    await sign_in(first, token=TOKEN)
    await sign_in(second, token=made["token"])
    listed = (await second.get("/v1/sessions")).json()
    eyes, admin = listed["sessions"]
    assert [(one["name"], one["role"], one["current"]) for one in (eyes, admin)] == [
        ("eyes", "viewer", True), ("test", "admin", False),
    ]  # fmt: skip
    assert (eyes["token_id"], listed["more"]) == (made["token_id"], False)
    lasts = "select extract(epoch from $1::text::timestamptz - $2::text::timestamptz)::float8"
    assert await connection.fetchval(lasts, admin["ends_at"], admin["last_seen_at"]) == 12 * 3600
    assert await connection.fetchval(lasts, eyes["ends_at"], eyes["signed_in_at"]) < 3601, "it ends with its token"
    await connection.execute(
        "update mainspring.sessions set seen_at = clock_timestamp() - interval '12 hours' where token_id <> $1",
        UUID(made["token_id"]),
    )
    assert [one["name"] for one in (await second.get("/v1/sessions")).json()["sessions"]] == ["eyes"]
    text = (await second.get("/v1/sessions")).text
    assert second.cookies[COOKIE] not in text, "no secret is shown"


async def test_an_admin_ends_a_session_at_every_server(
    tenants: Tenants, browser: Browser, database_url: str, api: httpx.AsyncClient
) -> None:
    made = await tenants.token(role="viewer", name="eyes")
    async with AsyncExitStack() as stack:
        other = await assemble(database_url, SystemClock(), scheduler=False)
        stack.push_async_callback(other.close)
        client = browser()
        headers = await sign_in(client, token=made["token"])
        (session,) = (await api.get("/v1/sessions")).json()["sessions"]
        path = f"/v1/sessions/{session['session_id']}:end"
        assert refusal(await client.post(path, headers=headers))[:2] == (403, "role_not_allowed")
        ended = await api.post(path)
        assert (ended.status_code, ended.json()["name"]) == (200, "eyes")
        cookie = {"Cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
        for app in (None, other.app):
            stale = browser() if app is None else browser(BASE, app)
            assert refusal(await stale.get("/v1/jobs", headers=cookie)) == (401, "invalid_session", "Cookie")
    assert refusal(await api.post(path))[:2] == (404, "not_found")
    assert refusal(await api.post("/v1/sessions/nonsense:end"))[:2] == (404, "not_found")
    assert (await api.get("/v1/sessions")).json()["sessions"] == []
    await sign_in(browser(), token=made["token"])  # the token is still valid


async def test_sessions_of_other_tenants_are_neither_seen_nor_ended(
    tenants: Tenants, browser: Browser, api: httpx.AsyncClient
) -> None:
    await sign_in(browser(), token=TOKEN)
    (session,) = (await api.get("/v1/sessions")).json()["sessions"]
    (other,) = await tenants.add("billing")
    assert (await other.get("/v1/sessions")).json()["sessions"] == []
    assert refusal(await other.post(f"/v1/sessions/{session['session_id']}:end"))[:2] == (404, "not_found")
    assert len((await api.get("/v1/sessions")).json()["sessions"]) == 1
