"""A run's timeline: every state in order, with attempt, node, worker, reason and error."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.operations.lifecycle.rescue import rescue
from mainspring.roles.assembly import Assembly
from mainspring.store import runs
from tests.api.bookkeeping import problem
from tests.operations.firing import fire_due, let_backoff_pass, make_due
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_outcomes import claimed

pytestmark = pytest.mark.anyio

Entry = dict[str, Any]


async def timeline(api: httpx.AsyncClient, run_id: Any) -> list[Entry]:
    answer = await api.get(f"/v1/runs/{run_id}/timeline")
    assert answer.status_code == 200, answer.text
    entries: list[Entry] = answer.json()
    moments = [datetime.fromisoformat(entry["at"]) for entry in entries]
    assert moments == sorted(moments), entries
    return entries


def states(entries: list[Entry]) -> list[tuple[str, int | None]]:
    return [(entry["state"], entry["attempt"]) for entry in entries]


async def test_a_plain_run_is_submitted_queued_running_and_a_success(api: httpx.AsyncClient) -> None:
    worker, order = await claimed(api)
    assert states(await timeline(api, order.run_id)) == [("SUBMITTED", None), ("QUEUED", None), ("RUNNING", 1)]
    await worker.report(outcome(order, ran_ms=12.5, held_ms=1.0))
    entries = await timeline(api, order.run_id)
    assert states(entries) == [("SUBMITTED", None), ("QUEUED", None), ("RUNNING", 1), ("SUCCESS", 1)]
    running, end = entries[2:]
    assert (running["worker_id"], running["worker_name"]) == (str(worker.worker_id), "by-hand")
    assert (end["worker_name"], end["duration"], end["reason"], end["error"]) == ("by-hand", 0.0125, None, None)


async def test_every_try_is_told_with_its_end_its_error_and_the_wait_after_it(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker, order = await claimed(api, max_retries=1, payload={"a": 1})
    await worker.report(outcome(order, "RETURNED"))
    [order] = await worker.claim()
    await worker.report(outcome(order, "FAILED", error="first\ntraceback"))
    waiting = await timeline(api, order.run_id)
    assert waiting[-1]["state"] == "SCHEDULED"
    assert waiting[-1]["reason"].startswith("backing off until 20")
    await let_backoff_pass(connection)
    await connection.execute("update mainspring.attempts set ready_at = ended_at + interval '1 ms' where error <> ''")
    other = HandWorker(api)
    [order] = await other.claim()
    await other.report(outcome(order, "FAILED", error="second"))
    entries = await timeline(api, order.run_id)
    assert states(entries) == [
        ("SUBMITTED", None), ("QUEUED", None), ("RETURNED", 1), ("QUEUED", None), ("RUNNING", 1),
        ("FAILED", 1), ("SCHEDULED", 1), ("QUEUED", None), ("RUNNING", 2), ("FAILED", 2),
    ]  # fmt: skip
    assert [entry["error"] for entry in entries if entry["error"]] == ["first\ntraceback", "second"]
    assert entries[2]["reason"] == "handed back unstarted"
    assert entries[5]["duration"] > 0
    assert entries[-1]["reason"] == "failed 2 times, no tries left"
    assert entries[-1]["worker_id"] == str(other.worker_id)


async def test_a_lost_worker_is_told(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    worker, order = await claimed(api)
    async with connection.transaction():
        await rescue(connection, await runs.held_by(connection, worker.worker_id, 10), lambda: 0.5)
    lost = (await timeline(api, order.run_id))[-2:]
    assert states(lost) == [("LOST", 1), ("QUEUED", None)]
    assert (lost[0]["error"], lost[0]["worker_name"]) == ("worker lost", "by-hand")


async def test_a_cancel_is_told_when_it_was_asked_for_and_when_it_was_done(api: httpx.AsyncClient) -> None:
    worker, order = await claimed(api)
    await api.post(f"/v1/runs/{order.run_id}:cancel")
    assert (await timeline(api, order.run_id))[-1]["state"] == "CANCEL_REQUESTED"
    await worker.report(outcome(order, "CANCELLED"))
    entries = await timeline(api, order.run_id)
    assert states(entries)[-3:] == [("RUNNING", 1), ("CANCEL_REQUESTED", 1), ("CANCELLED", 1)]
    assert entries[-1]["reason"] == "cancelled on request"
    waiting = (await api.post("/v1/jobs", json={"task": "noop"})).json()["job_id"]
    await api.post(f"/v1/runs/{waiting}:cancel")
    entries = await timeline(api, waiting)
    assert states(entries) == [("SUBMITTED", None), ("QUEUED", None), ("CANCELLED", None)]
    assert entries[-1]["reason"] == "cancelled before it started"


@pytest.mark.parametrize("what", ["run", "job"])
async def test_a_cancel_during_the_backoff_says_that_attempts_were_made(api: httpx.AsyncClient, what: str) -> None:
    worker, order = await claimed(api)
    await worker.report(outcome(order, "FAILED", error="no"))
    if what == "run":
        await api.post(f"/v1/runs/{order.run_id}:cancel")
    else:
        await api.delete(f"/v1/jobs/{order.job_id}")
    entries = await timeline(api, order.run_id)
    assert states(entries)[-1][0] == "CANCELLED"
    assert entries[-1]["reason"] == "cancelled while it waited for its next attempt"


async def test_a_run_that_was_handed_back_unstarted_is_cancelled_before_it_started(api: httpx.AsyncClient) -> None:
    worker, order = await claimed(api)
    await worker.report(outcome(order, "RETURNED"))
    await api.post(f"/v1/runs/{order.run_id}:cancel")
    assert (await timeline(api, order.run_id))[-1]["reason"] == "cancelled before it started"


async def test_a_fired_run_names_the_node_that_fired_it(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    assert assembly.node is not None
    node_id = str(assembly.node.node_id)
    await api.post("/v1/jobs", json={"job_id": "often", "task": "noop", "schedule": {"every": "1h"}})
    once = (await api.post("/v1/jobs", json={"task": "noop", "schedule": {"at": "2020-01-01T00:00:00Z"}})).json()
    await make_due(connection, "often")
    await fire_due(assembly, connection)
    run = (await api.get("/v1/jobs/often/runs")).json()[0]
    fired, queued = await timeline(api, run["run_id"])
    assert (fired["state"], fired["node_id"], queued["state"]) == ("FIRED", node_id, "QUEUED")
    assert fired["reason"].startswith("by its schedule, for 20")
    entries = await timeline(api, once["job_id"])
    assert states(entries) == [("SUBMITTED", None), ("FIRED", None), ("QUEUED", None)]
    assert [entry["node_id"] for entry in entries] == [None, node_id, None]
    worker = HandWorker(api)
    await worker.report(*(outcome(order) for order in await worker.claim(2)))
    ended = await timeline(api, run["run_id"])
    assert (ended[0], ended[-1]["state"]) == (fired, "SUCCESS")

    await api.post("/v1/jobs", json={"task": "noop"})
    skipped = (await api.post("/v1/jobs/often:runNow")).json()["run_id"]
    assert states(await timeline(api, skipped)) == [("FIRED", None), ("QUEUED", None)]
    assert (await timeline(api, skipped))[0]["reason"] == "by hand"
    skipped = (await api.post("/v1/jobs/often:runNow")).json()["run_id"]
    entries = await timeline(api, skipped)
    assert states(entries) == [("FIRED", None), ("SKIPPED", None)]
    assert "overlap" in entries[1]["reason"]


async def test_a_replay_and_what_it_repeats_point_to_each_other(api: httpx.AsyncClient) -> None:
    worker, order = await claimed(api, max_retries=0)
    await worker.report(outcome(order, "FAILED", error="x"))
    new = (await api.post(f"/v1/runs/{order.run_id}:retry")).json()
    assert (await timeline(api, order.run_id))[-1]["reason"] == f"as run {new['run_id']}"
    assert (await timeline(api, new["run_id"]))[0]["reason"].startswith(f"to repeat run {order.run_id}, of 20")


async def test_a_run_that_is_not_there_has_no_timeline(api: httpx.AsyncClient) -> None:
    for run_id in ("0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11", "nope"):
        assert problem(await api.get(f"/v1/runs/{run_id}/timeline"))["status"] == 404


async def test_a_moment_told_by_a_servers_clock_is_put_where_it_belongs(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker, order = await claimed(api, max_retries=0)
    await worker.report(outcome(order, "FAILED", error="x"))
    await api.post(f"/v1/runs/{order.run_id}:retry")
    # As if the database's clock were ahead of the server's, which made the new run's id.
    await connection.execute(
        "update mainspring.run_history set ended_at = ended_at + interval '1 s' where run_id = $1", order.run_id
    )
    assert (await timeline(api, order.run_id))[-1]["state"] == "REPLAYED"


async def test_a_cancel_that_came_before_the_attempt_began_is_told_first(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker, order = await claimed(api)
    await connection.execute(
        "update mainspring.runs "
        "set scheduled_for = scheduled_for - interval '20 s', claimed_at = claimed_at - interval '10 s'"
    )
    await api.post(f"/v1/runs/{order.run_id}:cancel")
    await connection.execute("update mainspring.runs set cancel_requested_at = claimed_at + interval '1 s'")
    await worker.report(outcome(order, "CANCELLED", held_ms=2000.0))
    entries = await timeline(api, order.run_id)
    assert states(entries)[-3:] == [("CANCEL_REQUESTED", 1), ("RUNNING", 1), ("CANCELLED", 1)]
