"""Sessions of browsers: links work once, cookies end, and no other page can use them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import asyncpg
import httpx
import pytest

from mainspring.api.session_cookie import csrf_token
from mainspring.kernel.clock import SystemClock
from mainspring.operations.access import failed_sign_ins
from mainspring.roles.assembly import Assembly, assemble
from tests.api.bookkeeping import problem, rows
from tests.api.browsers import BASE, COOKIE, OWN, Browser, browsers, refusal, sign_in
from tests.api.test_authentication import ROUTES
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


async def link(api: httpx.AsyncClient) -> str:
    answer = await api.post("/v1/session/links")
    assert answer.status_code == 201, answer.text
    code: str = answer.json()["code"]
    assert answer.json()["path"] == f"/ui/#code={code}"
    return code


async def test_a_link_signs_in_once(api: httpx.AsyncClient, browser: Browser, connection: asyncpg.Connection) -> None:
    code = await link(api)
    first, second = browser(), browser()
    assert refusal(await first.get("/v1/session")) == (401, "unauthorized", "Authorization")
    headers = await sign_in(first, code=code)
    assert refusal(await second.post("/v1/session", json={"code": code})) == (401, "invalid_link", "code")
    who = (await first.get("/v1/session")).json()
    assert (who["name"], who["role"], who["tenant"]) == ("test", "admin", "default")
    assert who["csrf"] == headers["Mainspring-CSRF"]
    assert (await first.get("/v1/jobs")).status_code == 200
    created = await first.post("/v1/jobs", json={"task": "noop", "job_id": "by-page"}, headers=headers)
    assert created.status_code == 201
    for secret in (code, first.cookies[COOKIE]):
        for table in ("sessions", "sign_in_links", "tokens"):
            assert secret not in str([dict(row) for row in await connection.fetch(f"select * from mainspring.{table}")])


async def test_of_two_that_use_a_link_at_the_same_time_one_signs_in(api: httpx.AsyncClient, browser: Browser) -> None:
    code = await link(api)
    answers = await asyncio.gather(*(browser().post("/v1/session", json={"code": code}) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] + [401] * 7


async def test_a_link_ends_after_five_minutes_and_with_its_token(
    tenants: Tenants, browser: Browser, connection: asyncpg.Connection
) -> None:
    code = await link(tenants.operator)
    left = "select extract(epoch from expires_at - clock_timestamp())::float8 from mainspring.sign_in_links"
    assert 200 < await connection.fetchval(left) <= 300
    await connection.execute("update mainspring.sign_in_links set expires_at = clock_timestamp()")
    assert refusal(await browser().post("/v1/session", json={"code": code}))[:2] == (401, "invalid_link")
    made = await tenants.token(role="viewer")
    code = await link(await tenants.client(made["token"]))
    assert await connection.fetchval("select count(*) from mainspring.sign_in_links") == 1, "expired ones are deleted"
    await tenants.operator.post(f"/v1/tokens/{made['token_id']}:revoke")
    assert refusal(await browser().post("/v1/session", json={"code": code}))[:2] == (401, "invalid_link")


async def test_the_cookie_is_for_this_server_and_out_of_reach_of_scripts(browser: Browser) -> None:
    for base, name, secure in ((BASE, COOKIE, False), ("https://127.0.0.1:8700", "__Host-mainspring", True)):
        answer = await browser(base).post("/v1/session", json={"token": TOKEN}, headers={"Origin": base})
        value, *attributes = answer.headers["set-cookie"].split("; ")
        assert value.startswith(f"{name}=") and len(value) == len(name) + 44
        assert set(attributes) == {"Path=/", "Max-Age=604800", "HttpOnly", "SameSite=Strict"} | (
            {"Secure"} if secure else set()
        )


async def test_behind_a_proxy_that_ends_tls_the_cookie_is_secure(database_url: str, browser: Browser) -> None:
    """The browser names its page, of https, in Origin. Headers of proxies are not believed."""
    host, secure = "mainspring.example.com", "__Host-mainspring"
    assembly = await assemble(database_url, SystemClock(), host="127.0.0.1", allow_hosts=[host], scheduler=False)
    try:
        client = browser(f"http://{host}", assembly.app)
        own = {"Origin": f"https://{host}", "Sec-Fetch-Site": "same-origin"}
        answer = await client.post("/v1/session", json={"token": TOKEN}, headers=own)
        value, *attributes = answer.headers["set-cookie"].split("; ")
        assert value.startswith(f"{secure}=") and {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes)
        own |= {"Cookie": value, "Mainspring-CSRF": answer.json()["csrf"]}
        planted = {"Cookie": f"mainspring-80=planted; {value}"}  # by a page without TLS
        assert (await client.get("/v1/session", headers=planted)).json()["csrf"] == own["Mainspring-CSRF"]
        assert (await client.post("/v1/jobs", json={"task": "noop"}, headers=own)).status_code == 201
        for change, field in (
            ({"Origin": f"http://{host}"}, "Authorization"),
            ({"Sec-Fetch-Site": ""}, "Sec-Fetch-Site"),
        ):
            assert refusal(await client.post("/v1/jobs", json={"task": "noop"}, headers=own | change))[2] == field
        assert (await client.delete("/v1/session", headers=own)).headers["set-cookie"].startswith(f"{secure}=;")
        forged = await client.post("/v1/session", json={"token": TOKEN}, headers={"X-Forwarded-Proto": "https"})
        assert forged.headers["set-cookie"].startswith("mainspring-80=")
    finally:
        await assembly.close()


async def test_a_cookie_of_another_port_of_loopback_is_not_taken(browser: Browser) -> None:
    """A browser sends the cookie of https://127.0.0.1:8443 to http://127.0.0.1:8700 as well."""
    client = browser()
    await sign_in(client, token=TOKEN)
    both = f"__Host-mainspring=of-another; {COOKIE}={client.cookies[COOKIE]}"
    assert (await browser().get("/v1/session", headers={"Cookie": both})).status_code == 200


