"""Steps that sleep: without a slot, across restarts, each ended once."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import httpx
import pytest

from mainspring.operations.waits.sweeper import WaitSweeper
from mainspring.store import joins, waits, workflows
from tests.operations.hand_worker import outcome
from tests.operations.workflows.scene import Scene, task_of
from tests.operations.workflows.test_crashes import Kills, survives

pytestmark = pytest.mark.anyio

NAP: list[dict[str, Any]] = [{"name": "nap", "sleep": "3d"}, {"name": "after", "task": "noop", "depends_on": ["nap"]}]


async def begin(scene: Scene, steps: list[dict[str, Any]], **fields: Any) -> UUID:
    answer = await scene.api.post("/v1/workflows", json={"steps": steps, **fields})
    assert answer.status_code == 201, answer.text
    return await scene.begin(answer.json()["workflow_id"])


async def sweep(scene: Scene) -> int:
    """Let every wait be due, and end what is."""
    await scene.connection.execute("update mainspring.waits set wake_at = clock_timestamp() where wake_at is not null")
    return await task_of(scene.assembly, WaitSweeper).run_once()


async def step(scene: Scene, run_id: UUID, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = (await scene.api.get(f"/v1/workflow-runs/{run_id}")).json()
    return next(one for one in shown["steps"] if one["name"] == name)


async def waits_left(scene: Scene) -> int:
    return int(await scene.connection.fetchval("select count(*) from mainspring.waits"))


async def test_a_step_sleeps_without_a_slot_and_what_follows_runs_then(scene: Scene) -> None:
    run_id = await begin(scene, NAP)
    assert await scene.run_all() == []
    assert await task_of(scene.assembly, WaitSweeper).run_once() == 0
    nap = await step(scene, run_id, "nap")
    assert (nap["status"], nap["reason"][:13], nap["wakes_at"][-1]) == ("WAITING", "asleep until ", "Z")
    why = (await scene.api.get(f"/v1/runs/{nap['run_id']}/why")).json()
    assert why["why"].startswith("It is asleep until ")
    [fired, waiting] = (await scene.api.get(f"/v1/runs/{nap['run_id']}/timeline")).json()
    assert (fired["state"], waiting["state"], waiting["reason"]) == ("FIRED", "WAITING", nap["reason"])
    assert await sweep(scene) == 1
    assert await scene.run_all() == ["after"]
    assert await scene.ended(run_id) == ("SUCCESS", None)
    nap = await step(scene, run_id, "nap")
    assert nap["status"] == "SUCCESS" and nap["start_time"] < nap["end_time"] and nap["duration"] is not None
    states = [one["state"] for one in (await scene.api.get(f"/v1/runs/{nap['run_id']}/timeline")).json()]
    assert states == ["FIRED", "WAITING", "SUCCESS"]
    assert await waits_left(scene) == 0
    await scene.at_rest()


async def test_times_come_from_parameters_and_from_results(scene: Scene) -> None:
    steps: list[dict[str, Any]] = [
        {"name": "first", "task": "noop"},
        {"name": "until", "sleep": {"until": {"$from": "first", "path": "at"}}, "depends_on": ["first"]},
        {"name": "for", "sleep": {"$parameter": "long"}},
        {"name": "wrong", "sleep": {"$from": "first", "path": "at"}, "depends_on": ["first"]},
        {"name": "missing", "sleep": {"$from": "first", "path": "none"}, "depends_on": ["first"]},
    ]
    run_id = await begin(scene, steps, parameters={"long": "90s"})
    [order] = await scene.worker.claim(1)
    await scene.worker.report(outcome(order, result={"at": "2999-01-01T00:00:00+01:00"}))
    assert (await step(scene, run_id, "until"))["wakes_at"] == "2998-12-31T23:00:00Z"
    seconds = await scene.connection.fetchval(
        "select extract(epoch from wake_at - began_at)::bigint from mainspring.waits order by wake_at limit 1"
    )
    assert seconds == 90
    steps_now = await scene.steps(run_id)
    assert steps_now["wrong"][0] == steps_now["missing"][0] == "FAILED"
    assert "is not a duration" in str(steps_now["wrong"][1]) and "there is no value" in str(steps_now["missing"][1])
    assert await sweep(scene) == 2
    await scene.join_counter.run_once()
    assert (await scene.ended(run_id) or ("",))[0] == "FAILED"


async def test_a_cancel_ends_a_sleep_and_a_rerun_sleeps_anew(scene: Scene) -> None:
    run_id = await begin(scene, NAP)
    assert (await scene.api.post(f"/v1/workflow-runs/{run_id}:cancel", json={})).status_code == 202
    assert await scene.ended(run_id) is not None and await waits_left(scene) == 0
    assert (await step(scene, run_id, "nap"))["status"] == "CANCELLED"
    await scene.control.rerun(scene.caller, run_id)
    await scene.starter.run_once()
    await scene.join_counter.run_once()
    assert await waits_left(scene) == 1 and (await step(scene, run_id, "nap"))["status"] == "WAITING"
    assert await sweep(scene) == 1
    assert await scene.run_all() == ["after"]
    assert (await scene.api.get(f"/v1/workflow-runs/{run_id}")).json()["status"] == "SUCCESS"


async def test_it_ends_once_when_two_sweepers_and_a_cancel_meet(scene: Scene) -> None:
    steps = [{"name": f"nap-{number}", "sleep": "1d"} for number in range(60)]
    run_id = await begin(scene, steps)
    await scene.connection.execute("update mainspring.waits set wake_at = clock_timestamp()")
    sweepers = [WaitSweeper(scene.assembly.store, scene.assembly.signals) for _ in range(3)]
    await asyncio.gather(*(one.run_once() for one in sweepers), scene.control.cancel(scene.caller, run_id))
    await scene.join_counter.run_once()
    assert await waits_left(scene) == 0
    ends = await scene.connection.fetch(
        "select state, count(*) from mainspring.run_history where name like 'nap-%' group by 1"
    )
    assert sum(row["count"] for row in ends) == 60 and {row["state"] for row in ends} <= {10, 12}
    assert await scene.ended(run_id) is not None
    await scene.at_rest()


async def test_a_process_may_be_killed_at_each_write_of_a_sleep(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = await scene.api.post("/v1/workflows", json={"steps": NAP})
    kills = Kills(
        monkeypatch,
        [(waits, "open_all"), (joins, "succeed"), (waits, "close"), (workflows, "keep_ends"), (joins, "count")],
    )
    run_id = UUID(
        (await scene.api.post(f"/v1/workflows/{answer.json()['workflow_id']}:runNow", json={})).json()["run_id"]
    )
    await scene.starter.run_once()
    while not await survives(scene.join_counter.run_once):
        assert await waits_left(scene) == 0
    assert await waits_left(scene) == 1
    while not await survives(lambda: sweep(scene)):
        assert await waits_left(scene) == 1 and (await step(scene, run_id, "nap"))["status"] == "WAITING"
    assert kills.left == [] and await waits_left(scene) == 0
    assert await scene.run_all() == ["after"]
    assert await scene.ended(run_id) == ("SUCCESS", None)
    await scene.at_rest()


@pytest.mark.parametrize(
    ("given", "field", "said"),
    [
        ({"sleep": "soon"}, "steps[0].sleep", "is not a duration"),
        ({"sleep": {"till": "x"}}, "steps[0].sleep.till", "does not belong to a sleep"),
        ({"sleep": {"until": "2030-01-01T00:00:00"}}, "steps[0].sleep.until", "has no time zone"),
        ({"sleep": {}}, "steps[0].sleep.until", "missing"),
        ({"sleep": "-1s"}, "steps[0].sleep", "is not a duration"),
        ({"sleep": -1}, "steps[0].sleep", "is out of range"),
        ({"sleep": "1s", "task": "noop"}, "steps[0].task", "runs nothing"),
        ({"sleep": "1s", "retries": 3}, "steps[0].retries", "runs nothing"),
        ({"sleep": "1s", "map": {"range": 3}}, "steps[0].map", "runs nothing"),
        ({"sleep": {"$parameter": "x"}}, "steps[0].sleep", "has no parameter"),
        ({"sleep": {"$from": "y"}}, "steps[0].sleep", "there is no step"),
        ({"task": "mainspring.wait"}, "steps[0].task", "is reserved"),
    ],
)
async def test_what_is_wrong_with_a_sleep_is_said(
    api: httpx.AsyncClient, given: dict[str, Any], field: str, said: str
) -> None:
    for path in ("/v1/workflows", "/v1/workflows:validate"):
        answer = await api.post(path, json={"steps": [{"name": "nap", **given}]})
        assert answer.status_code == 422, answer.text
        error = answer.json()
        assert error["field"] == field and said in error["detail"]
