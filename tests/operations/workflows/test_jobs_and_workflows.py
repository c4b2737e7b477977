"""FEATURES 4.2: jobs that depend on workflows, and workflows that fire after jobs and after each other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from mainspring.domain.schedules.nominal_times import fire_of
from mainspring.operations.dependencies.dependency_poller import DependencyPoller
from mainspring.store.jobs import schedule_from_text
from tests.api.bookkeeping import problem
from tests.operations.firing import fire_due
from tests.operations.hand_worker import outcome
from tests.operations.test_dependencies import due_together
from tests.operations.workflows.scene import Answer, Scene, task_of

pytestmark = pytest.mark.anyio

NO_WORKER = "no worker of queue other offers task noop"
STEPS: list[dict[str, Any]] = [{"name": "a", "retries": 0}, {"name": "b", "depends_on": ["a"], "retries": 0}]


@pytest.fixture
def dependency_poller(scene: Scene) -> DependencyPoller:
    """It looks only when the test says so."""
    scene.assembly.signals.waits._listeners.clear()
    return task_of(scene.assembly, DependencyPoller)


async def make(scene: Scene, job_id: str, **fields: Any) -> None:
    answer = await scene.api.post("/v1/jobs", json={"task": "noop", "job_id": job_id, "name": job_id, **fields})
    assert answer.status_code == 201, answer.text


async def state_of(scene: Scene, job_id: str) -> tuple[str, str | None] | None:
    """Status and reason of the newest run of a job."""
    runs = (await scene.api.get(f"/v1/jobs/{job_id}/runs")).json()
    return (runs[0]["status"], runs[0]["reason"]) if runs else None


def failing(*names: str) -> Answer:
    return lambda order: outcome(order, "FAILED", error="no", retry=False) if order.name in names else outcome(order)


async def test_a_job_fires_after_a_workflow_and_a_workflow_after_a_job(scene: Scene) -> None:
    """A failed run counts when it has run again with success."""
    await scene.create(STEPS, workflow_id="first")
    await make(scene, "between", schedule={"after": ["first"]})
    await scene.create([{"name": "c"}], workflow_id="second", schedule={"after": ["between"]})
    await scene.create([{"name": "d"}], workflow_id="third", schedule={"after": ["second"]})
    run_id = await scene.begin("first")
    await scene.run_all(failing("b"))
    assert await scene.ended(run_id) == ("FAILED", "step b failed")
    assert await fire_due(scene.assembly, scene.connection) == 0
    await scene.control.rerun(scene.caller, run_id)
    await scene.starter.run_once()
    assert await scene.run_all() == ["b"]
    for name in ("between", "c", "d"):
        assert await fire_due(scene.assembly, scene.connection) == 1
        if name != "between":
            await scene.starter.run_once()
        assert await scene.run_all() == [name]
    assert await state_of(scene, "third") == ("SUCCESS", None)
    assert await fire_due(scene.assembly, scene.connection) == 0
    await scene.at_rest()


@pytest.mark.parametrize(
    ("bad", "rule", "expected"),
    [
        ((), "all_success", ("QUEUED", NO_WORKER)),
        (("a",), "all_success", ("SKIPPED", "upstream failed: flow")),
        (("b",), "one_failed", ("QUEUED", NO_WORKER)),
    ],
)
async def test_a_run_waits_for_the_workflow_run_of_the_same_time(
    scene: Scene, dependency_poller: DependencyPoller, bad: tuple[str, ...], rule: str, expected: tuple[str, str | None]
) -> None:
    await fired_together(scene, dependency_poller, rule)
    assert await state_of(scene, "child") == ("WAITING", "waiting for flow")
    await scene.run_all(failing(*bad))
    assert await state_of(scene, "child") == expected
    await scene.at_rest()


async def test_the_cancel_of_a_workflow_run_reaches_the_run_that_waits_for_it(
    scene: Scene, dependency_poller: DependencyPoller
) -> None:
    await fired_together(scene, dependency_poller, "all_success")
    [run] = (await scene.api.get("/v1/workflows/flow/runs")).json()["runs"]
    await scene.control.cancel(scene.caller, UUID(run["run_id"]))
    assert await state_of(scene, "child") == ("SKIPPED", "upstream cancelled: flow")


async def fired_together(scene: Scene, dependency_poller: DependencyPoller, rule: str) -> None:
    """A workflow and a job that waits for it, both for the same time."""
    await scene.create(STEPS, workflow_id="flow", schedule="@daily")
    await make(scene, "child", schedule="@daily", depends_on=["flow"], rule=rule, queue="other")
    await due_together(scene.connection, "flow", "child")
    await fire_due(scene.assembly, scene.connection)
    await scene.starter.run_once()
    await dependency_poller.run_once()


async def test_a_run_waits_for_a_workflow_with_jitter_that_has_yet_to_fire(
    scene: Scene, dependency_poller: DependencyPoller
) -> None:
    now = await scene.connection.fetchval("select date_trunc('second', clock_timestamp())")
    time = now - timedelta(hours=2)
    every = {"every": "10d", "anchor": time.isoformat()}
    await scene.create(STEPS, workflow_id="flow", schedule={**every, "jitter": "1h"})
    await make(scene, "child", schedule=every, depends_on=["flow"], queue="other")
    text = await scene.connection.fetchval("select schedule::text from mainspring.jobs where job_id = 'flow'")
    set_due = "update mainspring.jobs set next_fire_at = $1 where job_id = $2"
    await scene.begin("flow")
    await scene.run_all()
    await scene.connection.execute(set_due, time, "child")
    await fire_due(scene.assembly, scene.connection)
    await scene.connection.execute(set_due, fire_of(schedule_from_text(text), time), "flow")
    await dependency_poller.run_once()
    assert await state_of(scene, "child") == ("WAITING", "waiting for flow")
    await fire_due(scene.assembly, scene.connection)
    await scene.starter.run_once()
    await dependency_poller.run_once()
    await scene.run_all(failing("b"))
    assert await state_of(scene, "child") == ("SKIPPED", "upstream failed: flow")
    await scene.at_rest()


async def test_what_a_workflow_cannot_be_is_refused_by_name(scene: Scene) -> None:
    """It fires after others, but its runs do not wait. And nothing waits for itself."""
    await scene.create(STEPS, workflow_id="flow")
    await make(scene, "child", schedule={"after": ["flow"]})
    steps = [{"name": "a", "task": "noop"}]
    for body, code, field in (
        ({"depends_on": ["flow"]}, "unknown_field", "depends_on"),
        ({"schedule": {"after": ["nothing"]}}, "unknown_job", "schedule.after"),
    ):
        found = problem(await scene.api.post("/v1/workflows", json={"steps": steps, **body}))
        assert (found["code"], found["field"]) == (code, field)
    found = problem(await scene.api.patch("/v1/workflows/flow", json={"schedule": {"after": ["child"]}}))
    assert (found["code"], found["field"]) == ("cycle", "schedule.after")
    assert (await scene.api.patch("/v1/jobs/flow", json={"depends_on": ["child"]})).status_code == 422


async def test_a_step_is_not_a_job_of_its_own(scene: Scene) -> None:
    """Neither are the members of a mapped step. They are changed and repeated by their workflow."""
    await scene.create([{"name": "a"}, {"name": "each", "map": {"range": 1}}], workflow_id="flow")
    await scene.begin("flow")
    await scene.expander.run_once()
    member = await scene.connection.fetchval("select run_id::text from mainspring.runs where job_id is null")
    hour = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z"}

    async def refused() -> None:
        before = await counted(scene)
        for job_id in ("a@flow", "each@flow", member):
            for method, verb, body in (
                ("PATCH", "", {"priority": "high"}), ("PUT", "", {"priority": "high"}), ("DELETE", "", None),
                ("POST", ":pause", None), ("POST", ":resume", None), ("POST", ":runNow", {}),
                ("POST", ":runNow", {"payload": {}, "idempotency_key": "k"}), ("POST", ":backfill", hour),
            ):  # fmt: skip
                answer = await scene.api.request(method, f"/v1/jobs/{job_id}{verb}", json=body)
                found = problem(answer)
                assert (answer.status_code, found["code"]) == (409, "is_a_step"), (method, verb, found)
                assert "workflow 'flow'" in found["detail"]
        assert await counted(scene) == before

    await refused()
    await scene.run_all()
    await refused()
    found = problem(await scene.api.delete("/v1/jobs/b@flow"))
    assert (found["status"], found["hint"]) == (404, "steps are shown by GET /v1/workflows/flow")
    body = {"task": "noop", "depends_on": ["a@flow"]}
    found = problem(await scene.api.post("/v1/jobs", json=body))
    assert (found["code"], found["field"]) == ("unknown_job", "depends_on") and "'flow'" in found["hint"]


async def counted(scene: Scene) -> list[Any]:
    tables = ("runs", "run_history", "jobs", "run_now_keys", "job_edges")
    return [await scene.connection.fetch(f"select * from mainspring.{table} order by 1, 2") for table in tables]
