"""Finds ids of runs, jobs, dead letters and workers by their beginning or their end."""

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
    read."""

    scanned: int
    id: str | None
    lane_id: int | None
    name: str | None


_live_runs = RowQuery(IdRow, _SQL["live_runs"])
_ended_runs = RowQuery(IdRow, _SQL["ended_runs"])
_dead_letters = RowQuery(IdRow, _SQL["dead_letters"])
_jobs = RowQuery(IdRow, _SQL["jobs"])
_fired_live = RowQuery(IdRow, _SQL["fired_live"])
_fired_ended = RowQuery(IdRow, _SQL["fired_ended"])
_workers = RowQuery(IdRow, _SQL["workers"])


async def runs(connection: Connection, tenant: TenantId, part: str, scanned: int, limit: int) -> list[list[IdRow]]:
    """The results of several searches, each of which reads at most `scanned` rows."""
    found = []
    for query in (_live_runs, _ended_runs):
        for first, last in ((None, None), *_range_of(part)):
            arguments = (tenant, part, scanned, limit, first, last)
            found.append(await _read(connection, query, *arguments))
    return [*found, *await dead_letters(connection, tenant, part, scanned, limit)]


async def jobs(connection: Connection, tenant: TenantId, part: str, scanned: int, limit: int) -> list[list[IdRow]]:
    """As `runs`."""
    return [
        await _read(connection, query, tenant, part, scanned, limit) for query in (_jobs, _fired_live, _fired_ended)
    ]


async def dead_letters(
    connection: Connection, tenant: TenantId, part: str, scanned: int, limit: int
) -> list[list[IdRow]]:
    """As `runs`."""
    return [await _read(connection, _dead_letters, tenant, part, scanned, limit)]


async def workers(connection: Connection, tenant: TenantId, part: str, scanned: int, limit: int) -> list[list[IdRow]]:
    """As `runs`."""
    return [await _read(connection, _workers, tenant, part, scanned, limit)]


async def _read(connection: Connection, query: RowQuery[IdRow], *arguments: object) -> list[IdRow]:
    async with pages.planned(connection, straight=True):
        return await query.fetch(connection, *arguments)


def _range_of(part: str) -> list[tuple[UUID, UUID]]:
    """The first and the last UUID that begin with `part`. Empty if no UUID does."""
    form = "".join("-" if char == "-" else "0" for char in part)
    if not re.fullmatch(r"[0-9a-f-]+", part) or not _UUID_FORM.startswith(form):
        return []
    rest = _UUID_FORM[len(part) :]
    return [(UUID(part + rest), UUID(part + rest.replace("0", "f")))]
