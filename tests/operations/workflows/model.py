"""A small model of workflow runs: it computes how each step ends, from the rules as docs/workflows.md has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

SUCCESS, FAILED, SKIPPED = "SUCCESS", "FAILED", "SKIPPED"
BLOCKED = "BLOCKED"  # SKIPPED because of a failure
BAD = (FAILED, BLOCKED)


class PlannedStep(msgspec.Struct, frozen=True):
    """`fails`: it ends FAILED instead of SKIPPED when a failure blocks it. `members`: of a mapped step. `allowed`: so
    many of them may fail. `uses`: the parent whose result is in its payload."""

    parents: tuple[int, ...] = ()
    rule: str = "all_success"
    fails: bool = False
    members: int | None = None
    allowed: int | None = None
    uses: int | None = None

    def given(self, number: int) -> dict[str, Any]:
        """As in a request."""
        step: dict[str, Any] = {"name": f"s{number}", "task": "noop", "retries": 0, "payload": {}}
        if self.parents:
            step |= {"depends_on": [f"s{parent}" for parent in self.parents], "rule": self.rule}
            step["on_upstream_failure"] = "fail" if self.fails else "skip"
        if self.members is not None:
            step["map"] = {"range": self.members} | ({} if self.allowed is None else {"max_failures": self.allowed})
            step["payload"]["index"] = {"$index": True}
        if self.uses is not None:
            step["payload"]["used"] = {"$from": f"s{self.uses}", "path": "made"}
        return step


class Expected(msgspec.Struct):
    """How a step ends. `least`, `most`: how often a worker runs it, or one of its members."""

    state: str
    least: int = 0
    most: int = 0


def step_end(
    step: PlannedStep,
    states: Mapping[int, str],
    failing: int,
    *,
    wanted: bool = False,
    done: Collection[int] = (),
) -> Expected:
    """`failing`: a plain step fails with 1; of a mapped one the first so many members fail. `wanted`: the rerun named
    it, so it runs however its parents have ended. `done`: the members that do not run again."""
    parents = [states[parent] for parent in step.parents]
    bad = any(state in BAD for state in parents)
    match step.rule if parents and not wanted else "all_done":
        case "all_success":
            met = all(state == SUCCESS for state in parents)
        case "one_success":
            met = SUCCESS in parents
        case "one_failed":
            met, bad = bad, False
        case _:
            met = True
    if not met:
        return Expected((FAILED if step.fails else BLOCKED) if bad else SKIPPED)
    has_value = step.uses is None or states[step.uses] == SUCCESS
    if step.members is None:
        return Expected(SUCCESS if has_value and not failing else FAILED, int(has_value), int(has_value))
    allowed = step.allowed or 0
    left = [index for index in range(step.members) if index not in done]
    if not has_value:
        return Expected(FAILED if len(left) > allowed else SUCCESS)
    if sum(index < failing for index in left) <= allowed:
        return Expected(SUCCESS, len(left), len(left))
    return Expected(FAILED, len(left) if step.allowed is None else allowed + 1, len(left))


def run_end(steps: Sequence[PlannedStep], states: Mapping[int, str]) -> str:
    """The end of the workflow run: that of its last steps."""
    followed = {parent for step in steps for parent in step.parents}
    return FAILED if any(states[number] in BAD for number in range(len(steps)) if number not in followed) else SUCCESS


def again(steps: Sequence[PlannedStep], states: Mapping[int, str], first: int | None) -> set[int]:
    """The steps that a rerun repeats: from the step `first` on, or else from those that did not succeed."""
    found = {number for number in range(len(steps)) if states[number] in BAD} if first is None else {first}
    for number, step in enumerate(steps):  # parents come first
        if found.intersection(step.parents):
            found.add(number)
    return found
