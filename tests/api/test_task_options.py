"""The options that a task declares are the defaults of every submission. Fields of the request take precedence."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring import Mainspring
from mainspring.domain.intake.task_options import fill
from mainspring.kernel.clock import SystemClock
from mainspring.roles.assembly import assemble
from mainspring.sdk.client.job_fields import job_request
from mainspring.sdk.tasks.declared import declared
from mainspring.sdk.tasks.task_options import with_defaults
from mainspring.wire.jobs import JobRequest
from mainspring.wire.tasks import DeclaredOptions
from tests.api.bookkeeping import problem
from tests.operations.hand_worker import HandWorker
from tests.operations.test_submit_in_sql import both_ways, stored

pytestmark = pytest.mark.anyio

few = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
TASK = "billing.charge"
RULE = {"error": ["CardDeclined"], "then": "give_up"}
HEAVY: dict[str, Any] = {
    "queue": "heavy", "priority": "high", "timeout": "5m", "run_timeout": "1h", "kill_grace": "3s", "retries": 7,
    "retry": {"backoff": "linear", "base": "10s", "rules": [RULE]}, "env": {"REGION": "eu"},
    "limits": {"memory": "512MB", "files": 64}, "required_labels": {"gpu": "a100"},
}  # fmt: skip
PLAIN: dict[str, Any] = {
    "queue": "heavy", "priority": "high", "timeout": 300.0, "run_timeout": 3600.0, "kill_grace": 3.0,
    "retry": {"max_attempts": 8, "backoff": "linear", "base": 10.0, "rules": [RULE]}, "env": {"REGION": "eu"},
    "limits": {"memory": 512_000_000, "files": 64}, "required_labels": {"gpu": "a100"},
}  # fmt: skip

RETRY = {**PLAIN["retry"], "cap": 600.0, "jitter": 0.1}


def charge(account: str = "a1") -> None: ...


def anything(**_payload: Any) -> None: ...


async def offer(api: httpx.AsyncClient, function: Any = charge, **options: Any) -> HandWorker:
    """A worker that has said hello with this function as the task."""
    app = Mainspring()
    app.task(TASK, executor="process", **options)(function)
    worker = HandWorker(api, tasks=[TASK, "shell"])
    worker.card = msgspec.structs.replace(worker.card, signatures=declared(app.tasks.values()))
    await worker.hello()
    return worker


async def job(api: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    """A job of the task as its owner sees it."""
    created = await api.post("/v1/jobs", json={"task": TASK, "schedule": "manual", **body})
    assert created.status_code == 201, created.text
    found: dict[str, Any] = (await api.get(f"/v1/jobs/{created.json()['job_id']}")).json()
    return found


async def test_a_job_submitted_by_name_has_the_options_of_its_task(api: httpx.AsyncClient) -> None:
    await offer(api, **HEAVY)
    found = await job(api)
    assert {name: found[name] for name in PLAIN} == {**PLAIN, "retry": RETRY}


async def test_jobs_of_other_tasks_have_ours(api: httpx.AsyncClient) -> None:
    before = await job(api, task="another")
    await offer(api, **HEAVY)
    after = await job(api, task="another")
    assert {name: before[name] for name in PLAIN} == {name: after[name] for name in PLAIN}


async def test_a_run_is_claimed_from_the_queue_of_its_task(api: httpx.AsyncClient) -> None:
    await offer(api, queue="heavy", timeout="5m", delivery="at_most_once")
    await api.post("/v1/jobs", json={"task": TASK, "payload": {"account": "a2"}})
    await api.post("/v1/jobs:batch", json=[{"task": TASK}, {"name": TASK}, {"job_id": TASK}, {"task": "another"}])
    worker = HandWorker(api, tasks=[TASK], queues=["heavy"])
    orders = await worker.claim(4)
    assert {(order.queue, order.timeout, order.max_attempts, order.exclusive) for order in orders} == {
        ("heavy", 300.0, 1, True)
    }


NOT_DELAYED: list[dict[str, Any]] = [
    {"schedule": "now"}, {"schedule_type": "immediate"}, {"schedule": {"every": "1h"}}, {"schedule": "manual"},
    {"schedule": {"at": "2099-01-01T00:00:00Z"}}, {"schedule_time": "2099-01-01T00:00:00Z"},
]  # fmt: skip
OVER_HTTP: list[dict[str, Any]] = [{"cron": "0 3 * * *"}, {"delay": "5s"}, {"delay": 0}]


async def test_a_job_of_a_task_with_a_delay_waits_unless_it_says_when(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    """The same for each way in: one job, a batch, SQL."""
    await offer(api, delay="30m")
    await api.post("/v1/jobs", json={"task": TASK})
    await api.post("/v1/jobs:batch", json=[{"task": TASK}, {"name": TASK}])
    await connection.fetchval("select mainspring.submit($1::jsonb)", f'{{"task": "{TASK}"}}')
    waits = "select extract(epoch from next_fire_at - created_at)::bigint from mainspring.jobs"
    moved = "select count(*) from mainspring.submissions"
    assert await connection.fetchval(moved) == 0
    assert [row[0] for row in await connection.fetch(waits)] == [1800] * 4
    await stored(connection)  # and forget them
    for body in NOT_DELAYED:
        over_http, in_sql = await both_ways(api, connection, {"task": TASK, **body})
        assert over_http is not None and in_sql == over_http, body
    for body in [*NOT_DELAYED, *OVER_HTTP]:
        created = await api.post("/v1/jobs", json={"task": TASK, **body})
        assert created.status_code == 201, created.text
    assert not {row[0] for row in await connection.fetch(waits)} & {1799, 1800, 1801}


async def test_a_task_debounces_whoever_submits_its_jobs(api: httpx.AsyncClient) -> None:
    await offer(api, delay="30s", unique={"by": ["task"], "else": "later", "for": "5m"})
    first = (await api.post("/v1/jobs", json={"task": TASK})).json()
    second = (await api.post("/v1/jobs", json={"task": TASK})).json()
    assert second["job_id"] == first["job_id"]
    refused = problem(await api.post("/v1/jobs", json={"task": TASK, "schedule": "now"}))
    assert refused["field"] == "unique.else"


async def test_a_change_of_a_job_does_not_delay_it(api: httpx.AsyncClient) -> None:
    await offer(api, delay="30m")
    await api.post("/v1/jobs", json={"job_id": "by-hand", "task": TASK, "schedule": "manual"})
    for change in ({"description": "x"}, {"delay": None, "description": "y"}, {"queue": None}):
        changed = (await api.patch("/v1/jobs/by-hand", json=change)).json()
        assert changed.get("schedule_type") == "MANUAL", (change, changed)


def test_steps_of_workflows_have_no_delay() -> None:
    filled = fill(JobRequest(task=TASK), DeclaredOptions(delay=30.0, queue="heavy"))
    assert (filled.delay, filled.queue) == (None, "heavy")


OVER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"queue": "light"}, {"queue": "light", "priority": "high"}),
    ({"queue": "default", "priority": "normal"}, {"queue": "default", "priority": "normal", "timeout": 300.0}),
    ({"queue": None, "timeout": None, "retry": None}, {"queue": "heavy", "timeout": 300.0, "max_retries": 7}),
    ({"timeout": 5}, {"timeout": 5.0, "run_timeout": 3600.0}),
    ({"env": {"A": "b"}}, {"env": {"REGION": "eu", "A": "b"}}),
    ({"env": {"REGION": "us"}}, {"env": {"REGION": "us"}}),
    ({"limits": {"memory": "1GB"}}, {"limits": {"memory": 10**9, "files": 64}}),
    ({"required_labels": {"zone": "a"}}, {"required_labels": {"gpu": "a100", "zone": "a"}}),
    ({"delivery": "at_most_once"}, {"delivery": "at_most_once", "max_retries": 0}),
]
ABOUT_RETRY: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"retries": 1}, {"max_attempts": 2}),
    ({"max_retries": 0}, {"max_attempts": 1}),
    ({"retry": {}}, {}),
    ({"retry": {"max_attempts": 3}}, {"max_attempts": 3}),
    ({"retry": {"backoff": "constant"}}, {"backoff": "constant"}),
    ({"retry": {"base": 1, "cap": "2m", "jitter": 0}, "retries": 2}, {"max_attempts": 3, "base": 1.0, "cap": 120.0,
                                                                      "jitter": 0.0}),
    ({"retry": {"rules": []}}, {"rules": []}),
]  # fmt: skip


async def test_the_words_of_a_request_win_one_by_one(api: httpx.AsyncClient) -> None:
    await offer(api, **HEAVY)
    for body, expected in OVER:
        found = await job(api, **body)
        assert {name: found[name] for name in expected} == expected, body
    for body, expected in ABOUT_RETRY:
        found = await job(api, **body)
        assert found["retry"] == {**RETRY, **expected}, body


async def test_sql_applies_them_as_http_does(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    for options in (
        HEAVY,
        {"delivery": "at_most_once"},
        {"retries": 2, "run_timeout": 5},
        {"retry": {"rules": [RULE]}},
    ):
        await offer(api, **options)
        for body, _ in [({}, {}), *OVER, *ABOUT_RETRY, ({"retry": 5}, {}), ({"required_labels": {"x": None}}, {})]:
            if not body.keys() & {"env", "limits"} and "rules" not in str(body):
                over_http, in_sql = await both_ways(api, connection, {"task": TASK, **body})
                assert in_sql == over_http, (options, body)


async def test_a_number_of_retries_for_a_task_that_runs_at_most_once_is_refused(api: httpx.AsyncClient) -> None:
    await offer(api, delivery="at_most_once")
    refused = problem(await api.post("/v1/jobs", json={"task": TASK, "retries": 2}))
    assert (refused["status"], refused["field"]) == (422, "retries")
    assert refused["hint"] == "leave it out or set 0; some values are defaults that billing.charge declares"
    assert (await job(api, retries=2, delivery="at_least_once"))["max_retries"] == 2


async def test_a_repeat_is_the_same_job_when_the_options_changed_in_between(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    body = {"task": TASK, "schedule": "manual", "idempotency_key": "k"}
    await offer(api, queue="heavy")
    first = await api.post("/v1/jobs", json=body)
    in_sql = await connection.fetchval("select mainspring.submit($1)", f'{{"task": "{TASK}", "idempotency_key": "s"}}')
    await offer(api, queue="light", timeout="1m")
    again = await api.post("/v1/jobs", json=body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["job_id"] == first.json()["job_id"]
    assert (await api.post("/v1/jobs:batch", json=[body])).json()["job_ids"] == [first.json()["job_id"]]
    assert (await api.get(f"/v1/jobs/{first.json()['job_id']}")).json()["queue"] == "heavy"
    repeat = await connection.fetchval("select mainspring.submit($1)", f'{{"idempotency_key": "s", "task": "{TASK}"}}')
    assert repeat == in_sql
    assert problem(await api.post("/v1/jobs", json={**body, "queue": "heavy"}))["code"] == "idempotency_key_reused"


async def test_a_change_brings_in_no_options_unless_it_asks_for_a_default(api: httpx.AsyncClient) -> None:
    old = await job(api, job_id="old", queue="own", retries=1)
    await job(api, job_id="other", task="other")
    await offer(api, **HEAVY)
    for method in (api.patch, api.put):
        changed = (await method("/v1/jobs/old", json={"description": "new"})).json()
        assert {name: changed[name] for name in PLAIN} == {name: old[name] for name in PLAIN}
    moved = (await api.patch("/v1/jobs/other", json={"task": TASK})).json()
    assert (moved["task"], moved["queue"], moved["timeout"]) == (TASK, "default", 3600.0)
    back = (await api.patch("/v1/jobs/old", json={"queue": None, "retry": None, "limits": None})).json()
    assert (back["queue"], back["limits"], back["timeout"]) == ("heavy", PLAIN["limits"], 3600.0)
    assert back["retry"] == RETRY


async def test_the_newest_worker_is_right_at_every_server(api: httpx.AsyncClient, database_url: str) -> None:
    await offer(api, queue="heavy")
    other = await assemble(database_url, SystemClock())
    transport = httpx.ASGITransport(app=other.app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url=str(api.base_url), headers=api.headers) as elsewhere:
        registry = next(task for task in other.periodic_tasks if task.name == "signature_book")
        assert (await job(elsewhere))["queue"] == "heavy", "a server that starts reads what was declared"
        for options, queue in (({"queue": "light"}, "light"), ({"timeout": 5}, "default"), ({}, "default")):
            await offer(api, **options)
            assert await registry.run_once() == 1
            assert (await job(api))["queue"] == (await job(elsewhere))["queue"] == queue
        await HandWorker(api, tasks=[TASK]).hello()  # like an older worker, it declares nothing
        assert await registry.run_once() == 1
    await other.close()


async def test_saying_the_same_again_writes_nothing(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await offer(api, **HEAVY)
    before = await connection.fetch("select ctid, xmin, * from mainspring.task_signatures")
    await offer(api, **HEAVY)
    assert await connection.fetch("select ctid, xmin, * from mainspring.task_signatures") == before


async def test_the_list_of_tasks_shows_the_options(api: httpx.AsyncClient) -> None:
    worker = await offer(api, **HEAVY)
    typed, shell = (await api.get("/v1/tasks")).json()["tasks"]
    assert (typed["task"], typed["options"]) == (TASK, PLAIN)
    assert typed["payload_schema"]["properties"] == {"account": {"type": "string"}}
    assert "x-mainspring-options" not in typed["payload_schema"]
    assert (shell["task"], shell["options"]) == ("shell", None)
    await worker.exchange(stopped=True)
    await offer(api, anything, queue="heavy")
    untyped = (await api.get("/v1/tasks")).json()["tasks"][0]
    assert (untyped["payload_schema"], untyped["options"]) == (None, {"queue": "heavy"})
    assert (await api.post("/v1/jobs", json={"task": TASK, "payload": {"any": 1}})).status_code == 201


@pytest.mark.parametrize(
    "options", [5, "heavy", [], {"queue": ""}, {"priority": "urgent"}, {"retry": {"tries": 1}}, {"env": {"A": 1}}]
)
async def test_options_that_cannot_be_read_are_ignored_and_the_signature_is_not(
    api: httpx.AsyncClient, connection: asyncpg.Connection, options: Any
) -> None:
    schema = {"type": "object", "properties": {"account": {"type": "string"}}, "x-mainspring-options": options}
    worker = HandWorker(api, tasks=[TASK])
    signatures = {TASK: msgspec.Raw(msgspec.json.encode(schema))}
    worker.card = msgspec.structs.replace(worker.card, signatures=signatures)
    await worker.hello()
    assert (await job(api))["queue"] == "default"
    assert problem(await api.post("/v1/jobs", json={"task": TASK, "payload": {"account": 1}}))["code"] == "bad_payload"
    await connection.fetchval("select mainspring.submit($1)", f'{{"task": "{TASK}"}}')


async def test_an_option_of_a_newer_worker_is_left_aside(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api, tasks=[TASK])
    signatures = {TASK: msgspec.Raw(b'{"x-mainspring-options": {"queue": "heavy", "colour": "red"}}')}
    worker.card = msgspec.structs.replace(worker.card, signatures=signatures)
    await worker.hello()
    assert (await job(api))["queue"] == "heavy"
    assert (await api.get("/v1/tasks")).json()["tasks"][0]["options"] == {"queue": "heavy"}


# -- any options, any request

words = st.sampled_from(["a", "b", "heavy", "é"])
labels = st.dictionaries(words, words, max_size=2)
spans = st.sampled_from(["90s", "1h30m", 5, 0.5, " 2M "])
retries = st.fixed_dictionaries({}, optional={
    "max_attempts": st.integers(1, 9), "backoff": st.sampled_from(["linear", "Constant"]), "base": spans,
    "cap": spans, "jitter": st.sampled_from([0, 0.25]),
})  # fmt: skip
rules = st.lists(st.sampled_from([
    {"error": "ValueError", "then": "give_up"}, {"exit_code": [2, 3], "then": "Retry", "after": "1m"},
    {"http_status": [503, "4xx"], "then": "retry"},
]), max_size=2, unique_by=str)  # fmt: skip
IN_SQL: dict[str, st.SearchStrategy[Any]] = {
    "queue": words, "priority": st.sampled_from(["low", "High", 3]), "timeout": spans, "retries": st.integers(0, 9),
    "retry": retries, "delivery": st.sampled_from(["at_least_once", "At_Most_Once"]), "required_labels": labels,
}  # fmt: skip
IN_HTTP = IN_SQL | {
    "retry": st.builds(lambda retry, more: retry | more, retries, st.fixed_dictionaries({}, optional={"rules": rules})),
    "run_timeout": spans, "kill_grace": spans, "env": st.dictionaries(st.sampled_from(["A", "B", "C"]), words),
    "limits": st.fixed_dictionaries({}, optional={"memory": st.sampled_from(["512MB", "1GiB"]), "cpu": spans,
        "files": st.integers(16, 99)}),
}  # fmt: skip


def some(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def declarable(options: dict[str, Any]) -> bool:
    """Whether a task may declare these options: at most one number of attempts, and none with at_most_once."""
    try:
        Mainspring().task(TASK, executor="process", **options)(charge)
    except ValueError:
        return False
    return True


@few
@given(options=some(IN_HTTP).filter(declarable), body=some(IN_SQL))
async def test_http_and_sql_apply_them_alike(
    api: httpx.AsyncClient, connection: asyncpg.Connection, options: dict[str, Any], body: dict[str, Any]
) -> None:
    await offer(api, **options)
    over_http, in_sql = await both_ways(api, connection, {"task": TASK, **body})
    assert in_sql == over_http


@few
@given(options=some(IN_HTTP).filter(declarable), body=some(IN_HTTP))
async def test_a_job_by_name_is_the_job_that_the_task_itself_would_submit(
    api: httpx.AsyncClient, connection: asyncpg.Connection, options: dict[str, Any], body: dict[str, Any]
) -> None:
    seen = []
    for declares, sent in (
        (options, body),
        ({}, with_defaults(body, options)),
        (options, with_defaults(body, options)),
    ):
        await offer(api, **declares)
        answer = await api.post("/v1/jobs", json=job_request({"task": TASK, **sent}))
        seen.append((answer.status_code, await stored(connection)))
    assert seen[0] == seen[1] == seen[2]
