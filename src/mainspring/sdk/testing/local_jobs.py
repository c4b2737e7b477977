"""The routes of a box's local server for jobs."""

from __future__ import annotations

from itertools import islice
from typing import Any

import msgspec

from mainspring.domain.errors import Conflict, InvalidBatch, MainspringError, NotFound, key_reused
from mainspring.domain.intake.canonical import canonical_json
from mainspring.domain.intake.declaration import TaskDeclaration, amended, defined
from mainspring.domain.intake.patch import changes_nothing, fires_once_from_now_on, names_schedule
from mainspring.domain.intake.recurrence import never_fires, runs_left_after
from mainspring.domain.intake.rerun import payload_dropped, with_payload
from mainspring.domain.job import JobDefinition
from mainspring.domain.refusals import already_fired, cancelled, ended, id_taken, job_exists, paused, run_lives
from mainspring.domain.schedules.fires import fires
from mainspring.domain.schedules.nominal_times import first_fire_instead
from mainspring.domain.schedules.schedule import ScheduleKind, for_job
from mainspring.domain.state_names import named_states, named_statuses
from mainspring.domain.tags import check_version
from mainspring.domain.transitions import JobStatus as JobState
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.sdk.client.core import Call
from mainspring.sdk.testing.call_parsing import Route, matches, read_body, read_page, wanted_version, within
from mainspring.sdk.testing.engine import Engine
from mainspring.sdk.testing.local_calendars import LocalCalendars
from mainspring.sdk.testing.not_in_box import checked
from mainspring.sdk.testing.records import BoxJob, BoxRun
from mainspring.sdk.testing.views import job_error, job_view, run_view
from mainspring.wire.jobs import (
    BatchCreated,
    JobCreated,
    JobList,
    JobPatch,
    JobRequest,
    JobView,
    RunNowAccepted,
    RunNowRequest,
    Upcoming,
)
from mainspring.wire.missed_fires import MissedRange
from mainspring.wire.runs import JobStatus, RunView

_YET_TO_FIRE = [JobState.SCHEDULED, JobState.PAUSED]


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    jobs: list[JobRequest]


