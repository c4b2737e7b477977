"""What a workflow run needs outlives the history, and what nobody needs is pruned."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.store import workflow_versions, workflows
from tests.operations.hand_worker import outcome
from tests.operations.workflows.scene import Scene
from tests.operations.workflows.test_reads import FIVE, answer, get

pytestmark = pytest.mark.anyio

OF_THE_HISTORY = ("trigger", "created_at", "start_time", "end_time", "duration", "attempt_number", "max_attempts",
                  "error_message")  # fmt: skip


def lasting(view: Any) -> Any:
    """What is kept of a workflow run."""
    if isinstance(view, dict):
        return {name: lasting(value) for name, value in view.items() if name not in OF_THE_HISTORY}
    return [lasting(one) for one in view] if isinstance(view, list) else view


async def forget_history(scene: Scene) -> None:
    await scene.connection.execute("delete from mainspring.run_history")


async def test_a_run_that_has_left_the_history_is_shown_and_runs_again(scene: Scene) -> None:
    workflow = await scene.create(FIVE, parameters={"region": "eu"})
    run_id = await scene.begin(workflow)
    await scene.run_all(answer)
    path = f"/v1/workflow-runs/{run_id}"
    before = await get(scene, path)
    await forget_history(scene)
    after = await get(scene, path)
    assert lasting(after) == lasting(before)
    assert (after["status"], after["reason"], after["trigger"]) == ("FAILED", "step load failed", "unknown")
    assert (await get(scene, f"{path}/steps?status=failed"))["steps"][0]["name"] == "load"

    assert (await scene.api.post(f"{path}:rerun", json={})).status_code == 202
    await scene.starter.run_once()
    assert await scene.run_all(outcome) == ["load", "report"]
    for _ in range(2):
        view = await get(scene, path)
        assert (view["status"], view["reason"], view["counts"]) == ("SUCCESS", None, {"SUCCESS": 5})
        await forget_history(scene)

    assert await workflows.prune(scene.connection, 180) == 0
    await scene.connection.execute("update mainspring.flows set ended_at = ended_at - interval '181 days'")
    assert await workflows.prune(scene.connection, 180, batch=3) == 7 + 2 + 1 + 1  # steps, ends, a rerun, itself
    assert await scene.connection.fetchval("select count(*) from mainspring.step_ends") == 0
    assert (await scene.api.get(path)).status_code == 404


async def test_a_cancelled_run_that_has_left_the_history_is_shown_as_cancelled(scene: Scene) -> None:
    run_id = await scene.begin(await scene.create([{"name": "only"}]))
    await scene.control.cancel(scene.caller, run_id, "not today")
    await forget_history(scene)
    view = await get(scene, f"/v1/workflow-runs/{run_id}")
    assert (view["status"], view["reason"]) == ("CANCELLED", "not today")


async def test_versions_that_no_run_needs_are_pruned(scene: Scene) -> None:
    """Kept are the newest one, those of workflow runs, of live runs and of the history."""
    workflow = await scene.create([{"name": "a"}], overlap="skip")

    async def change() -> None:
        steps = [{"name": "a", "task": "noop"}]
        assert (await scene.api.patch(f"/v1/workflows/{workflow}", json={"steps": steps})).status_code == 200

    async def run() -> None:
        assert (await scene.api.post(f"/v1/workflows/{workflow}:runNow", json={})).status_code == 202

    async def pruned() -> list[int]:
        await workflow_versions.prune(scene.connection, 30, batch=1)
        rows = await scene.connection.fetch("select version from mainspring.workflow_versions order by 1")
        return [row["version"] for row in rows]

    await scene.begin(workflow)  # version 1 has a workflow run
    await change()
    await run()  # version 2 was skipped: it is in the history
    await change()
    await scene.run_all()
    await change()
    await run()  # version 4 waits
    await change()
    assert await pruned() == [1, 2, 3, 4, 5]
    await scene.connection.execute(
        "update mainspring.workflow_versions set created_at = created_at - interval '29 days'"
    )
    assert await pruned() == [1, 2, 3, 4, 5]
    await scene.connection.execute(
        "update mainspring.workflow_versions set created_at = created_at - interval '2 days'"
    )
    old = "update mainspring.run_history set run_id = '00000000-0000-7000-8000-000000000001' where state = 13"
    assert await scene.connection.execute(old) == "UPDATE 1"  # as old as its version
    assert await pruned() == [1, 2, 4, 5]
    await scene.starter.run_once()
    await scene.run_all()
    await forget_history(scene)
    assert await pruned() == [1, 4, 5]
    await scene.connection.execute("delete from mainspring.flows")
    assert await pruned() == [5]
    await scene.connection.execute("delete from mainspring.jobs")
    assert await pruned() == []
