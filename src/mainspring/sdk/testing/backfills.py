"""Backfills in a box: the routes, and the runs that follow as earlier ones end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.backfills import (
    JOB_CANCELLED,
    JOB_GONE,
    JOB_PAUSED,
    BackfillState,
    FireRange,
    check_concurrency,
    check_recurring,
    count_in,
    is_over,
    read_order,
    read_range,
    trigger_of,
)
from mainspring.domain.errors import Conflict, NotFound
from mainspring.domain.job import Overlap
from mainspring.domain.refusals import cancelled
from mainspring.domain.schedules.fires import newest_fires
from mainspring.domain.schedules.nominal_times import nominal_of
from mainspring.domain.schedules.schedule import Schedule
from mainspring.domain.transitions import JobStatus, RunState
from mainspring.sdk.client.core import Call
from mainspring.sdk.testing.call_parsing import Route, matches, read_body, read_page
from mainspring.sdk.testing.engine import Engine
from mainspring.sdk.testing.records import BoxJob, BoxRun
from mainspring.wire.backfills import BackfillCancel, BackfillList, BackfillPatch, BackfillRequest, BackfillView

_UNFINISHED = (BackfillState.RUNNING, BackfillState.PAUSED)


@dataclass(slots=True, eq=False)
class BoxBackfill:
    """A backfill of a box. `left`: the fires that are yet to be dealt with, the next one last."""

    backfill_id: str
    job: BoxJob
    generation: int
    range: FireRange
    order: str
    concurrency: int
    total: int
    left: list[datetime]
    schedule: Schedule
    created_at: datetime
    updated_at: datetime
    state: BackfillState = BackfillState.RUNNING
    reason: str | None = None
    existing: int = 0
    runs: list[BoxRun] = field(default_factory=list)
    live: list[BoxRun] = field(default_factory=list)
    ended_at: datetime | None = None

    @property
    def running(self) -> list[BoxRun]:
        """Its runs that have not ended."""
        self.live = [run for run in self.live if run.live]
        return self.live


class Backfills:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._all: dict[str, BoxBackfill] = {}
        self._known: dict[str, tuple[int, set[tuple[datetime, int]]]] = {}
        self._filling = False
        engine.after_end = self.fill

    def routes(self) -> dict[str, Route]:
        return {
            "POST jobs/{}:backfill": self._create,
            "GET backfills": self._list,
            "GET backfills/{}": lambda backfill_id, _: self._view(self._get(backfill_id)),
            "PATCH backfills/{}": self._change,
            "POST backfills/{}:pause": lambda backfill_id, _: self._set(backfill_id, BackfillState.PAUSED, "paused"),
            "POST backfills/{}:resume": lambda backfill_id, _: self._set(backfill_id, BackfillState.RUNNING, "resumed"),
            "POST backfills/{}:cancel": self._cancel,
        }

    def fill(self) -> None:
        """Create the runs for which there is room."""
        if self._filling:  # a run that ends at once calls this again
            return
        self._filling = True
        try:
            for backfill in self._all.values():
                self._fill(backfill)
        finally:
            self._filling = False

    def _fill(self, backfill: BoxBackfill) -> None:
        job = backfill.job
        if backfill.state in _UNFINISHED and job.status is JobStatus.CANCELLED:
            backfill.state, backfill.reason = BackfillState.CANCELLED, JOB_CANCELLED
        elif backfill.state in _UNFINISHED and self._engine.jobs.get(job.job_id) is not job:
            backfill.state, backfill.reason = BackfillState.CANCELLED, JOB_GONE
        working = backfill.state is BackfillState.RUNNING and job.status is not JobStatus.PAUSED
        while working and backfill.left:
            if self._exists(backfill, backfill.left[-1]):
                backfill.existing += 1
            elif len(backfill.running) >= backfill.concurrency:
                break
            else:
                definition = msgspec.structs.replace(job.definition, overlap=Overlap.ALLOW)
                trigger = trigger_of(UUID(backfill.backfill_id))
                run = self._engine.create_beside(job, backfill.left[-1], trigger, definition)
                backfill.runs.append(run)
                backfill.live.append(run)
            backfill.left.pop()
            backfill.updated_at = self._engine.now
        if working and not backfill.left and not backfill.running:
            backfill.state = BackfillState.COMPLETED
        if backfill.state not in _UNFINISHED and not backfill.running:
            backfill.ended_at = backfill.ended_at or self._engine.now

    def _exists(self, backfill: BoxBackfill, moment: datetime) -> bool:
        """Whether the job has a run for this fire."""
        looked_at, known = self._known.setdefault(backfill.job.job_id, (0, set()))
        runs = backfill.job.runs[looked_at:]
        for run in runs:
            if not run.trigger.startswith("manual:"):
                known |= {(run.scheduled_for, run.generation), (run.nominal_for, run.generation)}
        self._known[backfill.job.job_id] = (looked_at + len(runs), known)
        return any((one, backfill.generation) in known for one in (moment, nominal_of(backfill.schedule, moment)))

    def _create(self, job_id: str, call: Call[Any]) -> BackfillView:
        given = read_body(call, BackfillRequest)
        concurrency, newest_first = check_concurrency(given.concurrency), read_order(given.order)
        job = self._engine.jobs.get(job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id!r}", hint="see GET /v1/jobs")
        schedule = job.definition.schedule
        check_recurring(job_id, schedule)
        if job.status is JobStatus.CANCELLED:
            raise cancelled(job_id, one_time=False)
        chosen = read_range(given.from_, given.to, self._engine.now)
        total = count_in(schedule, chosen)
        left = newest_fires(schedule, chosen.after, chosen.until, total)
        if not newest_first:
            left.reverse()
        now, new_id = self._engine.now, self._engine.new_id()
        made = BoxBackfill(
            new_id, job, job.generation, chosen, "newest" if newest_first else "oldest", concurrency, total, left,
            schedule, now, now,
        )  # fmt: skip
        self._all[new_id] = made
        view = self._view(made)
        self.fill()
        return view

    def _list(self, _: str, call: Call[Any]) -> BackfillList:
        views = [self._view(one) for one in reversed(self._all.values())]
        page, following = read_page([v for v in views if matches(call, job=v.job_id, state=v.state)], call)
        return BackfillList(page, following)

    def _change(self, backfill_id: str, call: Call[Any]) -> BackfillView:
        backfill, number = self._get(backfill_id), check_concurrency(read_body(call, BackfillPatch).concurrency)
        if backfill.state not in _UNFINISHED:
            raise self._over(backfill, "changed")
        backfill.concurrency = number
        self.fill()
        return self._view(backfill)

    def _set(self, backfill_id: str, state: BackfillState, what: str) -> BackfillView:
        backfill = self._get(backfill_id)
        if backfill.state not in _UNFINISHED:
            raise self._over(backfill, what)
        backfill.state = state
        self.fill()
        return self._view(backfill)

    def _cancel(self, backfill_id: str, call: Call[Any]) -> BackfillView:
        backfill, running = self._get(backfill_id), read_body(call, BackfillCancel).running
        if backfill.state is BackfillState.COMPLETED:
            raise self._over(backfill, "cancelled")
        backfill.state = BackfillState.CANCELLED
        for run in list(backfill.running):
            if running or run.status is not RunState.RUNNING:
                self._engine.cancel(run, "its backfill was cancelled")
        self.fill()
        return self._view(backfill)

    def _over(self, backfill: BoxBackfill, what: str) -> Conflict:
        return is_over(backfill.state, UUID(backfill.backfill_id), what)

    def _get(self, backfill_id: str) -> BoxBackfill:
        self.fill()  # its job may have been paused, resumed or cancelled
        if backfill_id not in self._all:
            raise NotFound(f"there is no backfill {backfill_id!r}", hint="see GET /v1/backfills")
        return self._all[backfill_id]

    def _view(self, backfill: BoxBackfill) -> BackfillView:
        paused = backfill.state in _UNFINISHED and backfill.job.status is JobStatus.PAUSED
        ends = Counter(run.status for run in backfill.runs)
        return BackfillView(
            id=backfill.backfill_id,
            job_id=backfill.job.job_id,
            generation=backfill.generation,
            state=BackfillState.PAUSED.word if paused else backfill.state.word,
            reason=JOB_PAUSED if paused else backfill.reason,
            from_=backfill.range.start,
            to=backfill.range.end,
            order=backfill.order,
            concurrency=backfill.concurrency,
            total=backfill.total,
            existing=backfill.existing,
            created=len(backfill.runs),
            running=len(backfill.running),
            succeeded=ends[RunState.SUCCESS],
            failed=ends[RunState.FAILED],
            cancelled=ends[RunState.CANCELLED],
            skipped=ends[RunState.SKIPPED],
            remaining=len(backfill.left),
            created_at=backfill.created_at,
            updated_at=backfill.updated_at,
            ended_at=backfill.ended_at,
        )
