"""Every change leaves an entry in the audit, in its own transaction: who, from where, what, before and after."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.api.app import app_without_a_server
from mainspring.api.handlers import routed_handlers
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.operations.secrets.master_keys import new_key
from mainspring.roles.assembly import Assembly
from mainspring.store import tokens
from tests.api.bookkeeping import problem
from tests.api.browsers import OWN, browsers, sign_in
from tests.conftest import TOKEN
from tests.operations.bulk import performer_of
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.people import ADA, OTHER, PASSWORD, cheap_hashes
from tests.operations.workflows.scene import Scene

pytestmark = pytest.mark.anyio

# Routes that are no GET and write no entry.
WITHOUT_AN_ENTRY = {
    "jobs.create": "the row of the job says who submitted it",
    "jobs.create_batch": "the rows of the jobs say who submitted them",
    "jobs.validate": "it changes nothing",
    "files.plan": "it changes nothing",
    "files.export": "it changes nothing",
    "channels.test": "it sends a message, which the notifications list",
    "sinks.test": "it sends a message",
    "sources.take": "the events and jobs say who has brought them",
    "events.emit": "the event says who has emitted it",
    "events.emit_batch": "the events say who has emitted them",
    "events.test": "it changes nothing",
    "workflows.validate": "it changes nothing",
    "schedules.preview": "it changes nothing",
    "calendars.preview": "it changes nothing",
    "schedules.explain": "it changes nothing",
    "callbacks.take": "the run has what was sent as its result",
    "session.begin": "nobody is signed in yet",
    "session.answer": "its entries need a provider: test_providers.py",
    "worker.exchange": "claims and ends of runs are no changes; a worker that is lost has an entry",
    "worker.gone": "the worker that is lost has an entry",
    "worker.ship_logs": "the output of runs is no change",
}
HOURLY = {"task": "noop", "schedule": "@hourly"}
Entry = dict[str, Any]


async def entries(api: httpx.AsyncClient, **chosen: Any) -> list[Entry]:
    answer = await api.get("/v1/audit", params=chosen)
    assert answer.status_code == 200, answer.text
    found: list[Entry] = answer.json()["entries"]
    return found


async def made(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={**HOURLY, **fields})
    assert answer.status_code == 201, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


class Walk:
    """Sends changes, and expects one entry for each."""

    def __init__(self, api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
        self.api = api
        self.connection = connection
        self.walked: set[tuple[str, str]] = set()

    async def __call__(
        self, method: str, path: str, json: Any = None, by: httpx.AsyncClient | None = None, **options: Any
    ) -> Any:
        before = await self.operations()
        answer = await (by or self.api).request(method, path, json=json, **options)
        assert answer.status_code < 300, answer.text
        handler = app_without_a_server().table.find(path, method).handler
        operation = handler.operation
        self.walked.add((method, operation))
        assert (await self.operations())[len(before) :] == [operation], f"{method} {path}"
        return answer.json()

    async def operations(self) -> list[str]:
        """Those of all entries, oldest first."""
        rows = await self.connection.fetch("select operation from mainspring.audit_entries order by at, entry_id")
        return [row[0] for row in rows]


async def dead(api: httpx.AsyncClient, number: int) -> list[str]:
    for _ in range(number):
        await made(api, schedule="now", retries=0)
    worker = HandWorker(api)
    orders = await worker.claim(number)
    await worker.report(*(outcome(order, "FAILED", error="boom") for order in orders))
    return [str(order.run_id) for order in orders]


async def test_every_route_that_changes_something_writes_one_entry(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    walk, app = Walk(api, connection), app_without_a_server()
    await of_jobs_and_runs(walk, assembly)
    await of_workflows(walk, Scene(assembly, api, connection))
    await of_limits(walk, connection)
    await of_secrets_and_channels(walk, assembly, connection)
    await of_access(walk, assembly)
    with cheap_hashes():
        await of_people(walk, assembly, connection)
    changing = {
        (handler.method, handler.operation)
        for _, handler in routed_handlers(app)
        if handler.method != "GET" and handler.operation not in WITHOUT_AN_ENTRY
    }
    assert changing == walk.walked, "a route that changes something needs an entry, or a reason why it has none"


async def of_jobs_and_runs(walk: Walk, assembly: Assembly) -> None:
    api = walk.api
    job = await made(api, job_id="report")
    await walk("PATCH", f"/v1/jobs/{job}", {"queue": "mails"})
    await walk("PUT", f"/v1/jobs/{job}", {**HOURLY, "priority": "high"})
    await walk("POST", f"/v1/jobs/{job}:pause")
    await walk("POST", f"/v1/jobs/{job}:resume")
    run = await walk("POST", f"/v1/jobs/{job}:run-now", {"payload": {"account": 42}})
    await walk("POST", f"/v1/runs/{run['run_id']}:cancel", {})
    await walk("POST", f"/v1/runs/{run['run_id']}:retry", {})
    first, second, *_ = await dead(api, 6)
    await walk("POST", f"/v1/dead-letters/{first}:replay", {})
    await walk("POST", f"/v1/dead-letters/{second}:discard", {})
    await walk("POST", "/v1/dead-letters:replay", {"all": True, "limit": 2})
    await walk("POST", "/v1/dead-letters:discard", {"all": True, "limit": 1})
    times = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
    backfill = await walk("POST", f"/v1/jobs/{job}:backfill", times)
    await walk("PATCH", f"/v1/backfills/{backfill['id']}", {"concurrency": 3})
    for verb in ("pause", "resume", "cancel"):
        await walk("POST", f"/v1/backfills/{backfill['id']}:{verb}", {})
    others = [await made(api) for _ in range(3)]
    operation = await walk("POST", "/v1/jobs:act", {"verb": "pause", "ids": others})
    before = await walk.operations()
    await performer_of(assembly).run_once()
    assert await walk.operations() == before, "one entry for all"
    assert operation["count"] == 3
    more = await walk("POST", "/v1/runs:act", {"verb": "cancel", "ids": [run["run_id"]]})
    await walk("POST", f"/v1/operations/{more['id']}:cancel")
    await walk("POST", "/v1/dead-letters:act", {"verb": "discard", "ids": [first]})
    await walk("DELETE", f"/v1/jobs/{job}")
    declared = await made(api, job_id="declared", declared_by="shop")
    declaration = {"fingerprint": "a", "source": "a", "job_ids": [declared], "prune": True}
    assert (await api.put("/v1/applications/shop", json=declaration)).is_success
    await walk("PUT", "/v1/applications/shop", {**declaration, "fingerprint": "b", "job_ids": []})
    [entry] = await entries(api, kind="job", id=declared)
    assert (entry["before"]["status"], entry["after"]["status"]) == ("SCHEDULED", "PAUSED")


async def of_workflows(walk: Walk, scene: Scene) -> None:
    workflow = {"name": "nightly", "schedule": "@daily", "steps": [{"name": "one", "task": "noop"}]}
    created = await walk("POST", "/v1/workflows", workflow)
    path = f"/v1/workflows/{created['workflow_id']}"
    await walk("PATCH", path, {"priority": "high"})
    await walk("PUT", path, {**workflow, "steps": [{"name": "two", "task": "noop"}]})
    await walk("POST", f"{path}:pause")
    await walk("POST", f"{path}:resume")
    run = (await walk("POST", f"{path}:runNow", {}))["run_id"]
    await scene.starter.run_once()
    await scene.run_all(lambda order: outcome(order, "FAILED", error="no", retry=False))
    await walk("POST", f"/v1/workflow-runs/{run}:rerun", {})
    await walk("POST", f"/v1/workflow-runs/{run}:cancel", {})
    await walk("DELETE", path)
    gates = {"steps": [{"name": name, "wait": {"approval": name}} for name in ("one", "two")]}
    await scene.begin((await walk("POST", "/v1/workflows", gates))["workflow_id"])
    first, second = (await walk.api.get("/v1/approvals")).json()["approvals"]
    await walk("POST", f"/v1/approvals/{first['run_id']}:approve", {})
    await walk("POST", f"/v1/approvals/{second['run_id']}:reject", {"reason": "no"})


async def of_limits(walk: Walk, connection: asyncpg.Connection) -> None:
    api = walk.api
    await walk("PUT", "/v1/queues/mails", {"concurrency": 5})
    await walk("POST", "/v1/queues/mails:pause")
    await walk("POST", "/v1/queues/mails:resume")
    await walk("PUT", "/v1/tenant/limits", {"concurrency": 500})
    await walk("POST", "/v1/pause", {})
    await walk("POST", "/v1/resume", {})
    await walk("PUT", "/v1/calendars/holidays", {"dates": ["2026-12-25"]})
    await walk("DELETE", "/v1/calendars/holidays")
    await made(api, job_id="limited", schedule="now", concurrency=2, circuit_breaker={"failures": 9, "open_for": "1h"})
    [limit] = [one for one in (await api.get("/v1/limits")).json()["limits"] if one["name"] == "job:limited"]
    await walk("PUT", f"/v1/limits/{limit['limit_id']}", {"limit": 7})
    [breaker] = (await api.get("/v1/breakers")).json()["breakers"]
    await connection.execute("update mainspring.limit_keys set failed = 3 where limit_id = $1", breaker["breaker_id"])
    await walk("POST", f"/v1/breakers/{breaker['breaker_id']}:reset")
    worker = HandWorker(api)
    await worker.hello()
    await walk("POST", f"/v1/workers/{worker.worker_id}:drain")


async def of_access(walk: Walk, assembly: Assembly) -> None:
    await walk("POST", "/v1/tenants", {"name": "acme"})
    await walk("PUT", "/v1/tenants/default/quotas", {"stored_jobs": 1000})
    token = await walk("POST", "/v1/tokens", {"name": "ci", "role": "viewer"})
    await walk("POST", f"/v1/tokens/{token['token_id']}:revoke")
    await walk("POST", "/v1/session/links")
    async with browsers(assembly) as another:
        for _ in range(2):
            await walk("POST", "/v1/session", {"token": TOKEN}, by=another(), headers=OWN)
        browser = another()
        changes = await sign_in(browser, token=TOKEN)
        await walk("DELETE", "/v1/session", by=browser, headers=changes)
    [session, _] = (await walk.api.get("/v1/sessions")).json()["sessions"]
    await walk("POST", f"/v1/sessions/{session['session_id']}:end")


async def of_people(walk: Walk, assembly: Assembly, connection: asyncpg.Connection) -> None:
    ada = await walk("POST", "/v1/users", {**ADA, "role": "operator"})
    async with browsers(assembly) as another:
        browser = another()
        accepted = {"code": ada["code"], "password": PASSWORD}
        begun = await walk("POST", "/v1/user/accept", accepted, by=browser, headers=OWN)
        changes = {**OWN, "Mainspring-CSRF": begun["csrf"]}
        passwords = {"password": PASSWORD, "new_password": OTHER}
        await walk("POST", "/v1/user/password", passwords, by=browser, headers=changes)
        wanted = {"name": "laptop", "password": OTHER}
        token = await walk("POST", "/v1/user/tokens", wanted, by=browser, headers=changes)
        path = f"/v1/user/tokens/{token['token_id']}:revoke"
        await walk("POST", path, by=browser, headers=changes)
        await walk("POST", "/v1/user/tenant", {"tenant": "default"}, by=browser, headers=changes)
    await walk("POST", f"/v1/users/{ada['user_id']}:role", {"role": "viewer"})
    for verb in ("reset", "disable", "enable"):
        await walk("POST", f"/v1/users/{ada['user_id']}:{verb}")
    await walk("DELETE", f"/v1/users/{ada['user_id']}")
    texts = await connection.fetch("select concat(before, after) as text from mainspring.audit_entries")
    assert not any(word in row["text"] for row in texts for word in (PASSWORD, OTHER, token["token"], ada["code"]))


async def of_secrets_and_channels(walk: Walk, assembly: Assembly, connection: asyncpg.Connection) -> None:
    key = new_key()

    async def read() -> str:
        return key

    assembly.services.secrets._master_keys._read = read
    await walk("PUT", "/v1/secrets/db-password", {"value": "hunter2-hunter2"})
    await walk("POST", "/v1/secrets:rotateKey")
    await walk("DELETE", "/v1/secrets/db-password")
    await walk(
        "PUT", "/v1/channels/ops", {"kind": "webhook", "url": "https://example.com/hook", "secret": "s3cret-s3cret"}
    )
    await walk("PUT", "/v1/rules/failures", {"on": ["failure"], "to": ["ops"]})
    await walk("POST", "/v1/rules/failures:mute", {"for": "1h"})
    await walk("POST", "/v1/rules/failures:unmute")
    await walk("DELETE", "/v1/rules/failures")
    tested = await walk.api.post("/v1/channels/ops:test")
    message = tested.json()["notification_id"]
    await walk("POST", f"/v1/notifications/{message}:acknowledge")
    await walk("POST", f"/v1/notifications/{message}:send")
    await walk("DELETE", "/v1/channels/ops")
    webhook = {"kind": "webhook", "url": "https://example.com/changes", "secret": "s3cret-s3cret"}
    await walk("PUT", "/v1/sinks/changes", webhook)
    await walk("POST", "/v1/sinks/changes:pause")
    await walk("POST", "/v1/sinks/changes:resume")
    await walk("DELETE", "/v1/sinks/changes")
    message = {"offset": 1, "event": {"name": "order.paid"}}
    taken = {"kind": "kafka", "connector": "a", "partition": "orders/0", "messages": [message]}
    (await walk.api.post("/v1/sources/orders:take", json=taken)).raise_for_status()
    await walk("DELETE", "/v1/sources/orders")
    await walk("PUT", "/v1/tenant/log-retention", {"rules": [{"labels": {"audit": "yes"}, "keep_logs": "1y"}]})
    await walk("PUT", "/v1/views/failing", {"list": "jobs", "filter": {"health": "failing"}})
    await walk("DELETE", "/v1/views/failing")
    days = {"kind": "calendars", "id": "days", "body": {"dates": ["2026-12-25"]}}
    await walk("POST", "/v1/files:apply", {"owner": "repo", "objects": [days]})
    rows = await connection.fetch("select before::text || after::text as text from mainspring.audit_entries")
    assert not any("hunter2" in (row["text"] or "") or "s3cret" in (row["text"] or "") for row in rows)


async def test_an_entry_says_who_from_where_what_before_and_after(api: httpx.AsyncClient) -> None:
    agent = {"User-Agent": "curl/8"}
    job = await made(api, job_id="report", queue="mails")
    await api.patch(f"/v1/jobs/{job}", json={"queue": "bulk", "priority": "high"}, headers=agent)
    [entry] = await entries(api, kind="job", id=job)
    assert (entry["by"], entry["role"], entry["source"], entry["operation"]) == ("test", "admin", "api", "jobs.update")
    assert (entry["address"], entry["client"]) == ("127.0.0.1", "curl/8")
    assert entry["before"] == {"queue": "mails", "priority": "normal"}
    assert entry["after"] == {"queue": "bulk", "priority": "high"}
    [token] = (await api.get("/v1/tokens")).json()["tokens"]
    assert entry["token_id"] == token["token_id"]


async def test_what_changes_nothing_or_is_refused_leaves_no_entry(api: httpx.AsyncClient) -> None:
    job = await made(api, job_id="report")
    await api.post(f"/v1/jobs/{job}:resume")
    await api.patch(f"/v1/jobs/{job}", json={"priority": "normal"})
    assert (await api.patch(f"/v1/jobs/{job}", json={"priority": "x"})).status_code == 422
    assert (await api.patch(f"/v1/jobs/{job}", json={"queue": "a"}, headers={"If-Match": '"9"'})).status_code == 412
    await api.post("/v1/queues/default:resume")
    assert await entries(api) == []


async def test_payloads_and_secrets_are_digests_and_equal_ones_are_equal(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    call = {"url": "https://example.com/a", "headers": {"Authorization": "Bearer s3cret", "X-A": "b"}}
    job = await made(api, task="shell", command="true", env={"API_TOKEN": "hunter2", "MODE": "dry"}, job_id="s")
    await api.patch(
        f"/v1/jobs/{job}", json={"env": {"API_TOKEN": "hunter3", "MODE": "wet", "PLACE": "pg://u:pa55word@db"}}
    )
    await api.patch(f"/v1/jobs/{job}", json={"env": {"API_TOKEN": "hunter2", "MODE": "wet"}})
    back, there = await entries(api, kind="job", id=job)
    assert (there["before"]["env"]["MODE"], there["after"]["env"]["MODE"]) == ("dry", "wet")
    assert there["before"]["env"]["API_TOKEN"] == back["after"]["env"]["API_TOKEN"]
    assert there["before"]["env"]["API_TOKEN"] != back["before"]["env"]["API_TOKEN"]
    assert set(back["after"]["env"]["API_TOKEN"]) == {"digest"}, "not even how long it is"
    other = await made(api, task="http", http=call, job_id="h")
    await api.patch(f"/v1/jobs/{other}", json={"http": {**call, "body": "s3cret body"}})
    paid = await made(api, payload={"card": "4111 1"}, job_id="p")
    await api.patch(f"/v1/jobs/{paid}", json={"payload": {"card": "4222 1"}})
    await api.post(f"/v1/jobs/{paid}:run-now", json={"payload": {"card": "4333 1"}})
    stored = "".join(
        f"{row[0]} {row[1]}" for row in await connection.fetch("select before, after from mainspring.audit_entries")
    )
    assert [text for text in ("hunter", "pa55word", "s3cret", "4111 1", "4222 1", "4333 1") if text in stored] == []
    assert len(await entries(api, limit=1000)) == 5


async def test_large_and_deep_values_are_cut_and_keep_a_digest(api: httpx.AsyncClient) -> None:
    job = await made(api, job_id="large", description="a" * 1900)
    deep: Any = "x"
    for _ in range(60):
        deep = [deep]
    answer = await api.patch(f"/v1/jobs/{job}", json={"description": "b" * 1900, "payload": {"deep": deep}})
    assert answer.status_code == 200, answer.text
    ids = [f"{number:0200}" for number in range(1000)]
    assert (await api.post("/v1/jobs:act", json={"verb": "pause", "ids": ids})).status_code == 202
    act, update = await entries(api)
    assert update["after"]["description"]["begins"] == "b" * 200
    assert update["after"]["description"]["bytes"] == 1902
    assert set(update["after"]["payload"]) == {"digest", "bytes"}
    assert set(act["after"]["ids"]) == {"digest", "bytes"} and act["after"]["count"] == 1000


async def test_only_admins_read_it_and_only_of_their_tenant(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/queues/default:pause")
    answer = await api.post("/v1/tenants", json={"name": "acme"})
    acme = {"Authorization": f"Bearer {answer.json()['admin_token']['token']}"}
    for role in ("operator", "viewer", "metrics", "worker"):
        await tokens.insert(connection, DEFAULT_TENANT, f"ms_{role}", role, role)
        for path in ("/v1/audit", "/v1/audit/chain"):
            refused = await api.get(path, headers={"Authorization": f"Bearer ms_{role}"})
            assert problem(refused)["status"] == 403
    assert (await api.get("/v1/audit", headers=acme)).json()["entries"] == []
    refused = await api.get("/v1/audit/chain?all_tenants=true", headers=acme)
    assert problem(refused)["code"] == "instance_admin_only"
    # An administrator of the instance who makes a token for another tenant leaves a trace in both.
    await api.post("/v1/tokens", json={"name": "rescue", "role": "admin", "tenant": "acme"})
    [theirs] = (await api.get("/v1/audit", headers=acme)).json()["entries"]
    assert (theirs["operation"], theirs["after"]["name"], theirs["by"]) == ("tokens.create", "rescue", "test")
    assert (await entries(api))[0]["operation"] == "tokens.create"
    await api.post("/v1/pause", json={"all_tenants": True})
    [entry] = await entries(api, operation="tenant.pause")
    assert entry["all_tenants"]
    assert len((await api.get("/v1/audit", headers=acme)).json()["entries"]) == 1


async def test_it_is_searched_and_read_page_by_page(api: httpx.AsyncClient) -> None:
    jobs = [await made(api, job_id=f"job-{number}") for number in range(5)]
    for job in jobs:
        await api.post(f"/v1/jobs/{job}:pause")
    await api.post("/v1/queues/a%20b:pause")
    seen, parameters = [], {"limit": "4"}
    while True:
        page = (await api.get("/v1/audit", params=parameters)).json()
        seen += [entry["id"] for entry in page["entries"]]
        if page["next"] is None:
            break
        parameters["cursor"] = page["next"]
    assert seen == ["a b", *reversed(jobs)]
    assert [entry["id"] for entry in await entries(api, operation="queues.pause")] == ["a b"]
    assert [entry["id"] for entry in await entries(api, kind="queue")] == ["a b"]
    assert len(await entries(api, who="test")) == 6
    assert await entries(api, who="nobody") == []
    newest = (await entries(api, limit=1))[0]
    assert len(await entries(api, who=newest["token_id"])) == 6
    assert len(await entries(api, until=newest["at"])) == 5
    assert len(await entries(api, since=newest["at"])) == 1
    for bad in ({"id": "x"}, {"cursor": "x"}, {"since": "x"}, {"limit": "0"}, {"who": "\x01"}, {"color": "red"}):
        assert problem(await api.get("/v1/audit", params=bad))["status"] == 422, bad


async def test_a_change_that_is_not_committed_leaves_no_entry(
    api: httpx.AsyncClient, assembly: Assembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry is written in the transaction of the change: if one of them fails, so does the other."""
    job = await made(api, job_id="report")

    async def fail(*_: Any) -> None:
        raise ConnectionError("the connection is gone")

    monkeypatch.setattr("mainspring.store.audit.insert", fail)
    assert (await api.post(f"/v1/jobs/{job}:pause")).status_code == 503
    monkeypatch.undo()
    assert (await api.get(f"/v1/jobs/{job}")).json()["status"] == "SCHEDULED"
    assert await entries(api) == []
