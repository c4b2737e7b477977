"""Rules: what becomes of a run that waits, by the counts of its join.

The decisions depend on the counts alone, and not on the order of the ends. A rule that could be decided by a skipped
parent before all parents have ended waits for the others, because one of them may fail.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

import msgspec

JOIN_BLOCK = 1 << 22  # ids of joins in a block
WIDE = 64  # a join of more parents takes marks


class Rule(IntEnum):
    """Which ends of its parents start a step. CONTAINER: it ends when all of them have ended: a workflow run, whose
    parents are its last steps, and a mapped step, whose parents are its members."""

    ALL_SUCCESS = 0
    ALL_DONE = 1
    ONE_SUCCESS = 2
    ONE_FAILED = 3
    CONTAINER = 4

    @property
    def word(self) -> str:
        return self.name.lower()


class Waiting(IntFlag):
    """The bits in `runs.rule` above the rule itself.

    FAILS       an upstream failure ends it FAILED instead of SKIPPED
    MAPPED      it is a mapped step: when it is ready its members are created
    RESOLVES    its payload has references to results of other steps
    WAITS       it waits for something else then: a time
    """

    FAILS = 8
    MAPPED = 16
    RESOLVES = 32
    WAITS = 64


RULE_BITS = 7


class Counts(msgspec.Struct, frozen=True):
    """The ends that a join has counted. `blocked`: those of `skipped` that were skipped because of a failure. A
    cancelled run counts as failed."""

    total: int
    ok: int = 0
    failed: int = 0
    skipped: int = 0
    blocked: int = 0
    cause: str | None = None

    @property
    def ended(self) -> int:
        return self.ok + self.failed + self.skipped

    @property
    def done(self) -> bool:
        return self.ended >= self.total

    @property
    def bad(self) -> int:
        return self.failed + self.blocked


class Decision(IntEnum):
    """RUN: it starts. SKIP: its rule cannot be met, and no failure is the reason. BLOCK: the same because of a failure.
    SUCCEED, FAIL: a container ends."""

    RUN = 1
    SKIP = 2
    BLOCK = 3
    SUCCEED = 4
    FAIL = 5


def decide(rule: Rule, counts: Counts, failures: int = 0) -> Decision | None:
    """What becomes of a run with this rule; None while that is open. `failures`: so many failed members do not fail a
    mapped step."""
    match rule:
        case Rule.ALL_SUCCESS:
            if counts.bad:
                return Decision.BLOCK
            if counts.done:
                return Decision.SKIP if counts.skipped else Decision.RUN
        case Rule.ALL_DONE:
            if counts.done:
                return Decision.RUN
        case Rule.ONE_SUCCESS:
            if counts.ok:
                return Decision.RUN
            if counts.done:
                return Decision.BLOCK if counts.bad else Decision.SKIP
        case Rule.ONE_FAILED:
            if counts.bad:
                return Decision.RUN
            if counts.done:
                return Decision.SKIP
        case Rule.CONTAINER:
            if counts.done:
                return Decision.FAIL if counts.bad > failures else Decision.SUCCEED
    return None


def decided(counts: Counts) -> int:
    """The rules that are decided by these counts, as bits."""
    return sum(1 << rule for rule in Rule if decide(rule, counts) is not None)


class Skip(msgspec.Struct, frozen=True):
    """The steps with these rules, as bits, are skipped. cause: the step whose failure is the reason, if it is one."""

    rules: int
    reason: str | None
    cause: str | None


def skips_by(counts: Counts) -> list[Skip]:
    """Which rules cannot be met any more."""
    found: dict[tuple[str | None, str | None], int] = {}
    for rule in Rule:
        decision = decide(rule, counts)
        if decision in (Decision.SKIP, Decision.BLOCK):
            why = reason_of(rule, decision, counts), cause_of(decision, counts)
            found[why] = found.get(why, 0) | 1 << rule
    return [Skip(bits, reason, cause) for (reason, cause), bits in found.items()]


def cause_of(decision: Decision, counts: Counts) -> str | None:
    """The step whose failure is the reason that a step does not run."""
    return (counts.cause or "a step") if decision is Decision.BLOCK else None


def reason_of(rule: Rule, decision: Decision, counts: Counts) -> str | None:
    """Why a step is SKIPPED, or FAILED because of its parents."""
    if decision is Decision.BLOCK:
        return f"upstream failed: {counts.cause}" if counts.cause else "upstream failed"
    if decision is Decision.SKIP:
        return "no upstream step failed" if rule is Rule.ONE_FAILED else "upstream skipped"
    return None
