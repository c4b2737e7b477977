"""What clients see of workflow runs while they run and afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.store import workflow_reads, workflows
from mainspring.wire.exchange import Outcome, RunOrder
from tests.operations.hand_worker import outcome
from tests.operations.workflows.scene import Scene

pytestmark = pytest.mark.anyio

FIVE: list[dict[str, Any]] = [
    {"name": "extract", "payload": {"region": {"$parameter": "region"}}},
    {"name": "clean", "depends_on": ["extract"], "payload": {"rows": {"$from": "extract", "path": "rows"}}},
    {"name": "load", "depends_on": ["clean"], "retries": 0},
    {"name": "index", "depends_on": ["clean"]},
    {"name": "report", "depends_on": ["load", "index"]},
]


def answer(order: RunOrder) -> Outcome:
    if order.name == "load":
        return outcome(order, "FAILED", error="boom", retry=False)
    return outcome(order, result={"rows": [1, 2]}) if order.name == "extract" else outcome(order)


async def get(scene: Scene, path: str) -> Any:
    found = await scene.api.get(path)
    assert found.status_code == 200, found.text
    return found.json()


async def test_a_workflow_run_is_shown_with_its_steps_from_the_start_to_the_end(scene: Scene) -> None:
    workflow = await scene.create(FIVE, parameters={"region": "eu"})
    run_id = await scene.begin(workflow, parameters={"region": "us"})
    view = await get(scene, f"/v1/workflow-runs/{run_id}")
    assert (view["status"], view["counts"], view["parameters"]) == (
        "RUNNING", {"QUEUED": 1, "WAITING": 4}, {"region": "us"},
    )  # fmt: skip
    assert [(step["name"], step["status"]) for step in view["steps"]][:2] == [
        ("extract", "QUEUED"), ("clean", "WAITING"),
    ]  # fmt: skip
    assert view["edges"][:2] == [["extract", "clean"], ["clean", "load"]]
    by_name = {step["name"]: step for step in view["steps"]}
    why = await get(scene, f"/v1/runs/{by_name['report']['run_id']}/why")
    assert why["why"] == "It waits for load (WAITING), index (WAITING), by the rule all_success."
    assert "0 of 5 have ended" in (await get(scene, f"/v1/runs/{run_id}/why"))["why"]
    run = await get(scene, f"/v1/runs/{by_name['clean']['run_id']}")
    assert (run["workflow_run_id"], run["step"], run["status"]) == (str(run_id), "clean", "WAITING")

    await scene.run_all(answer)
    view = await get(scene, f"/v1/workflow-runs/{run_id}")
    assert (view["status"], view["reason"]) == ("FAILED", "step load failed")
    assert view["counts"] == {"SUCCESS": 3, "FAILED": 1, "SKIPPED": 1}
    by_name = {step["name"]: step for step in view["steps"]}
    assert (by_name["load"]["error_message"], by_name["load"]["attempt_number"]) == ("boom", 1)
    assert by_name["report"]["reason"] == "upstream failed: load"
    assert (await get(scene, f"/v1/runs/{by_name['clean']['run_id']}"))["payload"] == {"rows": [1, 2]}

    failed = await get(scene, f"/v1/workflow-runs/{run_id}/steps?status=failed,skipped")
    assert [step["name"] for step in failed["steps"]] == ["load", "report"]
    first = await get(scene, f"/v1/workflow-runs/{run_id}/steps?limit=2")
    second = await get(scene, f"/v1/workflow-runs/{run_id}/steps?limit=2&cursor={first['next']}")
    assert [step["name"] for step in second["steps"]] == ["load", "index"]
    runs = (await get(scene, f"/v1/workflows/{workflow}/runs"))["runs"]
    assert [(run["run_id"], run["status"], run["counts"]["SUCCESS"]) for run in runs] == [(str(run_id), "FAILED", 3)]
    assert (await get(scene, f"/v1/workflows/{workflow}/runs?status=success"))["runs"] == []
    job = await get(scene, f"/v1/jobs/{workflow}")
    assert job["latest_run"]["status"] == "FAILED"
    listed = (await get(scene, f"/v1/runs?job={workflow}"))["runs"]
    assert [run["run_id"] for run in listed] == [str(run_id)]
    timeline = await get(scene, f"/v1/runs/{run_id}/timeline")
    assert [entry["state"] for entry in timeline][-1] == "FAILED"
    assert (await scene.api.get(f"/v1/workflow-runs/{by_name['load']['run_id']}")).status_code == 404


async def test_a_workflow_that_runs_once_needs_no_id(scene: Scene) -> None:
    workflow = await scene.create(FIVE, parameters={"region": "eu"}, schedule="now")
    assert await scene.starter.run_once()
    await scene.join_counter.run_once()
    assert await scene.run_all(answer)
    view = await get(scene, f"/v1/workflow-runs/{workflow}")
    assert (view["workflow_id"], view["status"], view["reason"]) == (workflow, "FAILED", "step load failed")
    assert len(await get(scene, f"/v1/workflows/{workflow}/runs")) > 0
    again = await scene.api.post(f"/v1/workflow-runs/{workflow}:rerun")
    assert again.status_code == 202, again.text
    await scene.starter.run_once()
    await scene.join_counter.run_once()
    await scene.run_all()
    view = await get(scene, f"/v1/workflow-runs/{workflow}")
    assert (view["status"], view["counts"]) == ("SUCCESS", {"SUCCESS": 5})


async def test_a_failed_run_is_mended_and_runs_again_from_there(scene: Scene) -> None:
    workflow = await scene.create(FIVE, parameters={"region": "eu"})
    run_id = await scene.begin(workflow)
    await scene.run_all(answer)
    before = {step["name"]: step["run_id"] for step in (await get(scene, f"/v1/workflow-runs/{run_id}"))["steps"]}

    mended = [
        {"task": "noop", **step, **({"payload": {"safe": True}} if step["name"] == "load" else {})} for step in FIVE
    ]
    changed = await scene.api.patch(f"/v1/workflows/{workflow}", json={"steps": mended})
    assert (changed.status_code, changed.json()["definition_version"]) == (200, 2)
    for body, status, code in (
        ({"from": "nobody"}, 422, "unknown_step"),
        ({"definition": "newest"}, 422, "invalid_input"),
        ({"form": "load"}, 422, "unknown_field"),
    ):
        refused = await scene.api.post(f"/v1/workflow-runs/{run_id}:rerun", json=body)
        assert (refused.status_code, refused.json()["code"]) == (status, code)
    again = await scene.api.post(f"/v1/workflow-runs/{run_id}:rerun", json={"from": "load", "definition": "current"})
    assert again.status_code == 202, again.text
    assert (again.json()["run_id"], again.json()["status"], again.json()["reruns"]) == (str(run_id), "RUNNING", 1)
    payloads: list[Any] = []

    def fine(order: RunOrder) -> Outcome:
        payloads.append((order.name, order.payload))
        return outcome(order)

    await scene.starter.run_once()
    assert await scene.run_all(fine) == ["load", "report"]
    assert b'"safe"' in bytes(memoryview(payloads[0][1]))

    view = await get(scene, f"/v1/workflow-runs/{run_id}")
    assert (view["status"], view["reason"], view["counts"]) == ("SUCCESS", None, {"SUCCESS": 5})
    assert [step.get("rerun", 0) for step in view["steps"]] == [0, 0, 1, 0, 1]
    after = {step["name"]: step["run_id"] for step in view["steps"]}
    assert [name for name in after if after[name] != before[name]] == ["load", "report"]
    earlier = await get(scene, f"/v1/runs/{before['load']}")
    assert (earlier["status"], earlier["workflow_run_id"], earlier["step"]) == ("FAILED", str(run_id), "load")
    runs = (await get(scene, f"/v1/workflows/{workflow}/runs"))["runs"]
    assert [(run["run_id"], run["status"]) for run in runs] == [(str(run_id), "SUCCESS")]
    nothing = await scene.api.post(f"/v1/workflow-runs/{run_id}:rerun")
    assert (nothing.status_code, nothing.json()["code"]) == (409, "nothing_to_rerun")


async def test_members_of_a_map_are_listed_and_counted(scene: Scene) -> None:
    steps = [{"name": "resize", "map": {"range": 5}, "payload": {"n": {"$item": ""}}, "retries": 0}]
    run_id = await scene.begin(await scene.create(steps))
    await scene.expander.run_once()

    def third_fails(order: RunOrder) -> Outcome:
        failed = b'"n":2' in bytes(memoryview(order.payload))
        return outcome(order, "FAILED", error="boom", retry=False) if failed else outcome(order)

    step = (await get(scene, f"/v1/workflow-runs/{run_id}"))["steps"][0]
    assert (step["status"], step["map"]) == (
        "RUNNING", {"total": 5, "created": 5, "succeeded": 0, "failed": 0, "skipped": 0},
    )  # fmt: skip
    assert "0 of 5 have ended" in (await get(scene, f"/v1/runs/{step['run_id']}/why"))["why"]
    await scene.run_all(third_fails)
    step = (await get(scene, f"/v1/workflow-runs/{run_id}"))["steps"][0]
    assert (step["status"], step["map"]["succeeded"], step["map"]["failed"]) == ("FAILED", 4, 1)
    await scene.stopper.stop(run_id)
    assert (await get(scene, f"/v1/workflow-runs/{run_id}"))["steps"][0]["map"] == step["map"], "it stays so"
    path = f"/v1/workflow-runs/{run_id}/steps?name=resize&members=true"
    members = (await get(scene, path))["steps"]
    assert [(one["index"], one["status"]) for one in members] == [
        (0, "SUCCESS"), (1, "SUCCESS"), (2, "FAILED"), (3, "SUCCESS"), (4, "SUCCESS"),
    ]  # fmt: skip
    failed = (await get(scene, f"{path}&status=failed"))["steps"]
    assert [(one["index"], one["error_message"]) for one in failed] == [(2, "boom")]
    run = await get(scene, f"/v1/runs/{members[3]['run_id']}")
    assert (run["workflow_run_id"], run["step"], run["index"]) == (str(run_id), "resize", 3)
    jobs = (await get(scene, "/v1/jobs?status=scheduled,running,completed,failed"))["jobs"]
    assert [job["task"] for job in jobs] == ["mainspring.workflow"], "steps and members are no jobs"
    page = await get(scene, f"{path}&limit=2")
    assert [one["index"] for one in (await get(scene, f"{path}&limit=2&cursor={page['next']}"))["steps"]] == [2, 3]
    assert await scene.connection.fetchval("select count(*) from mainspring.joins") == 1
    await workflows.prune(scene.connection, -1)
    assert await scene.connection.fetchval("select count(*) from mainspring.joins") == 0


async def test_a_rare_state_is_found_among_many_by_few_statements(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small the page is."""
    many = [{"name": f"s{number}"} for number in range(1200)]
    run_id = await scene.begin(await scene.create([*many, {"name": "each", "map": {"range": 1200}}]))
    await scene.expander.run_once()
    last = "(select r.run_id from mainspring.runs r where r.name = 'each' order by r.run_id desc limit 1)"
    await scene.connection.execute(f"update mainspring.runs set state = 4 where name = 's1100' or run_id = {last}")
    read, statements = workflow_reads.runs, 0

    async def counted(*arguments: Any) -> Any:
        nonlocal statements
        statements += 1
        return await read(*arguments)

    monkeypatch.setattr(workflow_reads, "runs", counted)
    for more, first in (("", "s1100"), ("&name=each&members=true", "each")):
        page = await get(scene, f"/v1/workflow-runs/{run_id}/steps?status=held&limit=1{more}")
        assert [step["name"] for step in page["steps"]] == [first]
    assert statements < 10