async def test_a_token_signs_in_unless_it_is_for_workers(tenants: Tenants, browser: Browser) -> None:
    await sign_in(browser(), token=TOKEN)
    for worker in (await tenants.token(role="worker"), await tenants.token(role="worker", tenants="all")):
        answer = await browser().post("/v1/session", json={"token": worker["token"]})
        assert refusal(answer) == (403, "worker_token", "token")
        assert refusal(await (await tenants.client(worker["token"])).post("/v1/session/links"))[1] == "worker_token"
    for body, code in (
        ({"token": "ms_nobody"}, "invalid_token"), ({"code": "x"}, "invalid_link"), ({}, "invalid_input"),
        ({"code": "x", "token": TOKEN}, "invalid_input"), ({"cod": "x"}, "unknown_field"),
        ({"code": 5}, "invalid_input"),
    ):  # fmt: skip
        answer = await browser().post("/v1/session", json=body)
        assert problem(answer)["code"] == code, body
        assert "set-cookie" not in answer.headers


async def test_a_change_needs_the_own_origin_and_the_token_of_the_page(
    browser: Browser, connection: asyncpg.Connection
) -> None:
    client = browser()
    headers = await sign_in(client, token=TOKEN)
    before = await rows(connection)
    body = {"task": "noop"}
    for change, field in (
        ({"Origin": None}, "Origin"), ({"Origin": "http://127.0.0.1:9000"}, "Origin"),
        ({"Origin": "http://localhost:8700"}, "Origin"), ({"Origin": "null"}, "Origin"),
        ({"Sec-Fetch-Site": None}, "Sec-Fetch-Site"), ({"Sec-Fetch-Site": "same-site"}, "Sec-Fetch-Site"),
        ({"Sec-Fetch-Site": "cross-site"}, "Sec-Fetch-Site"), ({"Sec-Fetch-Site": "none"}, "Sec-Fetch-Site"),
        ({"Mainspring-CSRF": None}, "Mainspring-CSRF"), ({"Mainspring-CSRF": csrf_token("x")}, "Mainspring-CSRF"),
        ({"Mainspring-CSRF": "ä"}, "Mainspring-CSRF"),
    ):  # fmt: skip
        sent = {name: value.encode() for name, value in {**headers, **change}.items() if value is not None}
        for method, url in (("POST", "/v1/jobs"), ("DELETE", "/v1/session")):
            answer = await client.request(method, url, json=body if method == "POST" else None, headers=sent)
            assert refusal(answer)[::2] == (403, field), (change, answer.text)
            assert problem(answer)["code"] in ("wrong_origin", "wrong_csrf")
    plain = await client.post(
        "/v1/jobs", content=b'{"task": "noop"}', headers={**headers, "Content-Type": "text/plain"}
    )
    assert refusal(plain)[:2] == (415, "unsupported_media_type")
    assert await rows(connection) == before
    for site in ("same-site", "cross-site"):  # a page of another port
        assert refusal(await client.get("/v1/jobs", headers={"Sec-Fetch-Site": site}))[1] == "wrong_origin"
    assert (await client.get("/v1/jobs", headers={"Sec-Fetch-Site": "none"})).status_code == 200


