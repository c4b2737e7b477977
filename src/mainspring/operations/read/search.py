"""The parameters of lists and searches, and the names of states in them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.transitions import LIVE, RunState, StoredJobStatus, StoredState


class RunQuery(msgspec.Struct, frozen=True):
    """The parameters of `GET /v1/runs`."""

    statuses: Sequence[str] = ()
    job: str | None = None
    queue: str | None = None
    task: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    cursor: str | None = None
    limit: int = 50


class JobQuery(msgspec.Struct, frozen=True):
    """The parameters of `GET /v1/jobs`."""

    statuses: Sequence[str] = ()
    queue: str | None = None
    owner: str | None = None
    label: tuple[str, str] | None = None
    text: str | None = None
    cursor: str | None = None
    limit: int = 50


class DeadLetterQuery(msgspec.Struct, frozen=True):
    """The parameters of `GET /v1/dead-letters`. `since` and `until` refer to the time at which the run failed."""

    job: str | None = None
    task: str | None = None
    queue: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    cursor: str | None = None
    limit: int = 50


def job_statuses(names: Sequence[str]) -> list[int] | None:
    """The stored numbers of job statuses. Upper and lower case are equal. None means any status."""
    found = []
    for name in names:
        folded = name.upper()
        if folded == "PENDING":
            folded = "SCHEDULED"
        if folded not in StoredJobStatus.__members__:
            raise InvalidInput(
                f"{name!r} is not a job status", field="status", expected=", ".join(StoredJobStatus.__members__)
            )
        found.append(int(StoredJobStatus[folded]))
    return found or None


def run_states(names: Sequence[str]) -> tuple[list[int] | None, list[int] | None, bool | None]:
    """Live states, ended states, and whether QUEUED means backing off (True), ready (False) or either (None)."""
    if not names:
        return None, None, None
    wanted: set[RunState] = set()
    for name in names:
        match name.upper():
            case "PENDING":
                wanted |= {RunState.SCHEDULED, RunState.WAITING, RunState.QUEUED}
            case "COMPLETED":
                wanted.add(RunState.SUCCESS)
            case folded if folded in RunState.__members__:
                wanted.add(RunState(folded))
            case _:
                raise InvalidInput(
                    f"{name!r} is not a run status",
                    field="status",
                    expected=", ".join(RunState) + ", pending, completed",
                )
    stored = {StoredState.QUEUED if state is RunState.SCHEDULED else StoredState[state.name] for state in wanted}
    backing_off: bool | None = None
    if (RunState.SCHEDULED in wanted) != (RunState.QUEUED in wanted):
        backing_off = RunState.SCHEDULED in wanted
    live = sorted(int(state) for state in stored & LIVE)
    return live, sorted(int(state) for state in stored - LIVE), backing_off
