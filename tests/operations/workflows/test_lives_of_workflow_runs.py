"""FEATURES 4.1 to 4.5: workflow runs start, their steps follow each other, and they end."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from mainspring.domain.errors import Conflict
from mainspring.kinds.http.caller import _call_of
from mainspring.operations.workflows import control
from mainspring.upkeep.deadline_sweeper import DeadlineSweeper
from mainspring.wire.exchange import Outcome, RunOrder
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.workflows.scene import Answer, Scene, task_of

pytestmark = pytest.mark.anyio

DIAMOND: list[dict[str, Any]] = [
    {"name": "a"},
    {"name": "b", "depends_on": ["a"]},
    {"name": "c", "depends_on": ["a"]},
    {"name": "d", "depends_on": ["b", "c"]},
]


def failing(*names: str) -> Answer:
    def answer(order: RunOrder) -> Outcome:
        return outcome(order, "FAILED", error="boom", retry=False) if order.name in names else outcome(order)

    return answer


async def test_steps_follow_their_parents_and_the_workflow_run_ends_with_the_last(scene: Scene) -> None:
    run_id = await scene.begin(await scene.create(DIAMOND))
    assert {name: state for name, (state, _) in (await scene.steps(run_id)).items()} == {
        "a": "QUEUED", "b": "WAITING", "c": "WAITING", "d": "WAITING",
    }  # fmt: skip
    names = await scene.run_all()
    assert (names[0], sorted(names[1:3]), names[3]) == ("a", ["b", "c"], "d")
    assert await scene.ended(run_id) == ("SUCCESS", None)
    await scene.at_rest()


async def test_a_failure_skips_what_follows_and_fails_the_workflow_run(scene: Scene) -> None:
    steps = [*DIAMOND, {"name": "e", "depends_on": ["b"], "rule": "all_done"}]
    steps += [{"name": "f", "depends_on": ["d"], "on_upstream_failure": "fail"}]
    run_id = await scene.begin(await scene.create([{**step, "retries": 0} for step in steps]))
    assert sorted(await scene.run_all(failing("b"))) == ["a", "b", "c", "e"]
    found = await scene.steps(run_id)
    assert found["d"] == ("SKIPPED", "upstream failed: b")
    assert found["f"] == ("FAILED", "upstream failed: b")
    assert (await scene.ended(run_id)) == ("FAILED", "step b failed")
    letters = await scene.connection.fetch("select name from mainspring.dead_letters")
    assert [row["name"] for row in letters] == ["b"]
    await scene.at_rest()


MAPPED: list[dict[str, Any]] = [
    {"name": "list"},
    {
        "name": "each",
        "depends_on": ["list"],
        "map": {"over": {"$from": "list", "path": "rows"}, "max_parallel": 2},
        "payload": {"row": {"$item": ""}, "index": {"$index": True}, "total": {"$total": True}},
    },
    {"name": "sum", "depends_on": ["each"], "payload": {"all": {"$from": "each"}, "of": {"$parameter": "of"}}},
]


async def test_results_are_handed_on_to_members_and_to_those_that_follow_them(scene: Scene) -> None:
    """A list from a result, members at most two at a time, and their results in the payload of the next step."""
    run_id = await scene.begin(await scene.create(MAPPED, parameters={"of": "rows"}))
    seen: list[Any] = []

    def answer(order: RunOrder) -> Outcome:
        payload = msgspec.json.decode(order.payload)
        seen.append((order.name, payload))
        if order.name == "list":
            return outcome(order, result={"rows": ["x", "y", "z"]})
        return outcome(order, result=payload.get("row"))

    assert await scene.run_all(answer) == ["list"]
    while await scene.expander.run_once():
        alive = await scene.connection.fetchval("select count(*) from mainspring.runs where job_id is null")
        assert alive <= 2
        await scene.run_all(answer)
    members = sorted(payload["row"] + str(payload["index"]) for name, payload in seen if name == "each")
    assert members == ["x0", "y1", "z2"]
    [total] = [payload for name, payload in seen if name == "sum"]
    counts = {"total": 3, "succeeded": 3, "failed": 0, "skipped": 0, "results": ["x", "y", "z"]}
    assert total == {"all": counts, "of": "rows"}
    assert await scene.ended(run_id) == ("SUCCESS", None)
    await scene.at_rest()


async def test_a_value_that_is_missing_fails_the_step_with_a_reason(scene: Scene) -> None:
    run_id = await scene.begin(await scene.create(MAPPED, parameters={"of": "rows"}))
    await scene.run_all(lambda order: outcome(order, result={"rows": 7}))
    await scene.expander.run_once()
    await scene.run_all()
    found = await scene.steps(run_id)
    assert found["each"] == ("FAILED", "the result of step list is not a list at rows")
    assert found["sum"] == ("SKIPPED", "upstream failed: each")


async def test_results_are_put_into_the_body_of_a_call(scene: Scene) -> None:
    """Also into those of members."""
    url = "https://example.com/hook"
    each = {"url": url, "body": {"row": {"$item": ""}, "all": {"$from": "list"}}, "method": "PUT"}
    steps: list[dict[str, Any]] = [
        {"name": "list", "task": "noop"},
        {"name": "all", "depends_on": ["list"], "http": {"url": url, "body": {"$from": "list"}}},
        {"name": "each", "depends_on": ["list"], "http": each, "map": {"over": {"$from": "list", "path": "rows"}}},
    ]
    created = await scene.api.post("/v1/workflows", json={"workflow_id": "calls", "steps": steps})
    assert created.status_code == 201, created.text
    assert (await scene.api.get("/v1/workflows/calls")).json()["steps"] == steps
    await scene.begin("calls")
    await scene.run_all(lambda order: outcome(order, result={"rows": [7]}))
    await scene.expander.run_once()
    orders = await HandWorker(scene.api, tasks=("http",)).claim(2)
    calls = {order.name: _call_of(order) for order in orders}
    assert (calls["all"].method, calls["all"].body) == ("POST", {"rows": [7]})
    assert (calls["each"].method, calls["each"].body) == ("PUT", {"row": 7, "all": {"rows": [7]}})


@pytest.mark.parametrize("rule", ["one_success", "one_failed"])
async def test_a_rerun_from_a_step_with_references_runs_it_whatever_its_rule(scene: Scene, rule: str) -> None:
    """Its parents have ended before, and it does not wait for them again."""
    used = {"x": {"$parameter": "p"}}
    steps = [{"name": "a", "retries": 0}, {"name": "b", "depends_on": ["a"], "rule": rule, "payload": used}]
    run_id = await scene.begin(await scene.create(steps, parameters={"p": 1}))
    answer = failing("a") if rule == "one_failed" else outcome
    assert await scene.run_all(answer) == ["a", "b"]
    await scene.control.rerun(scene.caller, run_id, "b")
    await scene.starter.run_once()
    await scene.join_counter.run_once()
    assert await scene.run_all() == ["b"]
    await scene.at_rest()


async def test_a_rerun_beside_a_failure_names_the_step_that_failed(scene: Scene) -> None:
    """And not the one that was skipped because of it."""
    steps = [{"name": "a", "retries": 0}, {"name": "b", "depends_on": ["a"]}, {"name": "c"}]
    run_id = await scene.begin(await scene.create(steps))
    await scene.run_all(failing("a"))
    await scene.control.rerun(scene.caller, run_id, "c")
    await scene.starter.run_once()
    assert await scene.run_all() == ["c"]
    view = (await scene.api.get(f"/v1/workflow-runs/{run_id}")).json()
    assert (view["status"], view["reason"]) == ("FAILED", "step a failed")


async def test_a_rerun_discards_the_dead_letters_of_what_it_repeats(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of members, however many, and no others. What fails again is a dead letter again."""
    monkeypatch.setattr(control, "_SLICE", 2)
    steps: list[dict[str, Any]] = [
        {"name": "each", "map": {"range": 3}, "retries": 0}, {"name": "after", "depends_on": ["each"]},
        {"name": "other", "retries": 0},
    ]  # fmt: skip
    workflow_id = await scene.create(steps, overlap="allow")

    async def letters() -> list[str]:
        return [
            row["name"] for row in await scene.connection.fetch("select name from mainspring.dead_letters order by 1")
        ]

    for _ in range(2):
        run_id = await scene.begin(workflow_id)
        await scene.expander.run_once()
        await scene.run_all(failing("each", "other"))
    assert await letters() == ["each"] * 6 + ["other"] * 2
    await scene.control.rerun(scene.caller, run_id, "each")
    assert await letters() == ["each"] * 3 + ["other"] * 2
    await scene.starter.run_once()
    await scene.expander.run_once()
    await scene.run_all(failing("each"))
    assert await letters() == ["each"] * 6 + ["other"] * 2