async def test_another_page_cannot_sign_a_browser_in(browser: Browser, connection: asyncpg.Connection) -> None:
    for headers in (
        {"Origin": "http://127.0.0.1:9000"},
        {"Sec-Fetch-Site": "same-site"},
        {"Content-Type": "text/plain"},
    ):
        answer = await browser().post("/v1/session", content=f'{{"token": "{TOKEN}"}}', headers=headers)
        assert answer.status_code in (403, 415), headers
    assert await connection.fetchval("select count(*) from mainspring.sessions") == 0


async def test_where_browsers_do_not_send_sec_fetch_site_the_origin_and_the_token_decide(
    database_url: str, browser: Browser
) -> None:
    """Plain HTTP beyond loopback (--insecure-http)."""
    assembly = await assemble(database_url, SystemClock(), host="10.1.2.3", scheduler=False)
    try:
        client = browser("http://10.1.2.3:8700", assembly.app)
        headers = await sign_in(client, token=TOKEN)
        del headers["Sec-Fetch-Site"]
        assert (await client.post("/v1/jobs", json={"task": "noop"}, headers=headers)).status_code == 201
        headers["Mainspring-CSRF"] = "x"
        assert refusal(await client.post("/v1/jobs", json={"task": "noop"}, headers=headers))[1] == "wrong_csrf"
    finally:
        await assembly.close()


async def test_two_cookies_of_the_same_name_are_no_session(browser: Browser) -> None:
    client = browser()
    await sign_in(client, token=TOKEN)
    twice = f"{COOKIE}={client.cookies[COOKIE]}; {COOKIE}=planted"
    assert refusal(await browser().get("/v1/jobs", headers={"Cookie": twice})) == (401, "invalid_session", "Cookie")
    for cookie in ("", f"{COOKIE}=", "mainspring-9000=x", f"x{COOKIE}=x"):
        assert refusal(await browser().get("/v1/jobs", headers={"Cookie": cookie}))[1] == "unauthorized"
    for host in ("127.0.0.1:x", "127.0.0.1:99999"):
        assert (await browser().get("/v1/jobs", headers={"Host": host, "Cookie": "a=b"})).status_code == 401


async def test_a_secret_of_a_session_is_no_token_and_a_token_no_cookie(browser: Browser) -> None:
    client = browser()
    await sign_in(client, token=TOKEN)
    secret = client.cookies[COOKIE]
    assert refusal(await browser().get("/v1/jobs", headers={"Authorization": f"Bearer {secret}"}))[1] == "invalid_token"
    assert refusal(await browser().get("/v1/jobs", headers={"Cookie": f"{COOKIE}={TOKEN}"}))[1] == "invalid_session"


# --- the end


