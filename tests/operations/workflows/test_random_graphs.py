"""S9: random graphs, rules and failures end as a small model says, whatever the order of the ends."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mainspring.wire.exchange import Outcome, RunOrder
from tests.operations.hand_worker import outcome
from tests.operations.workflows.scene import Scene

pytestmark = pytest.mark.anyio

RULES = ("all_success", "all_done", "one_success", "one_failed")
FAILED_OR_BLOCKED = ("FAILED", "BLOCKED")


def graph(chance: random.Random, size: int) -> list[dict[str, Any]]:
    """Steps in an order in which parents come first. Some have more parents than a join counts at once."""
    steps: list[dict[str, Any]] = []
    for number in range(size):
        wide = number > 70 and chance.random() < 0.1
        parents = chance.sample(range(number), 66 if wide else min(number, chance.choice((0, 1, 1, 2, 3))))
        step: dict[str, Any] = {"name": f"s{number}", "depends_on": [f"s{parent}" for parent in parents], "retries": 0}
        if parents:
            step["rule"] = chance.choice(RULES)
            step["on_upstream_failure"] = chance.choice(("skip", "skip", "fail"))
        if parents and chance.random() < 0.2:
            step["map"] = {"range": chance.choice((0, 1, 3, 70))}
        steps.append(step)
    return steps


def expected(steps: list[dict[str, Any]], failing: set[str]) -> dict[str, str]:
    """The model: SUCCESS, FAILED, SKIPPED, or BLOCKED, which is SKIPPED because of a failure."""
    found: dict[str, str] = {}
    for step in steps:
        parents = [found[parent] for parent in step["depends_on"]]
        bad = [state for state in parents if state in FAILED_OR_BLOCKED]
        end = "RUN"
        unmet = {"all_success": bool(bad) or "SKIPPED" in parents, "one_success": "SUCCESS" not in parents}
        if unmet.get(step.get("rule", ""), False):
            end = "BLOCKED" if bad else "SKIPPED"
        elif step.get("rule") == "one_failed" and not bad:
            end = "SKIPPED"
        if end == "RUN":
            runs = step.get("map", {"range": 1})["range"] > 0
            end = "FAILED" if runs and step["name"] in failing else "SUCCESS"
        elif end == "BLOCKED" and step["on_upstream_failure"] == "fail":
            end = "FAILED"
        found[step["name"]] = end
    return found


@pytest.mark.parametrize("seed", range(9))
async def test_a_workflow_run_ends_as_the_model_says(scene: Scene, seed: int) -> None:
    chance = random.Random(seed)
    steps = graph(chance, 110 if seed % 4 == 0 else 25)
    failing = {step["name"] for step in steps if chance.random() < 0.3}
    run_id = await scene.begin(await scene.create(steps))
    ends: dict[str, int] = {}

    def answer(order: RunOrder) -> Outcome:
        ends[order.name or ""] = ends.get(order.name or "", 0) + 1
        if order.name in failing:
            return outcome(order, "FAILED", error="boom", retry=False)
        return outcome(order)

    idle = 0
    while idle < 2:
        ran = await scene.round(answer, most=chance.choice((1, 7, 100)))
        expanded = await scene.expander.run_once()
        await scene.folder.run_once()
        idle = 0 if ran or expanded else idle + 1
    model = expected(steps, failing)
    rows = await scene.connection.fetch(
        "select name, state, reason from mainspring.run_history where job_id is not null and run_id <> $1", run_id
    )
    words = {10: "SUCCESS", 11: "FAILED", 13: "SKIPPED"}
    found = {
        row["name"]: "BLOCKED" if (row["state"], row["reason"] or "")[0] == 13
        and (row["reason"] or "").startswith("upstream failed") else words[row["state"]]
        for row in rows
    }  # fmt: skip
    assert found == model
    assert len(rows) == len(steps)  # each ended once
    for step in steps:
        times = step.get("map", {"range": 1})["range"] if model[step["name"]] in ("SUCCESS", "FAILED") else 0
        if model[step["name"]] == "SUCCESS" or step["name"] in ends:
            assert ends.get(step["name"], 0) == times
    dependants = {parent for step in steps for parent in step["depends_on"]}
    last = [model[step["name"]] for step in steps if step["name"] not in dependants]
    end = await scene.ended(run_id)
    assert end is not None
    assert end[0] == ("FAILED" if any(state in FAILED_OR_BLOCKED for state in last) else "SUCCESS")
    assert await scene.connection.fetchval("select count(*) from mainspring.runs") == 0
    await scene.at_rest()
