"""Jobs after jobs: what a job waits for, what the ends of its parents mean, and cycles between jobs.

A job with `depends_on` fires by its own schedule. Its run WAITs for each parent: for the parent's run with the same
scheduled_for, or else for the parent's first success after the job's previous fire. A job with `schedule.after` has no
time of its own: it fires when its parents have ended since its last fire, by its rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, IntFlag

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.job import JobDefinition, Spec
from mainspring.domain.texts import shown
from mainspring.domain.transitions import StoredState
from mainspring.domain.workflows.flow import workflow_of
from mainspring.domain.workflows.references import may_refer
from mainspring.domain.workflows.rules import Counts, Decision, Rule, decide

MAX_PARENTS = 100
ALL_SUCCESS, SKIP, FAIL = "all_success", "skip", "fail"
UPSTREAM_FAILED = "upstream failed: "
_SHOWN_IN_A_CYCLE = 12


class Edges(IntFlag):
    """The bits in `jobs.edges`. The column is null if a job has no edges.

    FOLLOWED    other jobs depend on it: the ends of its runs are evaluated
    WAITS       its runs are created as WAITING
    AFTER       it fires when its parents have ended
    """

    FOLLOWED = 1
    WAITS = 2
    AFTER = 4


class ParentEnd(IntEnum):
    """How a parent has ended, for one run that waits for it. The first four are states of the parent's run.

    BLOCKED     its run was skipped because of a failure further up
    MISSED      its fire for the same time was missed
    DELETED     the parent was deleted, and has no live run
    OVER        the parent has no further fire, and has not succeeded
    """

    SUCCESS = int(StoredState.SUCCESS)
    FAILED = int(StoredState.FAILED)
    CANCELLED = int(StoredState.CANCELLED)
    SKIPPED = int(StoredState.SKIPPED)
    BLOCKED = 14
    MISSED = 20
    DELETED = 21
    OVER = 22


_FAILURES = (ParentEnd.FAILED, ParentEnd.CANCELLED)
_WORDS = {
    ParentEnd.FAILED: "upstream failed",
    ParentEnd.CANCELLED: "upstream cancelled",
    ParentEnd.SKIPPED: "upstream skipped",
    ParentEnd.BLOCKED: "upstream failed",
    ParentEnd.MISSED: "upstream missed",
    ParentEnd.DELETED: "upstream deleted",
    ParentEnd.OVER: "upstream has no further fire",
}
NO_FAILURE = "no upstream job failed"


class Wait(msgspec.Struct, frozen=True):
    """What a run knows of one parent. `cause`: the job that failed further up, if the parent was BLOCKED."""

    parent: str
    end: ParentEnd | None = None
    cause: str | None = None


class WaitVerdict(msgspec.Struct, frozen=True):
    """What becomes of a run that waits. `end`: None if it runs; otherwise SKIPPED or FAILED, with the reason."""

    end: StoredState | None = None
    reason: str | None = None


RUNS = WaitVerdict()


def verdict(spec: Spec, waits: Sequence[Wait]) -> WaitVerdict | None:
    """The verdict; None while it is not decided. The order of the waits decides only which parent a reason names."""
    rule = Rule[(spec.rule or ALL_SUCCESS).upper()]
    ends = [wait.end for wait in waits if wait.end is not None]
    ok, failed = ends.count(ParentEnd.SUCCESS), sum(end in _FAILURES for end in ends)
    counts = Counts(
        len(waits), ok=ok, failed=failed, skipped=len(ends) - ok - failed, blocked=ends.count(ParentEnd.BLOCKED)
    )
    decision = decide(rule, counts)
    if decision is None:
        return None
    if decision is Decision.RUN:
        return RUNS
    fails = decision is Decision.BLOCK and spec.on_upstream_failure == FAIL
    return WaitVerdict(StoredState.FAILED if fails else StoredState.SKIPPED, _reason(rule, decision, waits))


def _reason(rule: Rule, decision: Decision, waits: Sequence[Wait]) -> str:
    if rule is Rule.ONE_FAILED:
        return NO_FAILURE
    bad = (*_FAILURES, ParentEnd.BLOCKED) if decision is Decision.BLOCK else tuple(_WORDS)
    first = next(wait for wait in waits if wait.end in bad)
    assert first.end is not None
    return f"{_WORDS[first.end]}: {first.cause or first.parent}"


def satisfies(rule: str | None, end: ParentEnd) -> bool:
    """Whether this end of a parent counts for a job with `schedule.after`."""
    match Rule[(rule or ALL_SUCCESS).upper()]:
        case Rule.ALL_SUCCESS | Rule.ONE_SUCCESS:
            return end is ParentEnd.SUCCESS
        case Rule.ONE_FAILED:
            return end in (*_FAILURES, ParentEnd.BLOCKED)
        case _:
            return True


def is_met(rule: str | None, satisfied: Iterable[bool]) -> bool:
    """Whether a job with `schedule.after` fires: all its parents, or one of them, have ended so that it counts."""
    return any(satisfied) if (rule or ALL_SUCCESS).startswith("one_") else all(satisfied)


def parents_of(definition: JobDefinition) -> list[str]:
    """The jobs that it names in `depends_on` or `schedule.after`."""
    return definition.spec.depends_on or list(definition.schedule.after or ())


def rule_of(definition: JobDefinition) -> str | None:
    """The rule of a job, as it is shown. None if the job has no parents."""
    return (definition.spec.rule or ALL_SUCCESS) if parents_of(definition) else None


def has_references(definition: JobDefinition) -> bool:
    """Whether its payload may take results of its parents."""
    if definition.spec.depends_on is None and definition.schedule.after is None:
        return False
    return bool(parents_of(definition)) and may_refer(definition.payload)


def edges_of(definition: JobDefinition) -> int | None:
    """The bits of `jobs.edges` that follow from the definition."""
    edges = Edges(0)
    if definition.spec.depends_on or has_references(definition):
        edges |= Edges.WAITS
    if definition.schedule.after is not None:
        edges |= Edges.AFTER
    return int(edges) or None


def find_cycle(parents: Mapping[str, Sequence[str]]) -> list[str] | None:
    """A cycle of jobs, each before the next one, if there is one. `parents` has the parents of each job."""
    done: set[str] = set()
    for start in parents:
        path: list[str] = []
        place: dict[str, int] = {}
        left = [iter([start])]
        while left:
            job = next(left[-1], None)
            if job is None:
                left.pop()
                if path:
                    done.add(ended := path.pop())
                    del place[ended]
            elif job in place:
                return [*reversed(path[place[job] :])]
            elif job not in done:
                place[job] = len(path)
                path.append(job)
                left.append(iter(parents.get(job, ())))
    return None


def cyclic(cycle: Sequence[str], field: str) -> InvalidInput:
    """The error for jobs that wait for each other. Each comes before the next one."""
    begin = list(cycle).index(min(cycle))
    names = [*cycle[begin:], *cycle[:begin]]
    first = names[0]
    if len(names) > _SHOWN_IN_A_CYCLE:
        half = _SHOWN_IN_A_CYCLE // 2
        names = [*names[:half], f"... ({len(names) - 2 * half} more)", *names[-half:]]
    return InvalidInput(
        f"the jobs wait for each other in a cycle: {' > '.join([*names, first])}", code="cycle", field=field,
        hint="take one of these dependencies out",
    )  # fmt: skip


def no_parent(parent: str, field: str, *, deleted: bool) -> InvalidInput:
    workflow_id = workflow_of(parent)
    if workflow_id is not None:
        return InvalidInput(
            f"{shown(parent)} is a step, and not a job of its own", code="unknown_job", field=field,
            expected="job_ids of jobs that exist", hint=f"depend on its workflow, {shown(workflow_id)}",
        )  # fmt: skip
    what = f"job {shown(parent)} was deleted" if deleted else f"there is no job {shown(parent)}"
    return InvalidInput(
        what, code="unknown_job", field=field, expected="job_ids of jobs that exist", hint="create it first"
    )
