"""Calendars, the jobs that use them, and the recomputation of their next fires."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("calendars")
_ANY_VERSION = 2**31 - 1


class CalendarRow(msgspec.Struct, frozen=True):
    """A calendar. rules_version: the version in which its rules changed last."""

    tenant_id: TenantId
    name: str
    version: int
    rules_version: int
    digest: str
    rules_text: str
    description: str | None
    recomputed: int
    created_at: datetime
    updated_at: datetime


class CalendarUse(msgspec.Struct, frozen=True):
    """How many jobs use a calendar, and how many of them by earlier rules."""

    jobs: int
    pending: int


class JobToRecompute(msgspec.Struct, frozen=True):
    """A job whose next fire may be another one now. `now` is the database's time."""

    tenant_id: TenantId
    job_id: str
    version: int
    status: int
    one_time: bool
    next_fire_at: datetime | None
    paused_from: datetime | None
    last_fired_for: datetime | None
    last_nominal_for: datetime | None
    schedule_text: str
    now: datetime


class Recomputed(msgspec.Struct, frozen=True):
    """What becomes of a job."""

    job: JobToRecompute
    next_fire_at: datetime | None
    paused_from: datetime | None
    schedule_text: str


class Libraries(msgspec.Struct, frozen=True):
    """The versions that decided the next fires. walking: jobs after (after_tenant, after_job) have yet to be
    recomputed."""

    tzdata: str
    holidays: str
    walking: bool
    after_tenant: TenantId
    after_job: str
    recomputed: int


_get = RowQuery(CalendarRow, _SQL["get_calendar"])
_list = RowQuery(CalendarRow, _SQL["list_calendars"])
_lock = RowQuery(CalendarRow, _SQL["lock_calendar"])
_share = RowQuery(CalendarRow, _SQL["share_calendars"])
_pending = RowQuery(CalendarRow, _SQL["pending_calendar"])
_use = RowQuery(CalendarUse, _SQL["use_of_calendar"])
_jobs_to_recompute = RowQuery(JobToRecompute, _SQL["jobs_to_recompute"])
_completed_to_recompute = RowQuery(JobToRecompute, _SQL["completed_to_recompute"])
_jobs_on_walk = RowQuery(JobToRecompute, _SQL["jobs_on_walk"])
_get_libraries = RowQuery(Libraries, _SQL["get_libraries"])
_lock_walk = RowQuery(Libraries, _SQL["lock_walk"])


async def get(connection: Connection, tenant: TenantId, name: str) -> CalendarRow | None:
    return await _get.first(connection, tenant, name)


async def page(connection: Connection, tenant: TenantId, after: str | None, limit: int) -> list[CalendarRow]:
    return await _list.fetch(connection, tenant, after, limit)


async def names(connection: Connection, tenant: TenantId, limit: int = 1000) -> list[str]:
    return [name for (name,) in await connection.fetch(_SQL["calendar_names"], tenant, limit)]


async def count(connection: Connection, tenant: TenantId) -> int:
    return int(await connection.fetchval(_SQL["count_calendars"], tenant))


async def lock(connection: Connection, tenant: TenantId, name: str) -> CalendarRow | None:
    """Lock a calendar against jobs that begin to use it, too."""
    return await _lock.first(connection, tenant, name)


async def share(connection: Connection, tenant: TenantId, wanted: Iterable[str]) -> dict[str, CalendarRow]:
    """The calendars by name. They are neither changed nor deleted until the transaction ends."""
    return {row.name: row for row in await _share.fetch(connection, tenant, sorted(set(wanted)))}


async def insert(
    connection: Connection, tenant: TenantId, name: str, digest: str, rules: str, description: str | None, by: str
) -> bool:
    """Create a calendar. False if it exists."""
    version = await connection.fetchval(_SQL["insert_calendar"], tenant, name, digest, rules, description, by)
    if version is not None:
        await connection.execute(_SQL["insert_calendar_version"], tenant, name, version, digest, rules, by)
    return version is not None


async def change(connection: Connection, row: CalendarRow, digest: str, rules: str, text: str | None, by: str) -> bool:
    """Change a calendar that the caller has locked. False if it is gone."""
    changed = digest != row.digest
    version = await connection.fetchval(
        _SQL["change_calendar"], row.tenant_id, row.name, row.version, digest, rules, text, by, changed
    )
    if version is not None:
        await connection.execute(_SQL["insert_calendar_version"], row.tenant_id, row.name, version, digest, rules, by)
    return version is not None


