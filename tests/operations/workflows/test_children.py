"""Steps that run another workflow: one child for each run of a step, whatever is killed."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import msgspec
import pytest

from mainspring import Mainspring
from mainspring.domain.errors import Forbidden
from mainspring.domain.workflows.children import MOST_LEVELS
from mainspring.kernel.ids import uuid7
from mainspring.operations.workflows.calls import check_calls, may_run
from mainspring.operations.workflows.children import ChildRunner
from mainspring.operations.workflows.preparation import CallByStep
from mainspring.store import child_runs, joins, waits
from tests.api.bookkeeping import problem
from tests.operations.hand_worker import outcome
from tests.operations.workflows.scene import Scene, task_of
from tests.operations.workflows.test_crashes import Kills, survives
from tests.operations.workflows.test_sleeps import begin, step, waits_left

pytestmark = pytest.mark.anyio

CALL: list[dict[str, Any]] = [
    {"name": "order", "task": "noop"},
    {
        "name": "load", "workflow": "loading", "parameters": {"day": {"$from": "order", "path": "day"}},
        "depends_on": ["order"],
    },
    {
        "name": "report", "task": "noop", "depends_on": ["load"],
        "payload": {"rows": {"$from": "load", "path": "results.sum.rows"}},
    },
]  # fmt: skip


def runner(scene: Scene) -> ChildRunner:
    return task_of(scene.assembly, ChildRunner)


async def loading(scene: Scene, **fields: Any) -> None:
    steps = [{"name": "read", "payload": {"day": {"$parameter": "day"}}}, {"name": "sum", "depends_on": ["read"]}]
    fields = {"overlap": "allow", "parameters": {"day": None}, **fields}
    await scene.create(steps, workflow_id="loading", **fields)


async def children(scene: Scene) -> list[UUID]:
    rows = await scene.connection.fetch(
        """select run_id from mainspring.runs where job_id = 'loading' and trigger like 'parent:%'
           union all select run_id from mainspring.run_history where job_id = 'loading' and trigger like 'parent:%'
           order by 1"""
    )
    return [row["run_id"] for row in rows]


async def go_on(scene: Scene) -> None:
    """Start and end children until there is nothing to do."""
    moved = 1
    while moved:
        moved = await scene.starter.run_once() + await scene.join_counter.run_once() + await runner(scene)._pass()


async def called(scene: Scene) -> tuple[UUID, UUID]:
    """A workflow run whose step `load` has a child, which is ready to run."""
    run_id = await begin(scene, CALL)
    await scene.round(lambda order: outcome(order, result={"day": "2030-01-02"}))
    await go_on(scene)
    assert (await scene.steps(run_id))["load"] == ("WAITING", None)
    return run_id, (await children(scene))[-1]


async def test_a_step_runs_a_workflow_and_has_its_results(scene: Scene) -> None:
    await loading(scene)
    run_id, child = await called(scene)
    load = await step(scene, run_id, "load")
    assert load["status"] == "WAITING" and load["child_run_id"] == str(child)
    assert load["reason"] == f"waiting for run {child} of the workflow 'loading'"
    why = (await scene.api.get(f"/v1/runs/{load['run_id']}/why")).json()["why"]
    assert why == f"It is {load['reason']}."
    view = (await scene.api.get(f"/v1/workflow-runs/{child}")).json()
    assert (view["parent_run_id"], view["parameters"]) == (str(run_id), {"day": "2030-01-02"})
    orders = await scene.round(outcome)
    assert [bytes(order.payload) for order in orders] == [b'{"day":"2030-01-02"}']
    await scene.round(lambda order: outcome(order, result={"rows": 7}))
    assert await scene.ended(child) == ("SUCCESS", None)
    await go_on(scene)
    [report] = await scene.round(outcome)
    assert bytes(report.payload) == b'{"rows":7}' and await scene.ended(run_id) == ("SUCCESS", None)
    load = await step(scene, run_id, "load")
    assert load["status"] == "SUCCESS" and load["child_run_id"] == str(child) and await waits_left(scene) == 0
    timeline = (await scene.api.get(f"/v1/runs/{child}/timeline")).json()
    assert timeline[0]["reason"] == f"by a step of the workflow run {run_id}"
    assert [one["state"] for one in (await scene.api.get(f"/v1/runs/{load['run_id']}/timeline")).json()] == [
        "FIRED", "WAITING", "SUCCESS",
    ]  # fmt: skip
    await scene.at_rest()


@pytest.mark.parametrize("way", ["fails", "cancelled"])
async def test_a_child_that_does_not_succeed_ends_its_step_and_a_rerun_has_another_child(
    scene: Scene, way: str
) -> None:
    await loading(scene)
    run_id, child = await called(scene)
    if way == "fails":
        await scene.round(lambda order: outcome(order, "FAILED", error="no rows", retry=False))
    else:
        await scene.control.cancel(scene.caller, child, "not today")
    await go_on(scene)
    found = await scene.steps(run_id)
    state = {"fails": "FAILED", "cancelled": "CANCELLED"}[way]
    why = {"fails": "step read failed", "cancelled": "not today"}[way]
    assert found["load"] == (state, f"run {child} of the workflow 'loading' ended {state}: {why}")
    assert found["report"][0] == "SKIPPED" and (await scene.ended(run_id) or ("",))[0] == "FAILED"
    await scene.control.rerun(scene.caller, run_id)
    await go_on(scene)
    first, second = await children(scene)
    assert first == child and (await step(scene, run_id, "load"))["child_run_id"] == str(second)
    await scene.run_all(lambda order: outcome(order, result={"rows": 1}))
    await go_on(scene)
    assert await scene.run_all() == ["report"]
    assert (await scene.api.get(f"/v1/workflow-runs/{run_id}")).json()["status"] == "SUCCESS"


async def test_a_cancel_of_the_parent_cancels_its_child_before_it_is_answered(scene: Scene) -> None:
    await loading(scene)
    run_id, child = await called(scene)
    assert (await scene.api.post(f"/v1/workflow-runs/{run_id}:cancel", json={})).status_code == 202
    assert (await scene.ended(child) or ("",))[0] == "CANCELLED" and (await scene.worker.exchange(free=9)).runs == []
    assert {state for state, _ in (await scene.steps(child)).values()} == {"CANCELLED"}
    assert await waits_left(scene) == 0 and await states(scene) == [5]


async def test_a_step_that_is_cancelled_alone_leaves_no_child(scene: Scene) -> None:
    await loading(scene)
    run_id, child = await called(scene)
    load = await step(scene, run_id, "load")
    await scene.connection.execute("update mainspring.child_runs set state = 4")  # as its end leaves it
    await scene.stopper.run_once()
    assert (await scene.ended(child) or ("",))[0] == "CANCELLED" and await states(scene) == [5]
    assert load["run_id"] and await scene.stopper.run_once() == 0


async def states(scene: Scene) -> list[int]:
    return [row[0] for row in await scene.connection.fetch("select state from mainspring.child_runs order by run_id")]


async def test_a_kill_after_any_write_makes_neither_two_children_nor_none(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await loading(scene)
    kills = Kills(
        monkeypatch,
        [
            (child_runs, "open_all"), (child_runs, "follow"), (child_runs, "started"),
            (child_runs, "ended"), (joins, "succeed"), (waits, "close"),
        ],
    )  # fmt: skip
    answer = await scene.api.post("/v1/workflows", json={"steps": [{**CALL[1], "parameters": {}, "depends_on": []}]})
    run_id = (await scene.api.post(f"/v1/workflows/{answer.json()['workflow_id']}:runNow", json={})).json()["run_id"]
    await scene.starter.run_once()
    while not await survives(scene.join_counter.run_once):
        assert await states(scene) == []
    while len(await children(scene)) == 0:
        await runner(scene)._pass()
    await scene.starter.run_once()
    for _ in range(4):
        reply = await scene.worker.exchange(free=10, hello=None if scene.worker.seq else scene.worker.card)
        for order in reply.runs:
            while (await scene.worker.ask(outcomes=[outcome(order)])).status_code >= 500:
                assert await states(scene) == [2]
        while not await survives(scene.join_counter.run_once):
            pass
    for _ in range(4):
        await runner(scene)._pass()
        while not await survives(scene.join_counter.run_once):
            pass
    assert kills.left == [] and len(await children(scene)) == 1 and await states(scene) == [5]
    assert await scene.ended(UUID(run_id)) == ("SUCCESS", None)
    await scene.at_rest()


async def test_runners_at_once_start_one_child_for_each_step(scene: Scene) -> None:
    await loading(scene)
    await begin(scene, [{"name": f"load-{number}", "workflow": "loading"} for number in range(10)])
    one = runner(scene)
    runners = [ChildRunner(one._store, one._lanes, one._signals, one._graph_indexes) for _ in range(3)]
    assert sum(await asyncio.gather(*(each.run_once() for each in runners))) == 10
    assert len(await children(scene)) == 10 and await states(scene) == [2] * 10


async def test_what_a_step_cannot_run_ends_it_with_the_reason(scene: Scene) -> None:
    await loading(scene, overlap="skip")
    run_id = await begin(scene, [{"name": f"load-{number}", "workflow": "loading"} for number in range(2)])
    await scene.connection.execute(
        "update mainspring.workflow_versions set calls_of = gen_random_uuid() where calls is not null"
    )
    await scene.connection.execute("update mainspring.jobs set status = 4 where job_id = 'none'")
    await go_on(scene)
    assert {reason for _, reason in (await scene.steps(run_id)).values()} == {
        "the workflow 'loading' cannot run: it was created by another token than the workflow that runs it"
    }
    run_id = await begin(scene, [{"name": f"load-{number}", "workflow": "loading"} for number in range(2)])
    await go_on(scene)
    found = dict((await scene.steps(run_id)).values())
    assert set(found) == {"WAITING", "FAILED"} and "ended SKIPPED" in str(found["FAILED"])
    run_id = await begin(scene, [{"name": "load", "workflow": "loading"}])
    assert (await scene.api.delete("/v1/workflows/loading")).status_code in (200, 202, 204)
    await go_on(scene)
    assert (await scene.steps(run_id))["load"] == (
        "FAILED", "the workflow 'loading' cannot run: there is no such workflow",
    )  # fmt: skip


async def test_a_workflow_that_runs_itself_is_stopped_also_if_nobody_saw_it(scene: Scene) -> None:
    await scene.create([{"name": "one"}], workflow_id="loading", overlap="allow")
    run_id = await begin(scene, [{"name": "load", "workflow": "loading"}])
    await scene.connection.execute(
        """update mainspring.workflow_versions v set definition = o.definition
           from mainspring.workflow_versions o where o.calls is not null and v.workflow_id = 'loading'"""
    )
    await go_on(scene)
    [child] = await children(scene)
    reason = "the workflow 'loading' cannot run: it runs already, further up: 'loading'"
    assert str((await scene.steps(child))["load"][1]).startswith(reason)
    assert (await scene.ended(run_id) or ("",))[0] == "FAILED"


async def test_what_is_wrong_with_the_workflow_of_a_step_is_said(scene: Scene) -> None:
    await loading(scene)
    await scene.create([{"name": "one", "workflow": "loading", "task": None}], workflow_id="outer")
    for given, field, said in (
        ({"workflow": "none"}, "steps[0].workflow", "there is no workflow"),
        ({"workflow": "loading", "parameters": {"week": 1}}, "steps[0].parameters.week", "has no parameter"),
        ({"workflow": "loading", "task": "noop"}, "steps[0].task", "runs nothing"),
        ({"workflow": "loading", "sleep": "1s"}, "steps[0].workflow", "not both"),
        ({"workflow": "loading", "map": {"range": 3}}, "steps[0].map", "runs nothing"),
        ({"sleep": "1s", "parameters": {}}, "steps[0].parameters", "runs none"),
        ({"task": "noop", "parameters": {"a": 1}}, "steps[0].parameters", "runs none"),
    ):
        for path in ("/v1/workflows", "/v1/workflows:validate"):
            answer = await scene.api.post(path, json={"steps": [{"name": "load", **given}]})
            assert answer.status_code == 422, answer.text
            assert problem(answer)["field"] == field and said in problem(answer)["detail"]
    for cycle in ("outer", "loading"):
        body = {"steps": [{"name": "load", "workflow": cycle}]}
        answer = await scene.api.patch("/v1/workflows/loading", json=body)
        assert (answer.status_code, problem(answer)["code"]) == (422, "cycle"), answer.text
    assert "'loading' runs 'outer' runs 'loading'" in problem(
        await scene.api.patch("/v1/workflows/loading", json={"steps": [{"name": "load", "workflow": "outer"}]})
    )["detail"].replace('"', "'")


async def test_levels_are_bounded(scene: Scene) -> None:
    await scene.create([{"name": "one"}], workflow_id="level-0")
    for level in range(1, MOST_LEVELS + 3):
        body = {"workflow_id": f"level-{level}", "steps": [{"name": "down", "workflow": f"level-{level - 1}"}]}
        answer = await scene.api.post("/v1/workflows", json=body)
        if answer.status_code != 201:
            break
    assert level >= MOST_LEVELS and "nested in more than" in problem(answer)["detail"]


async def test_what_others_have_left_is_found(scene: Scene) -> None:
    await loading(scene)
    _, child = await called(scene)
    await scene.connection.execute("update mainspring.child_runs set began_at = now() - interval '1 hour'")
    async with scene.assembly.store.change() as connection:
        assert await child_runs.find_lost(connection, 10) == 0
        await connection.execute("delete from mainspring.runs where run_id = $1", child)
        assert await child_runs.find_lost(connection, 10) == 1
    await go_on(scene)
    assert await states(scene) == [5]


async def test_a_submitter_runs_only_what_is_its_own(scene: Scene) -> None:
    await loading(scene)
    call = CallByStep("steps[0]", "loading", [])
    submitter = msgspec.structs.replace(scene.caller, role="submitter")
    async with scene.assembly.store.reads.acquire() as connection:
        await check_calls(connection, scene.caller, "", [call])
        with pytest.raises(Forbidden, match="created by another token"):
            await check_calls(connection, submitter, "", [call])
    mine = uuid7()
    assert may_run(None, mine) and may_run(mine, mine) and not may_run(mine, uuid7()) and not may_run(mine, None)


async def test_a_job_file_stores_a_workflow_before_those_that_run_it(scene: Scene) -> None:
    outer = {"steps": [{"name": "down", "workflow": "z-inner", "parameters": {"day": 1}}]}
    inner = {"steps": [{"name": "one", "task": "noop"}], "parameters": {"day": None}}
    objects = [{"kind": "workflows", "id": name, "body": body} for name, body in (("a", outer), ("z-inner", inner))]
    for path in ("/v1/files:plan", "/v1/files:apply"):
        answer = await scene.api.post(path, json={"owner": "shop", "objects": objects})
        assert answer.status_code == 200, answer.text
        assert [one["id"] for one in answer.json()["changes"]] == ["z-inner", "a"]
    again = await scene.api.post("/v1/files:apply", json={"owner": "shop", "objects": objects})
    assert {one["action"] for one in again.json()["changes"]} == {"unchanged"}
    exported = (await scene.api.post("/v1/files:export", json={"kind": "workflows", "owner": "shop"})).json()["objects"]
    assert exported[0]["body"]["steps"] == outer["steps"]


def test_a_workflow_of_an_application_names_it() -> None:
    app = Mainspring("shop")
    inner = app.workflow("inner", parameters={"day": None})
    inner.add("one", task="noop")
    outer = app.workflow("outer")
    first = outer.add("first", task="noop")
    down = outer.run_workflow("down", inner, parameters={"day": first.result["day"]}, after=first)
    outer.add("last", task="noop", payload={"rows": down.result["results"]["one"]["rows"]})
    steps = outer.definition()["steps"]
    assert steps[1] == {
        "name": "down", "workflow": "inner", "parameters": {"day": {"$from": "first", "path": "day"}},
        "depends_on": ["first"],
    }  # fmt: skip
    assert steps[2]["depends_on"] == ["down"]
    outer.check()
