"""The names of states in filters. Upper and lower case are equal, and some names stand for others."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.errors import InvalidInput
from mainspring.domain.schedules.schedule import ScheduleKind
from mainspring.domain.texts import meant
from mainspring.domain.transitions import JobStatus, RunState


def named_statuses(names: Sequence[str]) -> list[JobStatus]:
    """The job statuses of these names. `pending` means SCHEDULED. Empty means that none was named."""
    found = []
    for name in names:
        folded = name.upper()
        if folded == "PENDING":
            folded = "SCHEDULED"
        if folded not in JobStatus.__members__:
            raise InvalidInput(
                f"{name!r} is not a job status",
                field="status",
                expected=", ".join(JobStatus) + ", pending",
                hint=meant(folded, [*map(str, JobStatus)], "") or None,
            )
        found.append(JobStatus(folded))
    return found


def named_states(names: Sequence[str], parameter: str = "status") -> set[RunState]:
    """The run states of these names. `pending` means all that wait, `completed` means SUCCESS."""
    wanted: set[RunState] = set()
    for name in names:
        match name.upper():
            case "PENDING":
                wanted |= {RunState.SCHEDULED, RunState.WAITING, RunState.HELD, RunState.QUEUED}
            case "COMPLETED":
                wanted.add(RunState.SUCCESS)
            case folded if folded in RunState.__members__:
                wanted.add(RunState(folded))
            case _:
                raise InvalidInput(
                    f"{name!r} is not a run status",
                    field=parameter,
                    expected=", ".join(RunState) + ", pending, completed",
                    hint=meant(name.upper(), [*map(str, RunState)], "") or None,
                )
    return wanted


def named_schedule_types(names: Sequence[str]) -> set[str]:
    """The types of schedules of these names, as jobs show them."""
    known = [kind.value for kind in ScheduleKind]
    for name in names:
        if name.upper() not in known:
            raise InvalidInput(
                f"{name!r} is not a schedule type",
                field="schedule_type",
                expected=", ".join(known),
                hint=meant(name.upper(), known, "") or None,
            )
    return {name.upper() for name in names}
