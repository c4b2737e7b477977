"""S9: random graphs, rules, failures, maps and reruns end as a small model says, whatever the order of the ends."""

from __future__ import annotations

from collections import Counter
from itertools import cycle
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mainspring.domain.errors import Conflict
from mainspring.wire.exchange import Outcome, RunOrder
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.workflows.model import BAD, BLOCKED, Expected, PlannedStep, again, run_end, step_end
from tests.operations.workflows.scene import Scene

pytestmark = pytest.mark.anyio

few = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
RULES = st.sampled_from(["all_success", "all_done", "one_success", "one_failed"])
CROWD = 65  # more parents than a join counts at once
LEFT = "truncate mainspring.runs, mainspring.joins, mainspring.join_marks, mainspring.fanouts"


class Plan(msgspec.Struct, frozen=True):
    """`failing`: of each step, how it fails in the first run and in the rerun. `first`: the step from which the rerun
    goes; None: those that failed. `batches`: how many runs the worker takes at a time."""

    steps: list[PlannedStep]
    failing: list[tuple[int, int]]
    first: int | None = None
    batches: tuple[int, ...] = (100,)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Steps in an order in which parents come first."""
    size = draw(st.integers(1, 9))
    steps = [draw(_step(number)) for number in range(size)]
    steps = [_without_results_of_maps(step, steps) for step in steps]
    chance = st.sampled_from([0, 0, 0, 1, 2])
    failing = [(draw(chance), draw(chance)) for _ in steps]
    first = draw(st.none() | st.integers(0, size - 1))
    return Plan(steps, failing, first, tuple(draw(st.lists(st.sampled_from([1, 3, 100]), min_size=1, max_size=4))))


@st.composite
def _step(draw: st.DrawFn, number: int) -> PlannedStep:
    parents: list[int] = []
    if number:
        parents = draw(st.lists(st.integers(0, number - 1), max_size=3, unique=True))
    members = draw(st.none() | st.sampled_from([0, 1, 3, 70]))
    return PlannedStep(
        parents=tuple(parents),
        rule=draw(RULES) if parents else "all_success",
        fails=bool(parents) and draw(st.booleans()),
        members=members,
        allowed=None if members is None else draw(st.none() | st.integers(0, 2)),
        uses=draw(st.none() | st.sampled_from(parents)) if parents else None,
    )


def _without_results_of_maps(step: PlannedStep, steps: list[PlannedStep]) -> PlannedStep:
    """A map has a result also if it failed: the model leaves that to other tests."""
    if step.uses is None or steps[step.uses].members is None:
        return step
    return msgspec.structs.replace(step, uses=None)


def wide(rule: str, failing: int) -> Plan:
    """A crowd of steps before one that waits for all of them, and one that waits for that."""
    crowd = [PlannedStep() for _ in range(CROWD)]
    joins = [PlannedStep(tuple(range(CROWD)), rule), PlannedStep((CROWD,), "all_done", uses=CROWD)]
    return Plan(crowd + joins, [(int(number < failing), 0) for number in range(CROWD + 2)], batches=(1, 7, 100))


@pytest.mark.slow
@given(plans())
@example(wide("all_success", 1))
@example(wide("one_failed", 2))
@example(wide("one_success", CROWD - 1))
@few
async def test_a_workflow_run_and_its_rerun_end_as_the_model_says(scene: Scene, plan: Plan) -> None:
    await scene.connection.execute(LEFT)  # by an example that failed
    scene.worker = HandWorker(scene.api, tasks=("noop",))
    workflow_id = await scene.create([step.given(number) for number, step in enumerate(plan.steps)])
    run_id = await scene.begin(workflow_id)
    done: set[tuple[int, int]] = set()
    states = await compare(scene, plan, run_id, {}, 0, done)
    try:
        await scene.control.rerun(scene.caller, run_id, None if plan.first is None else f"s{plan.first}")
    except Conflict as refused:
        assert refused.code == "nothing_to_rerun" and not set(BAD) & set(states.values())
    else:
        await scene.starter.run_once()
        await compare(scene, plan, run_id, states, 1, done)
    await scene.at_rest()


async def compare(
    scene: Scene, plan: Plan, run_id: UUID, before: dict[int, str], rerun: int, done: set[tuple[int, int]]
) -> dict[int, str]:
    """Let the steps run, and see that they end as expected, each run once. Returns the states. `done`: the members
    (step, index) that have succeeded."""
    chosen = again(plan.steps, before, plan.first) if before else set(range(len(plan.steps)))
    expected: dict[int, Expected] = {}
    states: dict[int, str] = dict(before)
    for number in sorted(chosen):
        wanted, step = bool(rerun) and number == plan.first, plan.steps[number]
        in_part = bool(rerun) and plan.first is None and not chosen.intersection(step.parents)
        earlier = {index for of, index in done if of == number} if in_part else set()
        expected[number] = step_end(step, states, plan.failing[number][rerun], wanted=wanted, done=earlier)
        states[number] = expected[number].state
    ran = await run_all(scene, plan, rerun, done)
    view = (await scene.api.get(f"/v1/workflow-runs/{run_id}")).json()
    assert {number: shown(step) for number, step in enumerate(view["steps"])} == states
    assert view["status"] == run_end(plan.steps, states)
    times = Counter(name for name, _ in ran)
    for number in range(len(plan.steps)):
        bounds = expected.get(number, Expected(""))
        assert bounds.least <= times[f"s{number}"] <= bounds.most, number
    assert len(set(ran)) == len(ran)
    assert await scene.connection.fetchval("select count(*) from mainspring.runs") == 0
    return states


async def run_all(scene: Scene, plan: Plan, rerun: int, done: set[tuple[int, int]]) -> list[tuple[str, str]]:
    """Names and ids of the runs that the worker was given. Adds to `done`."""
    ran: list[tuple[str, str]] = []

    def answer(order: RunOrder) -> Outcome:
        name = order.name or ""
        ran.append((name, str(order.run_id)))
        index = msgspec.json.decode(order.payload).get("index", 0)
        if index < plan.failing[int(name[1:])][rerun]:
            return outcome(order, "FAILED", error="boom", retry=False)
        done.add((int(name[1:]), index))
        return outcome(order, result={"made": index})

    idle = 0
    for most in cycle(plan.batches):
        orders = await scene.round(answer, most)
        expanded = await scene.expander.run_once()
        folded = await scene.join_counter.run_once()
        idle = 0 if orders or expanded or folded else idle + 1
        if idle == 2:
            return ran
    raise AssertionError("a cycle has no end")


def shown(step: dict[str, Any]) -> str:
    status: str = step["status"]
    return BLOCKED if status == "SKIPPED" and (step["reason"] or "").startswith("upstream failed") else status
