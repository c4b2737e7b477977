"""The rules for workflows can fail: for each there is a history with one violation that the rule must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.history import CANCELLED, FAILED, QUEUED, SUCCESS, WAITING, Call, History
from tests.cluster.rules_flows import (
    CANCEL_FLOW,
    s9_a_step_runs_once,
    s9_a_step_starts_after_its_parents,
    s9_a_step_works_after_its_parents,
    s9_a_workflow_run_ends_with_its_steps,
    s9_joins_count_exactly,
)
from tests.cluster.story import Story

RULES: tuple[Callable[[History], Iterator[str]], ...] = (
    s9_a_step_starts_after_its_parents, s9_a_step_works_after_its_parents, s9_a_step_runs_once, s9_joins_count_exactly,
    s9_a_workflow_run_ends_with_its_steps,
)  # fmt: skip
ENDED = 4
A, EACH, JOIN, FLOW = range(4)
MEMBERS = (4, 5)


class FlowStory(Story):
    """A workflow run: step a, a step that is mapped over two members after it, and a join after that."""

    def __init__(self) -> None:
        super().__init__()
        steps = [{"name": "a"}, {"name": "each", "waits_for": 0, "map": {}}, {"name": "join", "waits_for": 1}]
        definition = {"steps": steps, "joins": [[A], [EACH]], "last": [JOIN]}
        version = {"workflow_id": "w", "generation": 1, "version": 1, "definition": definition}
        self.write(0.0, "server", ("workflow_versions", "I", {}, version))
        self.flow = {
            "flow_id": "flow", "container": "flow", "job_id": "w", "generation": 1, "version": 1, "state": 2,
            "stop_reason": None,
        }  # fmt: skip
        self.write(0.1, "server", ("flows", "I", {}, self.flow))
        for number, state in ((A, QUEUED), (EACH, WAITING), (JOIN, WAITING), (FLOW, WAITING)):
            self.bear(0.2, number, number, state)

    def bear(self, at: float, number: int, place: int, state: int = QUEUED, *, member: bool = False) -> str:
        """Create a run. The one of the workflow run has no step."""
        run = "flow" if number == FLOW else f"run-{number}"
        row = self.created(0) | {
            "run_id": run, "job_id": None if member else f"s{place}@w", "state": state, "rule": 0,
            "trigger": "manual:x" if number == FLOW else f"step:flow:{number}", "spec": {"step": {"place": place}},
        }  # fmt: skip
        self.write(at, "server", ("runs", "I", {}, row))
        self.runs[run] = row
        return run

    def expand(self, at: float, total: int = len(MEMBERS)) -> None:
        self.step(at, "run-1", started_at="now")
        row = {
            "run_id": "run-1", "flow_id": "flow", "step": EACH, "total": total, "first_number": MEMBERS[0],
            "failures": None,
        }  # fmt: skip
        self.write(at, "server", ("fanouts", "I", {}, row))
        for number in MEMBERS:
            self.bear(at, number, EACH, member=True)

    def work(self, at: float, run: str) -> None:
        self.claim(at, run)
        self.lines(run, 1, start=at + 0.01, end=at + 0.05)
        self.end(at + 0.06, run, reason=None)

    def close_flow(self, at: float, state: int = SUCCESS) -> None:
        self.end(at, "flow", state, reason=None)
        self.write(at, "server", ("flows", "U", self.flow, self.flow | {"state": ENDED}))


def told(story: FlowStory, **changes: Callable[[FlowStory], None]) -> FlowStory:
    """The whole story, with something else in the place of some of its parts."""
    parts: dict[str, Callable[[FlowStory], None]] = {
        "first": lambda story: story.work(1.0, "run-0"),
        "expanded": lambda story: story.expand(2.0),
        "members": lambda story: [story.work(2.1 + number / 10, f"run-{number}") for number in MEMBERS] and None,
        "mapped": lambda story: story.end(3.0, "run-1", reason=None, result={"total": 2, "succeeded": 2}),
        "ready": lambda story: story.step(3.0, "run-2", state=QUEUED),
        "joined": lambda story: story.work(4.0, "run-2"),
        "closed": lambda story: story.close_flow(5.0),
    }
    for part in (parts | changes).values():
        part(story)
    return story


def found(story: FlowStory) -> list[str]:
    return [rule.__name__ for rule in RULES if list(rule(story.history))]


def test_a_workflow_run_in_which_all_is_well_has_no_violation() -> None:
    assert found(told(FlowStory())) == []


def nothing(_: FlowStory) -> None: ...


def a_step_that_is_ready_early(story: FlowStory) -> None:
    story.step(0.9, "run-2", state=QUEUED)
    story.work(1.0, "run-0")


def a_second_start(story: FlowStory) -> None:
    story.step(3.0, "run-2", state=QUEUED)
    story.claim(3.1, "run-2")
    story.step(3.2, "run-2", state=QUEUED)


def a_third_run_of_a_step(story: FlowStory) -> None:
    story.step(3.0, "run-2", state=QUEUED)
    story.bear(3.0, 9, JOIN)


def a_member_that_was_not_waited_for(story: FlowStory) -> None:
    story.work(2.5, f"run-{MEMBERS[0]}")


def a_wrong_count(story: FlowStory) -> None:
    story.end(3.0, "run-1", reason=None, result={"total": 2, "succeeded": 1})


def a_map_that_fails_although_its_members_succeeded(story: FlowStory) -> None:
    story.end(3.0, "run-1", FAILED, reason=None)


def a_workflow_run_that_ends_early(story: FlowStory) -> None:
    story.close_flow(3.5)


def a_cancelled_run_that_ends_beside_a_step(story: FlowStory) -> None:
    story.claim(4.0, "run-2")
    story.close_flow(4.1, CANCELLED)


def a_wrong_end(story: FlowStory) -> None:
    story.close_flow(5.0, FAILED)


def a_parent_that_is_not_over(story: FlowStory) -> None:
    """The mapped step has no work of its own: the line stands for what it would have written."""
    story.lines("run-1", 0, end=9.0)
    story.expand(2.0)


def a_start_after_an_acknowledged_cancel(story: FlowStory) -> None:
    call = Call(CANCEL_FLOW, "flow", {}, 2.9, 2.95, "ok", 200, {})
    story.history.calls.append(call)
    story.step(3.0, "run-2", state=QUEUED)


WRONGS: list[tuple[str, dict[str, Any]]] = [
    ("s9_a_step_starts_after_its_parents", {"first": a_step_that_is_ready_early, "ready": nothing}),
    ("s9_a_step_starts_after_its_parents", {"mapped": a_map_that_fails_although_its_members_succeeded}),
    ("s9_a_step_works_after_its_parents", {"expanded": a_parent_that_is_not_over}),
    ("s9_a_step_runs_once", {"ready": a_second_start}),
    ("s9_a_step_runs_once", {"ready": a_third_run_of_a_step}),
    ("s9_joins_count_exactly", {"members": a_member_that_was_not_waited_for}),
    ("s9_joins_count_exactly", {"expanded": lambda story: story.expand(2.0, total=3)}),
    ("s9_joins_count_exactly", {"mapped": a_wrong_count}),
    ("s9_joins_count_exactly", {"mapped": a_map_that_fails_although_its_members_succeeded}),
    ("s9_a_workflow_run_ends_with_its_steps", {"joined": a_workflow_run_that_ends_early, "closed": nothing}),
    ("s9_a_workflow_run_ends_with_its_steps", {"joined": a_cancelled_run_that_ends_beside_a_step, "closed": nothing}),
    ("s9_a_workflow_run_ends_with_its_steps", {"closed": a_wrong_end}),
    ("s9_a_workflow_run_ends_with_its_steps", {"ready": a_start_after_an_acknowledged_cancel}),
]


@pytest.mark.parametrize(("rule", "changes"), WRONGS)
def test_every_rule_finds_its_violation(rule: str, changes: dict[str, Any]) -> None:
    assert rule in found(told(FlowStory(), **changes))


def test_every_rule_is_tested() -> None:
    assert {rule for rule, _ in WRONGS} == {rule.__name__ for rule in RULES}
