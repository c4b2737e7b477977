"""Verbs on many jobs, runs or dead letters: which there are, and how an operation that carries one out can stand."""

from __future__ import annotations

from enum import IntEnum, StrEnum

from mainspring.domain.errors import Conflict, InvalidInput

MOST = 2**31 - 1
MOST_IDS = 1000
MOST_AT_WORK = 20  # operations of a tenant that have not ended
_MORE = 1.1  # how many more than confirmed an operation may meet


class Target(StrEnum):
    JOBS = "jobs"
    RUNS = "runs"
    DEAD_LETTERS = "dead_letters"


class BulkState(IntEnum):
    """The number in `operations.state`."""

    RUNNING = 1
    DONE = 2
    CANCELLED = 3
    FAILED = 4


def check_expected(count: int, expected: int) -> None:
    """Raise Conflict if clearly more objects are selected than the client has confirmed."""
    if not 0 <= expected <= MOST:
        raise InvalidInput(f"{expected} is out of range", field="expected", expected=f"0 to {MOST}")
    if count > expected * _MORE:
        raise Conflict(
            f"{count} match now, and {expected} were expected",
            code="count_changed", field="expected", expected=str(count),
            hint=f"look at what matches, and send expected: {count} if that is what you want",
        )  # fmt: skip


def too_many_operations() -> Conflict:
    return Conflict(
        f"{MOST_AT_WORK} operations have not ended", code="too_many_operations",
        hint="wait for them, or cancel some; see GET /v1/operations?state=RUNNING",
    )  # fmt: skip


def operation_ended(operation_id: str, state: BulkState) -> Conflict:
    return Conflict(f"operation {operation_id} is {state.name}", code="operation_ended")