async def delete(connection: Connection, row: CalendarRow) -> bool:
    return await connection.fetchval(_SQL["delete_calendar"], row.tenant_id, row.name, row.version) is not None


async def use(connection: Connection, row: CalendarRow) -> CalendarUse:
    found = await _use.first(connection, row.tenant_id, row.name, row.rules_version)
    assert found is not None
    return found


async def is_pending(connection: Connection, row: CalendarRow) -> bool:
    """Whether a job uses the calendar by earlier rules."""
    return bool(await connection.fetchval(_SQL["is_pending"], row.tenant_id, row.name, row.rules_version))


async def users(connection: Connection, tenant: TenantId, name: str, limit: int) -> list[str]:
    return [job_id for (job_id,) in await connection.fetch(_SQL["users_of_calendar"], tenant, name, limit)]


async def rules(connection: Connection, tenant: TenantId, digests: Iterable[str]) -> list[str]:
    """The rules with these digests, as text."""
    return [text for (text,) in await connection.fetch(_SQL["rules_by_digest"], tenant, sorted(set(digests)))]


async def pending(connection: Connection) -> list[tuple[TenantId, str]]:
    """The calendars of which some jobs have a next fire by earlier rules."""
    return [(tenant, name) for tenant, name in await connection.fetch(_SQL["pending_calendars"])]


async def lock_pending(connection: Connection, tenant: TenantId, name: str) -> CalendarRow | None:
    """The calendar if jobs are pending, and no other process works on it."""
    return await _pending.first(connection, tenant, name)


async def to_recompute(
    connection: Connection, row: CalendarRow, after: tuple[int, str], limit: int
) -> list[JobToRecompute]:
    return await _jobs_to_recompute.fetch(connection, row.tenant_id, row.name, row.rules_version, *after, limit)


async def jobs_in(connection: Connection, row: CalendarRow, limit: int) -> list[JobToRecompute]:
    """Jobs that use the calendar and can fire, whatever version decided their next fire."""
    return await _jobs_to_recompute.fetch(connection, row.tenant_id, row.name, _ANY_VERSION, 0, "", limit)


async def completed_to_recompute(
    connection: Connection, row: CalendarRow, after: tuple[int, str], limit: int
) -> list[JobToRecompute]:
    return await _completed_to_recompute.fetch(connection, row.tenant_id, row.name, row.rules_version, *after, limit)


async def write_recomputed(connection: Connection, done: Sequence[Recomputed]) -> set[tuple[TenantId, str]]:
    """Write the next fires. Returns the jobs that were written; the others are due, locked, or have changed."""
    rows = await connection.fetch(
        _SQL["write_recomputed"],
        [one.job.tenant_id for one in done],
        [one.job.job_id for one in done],
        [one.job.version for one in done],
        [one.job.next_fire_at for one in done],
        [one.job.paused_from for one in done],
        [one.next_fire_at for one in done],
        [one.paused_from for one in done],
        [one.schedule_text for one in done],
    )
    return {(tenant, job_id) for tenant, job_id in rows}


async def note_recomputed(connection: Connection, row: CalendarRow, more: int, *, done: bool) -> None:
    await connection.execute(_SQL["note_recomputed"], row.tenant_id, row.name, more, done)


async def libraries(connection: Connection) -> Libraries | None:
    return await _get_libraries.first(connection)


async def first_libraries(connection: Connection, tzdata: str, holidays: str) -> None:
    """Store the versions of a new installation."""
    await connection.execute(_SQL["first_libraries"], tzdata, holidays)


async def begin_walk(connection: Connection, before: Libraries, tzdata: str, holidays: str) -> bool:
    """Begin to recompute the jobs of all tenants, because a library has another version. False if another process has
    begun."""
    done: str = await connection.execute(_SQL["begin_walk"], before.tzdata, before.holidays, tzdata, holidays)
    return done.endswith(" 1")


async def lock_walk(connection: Connection) -> Libraries | None:
    """How far the jobs are recomputed. None if all are, or if another process works on them."""
    return await _lock_walk.first(connection)


async def on_walk(connection: Connection, walk: Libraries, limit: int) -> list[JobToRecompute]:
    """The next jobs to recompute."""
    return await _jobs_on_walk.fetch(connection, walk.after_tenant, walk.after_job, limit)


async def go_on(connection: Connection, after: tuple[TenantId, str], more: int, *, done: bool) -> None:
    await connection.execute(_SQL["go_on"], *after, more, done)
