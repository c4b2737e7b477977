"""The overlap rule of a workflow holds for its reruns, and for a rule that is changed while a run is at work."""

from __future__ import annotations

from uuid import UUID

import pytest

from mainspring.domain.errors import Conflict
from tests.operations.workflows.scene import Scene

pytestmark = pytest.mark.anyio

ONE_STEP = [{"name": "a"}]


async def fire(scene: Scene, workflow_id: str) -> UUID:
    """A run of the workflow, by hand. It need not start."""
    answer = await scene.api.post(f"/v1/workflows/{workflow_id}:runNow", json={})
    assert answer.status_code == 202, answer.text
    await scene.starter.run_once()
    return UUID(answer.json()["run_id"])


async def status(scene: Scene, run_id: UUID) -> str:
    found: str = (await scene.api.get(f"/v1/workflow-runs/{run_id}")).json()["status"]
    return found


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel_previous"])
async def test_a_workflow_run_does_not_run_again_beside_another(scene: Scene, overlap: str) -> None:
    workflow_id = await scene.create(ONE_STEP, overlap=overlap)
    first = await scene.begin(workflow_id)
    assert await scene.run_all() == ["a"]
    second = await scene.begin(workflow_id)
    with pytest.raises(Conflict) as refused:
        await scene.control.rerun(scene.caller, first, "a")
    assert refused.value.code == "overlap"
    assert await scene.run_all() == ["a"]
    assert await scene.ended(second) == ("SUCCESS", None)
    await scene.control.rerun(scene.caller, first, "a")
    await scene.starter.run_once()
    assert await scene.run_all() == ["a"]
    await scene.at_rest()


@pytest.mark.parametrize(
    ("overlap", "new", "earlier"),
    [
        ("skip", "SKIPPED", "RUNNING"),
        ("queue", "HELD", "RUNNING"),
        ("cancel_previous", "RUNNING", "CANCELLED"),
        ("allow", "RUNNING", "RUNNING"),
    ],
)
async def test_a_fire_sees_a_rerun_as_alive(scene: Scene, overlap: str, new: str, earlier: str) -> None:
    workflow_id = await scene.create(ONE_STEP, overlap=overlap)
    first = await scene.begin(workflow_id)
    assert await scene.run_all() == ["a"]
    await scene.control.rerun(scene.caller, first, "a")
    await scene.starter.run_once()
    second = await fire(scene, workflow_id)
    await scene.stopper.run_once()
    await scene.starter.run_once()
    assert (await status(scene, second), await status(scene, first)) == (new, earlier)
    await scene.run_all()
    await scene.starter.run_once()  # what was HELD starts when the rerun has ended
    await scene.run_all()
    assert await status(scene, second) == ("SKIPPED" if overlap == "skip" else "SUCCESS")
    slots = "select coalesce(sum(in_use), 0)::int from mainspring.limit_keys"
    assert await scene.connection.fetchval(slots) == 0
    await scene.at_rest()


async def test_a_workflow_run_at_work_follows_a_rule_that_is_changed(scene: Scene) -> None:
    workflow_id = await scene.create(ONE_STEP, overlap="allow")
    await scene.begin(workflow_id)
    changed = await scene.api.patch(f"/v1/workflows/{workflow_id}", json={"overlap": "queue"})
    assert changed.status_code == 200, changed.text
    second = await fire(scene, workflow_id)
    assert await status(scene, second) == "HELD"
    assert await scene.run_all() == ["a"]
    await scene.starter.run_once()
    assert await scene.run_all() == ["a"]
    assert await scene.ended(second) == ("SUCCESS", None)
