"""A process that is killed in any transaction of a workflow run loses and repeats nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from mainspring.store import fanouts, joins, workflows
from tests.operations.hand_worker import outcome
from tests.operations.workflows.scene import Scene

pytestmark = pytest.mark.anyio

STEPS: list[dict[str, Any]] = [
    {"name": "each", "map": {"range": 150, "max_parallel": 90}},
    {"name": "wide", "depends_on": ["each"], "payload": {"n": {"$from": "each", "path": "succeeded"}}},
    {"name": "last", "depends_on": ["wide"], "rule": "all_done"},
]
# The writes of the starter, the fold, the resolution and the expansion. Each is the last act of a killed process.
WRITES: list[tuple[Any, str]] = [
    (workflows, "begin"), (workflows, "create_steps"), (workflows, "advance"), (workflows, "keep_ends"),
    (workflows, "close"), (joins, "insert"), (joins, "mark"), (joins, "count"), (joins, "count_marks"),
    (joins, "make_ready"), (joins, "succeed"), (fanouts, "open_all"), (fanouts, "begin"), (fanouts, "advance"),
    (fanouts, "close"),
]  # fmt: skip
OF_A_RERUN: list[tuple[Any, str]] = [(joins, "new_blocks"), (workflows, "begin_rerun")]


class Killed(Exception):
    pass


async def survives(act: Callable[[], Awaitable[object]]) -> bool:
    try:
        await act()
    except Killed:
        return False
    return True


class Kills:
    """Every write fails once after it was made, so that its transaction is rolled back."""

    def __init__(self, patch: pytest.MonkeyPatch, writes: list[tuple[Any, str]]) -> None:
        self.left = list(writes)
        for module, name in writes:
            patch.setattr(module, name, self._fails_once(module, name))

    def _fails_once(self, module: Any, name: str) -> Callable[..., Awaitable[object]]:
        real = getattr(module, name)

        async def write(*args: Any, **options: Any) -> object:
            done = await real(*args, **options)
            if (module, name) in self.left:
                self.left.remove((module, name))
                raise Killed
            return done

        return write


async def run_all(scene: Scene) -> list[Any]:
    """Let whoever is killed be followed by the next one, until nothing is left. Returns the runs of the worker."""
    ran: list[Any] = []
    pending: list[Any] = []
    rounds = 0
    while await scene.connection.fetchval("select count(*) from mainspring.runs") or pending:
        rounds += 1
        assert rounds < 200
        for act in (scene.starter.run_once, scene.expander.run_once, scene.join_counter.run_once):
            await survives(act)
        if not pending:
            orders = (await scene.worker.exchange(free=40)).runs
            ran += [order.run_id for order in orders]
            pending = [outcome(order) for order in orders]
        if pending and (await scene.worker.ask(outcomes=pending)).status_code == 200:
            pending = []
    return ran


async def test_a_kill_after_any_write_loses_and_repeats_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    kills = Kills(monkeypatch, WRITES)
    workflow_id = await scene.create(STEPS)
    run_id = (await scene.api.post(f"/v1/workflows/{workflow_id}:runNow", json={})).json()["run_id"]
    await scene.worker.hello()
    ran = await run_all(scene)
    assert kills.left == []
    assert len(ran) == len(set(ran)) == 152
    states = await scene.connection.fetch("select state, count(*) from mainspring.run_history group by 1")
    assert dict(states) == {10: 154}  # members, steps, and the workflow run
    payload = await scene.connection.fetchval("select payload::text from mainspring.run_history where name = 'wide'")
    assert payload == '{"n":150}'
    assert (await scene.api.get(f"/v1/runs/{run_id}")).json()["status"] == "SUCCESS"
    await scene.join_counter.run_once()
    await scene.at_rest()


async def test_a_kill_after_any_write_of_a_rerun_loses_and_repeats_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await scene.begin(await scene.create(STEPS))
    await scene.worker.hello()
    await run_all(scene)
    kills = Kills(monkeypatch, [*OF_A_RERUN, *(write for write in WRITES if write != (workflows, "begin"))])
    rerun = partial(scene.control.rerun, scene.caller, run_id, "each")
    while not await survives(rerun):
        assert await scene.connection.fetchval("select count(*) from mainspring.flow_reruns") == 0
    ran = await run_all(scene)
    assert kills.left == []
    assert len(ran) == len(set(ran)) == 152
    view = (await scene.api.get(f"/v1/workflow-runs/{run_id}")).json()
    assert (view["status"], view["reruns"], {step["status"] for step in view["steps"]}) == ("SUCCESS", 1, {"SUCCESS"})
    assert view["steps"][0]["map"]["succeeded"] == 150
    await scene.join_counter.run_once()
    await scene.at_rest()
