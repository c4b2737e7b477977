"""Each rule, reference and kind of map in one graph: how its steps end, with which failures, and after a rerun."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainspring.operations.workflows.expander import FanoutExpander
from mainspring.wire.exchange import Outcome, RunOrder
from tests.operations.hand_worker import outcome
from tests.operations.workflows.scene import Scene, task_of

pytestmark = pytest.mark.anyio


def step(name: str, *after: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "task": "noop", "retries": 0, **({"depends_on": list(after)} if after else {}), **fields}


GRAPH = [
    step("a"),
    step("b", "a", payload={"rows": {"$from": "a", "path": "rows"}, "region": {"$parameter": "region"}}),
    step("c", "a"),
    step("d", "b", "c"),
    step("done", "b", "c", rule="all_done"),
    step("any", "b", "c", rule="one_success", payload={"region": {"$parameter": "region"}}),
    step("alarm", "b", "c", rule="one_failed"),
    step("after-alarm", "alarm"),
    step("strict", "d", on_upstream_failure="fail"),
    step("missing", "a", payload={"x": {"$from": "a", "path": "nothing"}}),
]


GONE = "FAILED failed and asked not to be retried"
NO_VALUE = 'FAILED there is no value for {"$from":"a","path":"nothing"}'
ALL_IS_WELL = {
    "alarm": "SKIPPED no upstream step failed", "after-alarm": "SKIPPED upstream skipped", "missing": NO_VALUE,
}  # fmt: skip
# Which steps fail, and what becomes of those that do not succeed.
ENDS: dict[str, dict[str, str]] = {
    "b": {
        "b": GONE, "d": "SKIPPED upstream failed: b", "strict": "FAILED upstream failed: b", "missing": NO_VALUE,
    },
    "a": {
        "a": GONE, **dict.fromkeys("bcd", "SKIPPED upstream failed: a"), "any": "SKIPPED upstream failed: a",
        "strict": "FAILED upstream failed: a", "missing": "SKIPPED upstream failed: a",
    },
    "alarm c": {
        "c": GONE, "d": "SKIPPED upstream failed: c", "alarm": GONE, "after-alarm": "SKIPPED upstream failed: alarm",
        "strict": "FAILED upstream failed: c", "missing": NO_VALUE,
    },
}  # fmt: skip


async def ends(scene: Scene, run_id: Any) -> dict[str, str]:
    """The steps that have not succeeded, each with its state and the reason."""
    view = (await scene.api.get(f"/v1/workflow-runs/{run_id}")).json()
    found = {one["name"]: " ".join(filter(None, (one["status"], one.get("reason")))) for one in view["steps"]}
    assert view["status"] == ("FAILED" if any(end.startswith("FAILED") for end in found.values()) else "SUCCESS")
    return {name: end for name, end in found.items() if end != "SUCCESS"}


class Work:
    """Reports of a worker on which some steps fail."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.payloads: list[tuple[str, Any]] = []

    def __call__(self, order: RunOrder) -> Outcome:
        assert order.name is not None
        self.payloads.append((order.name, msgspec.json.decode(order.payload or b"null")))
        if order.name in self.failing:
            return outcome(order, "FAILED", error="GiveUp: boom", retry=False)
        return msgspec.structs.replace(outcome(order), result=msgspec.Raw(b'{"rows":[1,2]}'))


@pytest.mark.parametrize("start", [None, "any", "d"])
@pytest.mark.parametrize("failing", ENDS)
async def test_steps_end_by_their_rules_and_again_after_a_rerun(scene: Scene, failing: str, start: str | None) -> None:
    """A rerun from a step runs it however its parents have ended, and what follows it by its rule."""
    await scene.create(GRAPH, workflow_id="graph", parameters={"region": "eu"})
    work = Work(*failing.split())
    run_id = await scene.begin("graph")
    await scene.run_all(work)
    assert await ends(scene, run_id) == ENDS[failing]
    assert {name: payload for name, payload in work.payloads if name in ("any", "b")}.items() <= {
        "any": {"region": "eu"}, "b": {"rows": [1, 2], "region": "eu"},
    }.items()  # fmt: skip
    work.failing = ()
    rerun = f"/v1/workflow-runs/{run_id}:rerun"
    assert (await scene.api.post(rerun, json={"from": start} if start else {})).status_code == 202
    await scene.starter.run_once()
    await scene.join_counter.run_once()
    await scene.run_all(work)
    repeated = {"any": {"any"}, "d": {"d", "strict"}}.get(start or "", set())
    left = {name: end for name, end in ENDS[failing].items() if name not in repeated}
    assert await ends(scene, run_id) == (left if start else ALL_IS_WELL)
    refused = await scene.api.post(rerun, json={"from": "nothing"})
    assert (refused.status_code, refused.json()["field"]) == (422, "from")


MAPPED = [
    step("a"),
    step("m", "a", map={"over": {"$from": "a", "path": "rows"}}, payload={"row": {"$item": ""}, "n": {"$index": True}}),
    step("r", map={"range": [10, 20], "max_failures": 0, "max_parallel": 3}),
    step("none", map={"over": []}),
    step("not-a-list", "a", map={"over": {"$from": "a"}}),
    step("given", map={"over": {"$parameter": "rows"}}, payload={"row": {"$item": "id"}}),
    step("no-list", map={"over": {"$parameter": "region"}}),
    step("end", "m", payload={"all": {"$from": "m"}}),
    step("count", "r", rule="all_done", payload={"all": {"$from": "r"}}),
    step("alarm", "m", rule="one_failed", payload={"failed": {"$from": "m", "path": "failed"}}),
]


@pytest.mark.parametrize("failing", [(), ("m", "r")], ids=str)
async def test_mapped_steps_end_by_their_members(scene: Scene, failing: tuple[str, ...]) -> None:
    given = {"rows": [{"id": 7}, {"id": 8}], "region": "eu"}
    await scene.create(MAPPED, workflow_id="mapped", parameters=given)
    work = Work(*failing)
    run_id = await scene.begin("mapped")
    expander = task_of(scene.assembly, FanoutExpander)
    while await expander.run_once() + len(await scene.round(work, most=1)) + await scene.join_counter.run_once():
        pass
    not_lists = {
        "not-a-list": "FAILED the result of step a is not a list at its top",
        "no-list": "FAILED parameter region is not a list",
    }
    failed = {
        "m": "FAILED 2 of 2 members failed",
        "r": "FAILED 1 of 10 members failed",
        "end": "SKIPPED upstream failed: m",
    }
    well = {"alarm": "SKIPPED no upstream step failed"}
    assert await ends(scene, run_id) == not_lists | (failed if failing else well)
    payloads = {
        name: sorted((each for one, each in work.payloads if one == name), key=str)
        for name in ("m", "given", "end", "count", "alarm")
    }
    result = {"rows": [1, 2]}
    two = {"total": 2, "succeeded": 2, "failed": 0, "skipped": 0, "results": [result, result]}
    ten = (
        {"total": 10, "succeeded": 0, "failed": 1, "skipped": 9, "results": [None] * 10}
        if failing
        else {"total": 10, "succeeded": 10, "failed": 0, "skipped": 0, "results": [result] * 10}
    )
    assert payloads == {
        "m": [{"row": 1, "n": 0}, {"row": 2, "n": 1}],
        "given": [{"row": 7}, {"row": 8}],
        "end": [] if failing else [{"all": two}],
        "count": [{"all": ten}],
        "alarm": [{"failed": 2}] if failing else [],
    }
