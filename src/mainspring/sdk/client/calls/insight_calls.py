"""Calls for figures: the overview, failures by error, and the series of a job."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from mainspring.sdk.client.calls.common import job_path, query_of
from mainspring.sdk.client.core import Call, json_of
from mainspring.sdk.client.job_fields import When
from mainspring.wire.insights import (
    FailureGroupView,
    Failures,
    JobOutcomeList,
    JobSeries,
    Overview,
    Scaling,
    WindowWord,
)

_overview = json_of(Overview)
_failures = json_of(Failures)
_failure_group = json_of(FailureGroupView)
_job_series = json_of(JobSeries)
_job_outcomes = json_of(JobOutcomeList)
_scaling = json_of(Scaling)


def overview(w: WindowWord | None = None, *, queue: str | None = None, task: str | None = None) -> Call[Overview]:
    """How the system is doing: throughput, lag, queues, workers, and what is wrong. With `w` also what ended within the
    last hour ("1h") to thirty days ("30d"), of all or of a queue or a task."""
    params = query_of({"w": w, "queue": queue, "task": task})
    return Call("GET", "/v1/insights/overview", _overview, params=params)


def failures(
    *, since: When | None = None, task: str | None = None, queue: str | None = None, job: str | None = None
) -> Call[Failures]:
    """What fails, grouped by error: of the last day, or since a time."""
    params = query_of({"since": since, "task": task, "queue": queue, "job": job})
    return Call("GET", "/v1/insights/failures", _failures, params=params)


def failure_group(fingerprint: str, *, since: When | None = None) -> Call[FailureGroupView]:
    """One group of failures, by its fingerprint: of the last seven days, or since a time."""
    path = f"/v1/insights/failures/{quote(fingerprint, safe='')}"
    return Call("GET", path, _failure_group, params=query_of({"since": since}))


def job_series(job_id: str, w: WindowWord = "24h") -> Call[JobSeries]:
    """What became of the runs of a job: the newest 100, and outcomes, lags and durations over time."""
    return Call("GET", job_path(job_id, "/series"), _job_series, params=query_of({"w": w}))


def job_outcomes(job_ids: Sequence[str]) -> Call[JobOutcomeList]:
    """What became of the newest runs of up to 100 jobs within seven days."""
    return Call("GET", "/v1/insights/jobs", _job_outcomes, params=tuple(("job", job_id) for job_id in job_ids))


def scaling(queue: str | None = None, *, within: float | None = None) -> Call[Scaling]:
    """How far each queue is behind, and how many slots of workers it wants so that what waits starts `within` so many
    seconds (60)."""
    return Call("GET", "/v1/insights/scaling", _scaling, params=query_of({"queue": queue, "within": within}))
