"""FEATURES 2.8: the fires of a past range become runs, each once, and at most so many at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.operations.backfills.backfill_worker import BackfillWorker
from mainspring.operations.limits.admitter import Admitter
from mainspring.roles.assembly import Assembly, assemble
from mainspring.store import backfills
from mainspring.store.backfills import AtWork
from mainspring.store.database import Database
from tests.api.bookkeeping import problem, rows
from tests.operations.backfilling import FROM, TO, backfill_worker_of, begin, hours, read, run_all, verb
from tests.operations.firing import fire_due, make_due
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_kept_payloads import make

pytestmark = pytest.mark.anyio


@pytest.fixture
async def backfill_worker(assembly: Assembly) -> AsyncIterator[BackfillWorker]:
    """The backfill_worker of the server. It works only when the test says so."""
    assembly.signals.backfills._listeners.clear()
    yield backfill_worker_of(assembly)


async def test_every_fire_of_the_range_becomes_a_run_and_the_run_says_so(
    api: httpx.AsyncClient, backfill_worker: BackfillWorker, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule="@hourly", payload={"a": 1})
    view = await begin(api, job_id)
    assert (view["state"], view["total"], view["created"], view["remaining"]) == ("running", 10, 0, 10)
    await backfill_worker.run_once()
    assert [(await read(api, view))[name] for name in ("created", "running", "remaining")] == [1, 1, 9]
    worker = HandWorker(api)
    [order] = await worker.claim()
    run = (await api.get(f"/v1/runs/{order.run_id}")).json()
    assert (run["trigger"], run["backfill_id"]) == (f"backfill:{view['id']}", view["id"])
    assert (run["scheduled_for"], run["payload"]) == ("2025-03-01T00:00:00Z", {"a": 1})
    assert run["idempotency_key"] == f"{job_id}/2025-03-01T00:00:00Z"
    why = (await api.get(f"/v1/runs/{order.run_id}/why")).json()["why"]
    assert f"It is of backfill {view['id']}, for 2025-03-01T00:00:00Z." in why
    timeline = (await api.get(f"/v1/runs/{order.run_id}/timeline")).json()
    assert any(f"by backfill {view['id']}" in (entry["reason"] or "") for entry in timeline)
    await worker.report(outcome(order))
    assert await run_all(backfill_worker, worker) == 9
    done = await read(api, view)
    assert (done["state"], done["succeeded"], done["created"], done["running"]) == ("completed", 10, 10, 0)
    assert done["ended_at"] is not None and done["remaining"] == 0
    assert await hours(connection, job_id) == list(range(10))
    assert (await api.get(f"/v1/runs/{order.run_id}")).json()["backfill_id"] == view["id"]


async def test_the_end_of_a_run_makes_room_at_once(api: httpx.AsyncClient, assembly: Assembly) -> None:
    """No round of the backfill_worker is needed: the server that hears of the end creates the next run."""
    job_id = await make(api, schedule="@hourly")
    backfill_worker, worker = backfill_worker_of(assembly), HandWorker(api)
    view = await begin(api, job_id, concurrency=2)
    for _ in range(5):
        assert backfill_worker._working is not None
        await backfill_worker._working
        orders = await worker.claim(2)
        await worker.report(*(outcome(order) for order in orders))
    await backfill_worker._working
    assert (await read(api, view))["state"] == "completed"


async def test_no_more_runs_are_alive_than_it_says_and_the_number_can_be_changed(
    api: httpx.AsyncClient, backfill_worker: BackfillWorker, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule="@hourly")
    view = await begin(api, job_id, concurrency=3)
    alive = "select count(*) from mainspring.runs"
    for concurrency, expected in ((3, 3), (5, 5), (2, 5)):
        changed = await api.patch(f"/v1/backfills/{view['id']}", json={"concurrency": concurrency})
        assert changed.json()["concurrency"] == concurrency
        await backfill_worker.run_once()
        await backfill_worker.run_once()
        assert await connection.fetchval(alive) == expected
    worker = HandWorker(api)
    first = await worker.claim(5)
    await worker.report(*(outcome(order) for order in first[:4]))
    await backfill_worker.run_once()
    assert await connection.fetchval(alive) == 2
    await worker.report(outcome(first[4]))
    assert await run_all(backfill_worker, worker, at_once=2) == 5
    assert await hours(connection, job_id) == list(range(10))


async def test_the_newest_fires_can_come_first(
    api: httpx.AsyncClient, backfill_worker: BackfillWorker, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule="@hourly")
    backfill_worker._slice_length = 3
    await begin(api, job_id, order="newest")
    await run_all(backfill_worker, HandWorker(api))
    assert await hours(connection, job_id) == list(range(9, -1, -1))


async def test_a_fire_that_has_a_run_gets_no_other_one(
    api: httpx.AsyncClient, backfill_worker: BackfillWorker, connection: asyncpg.Connection
) -> None:
    """Whatever became of it: live, in the history, skipped, of the schedule or of another backfill."""
    job_id = await make(api, schedule="@hourly", max_retries=0)
    worker = HandWorker(api)
    first = await begin(api, job_id, end="2025-03-01T02:00:00Z")  # one succeeds, one fails
    await backfill_worker.run_once()
    await worker.report(*(outcome(order) for order in await worker.claim()))
    await backfill_worker.run_once()
    await worker.report(*(outcome(order, "FAILED", error="boom") for order in await worker.claim()))
    live = await begin(api, job_id, "2025-03-01T03:00:00Z", "2025-03-01T05:00:00Z")
    await backfill_worker.run_once()  # one is alive
    assert (await read(api, first))["failed"] == 1
    backfill_worker._slice_length = 4
    view = await begin(api, job_id, concurrency=10)
    await backfill_worker.run_once()
    assert (await read(api, view))["reason"] == f"waiting for backfill {live['id']} of the same job"
    assert await run_all(backfill_worker, worker, at_once=10) == 8
    done = await read(api, view)
    assert (done["existing"], done["created"], done["succeeded"], done["state"]) == (4, 6, 6, "completed")
    assert sorted(await hours(connection, job_id)) == list(range(10))
    again = await begin(api, job_id)
    await backfill_worker.run_once()
    done = await read(api, again)
    assert (done["existing"], done["created"], done["state"]) == (10, 0, "completed")


async def test_two_backfills_of_a_range_never_create_a_run_for_the_same_fire(
    api: httpx.AsyncClient, backfill_worker: BackfillWorker, connection: asyncpg.Connection
) -> None:
    """Also when one is paused after it has looked, and the other one overtakes it."""
    job_id = await make(api, schedule="@hourly")
    worker = HandWorker(api)
    first, second = await begin(api, job_id), await begin(api, job_id, order="newest")
    await backfill_worker.run_once()
    await verb(api, first, "pause")
    await backfill_worker.run_once()
    await worker.report(*(outcome(order) for order in await worker.claim(2)))
    await backfill_worker.run_once()
    await verb(api, first, "resume")
    await run_all(backfill_worker, worker, at_once=2)
    found = [await read(api, view) for view in (first, second)]
    assert [view["state"] for view in found] == ["completed", "completed"]
    assert sum(view["created"] for view in found) == 10
    assert [view["created"] + view["existing"] for view in found] == [10, 10]
    assert sorted(await hours(connection, job_id)) == list(range(10))


async def test_fires_that_the_schedule_has_run_or_will_run_are_left_to_it(
    api: httpx.AsyncClient, backfill_worker: BackfillWorker, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    hour = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=30)  # no fire is near now
    anchor = hour - timedelta(hours=1000)
    job_id = await make(api, schedule={"every": "1h", "anchor": anchor.isoformat()}, overlap="allow")
    await connection.execute("update mainspring.jobs set next_fire_at = $1", hour)
    view = await begin(api, job_id, (hour - timedelta(hours=2)).isoformat(), (hour + timedelta(seconds=1)).isoformat())
    await backfill_worker.run_once()
    assert (await read(api, view))["created"] == 0  # the scheduler has yet to deal with the last fire
    assert await fire_due(assembly, connection) == 1
    await backfill_worker.run_once()
    assert await run_all(backfill_worker, HandWorker(api), at_once=2) >= 2
    done = await read(api, view)
    assert (done["total"], done["existing"], done["created"], done["state"]) == (3, 1, 2, "completed")


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel_previous"])
async def test_its_runs_are_no_overlapping_fires(
    api: httpx.AsyncClient,
    backfill_worker: BackfillWorker,
    assembly: Assembly,
    connection: asyncpg.Connection,
    overlap: str,
) -> None:
    """They run beside each other as concurrency says, and a fire of the schedule is neither skipped nor held."""
    job_id = await make(api, schedule="@hourly", overlap=overlap)
    await begin(api, job_id, concurrency=3)
    await backfill_worker.run_once()
    assert len(await HandWorker(api).claim(3)) == 3
    await make_due(connection, job_id)
    await fire_due(assembly, connection)
    states = {run["trigger"][:8]: run["status"] for run in (await api.get(f"/v1/jobs/{job_id}/runs")).json()}
    await HandWorker(api).claim(1)  # the fire
    assert states["schedule"] in ("QUEUED", "HELD") and states["backfill"] != "CANCELLED"
    assert (await api.get("/v1/runs", params={"status": "skipped"})).json()["runs"] == []
    assert (await api.get("/v1/runs", params={"status": "cancelled"})).json()["runs"] == []


async def test_the_limits_of_the_job_apply(
    api: httpx.AsyncClient, backfill_worker: BackfillWorker, assembly: Assembly
) -> None:
    job_id = await make(api, schedule="@hourly", concurrency=2, overlap="allow")
    view = await begin(api, job_id, concurrency=5)
    await backfill_worker.run_once()
    states = [run["status"] for run in (await api.get(f"/v1/jobs/{job_id}/runs")).json()]
    assert len(states) == 5 and states.count("HELD") >= 3
    await asyncio.gather(*(task.run_once() for task in assembly.periodic_tasks if isinstance(task, Admitter)))
    assert len((await HandWorker(api).hello(free=100)).runs) == 2
    assert (await read(api, view))["running"] == 5


async def test_pause_resume_and_cancel(
    api: httpx.AsyncClient, backfill_worker: BackfillWorker, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule="@hourly")
    worker = HandWorker(api)
    view = await begin(api, job_id, concurrency=2)
    await backfill_worker.run_once()
    assert (await verb(api, view, "pause"))["state"] == "paused"
    assert (await verb(api, view, "pause"))["state"] == "paused"
    [order] = await worker.claim()
    await worker.report(outcome(order))
    await backfill_worker.run_once()
    found = await read(api, view)
    assert (found["created"], found["running"], found["succeeded"]) == (2, 1, 1)
    assert (await verb(api, view, "resume"))["state"] == "running"
    await backfill_worker.run_once()
    assert (await read(api, view))["created"] == 3
    [taken] = await worker.claim()
    found = await verb(api, view, "cancel")
    assert (found["state"], found["remaining"], found["ended_at"]) == ("cancelled", 7, None)
    await backfill_worker.run_once()
    found = await read(api, view)
    assert (found["created"], found["running"], found["cancelled"]) == (3, 1, 1)
    assert (await verb(api, view, "cancel", running=True))["state"] == "cancelled"
    assert taken.run_id in (await worker.exchange()).stop
    await worker.report(outcome(taken, "CANCELLED"))
    await backfill_worker.run_once()
    found = await read(api, view)
    assert (found["running"], found["cancelled"], found["ended_at"] is not None) == (0, 2, True)
    for name in ("pause", "resume"):
        refused = problem(await api.post(f"/v1/backfills/{view['id']}:{name}"))
        assert (refused["status"], refused["code"]) == (409, "backfill_ended")
    refused = problem(await api.patch(f"/v1/backfills/{view['id']}", json={"concurrency": 2}))
    assert refused["code"] == "backfill_ended"
    assert len(await hours(connection, job_id)) == 3


async def test_it_pauses_with_its_job_and_ends_with_it(api: httpx.AsyncClient, backfill_worker: BackfillWorker) -> None:
    job_id = await make(api, schedule="@hourly")
    view = await begin(api, job_id)
    await api.post(f"/v1/jobs/{job_id}:pause")
    await backfill_worker.run_once()
    found = await read(api, view)
    assert (found["state"], found["reason"], found["created"]) == ("paused", "its job is paused", 0)
    listed = (await api.get("/v1/backfills", params={"state": "paused", "job": job_id})).json()["backfills"]
    assert [one["id"] for one in listed] == [view["id"]]
    await api.post(f"/v1/jobs/{job_id}:resume")
    await backfill_worker.run_once()
    found = await read(api, view)
    assert (found["state"], found["reason"], found["created"]) == ("running", None, 1)
    await api.delete(f"/v1/jobs/{job_id}")
    await backfill_worker.run_once()
    found = await read(api, view)
    assert (found["state"], found["reason"]) == ("cancelled", "its job was cancelled")
    assert (found["cancelled"], found["running"], found["ended_at"] is not None) == (1, 0, True)
    await api.post(f"/v1/jobs/{job_id}:resume")
    await backfill_worker.run_once()
    assert (await read(api, view))["created"] == 1
    refused = await api.delete(f"/v1/jobs/{job_id}")
    assert refused.status_code == 200
    refused = problem(await api.post(f"/v1/jobs/{job_id}:backfill", json={"from": FROM, "to": TO}))
    assert refused["code"] == "job_cancelled"


async def test_a_changed_schedule_does_not_change_it(
    api: httpx.AsyncClient, backfill_worker: BackfillWorker, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule="@hourly", payload={"a": 1})
    view = await begin(api, job_id)
    await api.patch(f"/v1/jobs/{job_id}", json={"schedule": "@daily", "payload": {"a": 2}})
    await run_all(backfill_worker, HandWorker(api))
    assert await hours(connection, job_id) == list(range(10))
    assert (await read(api, view))["state"] == "completed"
    assert {run["payload"]["a"] for run in (await api.get(f"/v1/jobs/{job_id}/runs")).json()} == {2}


class Killed(Exception):
    """The process ends here."""


@pytest.mark.parametrize("place", ["create_runs", "advance", "existing", "take_slice"])
@pytest.mark.parametrize("after", [False, True])
async def test_who_is_killed_in_the_middle_has_done_nothing_and_nothing_is_lost(
    api: httpx.AsyncClient, backfill_worker: BackfillWorker, connection: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch, place: str, after: bool,
) -> None:  # fmt: skip
    job_id = await make(api, schedule="@hourly")
    backfill_worker._slice_length = 4
    view = await begin(api, job_id, concurrency=3)
    real, calls = getattr(backfills, place), 0

    async def killed_at_times(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 2 and not after:
            raise Killed
        done = await real(*arguments, **named)
        if calls % 2:
            raise Killed
        return done

    monkeypatch.setattr(backfills, place, killed_at_times)
    worker, killed = HandWorker(api), 0
    while (await read(api, view))["state"] == "running":
        before = await rows(connection)
        item = AtWork(UUID(view["id"]), 1, job_id)  # type: ignore[arg-type]
        try:
            done = await backfill_worker.step(item)
            if done.wants_slice:
                await backfill_worker.take_slice(item)
        except Killed:
            killed += 1
            if calls == 1:
                assert await rows(connection) == before
        reply = await worker.exchange(free=100, hello=None if worker.seq else worker.card)
        assert len(reply.runs) <= 3
        await worker.report(*(outcome(order) for order in reply.runs))
    assert killed >= 2
    assert await hours(connection, job_id) == list(range(10))
    found = await read(api, view)
    assert (found["created"], found["succeeded"], found["total"]) == (10, 10, 10)


async def test_two_servers_work_on_it_at_the_same_time(
    api: httpx.AsyncClient, backfill_worker: BackfillWorker, where: Database, connection: asyncpg.Connection
) -> None:
    other = await assemble(where, SystemClock())
    try:
        other.signals.backfills._listeners.clear()
        job_id = await make(api, schedule="* * * * *")
        workers = [backfill_worker, backfill_worker_of(other)]
        for one in workers:
            one._slice_length = 7
        view = await begin(api, job_id, end="2025-03-01T01:00:00Z", concurrency=5)
        worker = HandWorker(api)
        while (await read(api, view))["state"] == "running":
            await asyncio.gather(*(one.run_once() for one in workers * 2))
            assert await connection.fetchval("select count(*) from mainspring.runs") <= 5
            reply = await worker.exchange(free=100, hello=None if worker.seq else worker.card)
            await worker.report(*(outcome(order) for order in reply.runs))
        found = await read(api, view)
        assert (found["created"], found["succeeded"]) == (60, 60)
        distinct = "select count(*), count(distinct scheduled_for) from mainspring.run_history"
        assert tuple(await connection.fetchrow(distinct)) == (60, 60)
    finally:
        await other.close()


async def test_missed_fires_name_the_backfills_that_make_up_for_them(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule="@hourly")
    await connection.execute(
        "insert into mainspring.missed_fires (tenant_id, job_id, first_at, last_at, count, reason)"
        " select 1, $1, d, d + interval '2 hours', 3, 'paused'"
        " from unnest(array['2025-03-01T08:00Z', '2025-03-01T10:00Z']::timestamptz[]) as d",
        job_id,
    )
    view = await begin(api, job_id)
    missed = (await api.get(f"/v1/jobs/{job_id}/missed")).json()
    assert [one["backfills"] for one in missed] == [[], [view["id"]]]
    await verb(api, view, "cancel")
    assert [one["backfills"] for one in (await api.get(f"/v1/jobs/{job_id}/missed")).json()] == [[], []]


async def test_a_backfill_is_forgotten_with_the_history(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    job_id = await make(api, schedule="@hourly")
    old, young, live = await begin(api, job_id), await begin(api, job_id), await begin(api, job_id)
    for view in (old, young):
        await verb(api, view, "cancel")
    await connection.execute(
        "update mainspring.backfills set ended_at = clock_timestamp() - interval '8 days' where backfill_id = $1",
        old["id"],
    )
    assert await backfills.prune(connection, 7) == 1
    left = [view["id"] for view in (await api.get("/v1/backfills")).json()["backfills"]]
    assert left == [live["id"], young["id"]]


async def test_one_that_cannot_be_continued_does_not_hold_up_the_others(
    api: httpx.AsyncClient, backfill_worker: BackfillWorker, connection: asyncpg.Connection
) -> None:
    broken, sound = [await begin(api, await make(api, schedule="@hourly")) for _ in range(2)]
    await connection.execute(
        'update mainspring.backfills set schedule = \'{"kind": "CRON", "cron": "x"}\' where backfill_id = $1',
        broken["id"],
    )
    await backfill_worker.run_once()
    assert [(await read(api, view))["created"] for view in (broken, sound)] == [0, 1]


async def test_it_ends_if_its_job_is_another_one_now(
    api: httpx.AsyncClient, backfill_worker: BackfillWorker, connection: asyncpg.Connection
) -> None:
    view = await begin(api, await make(api, schedule="@hourly"))
    await backfill_worker.run_once()
    await connection.execute("update mainspring.jobs set generation = 2")
    await backfill_worker.run_once()
    found = await read(api, view)
    assert (found["state"], found["running"], found["ended_at"]) == ("cancelled", 1, None)
    assert "another one" in found["reason"]


@pytest.mark.parametrize(
    ("rule", "days"),
    [
        ({"cron": "H H(8-16) * * *"}, [3, 4, 5, 6, 7]),
        ({"rrule": "DTSTART:20250101T090000\nRRULE:FREQ=DAILY"}, [3, 4, 5, 6, 7]),
        ({"rrule": "DTSTART:20250101T090000\nRRULE:FREQ=WEEKLY;BYDAY=SU,TU", "outside": "next"}, [3, 4]),
        ({"every": "1d", "anchor": "2025-03-01T09:00:00", "start": "2025-03-04T00:00:00"}, [4, 5, 6, 7]),
    ],
    ids=["hash", "rrule", "moved", "start"],
)
async def test_the_fires_are_those_of_the_whole_schedule(
    api: httpx.AsyncClient,
    backfill_worker: BackfillWorker,
    connection: asyncpg.Connection,
    rule: dict[str, Any],
    days: list[int],
) -> None:
    """Within its calendar, with its jitter, and beyond its max_runs."""
    await api.put("/v1/calendars/work", json={"weekdays": ["MON", "TUE", "WED", "THU", "FRI"]})
    schedule = {**rule, "calendar": "work", "jitter": "1h", "max_runs": 2, "timezone": "Europe/Berlin"}
    answer = await api.post("/v1/jobs", json={"task": "noop", "schedule": schedule})
    assert answer.status_code == 201, answer.text
    job_id = answer.json()["job_id"]
    view = await begin(api, job_id, "2025-03-02T12:00:00Z", "2025-03-09T00:00:00Z", concurrency=10)
    assert view["total"] == len(days)
    while await backfill_worker.run_once():
        pass
    found = await connection.fetch("select scheduled_for from mainspring.runs where job_id = $1 order by 1", job_id)
    assert [row["scheduled_for"].day for row in found] == days
    assert any(row["scheduled_for"].microsecond for row in found)  # jitter has milliseconds
    assert (await api.get(f"/v1/jobs/{job_id}")).json()["runs_left"] == 2
