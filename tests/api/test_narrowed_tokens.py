"""A narrowed token neither sees nor counts what lies outside, and creates nothing there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from mainspring.api.app import app_without_a_server
from mainspring.api.handlers import routed_handlers
from mainspring.api.reach import Reach
from mainspring.domain.narrowing import Narrowing
from mainspring.kernel.ids import uuid7
from mainspring.operations.access.permissions import PURPOSES
from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem
from tests.logs.scene import chunk, ship
from tests.operations.bulk import begin, count, performer_of
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.tenants import Tenants, several_tenants

pytestmark = pytest.mark.anyio

LABELS = {"team": "payments"}
# How a token is narrowed, and a job that lies outside of it.
NARROWINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"queues": ["pay"]}, {"queue": "other", "task": "pay.run", "labels": LABELS}),
    ({"tasks": ["pay.run"]}, {"queue": "pay", "task": "other.run", "labels": LABELS}),
    ({"labels": LABELS}, {"queue": "pay", "task": "pay.run", "labels": {"team": "other"}}),
    ({"queues": ["pay"], "labels": LABELS}, {"queue": "pay", "task": "pay.run"}),
]
INSIDE = {"queue": "pay", "task": "pay.run", "labels": LABELS}


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        yield made


async def client_of(tenants: Tenants, role: str, **narrowed: Any) -> httpx.AsyncClient:
    return await tenants.client((await tenants.token(role=role, **narrowed))["token"])


async def make_all(api: httpx.AsyncClient, name: str, body: dict[str, Any]) -> dict[str, str]:
    """A recurring job, one that waits, one that runs, one that has ended and one that is a dead letter. Returns the ids
    of the runs of the last four, by the ids of the jobs."""
    found: dict[str, str] = {}
    jobs = {"daily": {"schedule": "@daily"}, "dead": {"retries": 0}, "done": {}, "running": {}}
    for kind, more in jobs.items():
        answer = await api.post("/v1/jobs", json={"job_id": f"{name}-{kind}", **body, **more})
        assert answer.status_code == 201, answer.text
    worker = HandWorker(api, queues=[body["queue"]], tasks=[body["task"]])
    orders = {order.job_id: order for order in (await worker.hello(free=10)).runs}
    await ship(worker, chunk(orders[f"{name}-running"], 0, b"private"))
    await worker.report(
        outcome(orders[f"{name}-dead"], "FAILED", error="it failed"), outcome(orders[f"{name}-done"], result={"a": 1})
    )
    for kind in ("dead", "done", "running"):
        found[f"{name}-{kind}"] = str(orders[f"{name}-{kind}"].run_id)
    answer = await api.post("/v1/jobs", json={"job_id": f"{name}-waiting", **body})
    assert answer.status_code == 201, answer.text
    found[f"{name}-waiting"] = (await api.get(f"/v1/jobs/{name}-waiting/runs")).json()[0]["run_id"]
    return found


def test_a_handler_that_says_it_is_checked_names_what_is_checked() -> None:
    for route, handler in routed_handlers(app_without_a_server()):
        how = handler.reach
        if how is Reach.OBJECT:
            named = ("{job_id", "{run_id", "{backfill_id")
            assert any(name in route.path for name in named), f"nothing of {route.path} is checked"
        if how is Reach.NONE and handler.roles:
            assert "{" not in route.path, f"{route.path} names something"


@pytest.mark.parametrize(("narrowed", "outside"), NARROWINGS, ids=lambda value: "-".join(value))
async def test_what_lies_outside_is_neither_seen_nor_counted(
    tenants: Tenants, api: httpx.AsyncClient, narrowed: dict[str, Any], outside: dict[str, Any]
) -> None:
    ours, theirs = await make_all(api, "in", INSIDE), await make_all(api, "out", outside)
    client = await client_of(tenants, "admin", **narrowed)
    listed: dict[str, set[str]] = {}
    for path, key in (
        ("/v1/jobs", "jobs"), ("/v1/jobs?view=row", "jobs"),
        ("/v1/jobs?status=running,failed,completed,scheduled", "jobs"),
        ("/v1/runs", "runs"), ("/v1/runs?view=row", "runs"), ("/v1/dead-letters", "dead_letters"),
    ):  # fmt: skip
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        listed[path] = {each["job_id"] for each in answer.json()[key]}
        assert listed[path], path
        assert not [job_id for job_id in listed[path] if job_id.startswith("out-")], path
    assert listed["/v1/runs"] == {f"in-{kind}" for kind in ("dead", "done", "running", "waiting")}
    assert (await client.get("/v1/runs", params={"job": "out-done"})).json()["runs"] == []
    assert "private" in (await client.get(f"/v1/runs/{ours['in-running']}/logs")).text
    for job_id in (*theirs, "out-daily", "no-such-job"):
        for method, path in (
            ("GET", ""), ("GET", "/status"), ("GET", "/runs"), ("GET", "/timeline"), ("GET", "/upcoming"),
            ("GET", "/missed"),
            ("GET", "/series"), ("PATCH", ""), ("DELETE", ""), ("POST", ":pause"), ("POST", ":resume"),
            ("POST", ":runNow"),
        ):  # fmt: skip
            answer = await client.request(method, f"/v1/jobs/{job_id}{path}", json={} if method == "PATCH" else None)
            assert answer.status_code == 404, (method, job_id, path, answer.text)
            assert problem(answer)["detail"] == f"there is no job {job_id!r}"
    for run_id in (*theirs.values(), str(uuid7())):
        for method, path in (
            ("GET", ""), ("GET", "/timeline"), ("GET", "/logs"), ("POST", ":cancel"), ("POST", ":retry"),
        ):  # fmt: skip
            answer = await client.request(method, f"/v1/runs/{run_id}{path}")
            assert answer.status_code == 404, (method, path, answer.text)
    for method, path in (("GET", ""), ("POST", ":replay"), ("POST", ":discard")):
        assert (await client.request(method, f"/v1/dead-letters/{theirs['out-dead']}{path}")).status_code == 404
    assert (await client.post("/v1/dead-letters:discard", json={"all": True})).json()["discarded"] == 1
    assert (await api.get(f"/v1/dead-letters/{theirs['out-dead']}")).status_code == 200
    for job_id in ("in-daily", "in-done"):
        assert (await client.get(f"/v1/jobs/{job_id}")).status_code == 200
    assert (await client.post("/v1/jobs/in-daily:runNow")).status_code == 202


@pytest.mark.parametrize(("narrowed", "outside"), NARROWINGS, ids=lambda value: "-".join(value))
async def test_nothing_is_created_outside_moved_there_or_made_to_depend_on_it(
    tenants: Tenants, api: httpx.AsyncClient, narrowed: dict[str, Any], outside: dict[str, Any]
) -> None:
    client = await client_of(tenants, "submitter", **narrowed)
    daily = {"schedule": "@daily"}
    assert (await api.post("/v1/jobs", json={"job_id": "theirs", **outside, **daily})).status_code == 201
    assert (await client.post("/v1/jobs", json={"job_id": "ours", **INSIDE, **daily})).status_code == 201
    field = next(name for name in ("queue", "task", "labels") if INSIDE[name] != outside.get(name))
    for path, body, where in (
        ("/v1/jobs", outside, field), ("/v1/jobs:validate", outside, field),
        ("/v1/jobs:batch", {"jobs": [INSIDE, outside]}, f"jobs[1].{field}"),
    ):  # fmt: skip
        refused = problem(await client.post(path, json=body))
        assert (refused["status"], refused["code"], refused["field"]) == (403, "outside_token", where), refused
    moved = {field: outside.get(field)}
    refused = problem(await client.patch("/v1/jobs/ours", json=moved))
    assert (refused["status"], refused["code"], refused["field"]) == (403, "outside_token", field)
    for answer in (
        await client.post("/v1/jobs", json={**INSIDE, "depends_on": ["theirs"]}),
        await client.post("/v1/jobs:batch", json={"jobs": [{**INSIDE, "depends_on": ["theirs"]}]}),
        await client.patch("/v1/jobs/ours", json={"depends_on": ["theirs"]}),
    ):
        assert (answer.status_code, problem(answer)["code"]) == (422, "unknown_job"), answer.text
    assert [job["job_id"] for job in (await api.get("/v1/jobs")).json()["jobs"]] == ["ours", "theirs"]


async def test_operations_on_many_objects_reach_no_further(
    tenants: Tenants, api: httpx.AsyncClient, assembly: Assembly
) -> None:
    await make_all(api, "in", INSIDE)
    theirs = await make_all(api, "out", {"queue": "other", "task": "pay.run"})
    client = await client_of(tenants, "operator", queues=["pay"])
    verbs = {"jobs": ("pause", 1), "runs": ("cancel", 2), "dead-letters": ("replay", 1)}
    for noun, (verb, number) in verbs.items():
        assert (await count(client, noun, verb))["count"] == number
        begun = await begin(client, noun, verb, filter={})
        await performer_of(assembly).run_once()
        done = (await client.get(f"/v1/operations/{begun['id']}")).json()
        assert (done["done"], done["failed"]) == (number, 0), done
    for noun, one in (("jobs", "out-daily"), ("runs", theirs["out-running"]), ("dead-letters", theirs["out-dead"])):
        refused = await client.post(f"/v1/{noun}:act", json={"verb": verbs[noun][0], "ids": [one]})
        assert refused.status_code == 404, refused.text
    assert (await api.get("/v1/jobs/out-daily")).json()["status"] == "SCHEDULED"
    assert (await api.get(f"/v1/runs/{theirs['out-waiting']}")).json()["status"] == "QUEUED"
    assert (await api.get(f"/v1/dead-letters/{theirs['out-dead']}")).status_code == 200
    wide = await begin(api, "jobs", "pause", ids=["out-daily"])
    assert len((await client.get("/v1/operations")).json()["operations"]) == 3, "those of other tokens are not seen"
    for method, verb in (("GET", ""), ("POST", ":cancel")):
        assert (await client.request(method, f"/v1/operations/{wide['id']}{verb}")).status_code == 404


async def test_backfills_of_other_jobs_are_not_seen(tenants: Tenants, api: httpx.AsyncClient) -> None:
    client = await client_of(tenants, "operator", queues=["pay"])
    past = {"from": "2025-03-01T00:00:00Z", "to": "2025-03-05T00:00:00Z"}
    for name, body in (("ours", INSIDE), ("theirs", {**INSIDE, "queue": "other"})):
        job = {"job_id": name, "schedule": "@daily", **body}
        assert (await api.post("/v1/jobs", json=job)).status_code == 201
    made = (await api.post("/v1/jobs/theirs:backfill", json=past)).json()["id"]
    assert (await client.post("/v1/jobs/theirs:backfill", json=past)).status_code == 404
    for method, verb in (("GET", ""), ("PATCH", ""), ("POST", ":pause"), ("POST", ":resume"), ("POST", ":cancel")):
        refused = await client.request(method, f"/v1/backfills/{made}{verb}", json={} if method == "PATCH" else None)
        assert refused.status_code == 404, refused.text
    own = await client.post("/v1/jobs/ours:backfill", json=past)
    assert (await client.get(f"/v1/backfills/{own.json()['id']}")).status_code == 200


async def test_a_unique_key_of_a_job_outside_shows_and_changes_nothing_of_it(
    tenants: Tenants, api: httpx.AsyncClient
) -> None:
    rule = {"by": ["payload.x"], "while": ["scheduled", "held", "queued"]}
    at = {"schedule_time": "2099-01-01T00:00:00Z"}
    outside = {**INSIDE, "queue": "other", "payload": {"x": 1, "of": "them"}, "unique": {**rule, "else": "replace"}}
    assert (await api.post("/v1/jobs", json={**outside, **at, "job_id": "theirs"})).status_code == 201
    started = {**outside, "payload": {"x": 2}, "unique": {"by": ["payload.x"]}, "job_id": "started"}
    assert (await api.post("/v1/jobs", json=started)).status_code == 201
    worker = HandWorker(api, queues=["other"], tasks=["pay.run"])
    assert len((await worker.hello(free=1)).runs) == 1
    client = await client_of(tenants, "submitter", queues=["pay"])
    answers = set()
    for x in (1, 2):
        for choice in ("keep", "replace", "later"):
            body = {**INSIDE, **at, "payload": {"x": x, "of": "us"}, "unique": {**rule, "else": choice}}
            keyed = {**body, "idempotency_key": f"{x}-{choice}"}
            for path, sent in (("/v1/jobs", body), ("/v1/jobs", keyed), ("/v1/jobs:batch", {"jobs": [body]})):
                refused = problem(await client.post(path, json=sent))
                first = refused.get("errors", [refused])[0]
                assert (refused["status"], first["code"]) == (409, "unique_taken"), refused
                assert "theirs" not in str(refused) and "started" not in str(refused)
                answers.add(first["detail"])
    assert len(answers) == 1, "whether it has started is not told"
    assert (await api.get("/v1/jobs/theirs")).json()["payload"]["of"] == "them"
    taken = problem(await client.post("/v1/jobs", json={**INSIDE, "job_id": "theirs"}))
    assert (taken["code"], taken["detail"]) == ("job_exists", "a job called 'theirs' exists already")  # not its status
    kept = await api.post("/v1/jobs", json=shared_request())
    assert (kept.status_code, kept.json()["job_id"]) == (200, "theirs")
    refused = problem(await client.post("/v1/jobs", json=shared_request()))
    assert (refused["code"], refused["field"]) == ("unique_taken", "idempotency_key"), refused


def shared_request() -> dict[str, Any]:
    """A request that two programs send, with one key."""
    return {**INSIDE, "payload": {"x": 1}, "unique": {"by": ["payload.x"]}, "idempotency_key": "shared"}


async def test_what_cannot_leave_out_the_rest_is_refused(tenants: Tenants) -> None:
    client = await client_of(tenants, "admin", labels=LABELS)
    allowed = set((await client.get("/v1/session")).json()["operations"])
    for route, handler in routed_handlers(app_without_a_server()):
        operation, method = handler.operation, handler.method
        if not handler.roles:
            continue
        path = route.path
        for name in ("job_id", "run_id", "workflow_id", "worker_id", "limit_id", "name", "backfill_id", "operation_id"):
            path = path.replace("{" + name + "}", "x")
        if "{" in path:
            continue
        answer = await client.request(method, path, json=None if method == "GET" else {})
        refused = answer.status_code == 403 and problem(answer)["code"] == "narrowed_token"
        assert refused == (handler.reach in (Reach.REFUSED, Reach.QUEUE)), (method, path, answer.text)
        assert refused == (operation not in allowed), operation
        if refused:
            assert operation in problem(answer)["detail"]


async def test_a_token_that_is_narrowed_to_queues_sees_and_pauses_them(
    tenants: Tenants, api: httpx.AsyncClient
) -> None:
    for queue in ("pay", "other"):
        assert (await api.post("/v1/jobs", json={"task": "noop", "queue": queue})).status_code == 201
    client = await client_of(tenants, "operator", queues=["pay"])
    assert [queue["name"] for queue in (await client.get("/v1/queues")).json()["queues"]] == ["pay"]
    assert (await client.get("/v1/queues/pay")).status_code == 200
    assert (await client.post("/v1/queues/pay:pause")).status_code == 200
    assert (await client.post("/v1/queues/pay:resume")).status_code == 200
    for method, path in (("GET", ""), ("POST", ":pause"), ("POST", ":resume"), ("PUT", "")):
        answer = await client.request(method, f"/v1/queues/other{path}", json=None if method == "GET" else {})
        assert answer.status_code == 404, answer.text


async def test_a_worker_claims_only_what_its_token_reaches(tenants: Tenants, api: httpx.AsyncClient) -> None:
    for queue, task in (("pay", "pay.run"), ("pay", "other"), ("other", "pay.run")):
        body = {"task": task, "queue": queue, "job_id": f"{queue}-{task}"}
        assert (await api.post("/v1/jobs", json=body)).status_code == 201
    client = await client_of(tenants, "worker", queues=["pay"], tasks=["pay.run"])
    worker = HandWorker(client, queues=["pay", "other"], tasks=["pay.run", "other"])
    assert [order.job_id for order in (await worker.hello(free=10)).runs] == ["pay-pay.run"]
    [shown] = (await api.get("/v1/workers")).json()["workers"]
    assert (shown["queues"], shown["tasks"]) == (["pay"], ["pay.run"])
    stranger = HandWorker(client, queues=["other"], tasks=["pay.run"])
    refused = problem(await stranger.ask(hello=stranger.card, free=1))
    assert (refused["status"], refused["code"], refused["field"]) == (403, "outside_token", "hello.queues")


async def test_payloads_false_hides_data_and_output(tenants: Tenants, api: httpx.AsyncClient) -> None:
    body = {**INSIDE, "payload": {"card": "private"}, "env": {"REGION": "private"}}
    runs = await make_all(api, "in", body)
    for role in ("viewer", "operator", "admin"):
        client = await client_of(tenants, role, payloads=False)
        for path in (
            "/v1/jobs", "/v1/jobs/in-daily", "/v1/jobs/in-done", "/v1/jobs/in-done/status", "/v1/jobs/in-done/runs",
            "/v1/runs",
            f"/v1/runs/{runs['in-done']}", f"/v1/runs/{runs['in-running']}", "/v1/dead-letters",
            f"/v1/dead-letters/{runs['in-dead']}",
        ):  # fmt: skip
            answer = await client.get(path)
            assert answer.status_code == 200, answer.text
            assert "private" not in answer.text, path
            assert '"result":{' not in answer.text, path
        for path in ("/logs", "/logs/search?q=p", "/logs/range"):
            answer = await client.get(f"/v1/runs/{runs['in-running']}{path}")
            assert (answer.status_code, problem(answer)["code"]) == (403, "narrowed_token"), answer.text
        if role != "viewer":
            paused = await client.post("/v1/jobs/in-daily:pause")
            assert paused.status_code == 200 and "private" not in paused.text


async def test_a_token_is_accepted_from_its_networks_alone(tenants: Tenants) -> None:
    here = await client_of(tenants, "viewer", addresses=["127.0.0.0/8", "10.0.0.0/8"])
    assert (await here.get("/v1/jobs")).status_code == 200
    elsewhere = await client_of(tenants, "viewer", addresses=["192.0.2.0/24", "2001:db8::/32"])
    refused = await elsewhere.get("/v1/jobs")
    assert (refused.status_code, problem(refused)["code"]) == (403, "wrong_address")


def test_addresses() -> None:
    reach = Narrowing(addresses=("10.0.0.0/8", "2001:db8::/32"))
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "2001:db8::1", "2001:db8::1%eth0"):
        assert reach.accepts(address)
    for refused in ("11.1.2.3", "::1", "2001:db9::1", "", "name", None):
        assert not reach.accepts(refused)


async def test_a_narrowed_token_makes_none_that_reaches_further(tenants: Tenants) -> None:
    own = {"queues": ["a", "b"], "labels": LABELS, "payloads": False, "addresses": ["127.0.0.0/8"]}
    client = await client_of(tenants, "admin", **own)
    inside = {**own, "queues": ["a"], "labels": {**LABELS, "region": "eu"}, "addresses": ["127.0.0.1/32"]}
    made = await client.post("/v1/tokens", json={"role": "viewer", "name": "n", "tasks": ["t"], **inside})
    assert made.status_code == 201, made.text
    assert {name: made.json()[name] for name in inside} == inside
    for wider in (
        {"queues": None}, {"queues": ["a", "c"]}, {"labels": None}, {"labels": {"team": "other"}}, {"payloads": True},
        {"addresses": None}, {"addresses": ["0.0.0.0/0"]}, {"tenant": "default"},
    ):  # fmt: skip
        refused = await client.post("/v1/tokens", json={"role": "viewer", "name": "n", **own, **wider})
        assert (refused.status_code, problem(refused)["code"]) == (403, "outside_token"), (wider, refused.text)
    shared = await client.post("/v1/tokens", json={"role": "worker", "name": "n", "queues": ["a"], "tenants": "all"})
    assert shared.status_code == 403
    for path in ("/v1/tokens", "/v1/tenants", "/v1/sessions"):
        assert (await client.get(path)).status_code == 403


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"queues": []}, "queues"), ({"queues": ["a\n"]}, "queues"), ({"queues": "a"}, "queues"),
        ({"tasks": [""]}, "tasks"),
        ({"tasks": [5]}, "tasks[0]"), ({"labels": {}}, "labels"), ({"labels": {"": "x"}}, "labels"),
        ({"addresses": ["10.0.0.1/8"]}, "addresses"), ({"addresses": ["home"]}, "addresses"),
        ({"payloads": "no"}, "payloads"), ({"role": "worker", "labels": LABELS}, "labels"),
        ({"role": "worker", "payloads": False}, "payloads"), ({"queues": ["a"] * 101}, "queues"),
    ],
    ids=str,
)  # fmt: skip
async def test_a_bad_narrowing_is_refused_by_field(api: httpx.AsyncClient, body: dict[str, Any], field: str) -> None:
    before = len((await api.get("/v1/tokens")).json()["tokens"])
    refused = problem(await api.post("/v1/tokens", json={"role": "viewer", "name": "n", **body}))
    assert (refused["status"], refused["field"]) == (422, field), refused
    assert len((await api.get("/v1/tokens")).json()["tokens"]) == before


async def test_sessions_and_links_are_as_narrow_as_their_token(tenants: Tenants, api: httpx.AsyncClient) -> None:
    assert (await api.post("/v1/jobs", json={"task": "noop", "queue": "other", "job_id": "theirs"})).status_code == 201
    made = await tenants.token(role="viewer", queues=["pay"])
    client = await tenants.client("")
    client.headers.pop("Authorization")
    origin = {"Origin": "http://127.0.0.1:8700", "Sec-Fetch-Site": "same-origin"}
    signed_in = await client.post("/v1/session", json={"token": made["token"]}, headers=origin)
    assert signed_in.status_code == 201, signed_in.text
    assert (await client.get("/v1/jobs/theirs")).status_code == 404
    assert "insights.overview" not in (await client.get("/v1/session")).json()["operations"]


def test_roles_have_a_purpose() -> None:
    assert list(PURPOSES) == ["admin", "operator", "submitter", "viewer", "metrics", "worker"]
