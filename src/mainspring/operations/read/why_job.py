"""Explains why a job did or did not run at a time: "why did it not run last night?".

What is known decides, in this order: the run for that time, a missed fire that was recorded, what the job is now
(paused, cancelled, ended), when it was created, its schedule, and its last change.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.times import parse_time
from mainspring.domain.job import DUE_TOGETHER, STILL_ALIVE
from mainspring.domain.schedules.fires import newest_fires
from mainspring.domain.schedules.misfire import ON_TIME
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.domain.schedules.why_no_fire import fire_at, fires_around, in_zone, span_of, why_no_fire
from mainspring.domain.transitions import StoredJobStatus, StoredState
from mainspring.kernel.ids import parse_uuid
from mainspring.operations.access.caller import Caller
from mainspring.operations.calendars.rules import load_rules
from mainspring.operations.lookup import no_job
from mainspring.operations.paging.search import RunQuery
from mainspring.operations.read.one_time import fired_job
from mainspring.operations.read.runs import RunReader
from mainspring.store import jobs, missed_fires
from mainspring.store.jobs import JobRow
from mainspring.store.pool import Store
from mainspring.store.shown_definitions import schedule_to_show
from mainspring.wire.job_why import JobWhy
from mainspring.wire.jobs import JobView
from mainspring.wire.missed_fires import MissedRange
from mainspring.wire.runs import RunView
from mainspring.wire.states import JobWhyWord

_MOMENT = timedelta(microseconds=1)
_LOOK_BACK = timedelta(days=366)
_PAGES = 50  # of a search, each of which takes 0.2 s at most
_ALIVE_BEFORE = 20  # runs among which the one is sought that was alive
_NAMES_OTHERS = ("not_due", "calendar", "clock_change", "left_out", "created_later")
_ENDS = frozenset(state.name for state in (StoredState.SUCCESS, StoredState.FAILED, StoredState.CANCELLED))
_OF_MISSED: dict[str, tuple[JobWhyWord, str]] = {
    "paused": ("paused", "The job was paused then."),
    "deleted": ("cancelled", "The job was cancelled before the fire could run."),
    "cancelled": ("cancelled", "The job was cancelled then, and revived later."),
    "late: misfire policy skip": (
        "misfire", "No scheduler could fire it in time, and the misfire policy of the job is skip."
    ),
    "coalesced into a later fire": (
        "misfire", "No scheduler could fire it in time. The misfire policy of the job is once: one run stands for all "
        "fires that were late."
    ),
    "over the misfire cap": (
        "misfire", "No scheduler could fire it in time, and more fires were late than the cap of its misfire policy."
    ),
    "older than the misfire grace": (
        "misfire", "No scheduler could fire it in time, and it was later than the grace of its misfire policy allows."
    ),
}  # fmt: skip


class _Asked(msgspec.Struct, frozen=True):
    """The job, its schedule, the time that is asked about, and the fire that is meant by it. `of_now`: nobody has named
    a time."""

    job: JobView
    row: JobRow
    schedule: Schedule
    at: datetime
    fire: datetime | None
    now: datetime
    of_now: bool


class JobWhyReader:
    def __init__(self, store: Store, runs: RunReader) -> None:
        self._store = store
        self._runs = runs

    async def why(self, caller: Caller, job: JobView, at: str | None) -> JobWhy:
        """Why a job did or did not run at `at`, by default at its last fire. A time without a zone is one of the
        schedule."""
        async with self._store.reads.acquire() as connection:
            row = await jobs.get(connection, caller.tenant, job.job_id)
            now: datetime = await connection.fetchval("select clock_timestamp()")
            schedule = None if row is None else schedule_to_show(row.schedule_text)[0]
            if schedule is not None:
                await load_rules(connection, caller.tenant, [schedule])
            fired = None if row is not None else await fired_job(connection, caller.tenant, job.job_id)
        if fired is not None:
            return await self._of_one_time(caller, job, str(fired.fired.run_id), fired.fired.scheduled_for, at)
        if row is None or schedule is None:
            raise no_job(job.job_id)
        moment = _last_fire(row, schedule, now) if at is None else _time(at, schedule.timezone)
        asked = _Asked(job, row, schedule, moment, _fire_at(row, schedule, moment), now, at is None)
        return await self._explain(caller, asked)

    async def _of_one_time(
        self, caller: Caller, job: JobView, run_id: str, fired_for: datetime, at: str | None
    ) -> JobWhy:
        """A one-time job that has fired."""
        moment = fired_for if at is None else _time(at, "UTC")
        found = parse_uuid(run_id)
        assert found is not None
        asked = {job.schedule_time or fired_for, fired_for}
        if not any(moment <= one < span_of(moment) for one in asked):
            when = f"{fired_for:%Y-%m-%dT%H:%M:%SZ}"
            return JobWhy(job.job_id, job.status, "not_due", f"The job was to run once, for {when}.", at=moment)
        why = await self._runs.why(caller, found)
        run = await self._runs.run(caller, found)
        return JobWhy(
            job.job_id, job.status, _of_run(run), f"Run {run.run_id}: {why.why}", at=moment, fire=fired_for,
            run_id=run.run_id, run_status=run.status,
        )  # fmt: skip

    async def _explain(self, caller: Caller, asked: _Asked) -> JobWhy:
        run, complete = await self._run(caller, asked)
        if run is not None:
            return await self._with_run(caller, asked, run)
        if (missed := await self._missed(caller, asked)) is not None:
            reason, words = _OF_MISSED.get(missed.reason, ("missed", f"The fire was missed: {missed.reason}."))
            words += f" {_in_words(missed, asked.schedule)}"
            return _answer(asked, reason, words, missed=missed)
        return _of_row(asked, complete=complete)

    async def _run(self, caller: Caller, asked: _Asked) -> tuple[RunView | None, bool]:
        """The run for the fire that is meant, or else one that was due at that time; and whether all were searched."""
        begin, end = asked.at, span_of(asked.at)
        if asked.fire is not None:
            begin, end = min(begin, asked.fire), max(end, asked.fire + _MOMENT)
        found: list[RunView] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            query = RunQuery(job=asked.job.job_id, since=begin, until=end, cursor=cursor, limit=100)
            page = await self._runs.runs(caller, query, light=True)
            found += page.runs
            cursor = page.next
            if cursor is None:
                break
        of_schedule = [run for run in found if run.trigger == "schedule"]
        exact = [run for run in of_schedule if run.scheduled_for == asked.fire]
        # A replay or a backfill has the same time, and is newer.
        others = [run for run in found if not run.trigger.startswith("manual:")] or found
        chosen = exact or of_schedule or others
        return (chosen[-1] if chosen else None), cursor is None

    async def _with_run(self, caller: Caller, asked: _Asked, run: RunView) -> JobWhy:
        run_id = parse_uuid(run.run_id)
        assert run_id is not None
        why = await self._runs.why(caller, run_id)
        words = f"Run {run.run_id}, for {in_zone(run.scheduled_for, asked.schedule)}: {why.why}"
        if run.reason in (STILL_ALIVE, DUE_TOGETHER):
            words = await self._overlapped(caller, asked, run)
        elif run.start_time is not None and run.lag_from is not None:
            late = (run.start_time - run.lag_from).total_seconds()
            words += f" It started {late:.0f} s late." if late > ON_TIME.total_seconds() else ""
        return _answer(asked, _of_run(run), words, run=run)

    async def _overlapped(self, caller: Caller, asked: _Asked, run: RunView) -> str:
        """Which run was alive, so that this one was skipped."""
        query = RunQuery(job=asked.job.job_id, created_before=run.created_at, limit=_ALIVE_BEFORE)
        earlier = (await self._runs.runs(caller, query, light=True)).runs
        created = run.created_at or run.scheduled_for
        alive = next((one for one in earlier if one.end_time is None or one.end_time >= created), None)
        holder = "an earlier run of the job" if alive is None else f"run {alive.run_id} of the job"
        return (
            f"The fire for {in_zone(run.scheduled_for, asked.schedule)} was skipped (run {run.run_id}): {holder} was "
            f"still alive, and the overlap rule of the job is {asked.job.overlap}."
        )

    async def _missed(self, caller: Caller, asked: _Asked) -> MissedRange | None:
        first, last = asked.at, span_of(asked.at) - _MOMENT
        if asked.fire is not None:
            first, last = asked.fire, asked.fire
        async with self._store.reads.acquire() as connection:
            row = await missed_fires.at_time(connection, caller.tenant, asked.job.job_id, first, last)
        if row is None or (asked.fire is None and row.count > 1):  # a long range says nothing about times between fires
            return None
        return MissedRange(row.first_at, row.last_at, row.count, row.reason, row.recorded_at, row.generation)


def _time(text: str, timezone: str) -> datetime:
    """A time, in this zone if it names none."""
    try:
        return parse_time(text, "at")
    except InvalidInput as error:
        if error.code != "missing_timezone":
            raise InvalidInput(
                error.detail, code=error.code, field=error.field,
                expected="a day and a time from 1900 to 9998, with or without a zone",
                hint="such as 2026-12-31T23:59, 2026-12-31T23:59:59Z, 2026-12-31T23:59+01:00, or 2026-12-31; "
                f"without a zone it is by {timezone}, and without seconds the whole minute",
            ) from None  # fmt: skip
    return parse_time(text, "at", timezone)


def _last_fire(row: JobRow, schedule: Schedule, now: datetime) -> datetime:
    """The last time at which the job was due. If it never was: the next one."""
    if not schedule.recurring:
        return row.next_fire_at or row.paused_from or schedule.at or now
    since = max(row.created_at, now - _LOOK_BACK)
    newest = newest_fires(schedule, since, now, 1)
    return newest[0] if newest else row.next_fire_at or row.paused_from or now


def _fire_at(row: JobRow, schedule: Schedule, moment: datetime) -> datetime | None:
    """The fire that is meant. A one-time job may fire for another time than the one that was asked for."""
    if schedule.kind is ScheduleKind.AT and schedule.at is not None:
        fires = row.next_fire_at or row.paused_from or schedule.at
        return fires if any(moment <= one < span_of(moment) for one in (fires, schedule.at)) else None
    return fire_at(schedule, moment)


def _of_row(asked: _Asked, *, complete: bool) -> JobWhy:
    """There is neither a run nor a missed fire: what the row of the job says."""
    row, schedule, fire, at = asked.row, asked.schedule, asked.fire, asked.at
    due = fire or at
    when = in_zone(due, schedule)
    status = StoredJobStatus(row.status)
    if at < row.created_at and (fire is None or fire < row.created_at):
        words = f"The job was created on {in_zone(row.created_at, schedule)}, after that time."
        if row.generation > 1:
            words += f" It is generation {row.generation} of this id."
        return _answer(asked, "created_later", words)
    if status is StoredJobStatus.PAUSED and (row.paused_from is None or due >= row.paused_from or asked.of_now):
        why = asked.job.pause_reason or "The job is paused"
        return _answer(
            asked, "paused", f"{why}, since {in_zone(row.updated_at, schedule)} or earlier; its fires are recorded as "
            f"missed when it is resumed: mainspring job resume {row.job_id}."
        )  # fmt: skip
    if status is StoredJobStatus.CANCELLED and due >= row.updated_at:
        return _answer(asked, "cancelled", f"The job was cancelled on {in_zone(row.updated_at, schedule)}.")
    if status is StoredJobStatus.COMPLETED and (row.last_fired_for is None or due > row.last_fired_for):
        last = "" if row.last_fired_for is None else f" Its last fire was for {in_zone(row.last_fired_for, schedule)}."
        if row.runs_left == 0:
            return _answer(
                asked, "ended", f"The job has made all runs that its max_runs of {schedule.max_runs} allow.{last}"
            )
        if schedule.recurring:
            return _answer(asked, "ended", f"The schedule of the job has ended.{last}")
    if fire is None:
        found = why_no_fire(schedule, at)
        words = found.words
        if found.reason == "not_due" and at < row.updated_at:
            words += (
                f" Before its last change, on {in_zone(row.updated_at, schedule)}, it may have had another schedule."
            )
        return _answer(asked, found.reason, words)
    if fire > asked.now:
        return _answer(asked, "not_yet", f"The job is due on {when}, which is yet to come.")
    if row.next_fire_at is not None and row.next_fire_at <= fire:
        words = f"The job is due since {in_zone(row.next_fire_at, schedule)} and has not fired"
        late = asked.now - row.next_fire_at > ON_TIME
        return _answer(asked, "not_fired", f"{words}: no scheduler has done so." if late else f"{words} yet.")
    if fire < row.updated_at:
        return _answer(
            asked, "changed_later", f"There is no run for {when}. The job was changed after that time, on "
            f"{in_zone(row.updated_at, schedule)}: before that it may have had another schedule, or have been paused."
        )  # fmt: skip
    more = "" if complete else " Not all of its runs could be searched."
    return _answer(
        asked, "unknown", f"Nothing is known about {when}: its run may no longer be in the history, which is kept for "
        f"some weeks.{more}"
    )  # fmt: skip


def _of_run(run: RunView) -> JobWhyWord:
    if run.status == StoredState.SKIPPED.name:
        return "skipped"
    if run.status in _ENDS:
        return "ran" if run.start_time is not None else "skipped"
    return "runs" if run.status == StoredState.RUNNING.name else "waits"


def _in_words(missed: MissedRange, schedule: Schedule) -> str:
    if missed.count == 1:
        return f"It was recorded as missed on {in_zone(missed.recorded_at, schedule)}."
    between = f"from {in_zone(missed.first, schedule)} to {in_zone(missed.last, schedule)}"
    return f"{missed.count} fires {between} were recorded as missed."


def _answer(
    asked: _Asked, reason: JobWhyWord, words: str, *, run: RunView | None = None, missed: MissedRange | None = None
) -> JobWhy:
    before, after = fires_around(asked.schedule, asked.fire or asked.at) if asked.schedule.recurring else (None, None)
    if before is not None and before < asked.row.created_at:
        before = None
    near = [
        *([] if before is None else [f"the fire before that is {in_zone(before, asked.schedule)}"]),
        *([] if after is None else [f"the one after it is {in_zone(after, asked.schedule)}"]),
    ]
    if near and reason in _NAMES_OTHERS:
        words += f" By its schedule, {' and '.join(near)}."
    return JobWhy(
        asked.job.job_id, asked.job.status, reason, words, at=asked.at, fire=asked.fire,
        run_id=None if run is None else run.run_id, run_status=None if run is None else run.status, missed=missed,
        fire_before=before, fire_after=after,
    )  # fmt: skip
