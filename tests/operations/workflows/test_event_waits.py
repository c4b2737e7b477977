"""Steps that wait for an event: none is missed, whenever it comes, and each step ends once."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import httpx
import pytest

from mainspring.operations.events.matcher import EventMatcher
from mainspring.operations.waits.sweeper import WaitSweeper
from mainspring.store import events, joins, waits
from tests.operations.hand_worker import outcome
from tests.operations.tenants import several_tenants
from tests.operations.workflows.scene import Scene, task_of
from tests.operations.workflows.test_crashes import Kills, survives
from tests.operations.workflows.test_sleeps import begin, step, sweep, waits_left

pytestmark = pytest.mark.anyio

PAID: dict[str, Any] = {"event": "order.paid", "key": "42"}


def steps(**more: Any) -> list[dict[str, Any]]:
    """A step that waits for the payment, and one that gets its total."""
    total = {"total": {"$from": "paid", "path": "event.payload.total"}}
    return [
        {"name": "paid", "wait": {**PAID, **more}},
        {"name": "ship", "task": "noop", "depends_on": ["paid"], "payload": total},
    ]


@pytest.fixture
async def scene(scene: Scene) -> Scene:
    """Events are matched only when the test says so."""
    scene.assembly.signals.emitted._listeners.clear()
    return scene


async def emit(scene: Scene, name: str = "order.paid", *, api: httpx.AsyncClient | None = None, **event: Any) -> str:
    body = {"name": name, "key": "42", "payload": {"total": 120}, **event}
    answer = await (api or scene.api).post("/v1/events", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def match(scene: Scene) -> int:
    return await task_of(scene.assembly, EventMatcher).run_once()


async def due(scene: Scene) -> int:
    """End what is due now."""
    return await task_of(scene.assembly, WaitSweeper).run_once()


async def result_of(scene: Scene, run_id: UUID, name: str = "paid") -> Any:
    shown = (await scene.api.get(f"/v1/runs/{(await step(scene, run_id, name))['run_id']}")).json()
    return shown["result"]


async def test_an_event_after_the_wait_has_begun_ends_it_with_its_payload(scene: Scene) -> None:
    run_id = await begin(scene, steps(timeout="2d"))
    assert await due(scene) == 0 and await scene.run_all() == []
    paid = await step(scene, run_id, "paid")
    assert paid["status"] == "WAITING" and paid["wakes_at"] is not None
    assert paid["reason"].startswith("waiting for the event 'order.paid' with the key '42', until ")
    why = (await scene.api.get(f"/v1/runs/{paid['run_id']}/why")).json()
    assert "waiting for the event 'order.paid'" in why["why"]
    event_id = await emit(scene)
    await emit(scene, payload={"total": 7})
    assert await match(scene) == 2 and await due(scene) == 1
    event = (await result_of(scene, run_id))["event"]
    assert (event["id"], event["name"], event["key"]) == (event_id, "order.paid", "42")
    assert event["payload"] == {"total": 120} and event["at"].endswith("Z")
    [order] = await scene.round(outcome)
    assert bytes(order.payload) == b'{"total":120}'
    assert await scene.ended(run_id) == ("SUCCESS", None)
    states = [one["state"] for one in (await scene.api.get(f"/v1/runs/{paid['run_id']}/timeline")).json()]
    assert states == ["FIRED", "WAITING", "SUCCESS"]
    assert await waits_left(scene) == 0
    await scene.at_rest()


@pytest.mark.parametrize(("age", "since", "counts"), [("4 minutes", None, True), ("6 minutes", None, False),
                                                      ("6 minutes", "1h", True), ("1 second", 0, False)])  # fmt: skip
async def test_an_event_that_came_shortly_before_counts(scene: Scene, age: str, since: Any, counts: bool) -> None:
    await emit(scene)
    assert await match(scene) == 1
    await scene.connection.execute(f"update mainspring.events set at = at - interval '{age}'")
    run_id = await begin(scene, steps(**({} if since is None else {"since": since})))
    assert await due(scene) == (1 if counts else 0)
    assert (await step(scene, run_id, "paid"))["status"] == ("SUCCESS" if counts else "WAITING")
    if not counts:  # it looks once, and a later one is found by the matcher
        assert await scene.connection.fetchval("select looked from mainspring.waits")
        await emit(scene)
        assert await match(scene) == 1 and await due(scene) == 1


async def test_another_name_key_or_tenant_ends_nothing(scene: Scene) -> None:
    bare = {"name": "bare", "wait": {"event": "order.paid"}}
    run_id = await begin(scene, [*steps(), bare])
    async with several_tenants(scene.assembly, scene.api) as tenants:
        [other] = await tenants.add("acme")
        await emit(scene, api=other)
        await emit(scene, "order.made")
        await emit(scene, key="43")
        assert await match(scene) == 3 and await due(scene) == 0
        again = await begin(scene, steps())  # nor do they when it looks back
        assert await due(scene) == 0 and await waits_left(scene) == 3
    assert (await scene.api.post("/v1/events", json={"name": "order.paid"})).status_code == 201
    assert await match(scene) == 1 and await due(scene) == 1
    assert (await step(scene, run_id, "bare"))["status"] == "SUCCESS"
    assert (await result_of(scene, run_id, "bare"))["event"]["key"] is None
    await emit(scene)
    assert await match(scene) == 1 and await due(scene) == 2
    assert (await step(scene, again, "paid"))["status"] == "SUCCESS"


async def test_key_and_times_come_from_results_and_parameters(scene: Scene) -> None:
    first = {"name": "order", "task": "noop"}
    given: list[tuple[str, dict[str, Any]]] = [
        ("number", {"key": {"$from": "order", "path": "id"}, "timeout": {"$parameter": "long"}}),
        ("text", {"key": {"$parameter": "shop"}, "since": {"$parameter": "long"}}),
        ("none", {"key": {"$from": "order", "path": "none"}}),
        ("list", {"key": {"$from": "order", "path": "all"}}),
    ]
    waiting = [{"name": n, "wait": {"event": "order.paid", **w}, "depends_on": ["order"]} for n, w in given]
    run_id = await begin(scene, [first, *waiting], parameters={"shop": "berlin", "long": "90s"})
    [order] = await scene.worker.claim(1)
    await scene.worker.report(outcome(order, result={"id": 42, "none": None, "all": ["42"]}))
    rows = await scene.connection.fetch(
        """select key, extract(epoch from wake_at - began_at)::int as timeout,
                  extract(epoch from began_at - since)::int as since from mainspring.waits order by key"""
    )
    assert [tuple(row) for row in rows] == [("42", 90, 300), ("berlin", None, 90)]
    found = await scene.steps(run_id)
    for name in ("none", "list"):
        assert found[name][0] == "FAILED" and "is not the key of an event" in str(found[name][1])
    await emit(scene)
    await emit(scene, key="berlin")
    assert await match(scene) == 2 and await due(scene) == 2 and await waits_left(scene) == 0


@pytest.mark.parametrize(("word", "state"), [("fail", "FAILED"), ("skip", "SKIPPED"), ("continue", "SUCCESS")])
async def test_a_timeout_does_what_the_step_says(scene: Scene, word: str, state: str) -> None:
    run_id = await begin(scene, [steps(timeout="2d", on_timeout=word)[0]])
    await emit(scene, key="43")
    assert await match(scene) == 1 and await sweep(scene) == 1
    await scene.join_counter.run_once()
    assert (await step(scene, run_id, "paid"))["status"] == state
    if state == "SUCCESS":
        assert await result_of(scene, run_id) == {"timed_out": True}
    else:
        reason = "timed out after 2d: the event 'order.paid' with the key '42' did not come"
        assert (await scene.steps(run_id))["paid"][1] == reason


async def test_an_event_that_is_not_matched_yet_counts_before_a_timeout(scene: Scene) -> None:
    run_id = await begin(scene, steps(timeout="2d"))
    assert await due(scene) == 0
    await emit(scene)
    assert await sweep(scene) == 1
    assert (await step(scene, run_id, "paid"))["status"] == "SUCCESS"
    assert await match(scene) == 1 and await due(scene) == 0


async def test_a_cancel_ends_the_wait_and_a_large_payload_is_left_out(scene: Scene) -> None:
    run_id = await begin(scene, steps())
    assert (await scene.api.post(f"/v1/workflow-runs/{run_id}:cancel", json={})).status_code == 202
    assert await scene.ended(run_id) is not None and await waits_left(scene) == 0
    await emit(scene, payload={"text": "x" * 70_000})
    assert await match(scene) == 1 and await due(scene) == 0
    again = await begin(scene, steps())
    assert await due(scene) == 1
    event = (await result_of(scene, again))["event"]
    assert (event["payload"], event["payload_left_out"]) == (None, True)


async def test_none_is_lost_when_events_and_waits_come_at_the_same_time(scene: Scene) -> None:
    """Waits begin, events are stored and matched, and three sweepers look, all at once, in many orders."""
    count = 40
    made = [{"name": f"w{n}", "wait": {"event": "order.paid", "key": str(n), "since": "1h"}} for n in range(count)]
    answer = await scene.api.post("/v1/workflows", json={"steps": made})
    workflow_id = answer.json()["workflow_id"]
    sweepers = [WaitSweeper(scene.assembly.store, scene.assembly.signals) for _ in range(3)]
    matchers = [EventMatcher(scene.assembly.store, scene.assembly.signals) for _ in range(2)]
    scene.assembly.signals.emitted._listeners.clear()
    scene.assembly.signals.wakes._listeners.clear()
    for _ in range(3):
        answer = await scene.api.post(f"/v1/workflows/{workflow_id}:runNow", json={})
        flow = UUID(answer.json()["run_id"])
        await scene.starter.run_once()
        await asyncio.gather(
            scene.join_counter.run_once(),
            *(emit(scene, key=str(n)) for n in range(count)),
            *(one.run_once() for one in (*matchers, *sweepers, *matchers, *sweepers)),
        )
        for one in (*matchers, *sweepers):
            await one.run_once()
        await scene.join_counter.run_once()
        assert await waits_left(scene) == 0 and await scene.ended(flow) == ("SUCCESS", None)
        await scene.connection.execute("update mainspring.events set at = at - interval '1 day'")
    states = await scene.connection.fetch(
        "select state, count(*) from mainspring.run_history where name like 'w%' and name <> 'workflow' group by 1"
    )
    assert dict(states) == {10: 3 * count}
    await scene.at_rest()


@pytest.mark.parametrize("looks_first", [True, False])
async def test_either_side_finds_what_the_other_has_missed(scene: Scene, looks_first: bool) -> None:
    """The wait is stored, and neither side has seen it together with the event."""
    async with scene.connection.transaction():
        await scene.connection.execute('select mainspring.emit(\'{"name": "order.paid", "key": "42"}\')')
        run_id = await begin(scene, steps())
        if looks_first:
            assert await due(scene) == 0  # the event is not committed: it will be matched
        assert await match(scene) == 0
    if looks_first:
        assert await match(scene) == 1
    assert await due(scene) == 1
    assert (await step(scene, run_id, "paid"))["status"] == "SUCCESS"


async def test_a_process_may_be_killed_at_each_write(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = await scene.api.post("/v1/workflows", json={"steps": steps()})
    run_id = UUID(
        (await scene.api.post(f"/v1/workflows/{answer.json()['workflow_id']}:runNow", json={})).json()["run_id"]
    )
    writes = [
        (waits, "open_all"), (waits, "look"), (waits, "mark"), (events, "mark_matched"), (joins, "succeed"),
        (waits, "close"),
    ]  # fmt: skip
    kills = Kills(monkeypatch, writes)
    await scene.starter.run_once()
    while not await survives(scene.join_counter.run_once):
        assert await waits_left(scene) == 0
    assert not await survives(lambda: due(scene))
    assert not await scene.connection.fetchval("select looked from mainspring.waits")
    assert await due(scene) == 0
    await emit(scene)
    while not await survives(lambda: match(scene)):
        assert await scene.connection.fetchval("select wake_at from mainspring.waits") is None
    while not await survives(lambda: due(scene)):
        assert await waits_left(scene) == 1 and (await step(scene, run_id, "paid"))["status"] == "WAITING"
    assert kills.left == [] and await waits_left(scene) == 0
    assert await scene.run_all() == ["ship"]
    assert await scene.ended(run_id) == ("SUCCESS", None)
    await scene.at_rest()


async def test_an_event_is_kept_until_it_has_ended_what_waits_for_it(scene: Scene) -> None:
    run_id = await begin(scene, steps(since="30d"))
    await emit(scene)
    await match(scene)
    await scene.connection.execute("update mainspring.events set at = at - interval '20 days'")
    assert await events.prune(scene.connection, 7) == 0
    assert await due(scene) == 1
    assert await events.prune(scene.connection, 7) == 1
    assert (await step(scene, run_id, "paid"))["status"] == "SUCCESS"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"event": ""}, "wait.event"),
        ({"event": "  "}, "wait.event"),
        ({"event": "a\nb"}, "wait.event"),
        ({"event": "a", "key": "a\nb"}, "wait.key"),
        ({"event": "a", "key": {"$parameter": "none"}}, "wait.key"),
        ({"event": "a", "since": "soon"}, "wait.since"),
        ({"event": "a", "since": -1}, "wait.since"),
        ({"event": "a", "on_timeout": "skip"}, "wait.on_timeout"),
        ({"event": "a", "approval": "go"}, "wait.event"),
        ({"event": "a", "by": ["role:operator"]}, "wait.by"),
        ({"approval": "a", "key": "42"}, "wait.key"),
    ],
)
async def test_what_is_wrong_with_a_wait_for_an_event_is_said(
    api: httpx.AsyncClient, given: dict[str, Any], field: str
) -> None:
    answer = await api.post("/v1/workflows:validate", json={"steps": [{"name": "paid", "wait": given}]})
    assert (answer.status_code, answer.json()["field"]) == (422, f"steps[0].{field}"), answer.text