async def test_too_many_failed_members_fail_the_step_and_skip_the_rest(scene: Scene) -> None:
    step = {"name": "each", "map": {"range": 50, "max_failures": 2}, "retries": 0}
    run_id = await scene.begin(await scene.create([step]))
    await scene.expander.run_once()
    await scene.round(failing("each"), most=4)
    await scene.expander.run_once()
    await scene.join_counter.run_once()
    assert await scene.ended(run_id) == ("FAILED", "step each failed")
    counts = await scene.connection.fetch(
        "select state, count(*) from mainspring.run_history where job_id is null group by 1"
    )
    assert dict(counts) == {11: 4, 13: 46}
    await scene.at_rest()


async def test_a_cancelled_workflow_run_starts_nothing_more_and_ends_when_its_workers_have(scene: Scene) -> None:
    steps = [*DIAMOND, {"name": "clean", "depends_on": ["d"], "rule": "all_done"}]
    run_id = await scene.begin(await scene.create(steps))
    [order] = await scene.worker.claim()
    await scene.control.cancel(scene.caller, run_id, "not today")
    assert await scene.ended(run_id) is None
    found = await scene.steps(run_id)
    assert found.pop("a") == ("RUNNING", None)
    assert set(found.values()) == {("CANCELLED", "not today")}
    await scene.worker.report(outcome(order))
    assert await scene.ended(run_id) == ("CANCELLED", "not today")
    await scene.join_counter.run_once()
    await scene.stopper.stop(run_id)
    assert (await scene.steps(run_id))["a"] == ("SUCCESS", None)
    assert await scene.connection.fetchval("select state from mainspring.flows") == 4
    assert await scene.connection.fetchval("select count(*) from mainspring.joins") == 0
    await scene.control.cancel(scene.caller, run_id)
    with pytest.raises(Conflict):
        await scene.control.rerun(scene.caller, await scene.begin(await scene.create(DIAMOND)))


