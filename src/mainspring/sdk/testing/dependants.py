"""Jobs after jobs in a box: runs that wait for other jobs, and jobs that fire after others, by the server's rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from mainspring.domain.dependencies import (
    UPSTREAM_FAILED,
    ParentEnd,
    Wait,
    cyclic,
    find_cycle,
    has_references,
    is_met,
    no_parent,
    parents_of,
    satisfies,
    verdict,
)
from mainspring.domain.job import JobDefinition
from mainspring.domain.schedules.fires import next_fire
from mainspring.domain.schedules.nominal_times import fire_of
from mainspring.domain.transitions import JobStatus, RunState, StoredState
from mainspring.domain.workflows.references import Unresolved, Values, resolved_payload
from mainspring.sdk.testing.records import BoxJob, BoxRun

_MOMENT = timedelta(microseconds=1)
End = Callable[[BoxRun, RunState, str | None], None]


class Awaited(msgspec.Struct):
    """What a run waits for. for_time: its nominal time. since: the fire of its job before it. runs: those of parents
    that have ended."""

    for_time: datetime
    since: datetime | None
    waits: dict[str, Wait]
    runs: dict[str, BoxRun] = {}


class Dependants:
    """`start`: lets a run start. `end`: ends it. `arm`: lets a job fire."""

    def __init__(
        self,
        jobs: Mapping[str, BoxJob],
        start: Callable[[BoxRun], None],
        end: End,
        arm: Callable[[BoxJob], None],
    ) -> None:
        self._jobs = jobs
        self._start = start
        self._end = end
        self._arm = arm
        self._waiting: dict[str, tuple[BoxRun, Awaited]] = {}
        self._satisfied: dict[str, dict[str, BoxRun]] = {}
        self._looking = False

    def check(self, definition: JobDefinition, job_id: str, given_as: str, new: Collection[str] = ()) -> None:
        """Raise InvalidInput if a parent does not exist, or if the jobs would wait for each other."""
        field = given_as if definition.schedule.after is None else "schedule.after"
        for parent in parents_of(definition):
            job = self._jobs.get(parent)
            deleted = job is not None and job.status is JobStatus.CANCELLED
            if deleted or (job is None and parent not in new):
                raise no_parent(parent, field, deleted=deleted)
        above = {name: parents_of(job.definition) for name, job in self._jobs.items()} | {
            job_id: parents_of(definition)
        }
        if (cycle := find_cycle(above)) is not None:
            raise cyclic(cycle, field)

    def waits(self, run: BoxRun, before: datetime | None) -> bool:
        """Whether a new run waits for other jobs. `before`: the fire of its job before it."""
        if run.trigger != "schedule" or run.definition.spec.depends_on is None:
            return False
        run.status, run.reason = RunState.WAITING, None
        waits = {parent: Wait(parent) for parent in run.definition.spec.depends_on}
        self._waiting[run.run_id] = (run, Awaited(run.nominal_for, before, waits))
        return True

    def take_results(self, run: BoxRun) -> bool:
        """Let a new run of a job that fires after others, or a manual run, take their results. Return whether it may
        start; otherwise it has ended."""
        if not has_references(run.definition) or run.replay_of is not None:
            return True
        results = self._satisfied.get(run.job_id, {}) if run.trigger == "schedule" else self._newest(run)
        return self._resolved(run, results)

    def fired(self, job: BoxJob) -> None:
        """What counted for this fire does not count for the next one."""
        self._satisfied.pop(job.job_id, None)

    def ended(self, run: BoxRun) -> None:
        """Whoever waits for this end goes on."""
        self._waiting.pop(run.run_id, None)
        if run.backfill_id is None:
            end, _ = _end_of(run)
            for job in self._jobs.values():
                if run.job_id in (job.definition.schedule.after or ()) and satisfies(job.definition.spec.rule, end):
                    self._satisfied.setdefault(job.job_id, {})[run.job_id] = run
                    self.fire_if_met(job)
        self.look()

    def fire_if_met(self, job: BoxJob) -> None:
        after, done = job.definition.schedule.after, self._satisfied.get(job.job_id, {})
        if after is None or job.status is not JobStatus.SCHEDULED or job.next_fire is not None:
            return
        if is_met(job.definition.spec.rule, [parent in done for parent in after]):
            self._arm(job)

    def look(self) -> None:
        """Start or end the runs whose rule is decided."""
        if self._looking:  # an end looks again
            return
        self._looking = True
        try:
            while any(self._decide(run, awaited) for run, awaited in list(self._waiting.values())):
                pass
        finally:
            self._looking = False

    def _decide(self, run: BoxRun, awaited: Awaited) -> bool:
        for parent, wait in awaited.waits.items():
            if wait.end is None and parent in self._jobs:
                awaited.waits[parent] = self._looked_at(parent, awaited)
        found = verdict(run.definition.spec, list(awaited.waits.values()))
        if found is None:
            names = [parent for parent, wait in sorted(awaited.waits.items()) if wait.end is None]
            run.reason = f"waiting for {', '.join(names)}"
            return False
        del self._waiting[run.run_id]
        if found.end is not None:
            self._end(run, RunState(StoredState(found.end).name), found.reason)
        elif not has_references(run.definition) or self._resolved(run, awaited.runs):
            self._start(run)
        return True

    def _looked_at(self, parent: str, awaited: Awaited) -> Wait:
        job, since = self._jobs[parent], awaited.since
        moment = _fire_for(job, awaited.for_time)
        same = [run for run in job.runs if run.trigger == "schedule" and run.nominal_for == awaited.for_time]
        if same:
            return Wait(parent) if same[-1].live else self._over(parent, same[-1], awaited)
        scheduled = job.status is JobStatus.SCHEDULED
        if scheduled and job.next_fire is not None and job.next_fire <= moment:
            return Wait(parent)
        missed = any(gap.first <= moment <= gap.last for gap, _, _ in job.missed)
        if missed and next_fire(job.definition.schedule, moment - _MOMENT) == moment:
            return Wait(parent, ParentEnd.MISSED)
        own = [run for run in job.runs if run.backfill_id is None]
        later = [run for run in own if run.ended_at is not None and (since is None or run.ended_at > since)]
        success = next((run for run in later if run.status is RunState.SUCCESS), None)
        if success is not None:
            return self._over(parent, success, awaited)
        if any(run.live for run in own) or (
            not job.has_fired and job.status in (JobStatus.SCHEDULED, JobStatus.PAUSED)
        ):
            return Wait(parent)
        if job.status is JobStatus.CANCELLED and not job.has_fired:
            return Wait(parent, ParentEnd.DELETED)
        if later:
            return self._over(parent, later[-1], awaited)
        return Wait(parent, ParentEnd.MISSED if job.definition.schedule.one_time else ParentEnd.OVER)

    def _over(self, parent: str, run: BoxRun, awaited: Awaited) -> Wait:
        awaited.runs = {**awaited.runs, parent: run}
        return Wait(parent, *_end_of(run))

    def _newest(self, run: BoxRun) -> dict[str, BoxRun]:
        found = {}
        for parent in parents_of(run.definition):
            ok = [one for one in self._jobs[parent].runs if one.status is RunState.SUCCESS]
            if ok:
                found[parent] = ok[-1]
        return found

    def _resolved(self, run: BoxRun, runs: Mapping[str, BoxRun]) -> bool:
        def result(job_id: str) -> Any:
            if job_id not in runs or runs[job_id].status is not RunState.SUCCESS:
                raise Unresolved(f"there is no result of {job_id}")
            return runs[job_id].result

        assert run.definition.payload is not None
        try:
            payload = resolved_payload(run.definition.payload, Values(result=result))
        except Unresolved as error:
            self._end(run, RunState.FAILED, str(error))
            return False
        run.definition = msgspec.structs.replace(run.definition, payload=payload)
        return True


def _fire_for(job: BoxJob, for_time: datetime) -> datetime:
    """When the job fires for this nominal time; the time itself if it has no jitter, or does not fire for it."""
    schedule = job.definition.schedule
    return for_time if schedule.jitter is None else fire_of(schedule, for_time) or for_time


def _end_of(run: BoxRun) -> tuple[ParentEnd, str | None]:
    if run.status is RunState.SKIPPED and run.reason is not None and run.reason.startswith(UPSTREAM_FAILED):
        return ParentEnd.BLOCKED, run.reason.removeprefix(UPSTREAM_FAILED)
    return ParentEnd[run.status.name], None
