"""Start lag: from when it counts. The SQL fragment `lag_ms` computes the same, to a second."""

from __future__ import annotations

from datetime import datetime

LATE = 1  # seconds: if a one-time job is not later, the creation of the job is not looked up


def lag_from(
    scheduled_for: datetime, trigger: str | None, created_at: datetime, job_created_at: datetime | None
) -> datetime:
    """From when the start lag of a run counts. A run that its schedule has made counts from its scheduled time, or from
    the creation of its job if that is later: a one-time job may be created with a time that has passed. A change of the
    schedule never fires for an earlier time than that of the change. Late and missed fires of a schedule that exists
    count in full. A replay, a run by hand and a run of a backfill count from their creation.

    `created_at`: of the run. `job_created_at`: of a one-time job; None if it does not matter."""
    if trigger not in (None, "at"):
        return created_at
    if trigger is None or job_created_at is None:
        return scheduled_for
    return max(scheduled_for, min(job_created_at, created_at))
