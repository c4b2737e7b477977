"""Finds ids of runs, jobs, dead letters and workers by their beginning or their end.

A search reads a bounded number of rows (`scanned`) and returns a bounded number of ids (`limit`).
"""

from __future__ import annotations

import re
from uuid import UUID

from mainspring.kernel.ids import TenantId
from mainspring.store import pages
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import PageRow, RowQuery

_SQL = load("ids")
_UUID_FORM = "00000000-0000-0000-0000-000000000000"


class IdRow(PageRow, frozen=True):
    """An id that was found, or None in the only row of a search that found nothing. `scanned`: how many rows were
    read. `job`: it is the id of a job."""

    scanned: int
    job: bool | None
    id: str | None
    lane_id: int | None
    name: str | None


class NamedJob(PageRow, frozen=True):
    job_id: str
    name: str | None


_jobs_by_name = RowQuery(NamedJob, _SQL["jobs_by_name"])
_newest_live = RowQuery(IdRow, _SQL["newest_live"])
_newest_ended = RowQuery(IdRow, _SQL["newest_ended"])
_live_between = RowQuery(IdRow, _SQL["live_between"])
_ended_between = RowQuery(IdRow, _SQL["ended_between"])
DEAD_LETTERS = RowQuery(IdRow, _SQL["dead_letters"])
_jobs = RowQuery(IdRow, _SQL["jobs"])
WORKERS = RowQuery(IdRow, _SQL["workers"])


async def runs_and_jobs(
    connection: Connection, tenant: TenantId, part: str, scanned: int, limit: int, *, runs: bool, jobs: bool
) -> list[list[IdRow]]:
    """Runs and jobs, or only one of the two. Beginnings of run ids are found among all runs, by an index."""
    results: list[list[IdRow]] = []
    uuid_part = part.lower()
    ending = runs and _is_end_of_uuid(uuid_part)
    if ending or jobs:
        text = uuid_part if ending else part
        newest = (_newest_live, _newest_ended)
        results += [await search(connection, one, tenant, text, scanned, limit, ending, jobs) for one in newest]
    if runs:
        between = (_live_between, _ended_between)
        for first, last in _range_of(uuid_part):
            results += [await search(connection, one, tenant, first, last, scanned, limit) for one in between]
    if jobs:
        results.append(await search(connection, _jobs, tenant, part, scanned, limit))
    return results


async def jobs_by_name(connection: Connection, tenant: TenantId, text: str, limit: int) -> list[NamedJob]:
    """Jobs whose id or name begins with this text."""
    async with pages.planned(connection, straight=True):
        return await _jobs_by_name.fetch(connection, tenant, text, limit)


async def search(connection: Connection, query: RowQuery[IdRow], *arguments: object) -> list[IdRow]:
    async with pages.planned(connection, straight=True):
        return await query.fetch(connection, *arguments)


def _range_of(part: str) -> list[tuple[UUID, UUID]]:
    """The first and the last UUID that begin with `part`. Empty if none can."""
    if not _UUID_FORM.startswith(_form(part)):
        return []
    rest = _UUID_FORM[len(part) :]
    return [(UUID(part + rest), UUID(part + rest.replace("0", "f")))]


def _is_end_of_uuid(part: str) -> bool:
    return _UUID_FORM.endswith(_form(part))


def _form(part: str) -> str:
    """The text with zeros for its hexadecimal digits."""
    return re.sub(r"[0-9a-f]", "0", part) if re.fullmatch(r"[0-9a-f-]+", part) else part
