"""Searches the output of many runs: which of them may have the words, and the bytes of small logs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from uuid import UUID

import msgspec

from mainspring.domain.log_words import MOST_ASKED
from mainspring.kernel.ids import TenantId, first_uuid7
from mainspring.store import history, log_blocks
from mainspring.store.history import EndedRun, LiveRun, Run, RunFilter
from mainspring.store.log_table import joined
from mainspring.store.logs import Key, LogRow
from mainspring.store.pages import planned
from mainspring.store.pool import Connection
from mainspring.store.queries import load, load_without_payloads
from mainspring.store.rows import RowQuery

_SQL = load("log_search")
_LIGHT_SQL = load_without_payloads("log_search")
_A_MOMENT = timedelta(hours=1)  # the clock of the database may be set back
_MOST_AT_ONCE = 50_000  # chunks
_LATEST = datetime.max.replace(tzinfo=UTC)

_live_rows = RowQuery(LiveRun, _LIGHT_SQL["live_runs_among"])
_ended_rows = RowQuery(EndedRun, _LIGHT_SQL["ended_runs_among"])

Times = tuple[datetime, datetime]


class Stretch(msgspec.Struct, frozen=True):
    """Runs that may match, newest first. `to`: the last run that was looked at. None: there are no older ones."""

    run_ids: list[UUID]
    to: UUID | None


class RunLog(msgspec.Struct, frozen=True):
    run_id: UUID
    log: LogRow
    created_at: datetime

    @property
    def key(self) -> Key:
        return self.run_id, self.log.fence


async def indexed_runs(
    connection: Connection,
    tenant: TenantId,
    before: UUID | None,
    times: Times,
    lanes: Sequence[int] | None,
    words: Sequence[bytes] | None,
    most: int,
) -> Stretch:
    """Runs with a chunk in PostgreSQL that may have the words. At most `most` chunks are looked at."""
    asked = None if not words else _asked(words)
    async with planned(connection, straight=True):
        rows = await connection.fetch(
            _SQL["indexed_runs"], tenant, before, *times, _day_of(times[0]), lanes, asked, most
        )
    return Stretch([run_id for run_id, _ in rows if run_id is not None], rows[0][1])


async def runs_in_blocks(
    connection: Connection,
    tenant: TenantId,
    before: UUID | None,
    times: Times,
    lanes: Sequence[int] | None,
    words: Sequence[bytes],
) -> Stretch | None:
    """As `indexed_runs`, of all runs at once, or of all since there are blocks. Only the chunks of blocks that may have
    the words are looked at, and those in no block yet. None without blocks, or if these chunks are too many."""
    span = await log_blocks.span(connection)
    if span is None:
        return None
    day, after = _day_of(times[0]), None
    if times[0] < span.start and await log_blocks.something_stored(connection, day, min(span.start, times[1])):
        after = first_uuid7(span.start + _A_MOMENT)  # runs since then have no output before the first block
        if before is not None and before <= after:
            return None
    blocks = await log_blocks.with_words(connection, words, times, before)
    if sum(block.chunks for block in blocks) > _MOST_AT_ONCE:
        return None
    starts = [*(block.stored_from for block in blocks), span.end]
    ends = [*(block.stored_to for block in blocks), _LATEST]
    async with planned(connection, by_block=True):
        rows = await connection.fetch(
            _SQL["runs_of_times"],
            tenant,
            before,
            *times,
            day,
            lanes,
            _asked(words),
            after,
            starts,
            ends,
            span.start,
        )
    return Stretch([run_id for (run_id,) in rows], after)


async def printing_runs(
    connection: Connection, tenant: TenantId, before: UUID | None, times: Times, most: int
) -> Stretch:
    """Runs with output, wherever it is stored."""
    async with planned(connection, straight=True):
        rows = await connection.fetch(_SQL["printing_runs"], tenant, before, *times, most)
    found = [run_id for run_id, _ in rows]
    return Stretch(found, found[-1] if rows and rows[0][1] == most else None)


async def runs_among(
    connection: Connection, tenant: TenantId, wanted: Sequence[RunFilter], logs: Sequence[RunLog]
) -> list[Run]:
    """The runs of these logs that one of the filters shows, newest first, without payloads."""
    run_ids = [each.run_id for each in logs]
    since = min(each.created_at for each in logs) - _A_MOMENT  # none of them has ended before
    found: list[Run] = []
    for chosen in wanted:
        if chosen.live_states is None or chosen.live_states:
            found += await _live_rows.fetch(connection, *history.wanted(tenant, chosen, chosen.live_states), run_ids)
        if chosen.ended_states is None or chosen.ended_states:
            arguments = history.wanted(tenant, chosen, chosen.ended_states)
            found += await _ended_rows.fetch(connection, *arguments, run_ids, since)
    return history.newest_first(found, len(run_ids))


async def logs_of_runs(connection: Connection, tenant: TenantId, run_ids: Sequence[UUID], times: Times) -> list[RunLog]:
    rows = await connection.fetch(_SQL["logs_of_runs"], tenant, run_ids, *times)
    return [RunLog(run_id, LogRow(*log), created_at) for run_id, *log, created_at in rows]


async def small_logs(connection: Connection, tenant: TenantId, wanted: Sequence[RunLog]) -> dict[Key, bytes]:
    """The bytes of logs that are in PostgreSQL as a whole."""
    if not wanted:
        return {}
    rows = await connection.fetch(
        _SQL["chunks_of_logs"], tenant, [each.run_id for each in wanted], [each.log.fence for each in wanted],
        min(each.created_at for each in wanted) - _A_MOMENT,
    )  # fmt: skip
    sizes = {each.key: each.log.bytes for each in wanted}
    found = {}
    for key, chunks in groupby(rows, lambda row: (row["run_id"], row["fence"])):
        data = joined([(row["first_byte"], row["size"], row["data"]) for row in chunks], 0, sizes[key])
        if len(data) == sizes[key]:
            found[key] = data
    return found


def _asked(words: Sequence[bytes]) -> list[bytes]:
    return [*words, *[words[0]] * (MOST_ASKED - len(words))]


def _day_of(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)