async def test_an_answer_is_not_large_because_the_steps_have_many_parents(scene: Scene) -> None:
    """450 steps, each after all those before it: 100,000 edges."""
    names = [f"step-{place:03}-{'x' * 40}" for place in range(450)]
    workflow = await scene.create([{"name": name, "depends_on": names[:place]} for place, name in enumerate(names)])
    run_id = await scene.begin(workflow)
    answer = await scene.api.get(f"/v1/workflow-runs/{run_id}")
    view = answer.json()
    shown = [step["name"] for step in view["steps"]]
    assert len(answer.content) < 2_500_000 and len(view["edges"]) == sum(range(len(shown)))
    cursor = view["next"]
    while cursor is not None:
        answer = await scene.api.get(f"/v1/workflow-runs/{run_id}/steps?limit=500&cursor={cursor}")
        page = answer.json()
        assert page["steps"] and len(answer.content) < 2_500_000
        shown += [step["name"] for step in page["steps"]]
        cursor = page["next"]
    assert shown == names
    cursor, found = "", []
    while cursor is not None:
        page = (await scene.api.get(f"/v1/workflow-runs/{run_id}/steps?status=WAITING&limit=500{cursor}")).json()
        found += [step["name"] for step in page["steps"]]
        cursor = page["next"] and f"&cursor={page['next']}"
    assert found == names[1:]


async def test_a_workflow_run_is_cancelled_with_its_steps(scene: Scene) -> None:
    run_id = await scene.begin(await scene.create(FIVE, parameters={"region": "eu"}))
    cancelled = await scene.api.post(f"/v1/workflow-runs/{run_id}:cancel", json={"reason": "wrong region"})
    assert (cancelled.status_code, cancelled.json()["status"]) == (202, "CANCELLED")
    assert (cancelled.json()["reason"], cancelled.json()["counts"]) == ("wrong region", {"CANCELLED": 5})
    again = await scene.api.post(f"/v1/workflow-runs/{run_id}:cancel")
    assert again.status_code == 202
    step = cancelled.json()["steps"][0]["run_id"]
    assert (await scene.api.post(f"/v1/workflow-runs/{step}:cancel")).status_code == 404
