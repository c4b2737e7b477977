"""The life of a job, newest first: its runs, what its row says about changes, and the fires that it missed."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import msgspec

from mainspring.domain.transitions import StoredJobStatus
from mainspring.kernel.ids import parse_uuid
from mainspring.operations.access.caller import Caller
from mainspring.operations.lookup import no_job, own_run
from mainspring.operations.paging.cursors import bad_cursor, decode_cursor, encode_cursor
from mainspring.operations.paging.search import searching
from mainspring.operations.read.one_time import fired_job
from mainspring.operations.read.quota_hold import show_quota_holds
from mainspring.operations.read.runs import ONE_SNAPSHOT
from mainspring.operations.read.views import brief_view
from mainspring.store import history, jobs, missed_fires
from mainspring.store.fired_jobs import brief_of, with_cut_error
from mainspring.store.history import Run
from mainspring.store.jobs import JobRow
from mainspring.store.missed_fires import NumberedMissed
from mainspring.store.pages import cut
from mainspring.store.pool import Store
from mainspring.wire.runs import JobTimeline, JobTimelineEntry
from mainspring.wire.states import JobEvent


class _Position(msgspec.Struct, frozen=True):
    """How far a page has come: the last run and the last missed range that it showed, and how many other entries."""

    run_id: UUID | None = None
    missed_id: int | None = None
    others: int = 0


class JobTimelineReader:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def timeline(self, caller: Caller, job_id: str, cursor: str | None, limit: int) -> JobTimeline:
        tenant, position = caller.tenant, _read(cursor)
        async with searching(self._store, tenant, "entries of a timeline", isolation=ONE_SNAPSHOT) as connection:
            row = await jobs.get(connection, tenant, job_id)
            own: Run | None = None
            if row is not None:
                others = list(_of_row(row))
            else:
                fired = await fired_job(connection, tenant, job_id)
                if fired is None:
                    raise no_job(job_id)
                job_id, own = fired.job_id, await own_run(connection, tenant, job_id)
                created = JobTimelineEntry(fired.created_at, JobEvent.CREATED, fired.deciding.generation)
                others = [*([] if own is None else [_run(own)]), created]
            found = await history.runs_of_job(connection, tenant, job_id, position.run_id, limit + 1)
            runs, more_runs = cut(found, limit)
            missed = await missed_fires.page_of_job(connection, tenant, job_id, position.missed_id, limit + 1)
            entries = [_run(run) for run in runs]
            shown = [entry.run for entry in (*entries, *others) if entry.run is not None]
            await show_quota_holds(connection, tenant, shown)
        heads = _Heads(
            [(entry, run.run_id) for entry, run in zip(entries, runs, strict=True)],
            [(_missed(one), one.missed_id) for one in missed[:limit]],
            [(entry, number) for number, entry in enumerate(others, start=1)][position.others :],
        )
        return _merge(position, heads, limit, more_runs=more_runs, more=more_runs or len(missed) > limit)


class _Heads(msgspec.Struct):
    """What comes next, newest first, each with its mark in the position."""

    run_id: list[tuple[JobTimelineEntry, UUID]]
    missed_id: list[tuple[JobTimelineEntry, int]]
    others: list[tuple[JobTimelineEntry, int]]

    def pop(self) -> tuple[str, JobTimelineEntry, UUID | int] | None:
        """The newest of all, and the name of its list."""
        waiting = [name for name in self.__struct_fields__ if getattr(self, name)]
        if not waiting:
            return None
        name = max(waiting, key=lambda name: getattr(self, name)[0][0].at)
        entry, mark = getattr(self, name).pop(0)
        return name, entry, mark


def _merge(position: _Position, heads: _Heads, limit: int, *, more_runs: bool, more: bool) -> JobTimeline:
    """A page. `more_runs`: there are runs after these, which may be newer than what the other lists have. `more`: there
    is more of anything."""
    entries: list[JobTimelineEntry] = []
    while len(entries) < limit and (found := heads.pop()) is not None:
        name, entry, mark = found
        entries.append(entry)
        position = msgspec.structs.replace(position, **{name: mark})
        if more_runs and not heads.run_id:
            break
    left = more or heads.pop() is not None
    return JobTimeline(entries, _cursor(position) if left else None)


def _of_row(row: JobRow) -> Iterator[JobTimelineEntry]:
    """The last change of a job that has a row, and its creation. Earlier changes are not stored."""
    if row.updated_at != row.created_at:
        event, reason = JobEvent.CHANGED, None
        match StoredJobStatus(row.status):
            case StoredJobStatus.CANCELLED:
                event = JobEvent.CANCELLED
            case StoredJobStatus.PAUSED:
                event, reason = JobEvent.PAUSED, "paused, or changed while it was paused"
            case _:
                pass
        yield JobTimelineEntry(row.updated_at, event, row.generation, version=row.version, reason=reason)
    yield JobTimelineEntry(row.created_at, JobEvent.CREATED, row.generation)


def _run(run: Run) -> JobTimelineEntry:
    brief = brief_view(with_cut_error(brief_of(run)))
    return JobTimelineEntry(brief.created_at, JobEvent.RUN, run.generation, run=brief)


def _missed(one: NumberedMissed) -> JobTimelineEntry:
    return JobTimelineEntry(
        one.recorded_at,
        JobEvent.MISSED,
        one.generation,
        reason=one.reason,
        first=one.first_at,
        last=one.last_at,
        count=one.count,
    )


def _cursor(position: _Position) -> str:
    return encode_cursor(f"{position.run_id or '-'} {position.missed_id or '-'} {position.others}")


def _read(cursor: str | None) -> _Position:
    if cursor is None:
        return _Position()
    parts = decode_cursor(cursor).split(" ")
    if len(parts) != 3:
        raise bad_cursor()
    run_id = parse_uuid(parts[0])
    numbers = [_number(part) for part in parts[1:]]
    if (run_id is None and parts[0] != "-") or (numbers[0] is None and parts[1] != "-") or numbers[1] is None:
        raise bad_cursor()
    return _Position(run_id, numbers[0], numbers[1])


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
