"""Every route and verb, with every role, narrowed or not, of the own and of a foreign tenant, known and guessed ids."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.api.app import app_without_a_server
from mainspring.api.handlers import routed_handlers
from mainspring.api.reach import reaches
from mainspring.domain.narrowing import Narrowing
from mainspring.kernel.clock import SystemClock
from mainspring.kernel.ids import uuid7
from mainspring.operations.access.permissions import PURPOSES, WORKER
from mainspring.operations.secrets.master_keys import new_key
from mainspring.roles.assembly import Assembly, assemble
from tests.api.bookkeeping import problem
from tests.api.test_narrowed_tokens import make_all
from tests.operations.tenants import Tenants, several_tenants

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

MARK = "private-7f3a"
KEY = new_key()
OUTSIDE = {"queue": MARK, "task": f"{MARK}.run", "payload": {"x": MARK}, "labels": {"team": MARK}}
REACH = {"queues": ["elsewhere"]}
TABLES = (
    "jobs",
    "runs",
    "run_history",
    "dead_letters",
    "workers",
    "replays",
    "tokens",
    "backfills",
    "operations",
    "gates",
    "calendars",
    "channels",
    "rules",
    "secrets",
    "views",
    "events",
    "limits",
    "file_objects",
    "tenant_quotas",
    "notifications",
    "waits",
    "sinks",
    "sources",
    "source_dead_messages",
    "log_retention",
    "calendar_versions",
    "workflow_versions",
)
_REFUSALS = {"role_not_allowed", "worker_token", "narrowed_token"}
# What belongs to a tenant under an id of its own. Names of queues and calendars exist in each tenant apart.
_IDS = {
    "job_id", "run_id", "workflow_id", "worker_id", "backfill_id", "operation_id", "token_id", "session_id", "event_id",
    "notification_id", "limit_id", "breaker_id", "fingerprint", "user",
}  # fmt: skip

Requests = list[tuple[str, str, Any, set[str]]]


async def _master_key() -> str | None:
    return KEY


@pytest.fixture
async def assembly(database_url: str) -> AsyncIterator[Assembly]:
    """With a master key, so that there are secrets."""
    made = await assemble(database_url, SystemClock(), chance=lambda: 0.5, read_keys=_master_key)
    yield made
    await made.close()


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        await made.add("foreign")
        yield made


async def everything(connection: asyncpg.Connection) -> dict[str, Any]:
    found = {}
    for table in TABLES:
        rows = f"select (select json_agg(t order by t::text) from mainspring.{table} t where tenant_id = 1)::text"
        found[table] = await connection.fetchval(rows)
    return found


def requests(ids: dict[str, str]) -> Iterator[tuple[str, str, Any, set[str]]]:
    """Method, path, handler and the names in the path. The stream does not end, and is tested by itself."""
    for route, handler in routed_handlers(app_without_a_server()):
        if not handler.roles or handler.operation == "stream.read":
            continue
        path = route.path
        for name in re.findall(r"\{(\w+)", path):
            named = "dead" if name == "run_id" and "dead-letters" in path else name
            if name == "run_id" and ("/approvals/" in path or "/workflow-runs/" in path):
                named = path.split("/")[2]
            path = path.replace("{" + name + "}", ids.get(named, "x"))
        yield handler.method, path, handler, set(re.findall(r"\{(\w+)", route.path))


async def make_more(api: httpx.AsyncClient) -> dict[str, str]:
    """One of each of the other kinds of object, called MARK. Returns the ids of those that have one, by their names in
    paths."""

    async def made(method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await api.request(method, path, json=body)
        assert answer.status_code in (200, 201, 202), (path, answer.text)
        found: dict[str, Any] = answer.json()
        return found

    await made("PUT", f"/v1/calendars/{MARK}", {"weekdays": ["MON"], "description": MARK})
    await made("PUT", f"/v1/secrets/{MARK}", {"value": f"value-of-{MARK}"})
    await made("PUT", f"/v1/views/{MARK}", {"list": "jobs", "filter": {"q": MARK}})
    await made("PUT", f"/v1/channels/{MARK}", {"kind": "webhook", "url": f"http://127.0.0.1:9/{MARK}", "secret": "s"})
    await made("PUT", f"/v1/rules/{MARK}", {"on": ["failure"], "to": [MARK]})
    event = await made("POST", "/v1/events", {"name": f"{MARK}.paid", "payload": {"x": MARK}})
    await made("PUT", f"/v1/sinks/{MARK}", {"kind": "webhook", "url": f"https://example.com/{MARK}", "secret": "s"})
    message = {"offset": 1, "dead": {"reason": MARK, "value": MARK}}
    taken = {"kind": "kafka", "connector": MARK, "partition": f"{MARK}/0", "messages": [message]}
    await made("POST", f"/v1/sources/{MARK}:take", taken)
    await made("PUT", "/v1/tenant/log-retention", {"rules": [{"labels": {"team": MARK}, "keep_logs": "1y"}]})
    step = {"name": "a", "wait": {"approval": MARK, "by": ["role:admin"]}}
    await made("POST", "/v1/workflows", {"workflow_id": f"{MARK}-approved", "steps": [step]})
    flow = await made("POST", f"/v1/workflows/{MARK}-approved:runNow", {})
    limited = {"task": f"{MARK}.limited", "queue": MARK, "concurrency": 1, "payload": {"x": MARK}}
    await made("POST", "/v1/jobs", limited)
    [limit] = (await api.get("/v1/limits")).json()["limits"]
    user = await made("POST", "/v1/users", {"mail": f"{MARK}@example.com", "name": MARK, "role": "viewer"})
    return {
        "event_id": str(event["id"]), "workflow-runs": flow["run_id"], "approvals": flow["run_id"],
        "limit_id": str(limit["limit_id"]), "breaker_id": str(limit["limit_id"]), "user": str(user["user_id"]),
        "notification_id": str(uuid7()), "fingerprint": "0" * 16, "tenant": "default", "application": MARK,
    }  # fmt: skip


async def send(client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    answer = await client.request(method, path, json=None if method in ("GET", "DELETE") else {})
    assert answer.status_code < 500, (method, path, answer.text)
    return answer


async def test_the_matrix(tenants: Tenants, api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    runs = await make_all(api, MARK, OUTSIDE)
    past = {"from": "2025-03-01T00:00:00Z", "to": "2025-03-02T00:00:00Z"}
    backfill = (await api.post(f"/v1/jobs/{MARK}-daily:backfill", json=past)).json()["id"]
    act = {"verb": "pause", "ids": [f"{MARK}-daily"]}
    operation = (await api.post("/v1/jobs:act", json=act)).json()["id"]
    flow = {"workflow_id": f"{MARK}-flow", "steps": [{"name": "a", "task": "noop", "payload": {"x": MARK}}]}
    assert (await api.post("/v1/workflows", json=flow)).status_code == 201
    [worker] = (await api.get("/v1/workers")).json()["workers"]
    more = await make_more(api)
    token = (await tenants.token(role="viewer"))["token_id"]
    real = {
        "job_id": f"{MARK}-daily", "run_id": runs[f"{MARK}-running"], "dead": runs[f"{MARK}-dead"], "name": MARK,
        "workflow_id": f"{MARK}-flow", "worker_id": worker["worker_id"], "backfill_id": backfill,
        "operation_id": operation, "token_id": token, "session_id": str(uuid7()), **more,
    }  # fmt: skip
    guessed = {name: str(uuid7()) for name in real}
    clients: dict[tuple[str, str, bool], httpx.AsyncClient] = {}
    for tenant in ("default", "foreign"):
        for role in PURPOSES:
            for narrowed in (False, True):
                made = await tenants.clients[tenant].post(
                    "/v1/tokens", json={"role": role, "name": f"{tenant}-{role}", **(REACH if narrowed else {})}
                )
                assert made.status_code == 201, made.text
                clients[tenant, role, narrowed] = await tenants.client(made.json()["token"])
    before = await everything(connection)
    reach, seen = Narrowing(queues=("elsewhere",)), 0
    for (tenant, role, narrowed), client in clients.items():
        # A queue or calendar of that name in another tenant is another one.
        for method, path, handler, names in requests({**real, "name": real["name"] if tenant == "default" else "own"}):
            allowed = role in handler.roles and (not narrowed or reaches(handler, reach))
            if allowed and tenant == "default" and not narrowed:
                continue  # below, with guessed ids
            answer = await send(client, method, path)
            told = (tenant, role, narrowed, method, path, answer.text)
            seen += 1
            # A refusal names what the path names.
            shown = answer.text.replace(real["job_id"], "").replace(real["workflow_id"], "").replace(f"'{MARK}'", "")
            assert MARK not in shown, told
            if not allowed:
                assert answer.status_code == 403 and problem(answer)["code"] in _REFUSALS, told
            elif names & _IDS and role != WORKER:
                assert answer.status_code in (404, 409, 422), told
        assert await everything(connection) == before, (tenant, role, narrowed)
    for kind in ("calendars", "secrets", "views", "channels", "rules", "queues", "sinks"):
        assert (await tenants.clients["foreign"].get(f"/v1/{kind}/{MARK}")).status_code == 404, kind
    assert MARK not in (await tenants.clients["foreign"].get(f"/v1/sources/{MARK}/dead-messages")).text
    for role in PURPOSES:
        for method, path, handler, names in requests(guessed):
            allowed = role in handler.roles
            if allowed and not names:
                continue  # it reaches no object, or creates one
            answer = await send(clients["default", role, False], method, path)
            told = (role, method, path, answer.text)
            seen += 1
            if not allowed:
                assert answer.status_code == 403 and problem(answer)["code"] in _REFUSALS, told
            elif names & _IDS:
                assert answer.status_code in (404, 409, 422), told
    assert seen > 2000, "all of them were sent"
