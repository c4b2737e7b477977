"""A workflow run that is cancelled, replaced or out of time ends with the last of its running steps."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from mainspring.domain.errors import Conflict
from mainspring.operations.workflows import control
from mainspring.store import fanouts, runs, workflows
from mainspring.upkeep.deadline_sweeper import DeadlineSweeper
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_losses import lose
from tests.operations.workflows.scene import Scene, task_of
from tests.operations.workflows.test_crashes import Kills, survives

pytestmark = pytest.mark.anyio

SLOW: list[dict[str, Any]] = [{"name": "slow"}, {"name": "other"}, {"name": "last", "depends_on": ["slow", "other"]}]
CANCELLED = ("CANCELLED", "not today")


async def view(scene: Scene, run_id: UUID) -> dict[str, Any]:
    shown: dict[str, Any] = (await scene.api.get(f"/v1/workflow-runs/{run_id}")).json()
    return shown


async def test_it_is_running_until_its_last_running_step_has_ended(scene: Scene) -> None:
    run_id = await scene.begin(await scene.create(SLOW))
    first, second = await scene.worker.claim(2)
    for _ in range(2):  # a second cancel changes nothing
        answer = await scene.api.post(f"/v1/workflow-runs/{run_id}:cancel", json={"reason": "not today"})
        assert answer.status_code == 202
        shown = answer.json()
        assert (shown["status"], shown["end_time"]) == ("RUNNING", None)
        assert shown["reason"] == "cancel requested; waiting for its steps to end"
    with pytest.raises(Conflict) as refused:
        await scene.control.rerun(scene.caller, run_id)
    assert (refused.value.code, refused.value.hint) == ("run_active", "wait for its end: steps of it are still running")
    await scene.worker.report(outcome(first, "CANCELLED"))
    assert await scene.ended(run_id) is None
    await scene.worker.report(outcome(second, "FAILED", error="no"))
    assert await scene.ended(run_id) == CANCELLED
    shown = await view(scene, run_id)
    assert (shown["status"], shown["counts"]) == ("CANCELLED", {"CANCELLED": 3})
    await scene.join_counter.run_once()
    await scene.stopper.stop(run_id)
    assert await scene.connection.fetchval("select count(*) from mainspring.joins") == 0
    await scene.control.rerun(scene.caller, run_id)
    await scene.starter.run_once()
    assert sorted(await scene.run_all()) == ["last", "other", "slow"]
    assert (await view(scene, run_id))["status"] == "SUCCESS"
    await scene.at_rest()


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel_previous"])
async def test_the_overlap_rule_counts_it_as_running(scene: Scene, overlap: str) -> None:
    workflow_id = await scene.create([{"name": "slow"}], workflow_id="flow", overlap=overlap)
    run_id = await scene.begin(workflow_id)
    [order] = await scene.worker.claim()
    if overlap != "cancel_previous":
        await scene.control.cancel(scene.caller, run_id)
    second = UUID((await scene.api.post("/v1/workflows/flow:runNow", json={})).json()["run_id"])
    assert not await scene.starter.run_once()
    await scene.stopper.run_once()  # which runNow has woken
    await scene.worker.report(outcome(order, "CANCELLED"))
    assert (await scene.ended(run_id) or ("",))[0] == "CANCELLED"
    if overlap == "skip":
        assert (await scene.ended(second) or ("",))[0] == "SKIPPED"
        second = UUID((await scene.api.post("/v1/workflows/flow:runNow", json={})).json()["run_id"])
    assert await scene.starter.run_once()
    assert await scene.run_all() == ["slow"]
    assert await scene.ended(second) == ("SUCCESS", None)


async def test_it_ends_when_the_worker_of_its_last_step_is_lost(scene: Scene) -> None:
    run_id = await scene.begin(await scene.create(SLOW))
    await scene.worker.claim(2)
    await scene.control.cancel(scene.caller, run_id, "not today")
    await lose(scene.connection, scene.worker)
    assert await scene.ended(run_id) == CANCELLED
    assert set((await scene.steps(run_id)).values()) == {CANCELLED}


async def test_a_timeout_fails_it_when_its_last_step_has_ended(scene: Scene) -> None:
    run_id = await scene.begin(await scene.create(SLOW, timeout="1h"))
    first, second = await scene.worker.claim(2)
    await scene.connection.execute("update mainspring.runs set deadline = now() where run_id = $1", run_id)
    for _ in range(2):
        await task_of(scene.assembly, DeadlineSweeper).run_once()
        await scene.stopper.run_once()
    shown = await view(scene, run_id)
    assert (shown["status"], shown["reason"]) == ("RUNNING", "timed out; waiting for its steps to end")
    await scene.control.cancel(scene.caller, run_id, "not today")
    await scene.worker.report(outcome(first), outcome(second, "CANCELLED"))
    assert await scene.ended(run_id) == ("FAILED", "timed out after 1h, the timeout of the workflow")
    assert (await scene.steps(run_id))["slow"][0] == "SUCCESS"
    assert (await scene.api.get("/v1/dead-letters")).json()["dead_letters"] == []


async def test_it_waits_for_members_and_for_steps_that_were_cancelled_before(scene: Scene) -> None:
    steps = [{"name": "each", "map": {"range": 90, "max_parallel": 80}}, {"name": "alone"}]
    run_id = await scene.begin(await scene.create(steps))
    await scene.expander.run_once()
    orders = {order.name: order for order in await scene.worker.claim(81)}
    [alone] = [order for order in orders.values() if order.name == "alone"]
    await scene.api.post(f"/v1/runs/{alone.run_id}:cancel")
    await scene.worker.report(outcome(orders["each"]))
    await scene.control.cancel(scene.caller, run_id, "not today")
    await lose(scene.connection, scene.worker)
    assert await scene.ended(run_id) == CANCELLED
    assert (await scene.steps(run_id))["alone"] == ("CANCELLED", "cancelled on request")
    assert await scene.connection.fetchval("select count(*) from mainspring.runs") == 0


async def test_members_that_were_not_created_are_not_created_by_a_rerun(scene: Scene) -> None:
    run_id = await scene.begin(await scene.create([{"name": "each", "map": {"range": 5, "max_parallel": 2}}]))
    await scene.expander.run_once()
    await scene.control.cancel(scene.caller, run_id)
    await scene.control.rerun(scene.caller, run_id)
    await scene.starter.run_once()
    ran = 0
    while await scene.expander.run_once():
        ran += len(await scene.run_all())
    assert ran == 5
    assert (await view(scene, run_id))["status"] == "SUCCESS"


async def test_two_workers_that_report_the_last_steps_at_once_end_it(scene: Scene) -> None:
    """Each of them may see that the step of the other runs: only one of them is the last."""
    workflow_id = await scene.create(SLOW, overlap="allow")
    second = HandWorker(scene.api)
    for _ in range(5):
        run_id = await scene.begin(workflow_id)
        [one], [other] = await scene.worker.claim(), await second.claim()
        await scene.control.cancel(scene.caller, run_id, "not today")
        await asyncio.gather(scene.worker.report(outcome(one, "CANCELLED")), second.report(outcome(other, "CANCELLED")))
        assert await scene.ended(run_id) == CANCELLED
    assert await scene.connection.fetchval("select count(*) from mainspring.runs") == 0


async def test_a_kill_after_any_write_of_a_cancel_leaves_none_of_it_behind(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [*SLOW, {"name": "each", "map": {"range": 4, "max_parallel": 2}}]
    run_id = await scene.begin(await scene.create(steps))
    await scene.expander.run_once()
    orders = await scene.worker.claim(3)
    kills = Kills(
        monkeypatch,
        [(workflows, "stop"), (runs, "request_cancels"), (runs, "end"), (fanouts, "close_of_flow"),
         (workflows, "keep_ends"), (workflows, "close")],
    )  # fmt: skip
    assert not await survives(lambda: scene.control.cancel(scene.caller, run_id, "not today"))
    assert (await view(scene, run_id))["reason"] is None  # nothing of it is stored
    while not await survives(lambda: scene.control.cancel(scene.caller, run_id, "not today")):
        assert await scene.ended(run_id) is None
    pending = [outcome(order, "CANCELLED") for order in orders]
    while (await scene.worker.ask(outcomes=pending)).status_code != 200:
        assert await scene.ended(run_id) is None
    assert kills.left == []
    assert await scene.ended(run_id) == CANCELLED
    assert await scene.connection.fetchval("select count(*) from mainspring.runs") == 0


async def test_another_server_ends_what_a_killed_one_has_left(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was killed after it had stored that the run is being stopped."""

    async def killed(*_: object) -> None: ...

    monkeypatch.setattr(control.FlowStopper, "stop", killed)
    run_id = await scene.begin(await scene.create(SLOW))
    [order] = await scene.worker.claim()
    await scene.control.cancel(scene.caller, run_id, "not today")
    await scene.worker.report(outcome(order))
    assert await scene.ended(run_id) is None
    monkeypatch.undo()
    await scene.stopper.run_once()
    assert await scene.ended(run_id) == CANCELLED
    await scene.join_counter.run_once()
    await scene.at_rest()


async def test_a_workflow_run_that_an_older_server_has_ended_ends_with_its_steps(scene: Scene) -> None:
    run_id = await scene.begin(await scene.create(SLOW))
    [order] = await scene.worker.claim()
    await scene.connection.execute("update mainspring.flows set state = 3, stop_reason = 'not today'")
    await scene.connection.execute("delete from mainspring.runs where run_id = $1", run_id)
    await scene.stopper.run_once()
    assert await scene.connection.fetchval("select state from mainspring.flows") == 3
    await scene.worker.report(outcome(order))
    await scene.stopper.run_once()
    assert await scene.connection.fetchval("select state from mainspring.flows") == 4