async def test_a_cancel_without_a_reason_says_what_had_started(scene: Scene) -> None:
    steps = [*DIAMOND, {"name": "each", "map": {"range": 2}}]
    run_id = await scene.begin(await scene.create(steps))
    await scene.expander.run_once()
    await scene.control.cancel(scene.caller, run_id)
    ran, waited = ("CANCELLED", "cancelled while it ran"), ("CANCELLED", "cancelled before it started")
    assert await scene.ended(run_id) == ran
    states = await scene.connection.fetch("select name, job_id is null as member, reason from mainspring.run_history")
    found = {(row["name"], row["member"], row["reason"]) for row in states}
    assert ("each", False, ran[1]) in found and ("each", True, waited[1]) in found
    assert {reason for name, _, reason in found if name in ("a", "b", "c", "d")} == {waited[1]}


@pytest.mark.parametrize("way", ["DELETE /v1/workflows/flow", "DELETE /v1/jobs/flow", "POST /v1/runs/{}:cancel"])
async def test_after_any_cancel_no_step_can_start(scene: Scene, way: str) -> None:
    """S11, also of steps that are ready, and of members of a map that has more of them."""
    each = {"name": "each", "map": {"range": 600, "max_parallel": 550}}
    run_id = await scene.begin(await scene.create([*DIAMOND, each], workflow_id="flow"))
    await scene.expander.run_once()
    method, path = way.format(run_id).split()
    assert (await scene.api.request(method, path)).status_code in (200, 202)
    assert await scene.connection.fetchval("select count(*) from mainspring.runs") == 0
    assert await scene.expander.run_once() == 0
    await scene.join_counter.run_once()
    await scene.stopper.run_once()
    assert await scene.connection.fetchval("select state from mainspring.flows") == 4
    await scene.at_rest()


async def test_the_timeout_of_a_workflow_ends_all_of_it(scene: Scene) -> None:
    run_id = await scene.begin(await scene.create(DIAMOND, timeout="1h"))
    await scene.connection.execute("update mainspring.runs set deadline = now() where run_id = $1", run_id)
    await task_of(scene.assembly, DeadlineSweeper).run_once()
    await scene.stopper.run_once()
    assert await scene.ended(run_id) == ("FAILED", "timed out after 1h, the timeout of the workflow")
    assert {state for state, _ in (await scene.steps(run_id)).values()} == {"CANCELLED"}


