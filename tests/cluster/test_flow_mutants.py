"""Tests the rules for workflows: each guard is removed in turn, and S9 or L5 must find that. The same scenes without a
mutant must have no violations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.domain.workflows.rules import Counts
from mainspring.operations.workflows import control, expander, rule_engine, stopper
from mainspring.roles.assembly import Assembly
from mainspring.store import joins, workflows
from mainspring.store.workflows import NewMembers
from tests.cluster.flow_stage import FlowStage
from tests.cluster.history import BUSY
from tests.cluster.rules import judge
from tests.cluster.test_limit_mutants import replace

pytestmark = pytest.mark.anyio

DIAMOND: list[dict[str, Any]] = [
    {"name": "a"},
    {"name": "b", "depends_on": ["a"]},
    {"name": "c", "depends_on": ["a"]},
    {"name": "d", "depends_on": ["b", "c"]},
]
MAP: list[dict[str, Any]] = [{"name": "each", "map": {"range": 70}}, {"name": "join", "depends_on": ["each"]}]
Mutant = Callable[[pytest.MonkeyPatch], None]
Scene = Callable[[FlowStage], Awaitable[None]]


# -- guards, and how they are removed


def without_the_other_parents(patch: pytest.MonkeyPatch) -> None:
    """A join is done when one parent has ended."""
    patch.setattr(Counts, "done", property(lambda counts: counts.ended >= 1))


def without_the_failures_of_parents(patch: pytest.MonkeyPatch) -> None:
    """A parent that failed counts as a success."""
    patch.setattr(Counts, "bad", property(lambda _: 0))


def without_forgetting_marks(patch: pytest.MonkeyPatch) -> None:
    """Marks are counted again by the next fold."""
    replace(patch, "joins", "fold_marks", "delete from mainspring.join_marks", "select * from mainspring.join_marks")
    replace(patch, "joins", "fold_marks", "\n    returning *", "")


def without_the_state_of_who_waits(patch: pytest.MonkeyPatch) -> None:
    """The second parent starts a step that has started already."""
    replace(patch, "joins", "waiting_runs", "and r.state = 3\n", "and r.state in (2, 3)\n")
    replace(patch, "joins", "make_ready", "waits_for = null", "waits_for = r.waits_for")
    replace(patch, "joins", "make_ready", "and r.state + 0 = 3", "")


def without_stopping_who_waits(patch: pytest.MonkeyPatch) -> None:
    """A cancel leaves the steps that wait."""
    patch.setattr(stopper, "_WAITING", ())


def without_waiting_for_who_runs(patch: pytest.MonkeyPatch) -> None:
    """A cancelled workflow run ends at once, beside its running steps."""

    async def all_of_them(_: asyncpg.Connection, prefixes: list[UUID]) -> set[UUID]:
        return set(prefixes)

    patch.setattr(workflows, "without_runs", all_of_them)


def without_one_member(patch: pytest.MonkeyPatch) -> None:
    """The cursor goes on, and one member was not created."""
    create = workflows.create_members

    async def all_but_one(connection: asyncpg.Connection, members: NewMembers) -> int:
        payloads = None if members.payloads is None else members.payloads[:-1]
        fewer = msgspec.structs.replace(members, count=members.count - 1, payloads=payloads)
        return await create(connection, fewer) + 1

    patch.setattr(workflows, "create_members", all_but_one)


def without_counting(patch: pytest.MonkeyPatch) -> None:
    """The end of a step is stored, and its join does not count it."""

    async def nothing(*_: Any) -> list[Any]:
        return []

    patch.setattr(joins, "count", nothing)


def without_the_marks_of_wide_joins(patch: pytest.MonkeyPatch) -> None:
    """The ends of members are stored, and nobody marks them."""

    async def nothing(*_: Any) -> None: ...

    patch.setattr(rule_engine.joins, "mark", nothing)


def without_what_follows(patch: pytest.MonkeyPatch) -> None:
    """A rerun repeats a step, and not those after it: they keep the ends that they had."""
    patch.setattr(control, "downstream", lambda _, starts: set(starts))


def without_the_members_that_succeeded_before(patch: pytest.MonkeyPatch) -> None:
    """The join of members that run again does not count the others."""

    def counts_nothing(join_id: int, total: int, ok: int = 0) -> joins.NewJoin:
        return joins.NewJoin(join_id, total, ok=0 * ok)

    patch.setattr(expander, "NewJoin", counts_nothing)


# -- what happens


async def a_diamond_runs_step_by_step(stage: FlowStage) -> None:
    await stage.begin(*DIAMOND)
    await stage.finish(most=1)


async def a_parent_fails(stage: FlowStage) -> None:
    await stage.begin(*DIAMOND)
    await stage.finish(most=1, failing=("b",))


async def members_end_a_few_at_a_time(stage: FlowStage) -> None:
    await stage.begin(*MAP)
    await stage.finish(most=10)


async def a_second_parent_ends_after_the_start(stage: FlowStage) -> None:
    await stage.begin({"name": "a"}, {"name": "b"}, {"name": "c", "depends_on": ["a", "b"], "rule": "one_success"})
    first, second = await stage.claim()
    await stage.end(first)
    third = await stage.claim()
    await stage.end(second)
    await stage.end(*third)
    await stage.finish()


async def a_workflow_run_is_cancelled(stage: FlowStage) -> None:
    run_id = await stage.begin(*DIAMOND)
    orders = await stage.claim()
    await stage.cancel(run_id)
    await stage.end(*orders)
    await stage.finish()


async def a_workflow_run_runs_again(stage: FlowStage) -> None:
    """Once what failed, and then a step that succeeded."""
    run_id = await stage.begin(*DIAMOND)
    await stage.finish(failing=("b",))
    for first in (None, "c"):
        await stage.scene.control.rerun(stage.scene.caller, run_id, first)
        await stage.scene.starter.run_once()
        await stage.finish()


async def members_run_again(stage: FlowStage) -> None:
    """Those that failed: the first ten."""
    run_id = await stage.begin(*MAP)
    await stage.scene.expander.run_once()
    orders = await stage.claim(10)
    await stage.end(*orders, failing=("each",))
    await stage.finish()
    await stage.scene.control.rerun(stage.scene.caller, run_id)
    await stage.scene.starter.run_once()
    await stage.finish()


SCENES: dict[Mutant, tuple[Scene, str]] = {
    without_the_other_parents: (a_diamond_runs_step_by_step, "S9"),
    without_the_failures_of_parents: (a_parent_fails, "S9"),
    without_forgetting_marks: (members_end_a_few_at_a_time, "S9"),
    without_the_state_of_who_waits: (a_second_parent_ends_after_the_start, "S9"),
    without_stopping_who_waits: (a_workflow_run_is_cancelled, "S9"),
    without_waiting_for_who_runs: (a_workflow_run_is_cancelled, "S9"),
    without_one_member: (members_end_a_few_at_a_time, "L5"),
    without_counting: (a_diamond_runs_step_by_step, "L5"),
    without_the_marks_of_wide_joins: (members_end_a_few_at_a_time, "L5"),
    without_what_follows: (a_workflow_run_runs_again, "S9"),
    without_the_members_that_succeeded_before: (members_run_again, "L5"),
}


@pytest.fixture
async def stage(api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> FlowStage:
    made = FlowStage(api, assembly, connection)
    await made.open()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SCENES, ids=lambda mutant: mutant.__name__)
async def test_the_checker_finds_a_workflow(mutant: Mutant, stage: FlowStage, monkeypatch: pytest.MonkeyPatch) -> None:
    scene, rule = SCENES[mutant]
    mutant(monkeypatch)
    await scene(stage)
    found = judge(await stage.history())
    assert rule in {violation.rule for violation in found}, [str(violation) for violation in found]


@pytest.mark.parametrize(
    "scene", dict.fromkeys(scene for scene, _ in SCENES.values()), ids=lambda scene: scene.__name__
)
async def test_the_checker_finds_nothing_when(scene: Scene, stage: FlowStage) -> None:
    await scene(stage)
    history = await stage.history()
    history.machine = BUSY
    assert [str(violation) for violation in judge(history)] == []
