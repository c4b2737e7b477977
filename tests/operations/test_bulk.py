"""FEATURES 6.1: one verb on many jobs, runs or dead letters, with a count first and progress."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.operations.bulk import counting, verbs
from mainspring.operations.bulk.performer import Performer
from mainspring.roles.assembly import Assembly, assemble
from mainspring.store import counts, operations
from tests.api.bookkeeping import problem
from tests.operations.bulk import Killed, KillingStore, View, act, begin, count, performer_of, read
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.tenants import Tenants, several_tenants

pytestmark = pytest.mark.anyio


async def make(api: httpx.AsyncClient, number: int = 1, **fields: Any) -> list[str]:
    jobs = [{"task": "noop", "schedule": "@hourly", **fields} for _ in range(number)]
    answer = await api.post("/v1/jobs:batch", json=jobs)
    assert answer.status_code == 201, answer.text
    made: list[str] = answer.json()["job_ids"]
    return made


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    told = problem(answer)
    assert (told["status"], told["code"]) == (status, code)
    return told


async def statuses(api: httpx.AsyncClient, job_ids: list[str]) -> set[str]:
    return {(await api.get(f"/v1/jobs/{job_id}")).json()["status"] for job_id in job_ids}


async def dead(api: httpx.AsyncClient, number: int, **fields: Any) -> list[str]:
    """Runs that failed for good."""
    await make(api, number, schedule="now", retries=0, **fields)
    worker = HandWorker(api)
    orders = await worker.claim(number)
    await worker.report(*(outcome(order, "FAILED", error="boom") for order in orders))
    return [str(order.run_id) for order in orders]


async def total(connection: asyncpg.Connection, table: str) -> int:
    number: int = await connection.fetchval(f"select count(*) from mainspring.{table}")
    return number


async def test_pause_all_that_match_then_resume_them(api: httpx.AsyncClient, assembly: Assembly) -> None:
    mails, others = await make(api, 3, queue="mails"), await make(api, 2)
    counted = await count(api, "jobs", "pause", queue="mails")
    assert (counted["count"], counted["exact"], sorted(counted["examples"])) == (3, True, sorted(mails))
    view = await act(api, assembly, "jobs", "pause", filter={"queue": "mails"})
    assert (view["state"], view["done"], view["failed"], view["count"]) == ("DONE", 3, 0, 3)
    assert (view["requested_by"], view["filter"], view["target"]) == ("test", {"queue": "mails"}, "jobs")
    assert (await statuses(api, mails), await statuses(api, others)) == ({"PAUSED"}, {"SCHEDULED"})
    view = await act(api, assembly, "jobs", "resume", filter={"status": ["paused"]})
    assert (view["done"], await statuses(api, mails)) == (3, {"SCHEDULED"})


async def test_slices_meet_every_job_once(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await make(api, 120)
    view = await begin(api, "jobs", "run_now", filter={})
    await make(api, 3)
    assert await performer_of(assembly).run_once() == 3, "50 jobs a slice"
    assert [(await read(api, view))[name] for name in ("state", "done")] == ["DONE", 120]
    assert await total(connection, "runs") == 120, "jobs that were created later are not touched"


async def test_run_now_of_jobs_that_fire_once_meets_no_new_run(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await make(api, 60, schedule="now", overlap="allow")
    view = await act(api, assembly, "jobs", "run_now", filter={"status": ["SCHEDULED"]})
    assert (view["done"], await total(connection, "runs")) == (60, 120)


async def test_a_refusal_is_counted_and_does_not_hold_up_the_others(api: httpx.AsyncClient, assembly: Assembly) -> None:
    good, gone = await make(api, 2), await make(api, 1)
    await api.delete(f"/v1/jobs/{gone[0]}")
    view = await act(api, assembly, "jobs", "pause", ids=[good[0], gone[0], "nobody", good[1], good[0]])
    assert (view["state"], view["count"], view["done"], view["failed"]) == ("DONE", 4, 2, 2)
    reasons = {failure["id"]: failure["reason"] for failure in view["failures"]}
    assert set(reasons) == {gone[0], "nobody"}
    assert "CANCELLED" in reasons[gone[0]] and "no job" in reasons["nobody"]
    assert await statuses(api, good) == {"PAUSED"}


async def test_cancel_jobs_and_their_runs(api: httpx.AsyncClient, assembly: Assembly) -> None:
    jobs = await make(api, 2, labels={"team": "bi"})
    run = (await api.post(f"/v1/jobs/{jobs[0]}:runNow")).json()["run_id"]
    await act(api, assembly, "jobs", "cancel", filter={"label": "team:bi"})
    assert await statuses(api, jobs) == {"CANCELLED"}
    assert (await api.get(f"/v1/runs/{run}")).json()["status"] == "CANCELLED"


async def test_cancel_runs_that_live_and_leave_those_that_have_ended(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    [failed] = await dead(api, 1)
    await make(api, 4, schedule="now")
    assert (await count(api, "runs", "cancel"))["count"] == 4
    assert (await count(api, "runs", "cancel", status=["FAILED"])) == {"count": 0, "exact": True, "examples": []}
    view = await act(api, assembly, "runs", "cancel", filter={})
    assert (view["done"], view["failed"], await total(connection, "runs")) == (4, 0, 0)
    view = await act(api, assembly, "runs", "cancel", ids=[failed, failed.replace(failed[-4:], "0000")])
    assert (view["done"], view["failed"]) == (0, 2)
    assert "FAILED" in view["failures"][-1]["reason"] or "FAILED" in view["failures"][0]["reason"]


async def test_a_running_run_is_told_to_stop(api: httpx.AsyncClient, assembly: Assembly) -> None:
    await make(api, 2, schedule="now")
    worker = HandWorker(api)
    orders = await worker.claim(2)
    view = await act(api, assembly, "runs", "cancel", filter={"task": "noop"})
    assert view["done"] == 2
    reply = await worker.exchange()
    assert {str(stop) for stop in reply.stop} == {str(order.run_id) for order in orders}


async def test_retry_ended_runs_and_not_what_ends_meanwhile(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    failed = await dead(api, 3)
    assert (await count(api, "runs", "retry", status=["FAILED"]))["count"] == 3
    view = await begin(api, "runs", "replay", filter={"status": ["FAILED"]})
    await dead(api, 2)
    await performer_of(assembly).run_once()
    view = await read(api, view)
    assert (view["verb"], view["state"], view["done"], view["failed"]) == ("retry", "DONE", 3, 0)
    repeated = {row["run_id"] for row in await connection.fetch("select run_id::text from mainspring.replays")}
    assert repeated == set(failed)
    again = await act(api, assembly, "runs", "retry", ids=failed)
    assert (again["done"], again["failed"]) == (0, 3), "a run is repeated once"


async def test_replay_and_discard_dead_letters(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    mails, others = await dead(api, 3, task="noop", labels={"a": "b"}), await dead(api, 2)
    view = await act(api, assembly, "dead-letters", "replay", ids=mails)
    assert (view["target"], view["done"], view["failed"]) == ("dead_letters", 3, 0)
    assert (await total(connection, "runs"), await total(connection, "dead_letters")) == (3, 2)
    again = await act(api, assembly, "dead-letters", "replay", ids=[*mails, others[0]])
    assert (again["done"], again["failed"]) == (1, 3)
    assert "was repeated" in again["failures"][0]["reason"]
    assert (await count(api, "dead-letters", "discard", error="BOOM"))["count"] == 1
    view = await act(api, assembly, "dead-letters", "discard", ids=[*mails, others[1]])
    assert (view["done"], view["failed"], await total(connection, "dead_letters")) == (1, 3, 0)


async def test_clearly_more_than_confirmed_is_refused_with_the_number_now(api: httpx.AsyncClient) -> None:
    await make(api, 11)
    body = {"verb": "cancel", "filter": {}, "expected": 9}
    told = refused(await api.post("/v1/jobs:act", json=body), 409, "count_changed")
    assert (told["field"], told["expected"]) == ("expected", "11")
    assert (await api.post("/v1/jobs:act", json={**body, "expected": 10})).status_code == 202
    assert (await api.get("/v1/operations")).json()["operations"][0]["expected"] == 10


async def test_cancel_an_operation_in_the_middle(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await make(api, 120)
    view = await begin(api, "jobs", "run_now", filter={})
    assert await step(assembly, view)
    stopped = (await api.post(f"/v1/operations/{view['id']}:cancel")).json()
    assert (stopped["state"], stopped["done"], stopped["reason"]) == ("CANCELLED", 50, "cancelled by test")
    assert await performer_of(assembly).run_once() == 0
    assert await total(connection, "runs") == 50
    assert (await api.post(f"/v1/operations/{view['id']}:cancel")).json() == stopped
    over = await act(api, assembly, "jobs", "pause", ids=["nobody"])
    refused(await api.post(f"/v1/operations/{over['id']}:cancel"), 409, "operation_ended")


async def step(assembly: Assembly, view: View, after: int | None = None) -> bool:
    """One slice, killed after its nth statement."""
    own = performer_of(assembly)
    store = assembly.store if after is None else KillingStore(assembly.store, after)
    performer = Performer(store, own._selector, own._verbs)  # type: ignore[arg-type]
    async with assembly.store.reads.acquire() as connection:
        [row] = [row for row in await operations.at_work(connection, 10) if str(row.operation_id) == view["id"]]
    return await performer.step(row)


@pytest.mark.parametrize(
    ("noun", "verb"),
    [("jobs", "run_now"), ("jobs", "cancel"), ("runs", "cancel"), ("runs", "retry"), ("dead-letters", "replay")],
)
async def test_who_is_killed_after_any_statement_has_done_nothing(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, noun: str, verb: str
) -> None:
    ids = await dead(api, 2) if noun != "jobs" else await make(api, 2)
    if (noun, verb) == ("runs", "cancel"):
        made = await make(api, 2, schedule="now")
        ids = [(await api.get(f"/v1/jobs/{job}/status")).json()["latest_run"]["run_id"] for job in made]
    view = await begin(api, noun, verb, ids=ids)
    before = await everything(connection)
    killed = 0
    while True:
        try:
            assert await step(assembly, view, killed + 1)
            break
        except Killed:
            killed += 1
            assert await everything(connection) == before, f"after statement {killed}"
    assert killed >= 3
    done = await read(api, view)
    assert (done["state"], done["done"], done["failed"]) == ("DONE", 2, 0)
    runs, ended = await total(connection, "runs"), await total(connection, "run_history")
    assert (runs, ended) == {"run_now": (2, 0), "retry": (2, 2), "replay": (2, 2)}.get(
        verb, (0, 0) if noun == "jobs" else (0, 4)
    )


async def everything(connection: asyncpg.Connection) -> list[Any]:
    tables = ("jobs", "runs", "run_history", "dead_letters", "replays", "missed_fires", "operations")
    return [
        await connection.fetchval(f"select json_agg(t order by t::text)::text from mainspring.{table} t")
        for table in tables
    ]


async def test_two_servers_share_the_work_and_repeat_nothing(
    api: httpx.AsyncClient, assembly: Assembly, database_url: str, connection: asyncpg.Connection
) -> None:
    await make(api, 120)
    view = await begin(api, "jobs", "run_now", filter={})
    other = await assemble(database_url, SystemClock(), scheduler=False)
    try:
        async with assembly.store.change() as busy:  # a slice is under way here
            [row] = await operations.at_work(busy, 10)
            assert await operations.lock(busy, row)
            assert await performer_of(other).run_once() == 0
        assert await step(assembly, view)
        assert not await performer_of(other).step(row), "this slice was carried out"
        assert await performer_of(other).run_once() == 2
    finally:
        await other.close()
    assert (await read(api, view))["done"] == 120
    assert await total(connection, "runs") == 120


async def test_an_error_of_one_object_is_told_and_the_operation_goes_on(
    api: httpx.AsyncClient, assembly: Assembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = await make(api, 2)
    amender = performer_of(assembly)._verbs._amender
    pause = amender.pause_in

    async def fails(caller: Any, connection: Any, job_id: str) -> None:
        if job_id == broken:
            await connection.execute("select 1/0")
        await pause(caller, connection, job_id)

    monkeypatch.setattr(amender, "pause_in", fails)
    view = await act(api, assembly, "jobs", "pause", ids=[broken, sound])
    assert (view["state"], view["done"], view["failed"]) == ("DONE", 1, 1)
    assert view["failures"][0]["reason"] == verbs._UNEXPECTED
    assert await statuses(api, [sound]) == {"PAUSED"}


async def test_a_slice_that_never_goes_through_fails_the_operation(
    api: httpx.AsyncClient, assembly: Assembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(*_: Any) -> None:
        raise asyncpg.LockNotAvailableError("canceling statement due to lock timeout")

    performer = performer_of(assembly)
    monkeypatch.setattr(performer._verbs._amender, "pause_in", busy)
    view = await begin(api, "jobs", "pause", ids=await make(api, 1))
    for _ in range(9):
        await performer.run_once()
    assert (await read(api, view))["state"] == "RUNNING"
    await performer.run_once()
    ended = await read(api, view)
    assert (ended["state"], ended["done"]) == ("FAILED", 0)
    assert "in use" in ended["reason"]


async def test_counts_above_the_bound_are_estimated_and_say_so(
    api: httpx.AsyncClient, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "BOUND", 5)
    monkeypatch.setattr(counts.Count.exact, "__defaults__", (5,))
    await make(api, 8)
    await connection.execute("analyze mainspring.jobs")
    counted = await count(api, "jobs", "pause")
    assert (counted["exact"], counted["count"] >= 6) == (False, True)
    assert (await count(api, "jobs", "pause", queue="nowhere")) == {"count": 0, "exact": True, "examples": []}


async def test_the_latest_run_and_one_time_jobs_that_have_fired_are_counted_page_by_page(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    await dead(api, 3)
    await make(api, 2)
    assert (await count(api, "jobs", "run_now", latest_run=["FAILED"], status=["FAILED"]))["count"] == 3
    assert (await count(api, "jobs", "run_now", status=["FAILED", "SCHEDULED"]))["count"] == 5


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        await made.add("a", "b")
        yield made


async def test_nothing_of_another_tenant_is_counted_touched_or_shown(tenants: Tenants, assembly: Assembly) -> None:
    ours, theirs = tenants.clients["a"], tenants.clients["b"]
    [mine], [yours] = await make(ours), await make(theirs)
    failed = await dead(theirs, 1)
    for noun, verb in (("jobs", "pause"), ("runs", "retry"), ("dead-letters", "discard")):
        assert (await count(ours, noun, verb))["count"] == (1 if noun == "jobs" else 0)
    await act(ours, assembly, "jobs", "pause", filter={})
    view = await act(ours, assembly, "jobs", "cancel", ids=[yours])
    assert (view["done"], view["failed"]) == (0, 1)
    for noun, verb in (("runs", "retry"), ("dead-letters", "replay"), ("dead-letters", "discard")):
        assert (await act(ours, assembly, noun, verb, ids=failed))["failed"] == 1
    assert (await statuses(ours, [mine]), await statuses(theirs, [yours])) == ({"PAUSED"}, {"SCHEDULED"})
    assert len((await theirs.get("/v1/dead-letters")).json()["dead_letters"]) == 1
    refused(await theirs.get(f"/v1/operations/{view['id']}"), 404, "not_found")
    refused(await theirs.post(f"/v1/operations/{view['id']}:cancel"), 404, "not_found")
    assert (await theirs.get("/v1/operations")).json()["operations"] == []


async def test_a_viewer_sees_operations_and_begins_none(tenants: Tenants, assembly: Assembly) -> None:
    viewer = await tenants.client((await tenants.token(role="viewer"))["token"])
    await act(tenants.operator, assembly, "jobs", "pause", ids=await make(tenants.operator))
    assert len((await viewer.get("/v1/operations", params={"state": "done"})).json()["operations"]) == 1
    for noun, verb in (("jobs", "pause"), ("runs", "cancel"), ("dead-letters", "discard")):
        answer = await viewer.post(f"/v1/{noun}:act", json={"verb": verb, "filter": {}, "dry_run": True})
        refused(answer, 403, "role_not_allowed")


async def test_a_tenant_has_twenty_operations_at_most(tenants: Tenants) -> None:
    api = tenants.clients["a"]
    for _ in range(20):
        await begin(api, "jobs", "pause", ids=["x"])
    body = {"verb": "pause", "ids": ["x"]}
    refused(await api.post("/v1/jobs:act", json=body), 409, "too_many_operations")
    assert (await tenants.clients["b"].post("/v1/jobs:act", json=body)).status_code == 202


LONG = "x" * 5000
BAD = [
    ("jobs", {"verb": "explode", "filter": {}}, "verb"),
    ("jobs", {"verb": "pause"}, "filter"),
    ("jobs", {"verb": "pause", "filter": {}, "ids": ["a"]}, "filter"),
    ("jobs", {"verb": "pause", "filter": {}}, "expected"),
    ("jobs", {"verb": "pause", "filter": {}, "expected": -1}, "expected"),
    ("jobs", {"verb": "pause", "ids": ["a"], "expected": 2**40}, "expected"),
    ("jobs", {"verb": "pause", "filter": {"status": ["strange"]}, "dry_run": True}, "filter.status"),
    ("jobs", {"verb": "pause", "filter": {"status": [""]}, "dry_run": True}, "filter.status"),
    ("jobs", {"verb": "pause", "filter": {"status": ["PAUSED"] * 50}, "dry_run": True}, "filter.status"),
    ("jobs", {"verb": "pause", "filter": {"status": "PAUSED"}, "dry_run": True}, "filter.status"),
    ("jobs", {"verb": "pause", "filter": {"label": "nothing"}, "dry_run": True}, "filter.label"),
    ("jobs", {"verb": "pause", "filter": {"q": LONG}, "dry_run": True}, "filter.q"),
    ("runs", {"verb": "cancel", "filter": {"worker": "vm-1"}, "dry_run": True}, "filter.worker"),
    ("jobs", {"verb": "pause", "filter": {"created_after": "soon"}, "dry_run": True}, "filter.created_after"),
    ("jobs", {"verb": "pause", "filter": {"color": "red"}, "dry_run": True}, "filter.color"),
    ("jobs", {"verb": "pause", "ids": []}, "ids"),
    ("jobs", {"verb": "pause", "ids": ["a"] * 1001}, "ids"),
    ("jobs", {"verb": "pause", "ids": ["a\u0000b"]}, "ids[0]"),
    ("jobs", {"verb": "pause", "ids": ["ok", ""]}, "ids[1]"),
    ("jobs", {"verb": "pause", "ids": [LONG]}, "ids[0]"),
    ("runs", {"verb": "cancel", "ids": ["not-a-uuid"]}, "ids[0]"),
    ("runs", {"verb": "pause", "filter": {}}, "verb"),
    ("runs", {"verb": "cancel", "filter": {"since": "x"}, "dry_run": True}, "filter.since"),
    ("dead-letters", {"verb": "retry", "filter": {}}, "verb"),
    ("dead-letters", {"verb": "discard", "filter": {"error": LONG}, "dry_run": True}, "filter.error"),
]


@pytest.mark.parametrize(("noun", "body", "field"), BAD)
async def test_a_wrong_request_is_refused_by_field_and_begins_nothing(
    api: httpx.AsyncClient, noun: str, body: dict[str, Any], field: str
) -> None:
    answer = await api.post(f"/v1/{noun}:act", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"] == field
    assert (await api.get("/v1/operations")).json()["operations"] == []


@pytest.mark.parametrize("text", ["\u0000", "%_\\", "'; drop table x; --", "\ud7ff\U0010ffff"])
async def test_texts_of_a_filter_stay_texts(api: httpx.AsyncClient, text: str) -> None:
    await make(api, 1)
    for noun, verb, field in (("jobs", "pause", "q"), ("runs", "cancel", "error"), ("dead-letters", "discard", "job")):
        body = {"verb": verb, "filter": {field: text, "queue": text}, "dry_run": True}
        answer = await api.post(f"/v1/{noun}:act", json=body)
        if text == "\u0000":
            assert answer.status_code == 422, answer.text
        else:
            assert (answer.status_code, answer.json()["count"]) == (200, 0), answer.text


async def test_jobs_are_chosen_by_task_and_by_the_type_of_their_schedule(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    for job_id, fields in {
        "cron": {"task": "report", "cron": "@daily"},
        "interval": {"task": "report", "schedule": {"every": "1h"}},
        "mail": {"task": "mail", "cron": "@daily"},
    }.items():
        assert (await api.post("/v1/jobs", json={"job_id": job_id, **fields})).status_code == 201
    assert (await count(api, "jobs", "pause", task="report"))["count"] == 2
    assert (await count(api, "jobs", "pause", schedule_type=["cron"]))["count"] == 2
    done = await act(api, assembly, "jobs", "pause", filter={"task": "report", "schedule_type": ["CRON"]})
    assert done["done"] == 1, done
    states = {job: (await api.get(f"/v1/jobs/{job}")).json()["status"] for job in ("cron", "interval", "mail")}
    assert states == {"cron": "PAUSED", "interval": "SCHEDULED", "mail": "SCHEDULED"}