async def test_a_rerun_repeats_what_failed_and_what_follows_it(scene: Scene) -> None:
    """Mended, it runs again from the step that failed. The others keep their results."""
    steps: list[dict[str, Any]] = [
        {"name": "a"},
        {"name": "b", "depends_on": ["a"], "payload": {"from": {"$from": "a", "path": "n"}}},
        {"name": "c", "depends_on": ["b"]},
        {"name": "x"},
    ]
    run_id = await scene.begin(await scene.create([{**step, "retries": 0} for step in steps]))

    def answer(order: RunOrder) -> Outcome:
        if order.name == "b":
            return outcome(order, "FAILED", error="boom", retry=False)
        return outcome(order, result={"n": 7})

    await scene.run_all(answer)
    assert await scene.ended(run_id) == ("FAILED", "step b failed")
    await scene.control.rerun(scene.caller, run_id)
    with pytest.raises(Conflict):
        await scene.control.rerun(scene.caller, run_id)
    await scene.starter.run_once()
    await scene.join_counter.run_once()
    payloads: dict[str | None, Any] = {}

    def mended(order: RunOrder) -> Outcome:
        payloads[order.name] = msgspec.json.decode(order.payload)
        return outcome(order)

    assert await scene.run_all(mended) == ["b", "c"]
    assert payloads["b"] == {"from": 7}
    assert set((await scene.steps(run_id)).values()) == {("SUCCESS", None)}
    flow = await scene.connection.fetchrow("select container, reruns, state from mainspring.flows")
    assert flow is not None and (flow["reruns"], flow["state"]) == (1, 4)
    assert await scene.ended(flow["container"]) == ("SUCCESS", None)
    assert await scene.ended(run_id) == ("FAILED", "step b failed")
    await scene.control.rerun(scene.caller, run_id, "x")
    await scene.starter.run_once()
    assert await scene.run_all() == ["x"]
    await scene.at_rest()


async def test_a_large_graph_is_created_in_parts_and_none_twice(scene: Scene) -> None:
    """Whoever is killed between two parts is followed by another one. A cancel in between ends it."""
    layers = [[f"{layer}.{place}" for place in range(70)] for layer in range(3)]
    steps: list[dict[str, Any]] = [
        {"name": name, "depends_on": layers[layer - 1] if layer else []}
        for layer, names in enumerate(layers)
        for name in names
    ]
    workflow_id = await scene.create(steps, overlap="allow")
    scene.starter._rows = 40
    continue_flow = scene.starter.continue_flow
    scene.starter.continue_flow = no_more  # type: ignore[method-assign, assignment]
    first, second = await scene.begin(workflow_id), await scene.begin(workflow_id)
    await scene.control.cancel(scene.caller, second)
    scene.starter.continue_flow = continue_flow  # type: ignore[method-assign]
    await scene.starter.run_once()
    assert len(await scene.run_all(most=33)) == 210
    assert await scene.ended(first) == ("SUCCESS", None)
    assert await scene.ended(second) == ("CANCELLED", "cancelled while it ran")
    assert await scene.connection.fetchval("select count(*) from mainspring.runs") == 0
    await scene.at_rest()


async def no_more(_: UUID) -> None:
    """The process is killed."""


async def test_a_broadcast_runs_once_on_each_worker_and_gives_up_those_that_are_gone(scene: Scene) -> None:
    second = HandWorker(scene.api)
    await scene.worker.hello()
    await second.hello()
    step = {"name": "each", "map": {"workers": {"zone": "a"}}, "payload": {"n": {"$index": True}}, "retries": 0}
    run_id = await scene.begin(await scene.create([step]))
    await scene.expander.run_once()
    [order] = (await scene.worker.exchange(free=10)).runs
    await scene.worker.report(outcome(order))
    assert (await scene.worker.exchange(free=10)).runs == []
    await second.exchange(stopped=True)
    await scene.expander.run_once()
    await scene.join_counter.run_once()
    assert (await scene.steps(run_id))["each"][0] == "FAILED"
    states = await scene.connection.fetch("select state, reason from mainspring.run_history where job_id is null")
    assert sorted(map(tuple, states)) == [(10, None), (11, "its worker is gone")]
