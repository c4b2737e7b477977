"""Secrets: who may name them, when a worker gets them, and that nobody else does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import ManualClock
from mainspring.kernel.config import Timing
from mainspring.operations.secrets.master_keys import KEYS_EVERY, key_id, keys_in, new_key
from mainspring.roles.assembly import Assembly, assemble
from mainspring.store.database import Database
from mainspring.wire.protocol import TAKES_SECRETS
from tests.conftest import TOKEN
from tests.operations.hand_worker import HandWorker, held, outcome

pytestmark = pytest.mark.anyio

VALUE = "correct horse battery"


class Keys:
    """The master keys of a server, as a test sets them."""

    def __init__(self) -> None:
        self.text: str | None = new_key()

    async def read(self) -> str | None:
        return self.text


class Server:
    def __init__(self, assembly: Assembly, api: httpx.AsyncClient, keys: Keys, clock: ManualClock) -> None:
        self.assembly = assembly
        self.api = api
        self.keys = keys
        self.clock = clock

    async def put(self, name: str = "db-password", value: str | None = VALUE, **fields: Any) -> httpx.Response:
        return await self.api.put(f"/v1/secrets/{name}", json={"value": value, **fields} if value else fields)

    async def submit(self, **fields: Any) -> httpx.Response:
        return await self.api.post("/v1/jobs", json=fields)

    def worker(self, *tasks: str, protocol: int = TAKES_SECRETS) -> HandWorker:
        worker = HandWorker(self.api, tasks=tasks or ("shell",))
        worker.card.protocol = protocol
        return worker

    async def error_of(self, job_id: str) -> tuple[str, str | None]:
        run = (await self.api.get(f"/v1/jobs/{job_id}")).json()["latest_run"]
        found = (await self.api.get(f"/v1/runs/{run['run_id']}")).json()
        return found["status"], found.get("error_message")


@pytest.fixture
async def server(where: Database) -> AsyncIterator[Server]:
    keys, clock = Keys(), ManualClock()
    assembly = await assemble(where, clock, chance=lambda: 0.5, timing=Timing(lease_ttl=600.0), read_keys=keys.read)
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers) as client:
        yield Server(assembly, client, keys, clock)
    await assembly.close()


ENV = {"DB_PASSWORD": {"$secret": "db-password"}, "REGION": "eu"}


async def test_a_secret_is_stored_listed_without_its_value_and_deleted(server: Server) -> None:
    made = await server.put(queues=["default"])
    assert made.status_code == 201, made.text
    assert (made.json()["version"], made.json()["queues"], made.json()["changed_by"]) == (1, ["default"], "test")
    again = await server.put(value="another value")
    assert (again.status_code, again.json()["version"], again.json().get("queues")) == (200, 2, None)
    scoped = await server.put(value=None, tasks=["shell"])
    assert (scoped.json()["version"], scoped.json()["tasks"]) == (2, ["shell"])
    listed = (await server.api.get("/v1/secrets")).json()
    assert [one["name"] for one in listed["secrets"]] == ["db-password"] and listed["enabled"]
    answers = made.text + again.text + scoped.text + str(listed)
    assert VALUE not in answers and "another value" not in answers
    assert (await server.api.delete("/v1/secrets/db-password")).status_code == 200
    assert (await server.api.get("/v1/secrets/db-password")).status_code == 404
    assert (await server.api.delete("/v1/secrets/db-password")).status_code == 404


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("db-password", {"value": "hunter2"}, "value"),
        ("db-password", {"value": "  a-b-c  "}, "value"),
        ("db-password", {"value": "x" * 40_000}, "value"),
        ("db-password", {"value": "aaaaaaaaaaaa"}, "value"),
        ("db-password", {"value": "abcdefgh\0"}, "value"),
        ("db-password", {}, "value"),
        ("db-password", {"value": 12345678}, "value"),
        ("db-password", {"value": VALUE, "queues": [""]}, "queues"),
        ("db-password", {"value": VALUE, "queue": []}, "queue"),
        ("a b", {"value": VALUE}, "name"),
    ],
)
async def test_bad_input_names_the_field_and_never_the_value(
    server: Server, name: str, body: dict[str, Any], field: str
) -> None:
    refused = await server.api.put(f"/v1/secrets/{name}", json=body)
    assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text
    assert str(body.get("value") or VALUE) not in refused.text
    assert (await server.api.get("/v1/secrets")).json()["secrets"] == []


async def test_without_a_master_key_nothing_is_stored_and_the_answer_says_what_to_do(server: Server) -> None:
    server.keys.text = None
    refused = await server.put()
    assert (refused.status_code, refused.json()["code"]) == (409, "no_master_key")
    assert "MAINSPRING_MASTER_KEY_FILE" in refused.json()["hint"]
    assert not (await server.api.get("/v1/secrets")).json()["enabled"]


async def test_what_is_stored_is_encrypted_and_bound_to_its_row(server: Server, connection: asyncpg.Connection) -> None:
    await server.put()
    await server.put("other", value="something else")
    dump = [str(dict(row)) for row in await connection.fetch("select * from mainspring.secrets")]
    dump += [str(dict(row)) for row in await connection.fetch("select * from mainspring.secret_keys")]
    assert VALUE not in "".join(dump) and VALUE.encode().hex() not in "".join(dump)
    await connection.execute(
        "update mainspring.secrets set sealed = (select sealed from mainspring.secrets where name = 'other')"
    )
    job_id = (await server.submit(command="true", env=ENV)).json()["job_id"]
    await server.worker().exchange(free=1, hello=server.worker().card)
    worker = server.worker()
    assert (await worker.exchange(free=1, hello=worker.card)).runs == []
    assert await server.error_of(job_id) == (
        "FAILED", "the secret 'db-password' cannot be decrypted: what is stored of it was changed",
    )  # fmt: skip


async def test_only_the_run_that_names_a_secret_brings_it(server: Server) -> None:
    await server.put()
    await server.put("unnamed", value="not for anybody")
    await server.submit(command="true", env=ENV)
    await server.submit(command="true")
    worker = server.worker()
    orders = await worker.claim(2)
    [naming], [plain] = [o for o in orders if o.setup is not None], [o for o in orders if o.setup is None]
    assert naming.secrets is not None and naming.secrets.values == {"db-password": VALUE}
    assert plain.secrets is None
    assert VALUE not in repr(naming)


async def test_a_reply_that_was_lost_is_repeated_with_its_secrets(server: Server) -> None:
    await server.put()
    await server.submit(command="true", env=ENV)
    worker = server.worker()
    await worker.claim(1)
    [again] = (await worker.exchange(recover=True, inventory=[])).runs
    assert again.secrets is not None and again.secrets.values == {"db-password": VALUE}
    assert (await worker.exchange(recover=True, inventory=held(again))).runs == []


async def test_a_retry_gets_the_newest_version(server: Server) -> None:
    await server.put()
    await server.submit(command="true", env=ENV, retry={"base": 0, "jitter": 0})
    worker = server.worker()
    [order] = await worker.claim(1)
    await worker.report(outcome(order, "FAILED", error="no"))
    await server.put(value="the next password")
    [order] = await worker.claim(1)
    assert order.secrets is not None and order.secrets.values == {"db-password": "the next password"}


async def test_behind_a_limit_of_its_queue_a_run_gets_its_secrets_too(server: Server) -> None:
    await server.put()
    await server.api.put("/v1/queues/default/limits", json={"concurrency": 5})
    await server.submit(command="true", env=ENV)
    [order] = await server.worker().claim(1)
    assert order.secrets is not None and order.secrets.values == {"db-password": VALUE}


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"command": "true", "env": {"A": {"$secret": "nope"}}}, "env.A"),
        ({"task": "charge", "secrets": ["nope"]}, "secrets"),
        ({"http": {"url": "https://a.example", "headers": {"X-Key": {"$secret": "nope"}}}}, "http.headers.X-Key"),
        ({"http": {"url": "https://a.example", "body": {"a": [{"$secret": "nope"}]}}}, "http.body.a[0]"),
        ({"task": "http", "payload": {"url": "https://a.example", "body": {"$secret": "nope"}}}, "http.body"),
    ],
)
async def test_a_secret_that_does_not_exist_is_refused_with_the_field(
    server: Server, job: dict[str, Any], field: str
) -> None:
    await server.put()
    refused = await server.submit(**job)
    assert (refused.status_code, refused.json()["code"], refused.json()["field"]) == (422, "unknown_secret", field)
    batch = await server.api.post("/v1/jobs:batch", json=[{"command": "true"}, job])
    assert batch.status_code == 422
    assert [(one["field"], one["code"]) for one in batch.json()["errors"]] == [(f"jobs[1].{field}", "unknown_secret")]
    assert (await server.submit(command="true", job_id="plain", schedule="manual")).status_code == 201
    patched = await server.api.patch("/v1/jobs/plain", json={"env": {"A": {"$secret": "nope"}}})
    assert (patched.status_code, patched.json()["code"], patched.json()["field"]) == (422, "unknown_secret", "env.A")
    flow = await server.api.post("/v1/workflows", json={"steps": [{"name": "a", **job}]})
    assert (flow.status_code, flow.json()["code"], flow.json()["field"]) == (422, "unknown_secret", f"steps[0].{field}")
    checked = await server.api.post("/v1/workflows:validate", json={"steps": [{"name": "a", **job}]})
    assert checked.status_code in (404, 422)


async def test_a_secret_for_other_queues_or_tasks_is_refused(server: Server) -> None:
    await server.put(queues=["reports"], tasks=["shell"])
    for fields, words in (({}, "queue 'default'"), ({"queue": "reports", "task": "t", "command": None}, "task 't'")):
        job = {"command": "true", "env": ENV, **fields}
        job = {name: value for name, value in job.items() if value is not None}
        refused = await server.submit(**job)
        assert (refused.status_code, refused.json()["code"]) == (422, "secret_not_allowed"), refused.text
        assert words in refused.json()["detail"] and refused.json()["field"] == "env.DB_PASSWORD"
    assert (await server.submit(command="true", env=ENV, queue="reports")).status_code == 201


async def test_a_secret_deleted_later_fails_the_attempt_by_name_without_retries(server: Server) -> None:
    await server.put()
    job_id = (await server.submit(command="true", env=ENV)).json()["job_id"]
    await server.api.delete("/v1/secrets/db-password")
    worker = server.worker()
    assert (await worker.exchange(free=1, hello=worker.card)).runs == []
    assert await server.error_of(job_id) == ("FAILED", "the secret 'db-password' does not exist any more")


async def test_a_secret_taken_from_the_queue_later_fails_the_attempt(server: Server) -> None:
    await server.put()
    job_id = (await server.submit(command="true", env=ENV)).json()["job_id"]
    await server.put(value=None, queues=["reports"])
    worker = server.worker()
    assert (await worker.exchange(free=1, hello=worker.card)).runs == []
    assert await server.error_of(job_id) == ("FAILED", "the secret 'db-password' is not for the queue 'default'")


async def test_an_older_worker_gets_no_secrets(server: Server) -> None:
    await server.put()
    job_id = (await server.submit(command="true", env=ENV)).json()["job_id"]
    old = server.worker(protocol=TAKES_SECRETS - 1)
    answer = await old.ask(free=1, hello=old.card)
    assert answer.json().get("runs", []) == [] and VALUE not in answer.text
    status, error = await server.error_of(job_id)
    assert status in ("QUEUED", "SCHEDULED") and "too old for secrets" in str(error)


async def test_master_keys_rotate_while_the_server_runs(server: Server, connection: asyncpg.Connection) -> None:
    await server.put()
    old = server.keys.text
    assert old is not None
    server.keys.text = f"{new_key()}\n{old}"
    newest = key_id(keys_in(server.keys.text)[0])
    rotated = (await server.api.post("/v1/secrets:rotateKey")).json()
    assert rotated == {"key": newest, "rewrapped": 1, "left": 0}
    assert await connection.fetchval("select key_id from mainspring.secret_keys") == newest
    server.keys.text = server.keys.text.splitlines()[0]  # the old one is not needed any more
    server.clock.advance(KEYS_EVERY + 1)
    assert (await server.put("second", value="made after the rotation")).status_code == 201
    await server.submit(command="true", env={**ENV, "B": {"$secret": "second"}})
    [order] = await server.worker().claim(1)
    assert order.secrets is not None
    assert order.secrets.values == {"db-password": VALUE, "second": "made after the rotation"}
    again = (await server.api.post("/v1/secrets:rotateKey")).json()
    assert again == {"key": newest, "rewrapped": 0, "left": 0}


async def test_a_server_without_the_key_of_the_secrets_leaves_the_run_for_later(
    where: Database, server: Server
) -> None:
    await server.put()
    job_id = (await server.submit(command="true", env=ENV)).json()["job_id"]
    server.keys.text = new_key()
    server.clock.advance(KEYS_EVERY + 1)
    other = await assemble(where, ManualClock(), read_keys=server.keys.read, timing=Timing(lease_ttl=600.0))
    transport = httpx.ASGITransport(app=other.app)  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers) as client:
        worker = Server(server.assembly, client, server.keys, server.clock).worker()
        assert (await worker.exchange(free=1, hello=worker.card)).runs == []
    await other.close()
    status, error = await server.error_of(job_id)
    assert status in ("QUEUED", "SCHEDULED") and "does not have the master key" in str(error)


async def test_where_a_secret_is_used(server: Server) -> None:
    await server.put("a.b")
    await server.put("axb")
    job = {"command": "true", "env": {"A": {"$secret": "a.b"}}, "schedule": "manual"}
    await server.submit(job_id="by-env", **job)
    await server.submit(job_id="by-task", task="charge", secrets=["axb", "a.b"], schedule="manual")
    await server.submit(job_id="no", command="echo a.b", schedule="manual")
    steps = [{"name": "call", "http": {"url": "https://a.example", "body": {"key": {"$secret": "a.b"}}}}]
    await server.api.post("/v1/workflows", json={"workflow_id": "flow", "steps": steps})
    assert (await server.api.get("/v1/secrets/a.b")).json()["used_by"] == ["by-env", "by-task", "flow"]
    assert (await server.api.get("/v1/secrets/axb")).json()["used_by"] == ["by-task"]


async def test_references_are_shown_as_they_are_and_survive_a_change(server: Server) -> None:
    await server.put()
    await server.submit(job_id="j", command="true", env=ENV, schedule="manual")
    shown = (await server.api.get("/v1/jobs/j")).json()
    assert shown["env"] == ENV
    changed = await server.api.patch("/v1/jobs/j", json={"description": "x", "env": shown["env"]})
    assert changed.status_code == 200 and changed.json()["env"] == ENV
