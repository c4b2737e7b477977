"""Why a job did or did not run."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mainspring.wire.missed_fires import MissedRange
from mainspring.wire.states import JobStatusWord, JobWhyWord, RunStateWord


class JobWhy(msgspec.Struct):
    """The response to `GET /v1/jobs/{id}/why`: why a job did or did not run at a time. reason: in a word; why: in a
    sentence. at: the time that was asked about. fire: the fire of the schedule that is meant by it; null if there is
    none. run_id, run_status: the run for it. missed: the record of missed fires that contains it. fire_before,
    fire_after: the nearest other fires by the present schedule."""

    job_id: str
    status: JobStatusWord
    reason: JobWhyWord
    why: str
    at: datetime
    fire: datetime | None = None
    run_id: str | None = None
    run_status: RunStateWord | None = None
    missed: MissedRange | None = None
    fire_before: datetime | None = None
    fire_after: datetime | None = None