class LocalJobs:
    def __init__(
        self, engine: Engine, known: dict[str, TaskDeclaration], calendars: LocalCalendars, ignored: frozenset[str]
    ) -> None:
        self._engine = engine
        self._calendars = calendars
        self._known = known
        self._ignored = ignored
        self._keys: dict[str, tuple[Any, JobCreated]] = {}
        self._run_now_keys: dict[tuple[str, int, str], tuple[bytes, BoxRun]] = {}

    def routes(self) -> dict[str, Route]:
        return {
            "POST jobs": self._submit,
            "POST jobs:batch": self._submit_batch,
            "GET jobs": self._jobs,
            "GET jobs/{}": lambda job_id, _: job_view(self._job(job_id)),
            "PATCH jobs/{}": self._update,
            "DELETE jobs/{}": self._cancel,
            "POST jobs/{}:pause": self._pause,
            "POST jobs/{}:resume": self._resume,
            "POST jobs/{}:runNow": self._run_now,
            "GET jobs/{}/status": self._status,
            "GET jobs/{}/runs": self._runs,
            "GET jobs/{}/upcoming": self._upcoming,
            "GET jobs/{}/missed": self._missed,
        }

    # -- submit

    def _submit(self, _: str, call: Call[Any]) -> JobCreated:
        request = read_body(call, JobRequest)
        return self._add(request, self._defined(request))

    def _submit_batch(self, _: str, call: Call[Any]) -> BatchCreated:
        requests = read_body(call, _Batch).jobs
        definitions, problems = [], []
        for index, request in enumerate(requests):
            try:
                definitions.append(self._defined(request))
            except MainspringError as error:
                problems.append(error.as_field_problem(index))
        if problems:
            raise InvalidBatch(problems)
        made = [self._add(request, item) for request, item in zip(requests, definitions, strict=True)]
        return BatchCreated(len(made), [one.job_id for one in made])

    def _defined(self, request: JobRequest) -> JobDefinition:
        definition = checked(defined(request, self._engine.now, self._known), self._ignored)
        return self._calendars.resolved(definition)

    def _add(self, request: JobRequest, definition: JobDefinition) -> JobCreated:
        """Create the job, unless it has an idempotency key that a request before had."""
        key = definition.idempotency_key
        said = None if key is None else msgspec.json.decode(msgspec.json.encode(request))
        if key is not None and key in self._keys:
            before, made = self._keys[key]
            if before != said:
                raise key_reused(key)
            return made
        if definition.job_id is not None:
            self._check_id(definition.job_id)
        job = self._engine.add(definition)
        made = JobCreated(job.job_id, job.generation)
        if key is not None:
            self._keys[key] = (said, made)
        return made

    def _check_id(self, job_id: str) -> None:
        """Raise Conflict if a job with this id has not ended."""
        job = self._engine.jobs.get(job_id)
        if job is None:
            return
        if job.definition.job_id is None:
            raise id_taken(f"{job_id!r} was generated for another job", "leave job_id out, or choose another one")
        live = next((run.run_id for run in job.runs if run.live), None)
        if live is not None and (job.status not in _YET_TO_FIRE or _has_fired(job)):
            raise run_lives(job_id, live)
        if job.status in _YET_TO_FIRE and not _has_fired(job):
            raise job_exists(job_id, job.status)

    # -- read

    def _jobs(self, _: str, call: Call[Any]) -> JobList:
        asked = dict(call.params)
        wanted = named_statuses(_several(asked.get("status"))) or _YET_TO_FIRE
        latest = named_states(_several(asked.get("latest_run")), "latest_run")
        text, label = asked.get("q", "").lower(), asked.get("label", "").replace("=", ":", 1)
        found = []
        for job in reversed(self._engine.jobs.values()):
            item, labels = job.definition, job.definition.spec.labels or {}
            if (
                job.shown_status in wanted
                and ("status" in asked or not job.has_fired)
                and (not latest or (job.latest_run is not None and job.latest_run.status in latest))
                and matches(call, queue=item.queue, owner=item.spec.owner, declared_by=item.declared_by)
                and within(call, "created", job.created_at)
                and within(call, "next_fire", job.next_fire)
                and (text in (item.name or item.task).lower() or text in job.job_id.lower())
                and (not label or label in [f"{name}:{value}" for name, value in labels.items()])
            ):
                found.append(job)
        page, following = read_page(found, call)
        return JobList([job_view(job) for job in page], following)

    def _status(self, job_id: str, _: Call[Any]) -> JobStatus:
        job = self._job(job_id)
        latest = job.latest_run
        shown = None if latest is None else run_view(latest)
        return JobStatus(job_id, job.shown_status.value, shown, job_error(job))

    def _runs(self, job_id: str, call: Call[Any]) -> list[RunView]:
        runs = reversed(self._job(job_id).runs)
        return [run_view(run) for run in runs if matches(call, generation=str(run.generation))]

    def _upcoming(self, job_id: str, call: Call[Any]) -> Upcoming:
        job = self._job(job_id)
        schedule, moment = job.definition.schedule, self._engine.following(job)
        if moment is None:
            return Upcoming(job_id, [])
        count = int(dict(call.params).get("n", 20))
        count = count if job.runs_left is None else min(count, job.runs_left)
        return Upcoming(job_id, [moment, *islice(fires(schedule, moment), count - 1)] if count else [])

    def _missed(self, job_id: str, _: Call[Any]) -> list[MissedRange]:
        gaps = reversed(self._job(job_id).missed)
        return [
            MissedRange(gap.first, gap.last, gap.count, gap.reason, noted, generation)
            for gap, noted, generation in gaps
        ]

    # -- change

    def _update(self, job_id: str, call: Call[Any]) -> JobView:
        patch = read_body(call, JobPatch)
        job, now, wanted = self._job(job_id), self._engine.now, wanted_version(call)
        try:
            self._unfired(job_id, "changed")
        except Conflict:
            if wanted is None and self._changes_nothing(job, patch):
                return job_view(job)
            raise
        check_version("job", job.version, wanted)
        changed = checked(amended(job.definition, patch, now, self._known), self._ignored)
        again = job.status is JobState.COMPLETED and names_schedule(patch)  # missed, so it has not fired
        if job.definition.schedule.one_time and not again and changes_nothing(job.definition, changed, now):
            return job_view(job)
        if changed.schedule.calendar_version is None:
            changed = self._calendars.resolved(changed)
        schedule = for_job(changed.schedule, DEFAULT_TENANT, job_id, now)
        if job.definition.schedule.recurring:
            self._engine.fire_due(job)
        warnings = fires_once_from_now_on(job.definition.schedule, schedule)
        if schedule != job.definition.schedule or (again and schedule.at is not None):
            runs_left = runs_left_after(job.definition.schedule, job.runs_left, schedule)
            if job.status is JobState.PAUSED and schedule.at == now:
                raise paused(job_id)
            before_pause = job.last_nominal_for, job.missed[:]
            if job.status is JobState.PAUSED:
                self._engine.miss(job, job.paused_from)
            first = None if schedule.at is None else max(schedule.at, now)  # a time that has passed is a fire now
            if schedule.kind is not ScheduleKind.AT:
                following = self._engine.following(job)
                first = first_fire_instead(schedule, job.definition.schedule, following, now, job.dealt_with)
            if first is None and schedule.recurring:
                job.last_nominal_for, job.missed = before_pause
                raise never_fires(schedule)
            job.runs_left = runs_left
            if job.status is JobState.PAUSED:
                job.paused_from = first
            else:
                job.status = JobState.SCHEDULED
                self._engine.arm(job, first)
        job.definition = msgspec.structs.replace(changed, schedule=schedule)
        self._engine.admit_held(job)
        view = self._touched(job)
        view.warnings = warnings or msgspec.UNSET
        return view

    def _changes_nothing(self, job: BoxJob, patch: JobPatch) -> bool:
        """Whether a change of a job that has fired is a repeat."""
        try:
            changed = amended(job.definition, patch, self._engine.now, self._known)
            return changes_nothing(job.definition, changed, self._engine.now)
        except MainspringError:
            return False

    def _cancel(self, job_id: str, call: Call[Any]) -> JobView:
        job = self._job(job_id)
        check_version("job", job.version, wanted_version(call))
        self._engine.miss(job, job.paused_from or job.next_fire, "deleted" if job.paused_from is None else "paused")
        job.paused_from = None
        self._engine.arm(job, None)
        for run in job.runs:
            if run.live:
                self._engine.cancel(run)
        if job.status is not JobState.COMPLETED:
            job.status = JobState.CANCELLED
        return self._touched(job)

    def _pause(self, job_id: str, call: Call[Any]) -> JobView:
        job = self._unfired(job_id, "paused")
        check_version("job", job.version, wanted_version(call))
        if job.status is JobState.SCHEDULED:
            job.paused_from, job.status = job.next_fire, JobState.PAUSED
            if job.definition.schedule.recurring and job.next_fire is not None and job.next_fire <= self._engine.now:
                self._engine.miss(job, job.next_fire)
                job.paused_from = self._engine.next_fire(job, self._engine.now)
            self._engine.arm(job, None)
        elif job.status is not JobState.PAUSED:
            raise ended(job_id, job.status, "paused", one_time=job.definition.schedule.one_time, code="wrong_status")
        return self._touched(job)

    def _resume(self, job_id: str, call: Call[Any]) -> JobView:
        job = self._unfired(job_id, "resumed")
        check_version("job", job.version, wanted_version(call))
        one_time = job.definition.schedule.one_time
        if job.status is JobState.PAUSED:
            self._engine.resume(job)
        elif job.status is JobState.CANCELLED and not one_time:
            job.definition = self._calendars.resolved(job.definition)
            self._engine.revive(job)
        elif job.status is not JobState.SCHEDULED:
            raise ended(job_id, job.status, "resumed", one_time=one_time, code="not_paused")
        return self._touched(job)

    def _run_now(self, job_id: str, call: Call[Any]) -> RunNowAccepted:
        """Create a run of the job, unless the request has an idempotency key that one before had."""
        given = read_body(call, RunNowRequest)
        key, said = given.idempotency_key, canonical_json(bytes(memoryview(given.payload)))
        job = self._job(job_id)
        scoped = (job_id, job.generation, key or "")
        if key is not None and scoped in self._run_now_keys:
            before, run = self._run_now_keys[scoped]
            if before != said:
                raise key_reused(key)
        else:
            check_version("job", job.version, wanted_version(call))
            run = self._manual_run(job, given.payload)
            if key is not None:
                self._run_now_keys[scoped] = (said, run)
        return RunNowAccepted(run.run_id, job_id, run.status.value, run.reason, run.replay_of)

    def _manual_run(self, job: BoxJob, payload: msgspec.Raw) -> BoxRun:
        if job.status is JobState.CANCELLED:
            raise cancelled(job.job_id, one_time=job.definition.schedule.one_time)
        original = (
            next((run for run in job.runs if run.trigger == "schedule" and run.generation == job.generation), None)
            if _has_fired(job)
            else None
        )
        dropped = original is not None and original.payload_dropped
        definition = job.definition
        if memoryview(payload):
            definition = with_payload(definition, payload, self._engine.now, dropped=dropped)
            if definition.task in self._known:
                self._known[definition.task].check(definition.payload)
        elif dropped:
            raise payload_dropped(original.run_id if original is not None else None)
        trigger = f"manual:{len(job.runs)}" if original is None else f"replay:{original.run_id}"
        return self._engine.fire_for(job, self._engine.now, trigger, definition=definition)

    # -- inside

    def _job(self, job_id: str) -> BoxJob:
        if job_id not in self._engine.jobs:
            raise NotFound(f"there is no job {job_id!r}", hint="see GET /v1/jobs")
        return self._engine.jobs[job_id]

    def _unfired(self, job_id: str, what: str) -> BoxJob:
        """The job. Raises Conflict if it is a one-time job that has fired."""
        job = self._job(job_id)
        missed = job.status is JobState.COMPLETED and not any(
            run.trigger == "schedule" and run.generation == job.generation for run in job.runs
        )
        if _has_fired(job) and not missed:
            raise already_fired(job_id, what)
        return job

    def _touched(self, job: BoxJob) -> JobView:
        job.version += 1
        job.updated_at = self._engine.now
        return job_view(job)


def _several(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _has_fired(job: BoxJob) -> bool:
    """Whether it is a one-time job that has become a run."""
    return job.definition.schedule.one_time and job.last_fired_for is not None