async def test_signing_out_ends_the_session_at_every_server(
    browser: Browser, database_url: str, api: httpx.AsyncClient
) -> None:
    async with AsyncExitStack() as stack:
        other = await assemble(database_url, SystemClock(), scheduler=False)
        stack.push_async_callback(other.close)
        client = browser()
        headers = await sign_in(client, token=TOKEN)
        cookie = {"Cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
        assert (await client.get("/v1/jobs")).status_code == 200
        out = await client.delete("/v1/session", headers=headers)
        assert (out.status_code, out.json()["name"]) == (200, "test")
        assert f"{COOKIE}=; " in out.headers["set-cookie"] and "Max-Age=0" in out.headers["set-cookie"]
        for app in (None, other.app):
            stale = browser() if app is None else browser(BASE, app)
            assert refusal(await stale.get("/v1/jobs", headers=cookie)) == (401, "invalid_session", "Cookie")
    assert refusal(await api.delete("/v1/session")) == (403, "session_needed", "Authorization")


async def test_a_session_ends_at_once_when_its_token_is_revoked(tenants: Tenants, browser: Browser) -> None:
    made = await tenants.token(role="admin")
    client = browser()
    await sign_in(client, token=made["token"])
    assert (await client.get("/v1/jobs")).status_code == 200  # the server now remembers the session
    assert (await tenants.operator.post(f"/v1/tokens/{made['token_id']}:revoke")).status_code == 200
    assert refusal(await client.get("/v1/jobs")) == (401, "invalid_session", "Cookie")


@pytest.mark.parametrize(
    "ending",
    [
        "update mainspring.sessions set expires_at = clock_timestamp()",
        "update mainspring.sessions set seen_at = clock_timestamp() - interval '12 hours'",
        "update mainspring.tokens set expires_at = clock_timestamp() where name = 'short'",
    ],
    ids=["seven days", "idle", "its token expired"],
)
async def test_a_session_ends_by_itself(
    tenants: Tenants, browser: Browser, connection: asyncpg.Connection, ending: str
) -> None:
    made = await tenants.token(role="viewer", name="short", expires_in="8d")
    client = browser()
    await sign_in(client, token=made["token"])
    await connection.execute(ending)
    assert refusal(await client.get("/v1/jobs")) == (401, "invalid_session", "Cookie")


async def test_a_session_lasts_seven_days_or_as_long_as_its_token_and_a_use_is_noted(
    tenants: Tenants, browser: Browser, connection: asyncpg.Connection
) -> None:
    made = await tenants.token(role="viewer", expires_in="1h")
    for token, least, most in ((TOKEN, 6.9 * 86400, 7 * 86400), (made["token"], 3000, 3600)):
        client = browser()
        await sign_in(client, token=token)
        who = (await client.get("/v1/session")).json()
        left = "select extract(epoch from $1::text::timestamptz - clock_timestamp())::float8"
        assert least < await connection.fetchval(left, who["expires_at"]) <= most
    await connection.execute("update mainspring.sessions set seen_at = clock_timestamp() - interval '11 hours'")
    client = browser()
    await sign_in(client, token=TOKEN)
    await connection.execute("update mainspring.sessions set seen_at = clock_timestamp() - interval '11 hours'")
    assert (await client.get("/v1/jobs")).status_code == 200
    used = "select count(*) from mainspring.sessions where seen_at > clock_timestamp() - interval '1 hour'"
    assert await connection.fetchval(used) == 1


async def test_a_log_is_followed_with_a_session(browser: Browser, api: httpx.AsyncClient) -> None:
    client = browser()
    headers = await sign_in(client, token=TOKEN)
    run_id = (await api.post("/v1/jobs", json={"task": "x"})).json()["job_id"]
    assert (await client.post(f"/v1/runs/{run_id}:cancel", headers=headers)).status_code == 202
    assert "CANCELLED" in (await client.get(f"/v1/runs/{run_id}/logs?follow=true")).text


# --- roles


async def test_a_session_makes_no_links(browser: Browser) -> None:
    client = browser()
    headers = await sign_in(client, token=TOKEN)
    assert refusal(await client.post("/v1/session/links", headers=headers))[:2] == (403, "token_needed")


async def test_a_viewer_reads_what_is_of_its_tenant_and_changes_nothing(
    tenants: Tenants, browser: Browser, connection: asyncpg.Connection
) -> None:
    await tenants.add("acme")
    await tenants.token(role="worker", name="pool", tenants="all")
    made = await tenants.token(role="viewer", name="eyes")
    await tenants.operator.post("/v1/jobs", json={"task": "noop", "job_id": "j", "schedule": "@daily"})
    client = browser()
    headers = await sign_in(client, token=made["token"])
    before, held = await rows(connection), await connection.fetchval("select count(*) from mainspring.tokens")
    for method, url in ROUTES:
        body = {"task": "noop"} if method in ("POST", "PUT", "PATCH") else None
        answer = await client.request(method, url, json=body, headers=headers)
        if method == "GET":
            assert answer.status_code in (200, 404), url
        else:
            assert refusal(answer)[:2] == (403, "role_not_allowed"), (method, url)
    assert (await client.post("/v1/tokens", json={"role": "admin", "name": "x"}, headers=headers)).status_code == 403
    assert [row["name"] for row in (await client.get("/v1/tenants")).json()["tenants"]] == ["default"]
    listed = [row["name"] for row in (await client.get("/v1/tokens")).json()["tokens"]]
    assert sorted(listed) == ["eyes", "test"], "not those of shared workers"
    assert await rows(connection) == before
    assert await connection.fetchval("select count(*) from mainspring.tokens") == held


async def test_a_link_does_not_replace_a_session_unless_that_is_said(tenants: Tenants, browser: Browser) -> None:
    """A stranger can send a link. What is done afterwards would be done in the stranger's tenant."""
    own = browser()
    headers = await sign_in(own, code=await link(tenants.operator))
    stranger = await tenants.client((await tenants.token(role="viewer"))["token"])
    code = await link(stranger)
    for body in ({"code": code}, {"code": code, "replace": False}):
        answer = await own.post("/v1/session", json=body, headers=headers)
        assert refusal(answer) == (409, "signed_in", "replace") and "set-cookie" not in answer.headers
    assert (await own.get("/v1/session")).json()["role"] == "admin", "the session is as it was"
    asked = await own.post("/v1/session", json={"code": code, "preview": True}, headers=headers)
    assert asked.status_code == 200 and "set-cookie" not in asked.headers
    named = (await stranger.get("/v1/session")).json()
    assert asked.json() == {"name": named["name"], "role": "viewer", "tenant": named["tenant"], "csrf": None}
    replaced = await own.post("/v1/session", json={"code": code, "replace": True}, headers=headers)
    assert replaced.status_code == 201 and replaced.json()["name"] == named["name"]
    assert (await own.get("/v1/session")).json()["role"] == "viewer"
    # It has been used now, by the one who said so.
    assert refusal(await browser().post("/v1/session", json={"code": code, "preview": True}))[:2] == (
        401, "invalid_link",
    )  # fmt: skip


async def test_without_a_session_a_link_signs_in_and_says_as_whom(
    api: httpx.AsyncClient, browser: Browser, connection: asyncpg.Connection
) -> None:
    client = browser()
    answer = await client.post("/v1/session", json={"code": await link(api)}, headers=OWN)
    assert answer.status_code == 201
    assert {key: answer.json()[key] for key in ("name", "role", "tenant")} == {
        "name": "test", "role": "admin", "tenant": "default",
    }  # fmt: skip
    await connection.execute("update mainspring.sessions set expires_at = clock_timestamp()")
    again = await client.post("/v1/session", json={"code": await link(api)}, headers=OWN)
    assert again.status_code == 201, "a session that has ended is none"


async def test_failed_sign_ins_are_logged_and_counted_without_their_secrets(
    api: httpx.AsyncClient, browser: Browser, tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def counted() -> dict[str, float]:
        lines = (await api.get("/metrics")).text.splitlines()
        found = [line for line in lines if line.startswith("mainspring_sign_ins_failed_total{")]
        return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in found}

    before = await counted()
    lines: list[dict[str, object]] = []
    monkeypatch.setattr(
        failed_sign_ins.log, "warning", lambda text, **fields: lines.append({"text": text, **fields}), raising=False
    )
    worker = await tenants.token(role="worker")
    client = browser()
    for body in ({"code": "guessed-code"}, {"token": "guessed-token"}, {"token": worker["token"]}):
        await client.post("/v1/session", json=body, headers=OWN)
    assert (await client.get("/v1/jobs", headers={"Authorization": "Bearer guessed-bearer"})).status_code == 401
    assert (await client.get("/v1/jobs")).status_code == 401, "nothing was tried"
    after = await counted()
    grown = {reason: after[reason] - before.get(reason, 0) for reason in after}
    assert {reason: count for reason, count in grown.items() if count} == {
        "invalid_link": 1, "invalid_token": 2, "worker_token": 1,
    }  # fmt: skip
    assert lines == [{"text": "a sign-in failed", "reason": "invalid_link", "address": "127.0.0.1"}], "one for a while"


async def test_a_session_makes_no_token_that_outlives_it_unless_its_token_is_typed_again(
    api: httpx.AsyncClient, browser: Browser, tenants: Tenants
) -> None:
    client = browser()
    headers = await sign_in(client, token=TOKEN)
    other = await tenants.token(role="admin")

    async def create(**body: object) -> httpx.Response:
        return await client.post("/v1/tokens", json={"name": "eyes", "role": "viewer", **body}, headers=headers)

    for role in ("viewer", "worker", "admin"):
        for more in ({}, {"expires_in": "8d"}):
            assert refusal(await create(role=role, **more)) == (403, "token_needed", "token")
        assert refusal(await create(role=role, token=other["token"])) == (403, "wrong_token", "token")
        assert refusal(await create(role=role, token="ms_guessed")) == (403, "wrong_token", "token")
        assert (await create(role=role, token=TOKEN)).status_code == 201
    short = await create(expires_in="1h")
    assert short.status_code == 201, "it ends before the session"
    assert refusal(await create(role="admin", expires_in="1h"))[:2] == (403, "token_needed"), "it could make others"
    for body, wanted in (({}, 403), ({"token": TOKEN}, 201)):
        made = await client.post("/v1/tenants", json={"name": "acme-2", **body}, headers=headers)
        assert made.status_code == wanted, made.text
    # With a token instead of a session nothing has to be typed.
    assert (await api.post("/v1/tokens", json={"name": "eyes", "role": "admin"})).status_code == 201
