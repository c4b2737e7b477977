"""Jobs and workflows that events start: one run for each event and job, whatever is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.operations.events.matcher import EventMatcher
from mainspring.operations.events.starter import EventStarter
from mainspring.operations.limits.admitter import Admitter
from mainspring.roles.assembly import Assembly
from mainspring.store import events
from tests.api.bookkeeping import problem
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


class Scene:
    """The matcher and the starter of a server. They work only when the test says so."""

    def __init__(self, api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> None:
        for signal in (assembly.signals.emitted, assembly.signals.event_starts):
            signal._listeners.clear()
        tasks = assembly.periodic_tasks
        self.matcher = next(task for task in tasks if isinstance(task, EventMatcher))
        self.starter = next(task for task in tasks if isinstance(task, EventStarter))
        self.admitter = next(task for task in tasks if isinstance(task, Admitter))
        self.api = api
        self.connection = connection

    async def job(self, job_id: str, event: str, **fields: Any) -> None:
        schedule = {"event": event, **fields.pop("when", {})}
        body = {"job_id": job_id, "task": job_id, "schedule": schedule, "retries": 0, **fields}
        answer = await self.api.post("/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text

    async def emit(self, *ids: str, name: str = "order.paid", **event: Any) -> None:
        batch = [{"name": name, "id": one, **event} for one in ids]
        assert (await self.api.post("/v1/events:batch", json={"events": batch})).status_code == 201

    async def start(self) -> int:
        await self.matcher.run_once()
        return await self.starter.run_once()

    async def payloads(self, job_id: str) -> list[Any]:
        """Of the runs, in the order in which they were created."""
        runs = (await self.api.get(f"/v1/jobs/{job_id}/runs", params={"limit": 200})).json()
        return [run["payload"] for run in reversed(runs)]

    async def ids(self, job_id: str) -> list[str]:
        return [payload["event"]["id"] for payload in await self.payloads(job_id)]

    async def later(self, seconds: float) -> None:
        """Let this time pass for what waits."""
        await self.connection.execute(
            "update mainspring.event_starts set due_at = due_at - $1 * interval '1 second'", seconds
        )


@pytest.fixture
async def scene(api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> AsyncIterator[Scene]:
    yield Scene(api, assembly, connection)


async def test_an_event_starts_one_run_of_each_job_whose_condition_holds(scene: Scene) -> None:
    await scene.job("ship", "order.paid", payload={"mode": "fast"})
    await scene.job("check", "order.paid", when={"if": "payload.total > 100 && payload.country in ['DE', 'FR']"})
    await scene.job("other", "order.cancelled")
    await scene.emit("e1", key="42", payload={"total": 120, "country": "DE"})
    await scene.emit("e2", payload={"total": 50, "country": "DE"})
    await scene.emit("e3")
    assert await scene.start() == 4
    assert await scene.start() == 0
    assert await scene.ids("ship") == ["e1", "e2", "e3"] and await scene.ids("check") == ["e1"]
    assert await scene.payloads("other") == []
    [first, *_] = await scene.payloads("ship")
    assert first["mode"] == "fast"
    assert {**first["event"], "at": ""} == {
        "id": "e1", "name": "order.paid", "key": "42", "at": "", "payload": {"total": 120, "country": "DE"},
    }  # fmt: skip
    view = (await scene.api.get("/v1/events/e1")).json()
    assert [one["job_id"] for one in view["causes"]] == ["check", "ship"] and view["caused"] == 2
    run = (await scene.api.get(f"/v1/runs/{view['causes'][0]['run_id']}")).json()
    assert (run["job_id"], run["trigger"]) == ("check", "event:e1")
    job = (await scene.api.get("/v1/jobs/check")).json()
    assert (job["schedule_type"], job["status"], job["overlap"]) == ("EVENT", "SCHEDULED", "allow")
    assert job["schedule_in_words"].startswith("When order.paid is emitted, if payload.total")
    keys = [run["idempotency_key"] for run in (await scene.api.get("/v1/jobs/ship/runs")).json()]
    assert len(set(keys)) == 3


async def test_two_servers_at_once_start_one_run_of_each(scene: Scene) -> None:
    await scene.job("ship", "order.paid")
    await scene.job("bill", "order.paid", overlap="queue")
    ids = [f"e{number}" for number in range(60)]
    await scene.emit(*ids)
    others = [EventStarter(scene.starter._store, scene.starter._lanes, scene.starter._signals) for _ in range(2)]
    matchers = [EventMatcher(scene.matcher._store, scene.matcher._signals) for _ in range(2)]
    await asyncio.gather(*(one.run_once() for one in (*matchers, scene.matcher)))
    await scene.matcher.run_once()
    await asyncio.gather(*(one.run_once() for one in (*others, scene.starter)))
    await scene.starter.run_once()
    assert await scene.ids("ship") == ids and await scene.ids("bill") == ids


async def test_a_process_that_dies_in_a_step_has_changed_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    await scene.job("ship", "order.paid")
    await scene.emit("e1", "e2")

    async def dies(*_: Any) -> None:
        raise ConnectionError("killed here")

    with monkeypatch.context() as patched:
        patched.setattr(events, "mark_matched", dies)
        with pytest.raises(ConnectionError):
            await scene.matcher.run_once()
    await scene.matcher.run_once()
    with monkeypatch.context() as patched:
        patched.setattr(events, "note_starts", dies)
        with pytest.raises(ConnectionError):
            await scene.starter.run_once()
    assert await scene.payloads("ship") == []
    assert await scene.start() == 2
    assert await scene.ids("ship") == ["e1", "e2"]


async def test_events_of_a_key_are_dealt_with_in_order(scene: Scene) -> None:
    order = {"key": "payload.event.key", "limit": 1, "order": "strict"}
    await scene.job("ship", "order.paid", concurrency=order)
    for event_id, key in (("a1", "a"), ("b1", "b"), ("a2", "a"), ("a3", "a")):
        await scene.emit(event_id, key=key)
    await scene.start()
    worker = HandWorker(scene.api, tasks=("ship",))
    seen = []
    for count in (2, 1, 1):
        await scene.admitter.run_once()
        claimed = await worker.claim(count)
        seen.append(sorted(msgspec.json.decode(order.payload)["event"]["id"] for order in claimed))
        await worker.report(*(outcome(order, "SUCCESS") for order in claimed))
    assert seen == [["a1", "b1"], ["a2"], ["a3"]]


async def test_events_share_a_run_by_number_or_time(scene: Scene) -> None:
    await scene.job("ship", "order.paid", when={"batch": {"size": 3, "wait": "10m"}})
    await scene.emit(*[f"e{number}" for number in range(8)])
    await scene.matcher.run_once()
    await scene.starter._start_jobs([(1, "ship")])  # type: ignore[list-item]
    together = [[event["id"] for event in payload["events"]] for payload in await scene.payloads("ship")]
    assert together == [["e0", "e1", "e2"], ["e3", "e4", "e5"]]
    waiting = (await scene.api.get("/v1/events/e7")).json()["causes"]
    assert waiting[0]["job_id"] == "ship" and "run_id" not in waiting[0] and waiting[0]["starts_by"]
    await scene.later(601)
    assert await scene.start() == 1
    assert [event["id"] for event in (await scene.payloads("ship"))[-1]["events"]] == ["e6", "e7"]
    causes = [(await scene.api.get(f"/v1/events/{one}")).json()["causes"][0] for one in ("e6", "e7")]
    assert causes[0]["run_id"] == causes[1]["run_id"]


async def test_a_debounced_job_runs_with_the_last_event_of_a_key(scene: Scene) -> None:
    await scene.job("index", "doc.changed", when={"debounce": "30s"})
    await scene.emit("a1", name="doc.changed", key="a")
    await scene.matcher.run_once()
    await scene.later(20)
    await scene.emit("a2", "b1", name="doc.changed", key="a")
    assert await scene.start() == 0
    await scene.later(11)
    assert await scene.start() == 0  # a2 came 11 s ago
    await scene.later(20)
    assert await scene.start() == 1
    assert await scene.ids("index") == ["b1"]
    for number in range(2):  # events that never stop do not hold it up for ever
        await scene.emit(f"c{number}", name="doc.changed", key="c")
        await scene.matcher.run_once()
        await scene.later(0 if number else 310)
    assert await scene.starter.run_once() == 1
    assert await scene.ids("index") == ["b1", "c1"]


async def test_events_wait_for_a_paused_job_and_not_for_a_cancelled_one(scene: Scene) -> None:
    await scene.job("ship", "order.paid")
    await scene.api.post("/v1/jobs/ship:pause", json={})
    await scene.emit("e1")
    assert await scene.start() == 0
    await scene.api.post("/v1/jobs/ship:resume", json={})
    assert await scene.start() == 1
    await scene.emit("e2")
    await scene.matcher.run_once()
    await scene.api.delete("/v1/jobs/ship")
    assert await scene.starter.run_once() == 0
    [cause] = (await scene.api.get("/v1/events/e2")).json()["causes"]
    assert "cancelled" in cause["reason"]


async def test_a_workflow_starts_on_an_event_and_has_it_as_a_parameter(scene: Scene) -> None:
    steps = [{"name": "pack", "task": "pack", "payload": {"order": {"$parameter": "event"}}}]
    body = {"workflow_id": "ship", "schedule": {"event": "order.paid"}, "parameters": {"event": None}, "steps": steps}
    answer = await scene.api.post("/v1/workflows", json=body)
    assert answer.status_code == 201, answer.text
    await scene.emit("e1", key="42")
    assert await scene.start() == 1
    [payload] = await scene.payloads("ship")
    assert payload["event"]["key"] == "42"


@pytest.mark.parametrize(
    ("schedule", "field"),
    [
        ({"event": ""}, "schedule.event"),
        ({"event": "a", "every": "1m"}, "schedule"),
        ({"event": "a", "if": "total >"}, "schedule.if"),
        ({"event": "a", "if": "x" * 2001}, "schedule.if"),
        ({"if": "true"}, "schedule.if"),
        ({"every": "1m", "if": "true"}, "schedule.if"),
        ({"event": "a", "batch": {"size": 1, "wait": "1s"}}, "schedule.batch.size"),
        ({"event": "a", "batch": {"size": 5, "wait": "8d"}}, "schedule.batch.wait"),
        ({"event": "a", "debounce": "0s"}, "schedule.debounce"),
        ({"event": "a", "debounce": "1s", "batch": {"size": 5, "wait": "1s"}}, "schedule.debounce"),
        ({"event": "a", "jitter": "1m"}, "schedule.jitter"),
    ],
)
async def test_schedules_that_make_no_sense_are_refused(
    api: httpx.AsyncClient, schedule: dict[str, Any], field: str
) -> None:
    answer = await api.post("/v1/jobs", json={"task": "t", "schedule": schedule})
    assert answer.status_code == 422, answer.text
    assert problem(answer)["field"] == field, answer.text


async def test_what_needs_times_says_that_an_event_job_has_none(scene: Scene) -> None:
    await scene.job("ship", "order.paid")
    assert (await scene.api.get("/v1/jobs/ship/upcoming")).json()["fires"] == []
    why = (await scene.api.get("/v1/jobs/ship/why", params={"at": "2030-01-01T00:00:00Z"})).json()
    assert "on order.paid" in str(why)
    span = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
    refused = await scene.api.post("/v1/jobs/ship:backfill", json=span)
    assert (refused.status_code, problem(refused)["code"]) == (422, "not_recurring")
    parents = await scene.api.post("/v1/jobs", json={"task": "t", "schedule": {"event": "a"}, "depends_on": ["ship"]})
    assert (parents.status_code, problem(parents)["field"]) == (422, "depends_on")


async def test_a_patch_changes_the_members_of_a_schedule_that_it_names(scene: Scene) -> None:
    batch = {"size": 10, "wait": "5s", "by_key": True}
    await scene.job("ship", "order.paid", when={"if": "payload.total > 100", "batch": batch})
    kept = {"kind": "EVENT", "event": "order.paid"}
    together = {"batch": 10, "batch_wait": 5.0, "by_key": True}
    changes: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"if": "payload.total > 5"}, {**kept, "condition": "payload.total > 5", **together}),
        ({"batch": None}, {**kept, "condition": "payload.total > 5"}),
        ({"if": None, "debounce": "2s"}, {**kept, "debounce": 2.0}),
        ({"event": "order.sent"}, {"kind": "EVENT", "event": "order.sent"}),
    ]
    for change, stored in changes:
        answer = await scene.api.patch("/v1/jobs/ship", json={"schedule": change})
        assert answer.status_code == 200, answer.text
        text = await scene.connection.fetchval("select schedule::text from mainspring.jobs where job_id = 'ship'")
        assert msgspec.json.decode(text) == stored
    refused = await scene.api.patch("/v1/jobs/ship", json={"schedule": {"if": "payload."}})
    assert (refused.status_code, problem(refused)["field"]) == (422, "schedule.if")
