"""A process that is killed in any transaction of a workflow run loses and repeats nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
    (workflows, "close"), (joins, "insert"), (joins, "mark"), (joins, "count"), (joins, "fold"), (joins, "make_ready"),
    (joins, "succeed"), (fanouts, "open_all"), (fanouts, "begin"), (fanouts, "advance"), (fanouts, "close"),
]  # fmt: skip


class Killed(Exception):
    pass


async def survives(act: Callable[[], Awaitable[object]]) -> bool:
    try:
        await act()
    except Killed:
        return False
    return True


async def test_a_kill_after_any_write_loses_and_repeats_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write fails once after it was made, so that its transaction is rolled back."""
    left = list(WRITES)

    def fails_once(module: Any, name: str) -> None:
        real = getattr(module, name)

        async def write(*args: Any, **options: Any) -> object:
            done = await real(*args, **options)
            if (module, name) in left:
                left.remove((module, name))
                raise Killed
            return done

        monkeypatch.setattr(module, name, write)

    for module, name in WRITES:
        fails_once(module, name)
    workflow_id = await scene.create(STEPS)
    run_id = (await scene.api.post(f"/v1/workflows/{workflow_id}:runNow", json={})).json()["run_id"]
    await scene.worker.hello()
    ran: list[Any] = []
    pending: list[Any] = []
    rounds = 0
    while await scene.connection.fetchval("select count(*) from mainspring.runs") or pending:
        rounds += 1
        assert rounds < 200
        for act in (scene.starter.run_once, scene.expander.run_once, scene.folder.run_once):
            await survives(act)
        if not pending:
            orders = (await scene.worker.exchange(free=40)).runs
            ran += [order.run_id for order in orders]
            pending = [outcome(order) for order in orders]
        if pending and (await scene.worker.ask(outcomes=pending)).status_code == 200:
            pending = []
    assert left == []
    assert len(ran) == len(set(ran)) == 152
    states = await scene.connection.fetch("select state, count(*) from mainspring.run_history group by 1")
    assert dict(states) == {10: 154}  # members, steps, and the workflow run
    payload = await scene.connection.fetchval("select payload::text from mainspring.run_history where name = 'wide'")
    assert payload == '{"n":150}'
    assert (await scene.api.get(f"/v1/runs/{run_id}")).json()["status"] == "SUCCESS"
    await scene.folder.run_once()
    await scene.at_rest()
