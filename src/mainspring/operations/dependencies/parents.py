"""Computes what a run waits for at one parent. The functions are pure: they take what is stored about the parent."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from mainspring.domain.dependencies import UPSTREAM_FAILED, ParentEnd
from mainspring.domain.schedules.fires import next_fire
from mainspring.domain.transitions import StoredJobStatus, StoredState
from mainspring.store.dependencies import ParentNow, WaitRow
from mainspring.store.jobs import schedule_from_text

_MOMENT = timedelta(microseconds=1)
_RUNS_AGAIN = (StoredJobStatus.SCHEDULED, StoredJobStatus.PAUSED)


def ended(wait: WaitRow, run_id: UUID | None, end: ParentEnd, cause: str | None = None) -> WaitRow:
    return msgspec.structs.replace(wait, looked=True, parent_run=run_id, parent_end=int(end), cause=cause)


def end_of(state: int, reason: str | None) -> tuple[ParentEnd, str | None]:
    """How a run of a parent has ended, and the job that failed if it was skipped because of that."""
    if state == StoredState.SKIPPED and reason is not None and reason.startswith(UPSTREAM_FAILED):
        return ParentEnd.BLOCKED, reason.removeprefix(UPSTREAM_FAILED)
    return ParentEnd(state), None


def updated_wait(wait: WaitRow, now: ParentNow, moment: datetime) -> WaitRow:
    """What the run waits for, by what is known now: the parent's run for the same time, or else its next success, or
    nothing because it has ended. `moment`: when the parent fires for this time. `looked` stays false until it has
    fired."""
    if now.live_run is not None:
        return msgspec.structs.replace(wait, looked=True, parent_run=now.live_run)
    if now.ended_run is not None and now.ended_state is not None:
        return ended(wait, now.ended_run, *end_of(now.ended_state, now.ended_reason))
    if now.status == StoredJobStatus.SCHEDULED and now.next_fire_at is not None and now.next_fire_at <= moment:
        return msgspec.structs.replace(wait, looked=False, parent_run=None)
    if now.missed and _fires_at(now, moment):
        return ended(wait, None, ParentEnd.MISSED)
    if now.success_run is not None:
        return ended(wait, now.success_run, ParentEnd.SUCCESS)
    if now.any_run is not None or now.status in _RUNS_AGAIN:
        # A one-time job that has fired has no row: the end of its run decides.
        return msgspec.structs.replace(wait, looked=True, parent_run=now.any_run if now.status is None else None)
    if now.status == StoredJobStatus.CANCELLED:
        return ended(wait, None, ParentEnd.DELETED)
    if now.last_state is not None:
        return ended(wait, None, *end_of(now.last_state, now.last_reason))
    if now.status is None:
        return ended(wait, None, ParentEnd.DELETED)
    return ended(wait, None, ParentEnd.MISSED if now.one_time else ParentEnd.OVER)


def _fires_at(now: ParentNow, moment: datetime) -> bool:
    """Whether the parent's schedule has a fire at this very time: a range of missed fires has others between them."""
    if now.schedule_text is None:
        return False
    return next_fire(schedule_from_text(now.schedule_text), moment - _MOMENT) == moment
