"""Definitions of jobs for readers, as far as they can be read. A newer version may have stored what this one does not
know."""

from __future__ import annotations

from mainspring.domain.errors import Unreadable
from mainspring.domain.job import JobDefinition, spec_to_show
from mainspring.domain.schedules.schedule import MANUAL, Schedule
from mainspring.store.jobs import JobRow, definition_with, schedule_from_text
from mainspring.store.lanes import Lane


def schedule_to_show(text: str) -> tuple[Schedule, str | None]:
    """The schedule, and None. If it cannot be read: MANUAL, because it does not fire, and why."""
    try:
        return schedule_from_text(text), None
    except Unreadable as problem:
        return MANUAL, str(problem)


def definition_to_show(row: JobRow, lane: Lane) -> tuple[JobDefinition, str | None]:
    """The definition as far as it can be read, and why not all of it can."""
    spec, of_spec = spec_to_show(row.spec_text)
    schedule, of_schedule = schedule_to_show(row.schedule_text)
    return definition_with(row, lane, spec, schedule), of_schedule or of_spec
