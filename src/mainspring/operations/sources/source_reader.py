"""Lists sources and their dead messages, and deletes sources."""

from __future__ import annotations

import msgspec

from mainspring.domain.errors import NotFound
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.paging.cursors import bad_cursor, decode_cursor, encode_cursor, missed_cursor
from mainspring.operations.paging.search import searching
from mainspring.operations.sources.taker import check_source_name
from mainspring.store import sources
from mainspring.store.pool import Store
from mainspring.store.sources import ReadSource
from mainspring.wire.sources import DeadMessageList, DeadMessageView, SourceDeleted, SourceList, SourceView

MOST_IN_METRICS = 1000

log = get_logger("sources")


class SourceReader:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def sources(self, caller: Caller, cursor: str | None, limit: int) -> SourceList:
        """A page of the sources of the tenant, by name and partition."""
        after = _after(cursor)
        async with searching(self._store, caller.tenant, "sources") as connection:
            rows = await sources.page(connection, caller.tenant, after, limit + 1)
        following = None
        if len(rows) > limit:
            last = rows[limit - 1]
            following = encode_cursor(msgspec.json.encode([last.name, last.part]).decode())
        return SourceList([_view(row) for row in rows[:limit]], following)

    async def for_metrics(self, caller: Caller) -> list[SourceView]:
        async with searching(self._store, caller.tenant, "sources") as connection:
            return [_view(row) for row in await sources.page(connection, caller.tenant, None, MOST_IN_METRICS)]

    async def dead(self, caller: Caller, name: str, cursor: str | None, limit: int) -> DeadMessageList:
        """A page of the dead messages of a source, newest first. One that does not exist has none."""
        check_source_name(name)
        before = missed_cursor(cursor)
        async with searching(self._store, caller.tenant, "dead messages") as connection:
            rows = await sources.dead_page(connection, caller.tenant, name, before, limit + 1)
        following = encode_cursor(str(rows[limit - 1].seq)) if len(rows) > limit else None
        return DeadMessageList(
            [DeadMessageView(row.seq, row.at, row.reason, row.message_id, row.part, row.value) for row in rows[:limit]],
            following,
        )

    async def delete(self, caller: Caller, name: str) -> SourceDeleted:
        """Delete a source with its offsets, message ids and dead messages."""
        check_source_name(name)
        async with self._store.change() as connection:
            gone = await sources.delete(connection, caller.tenant, name)
            if not gone:
                raise NotFound(f"there is no source {name!r}", hint="see GET /v1/sources")
            offsets = {part.part: part.stored_offset for part in gone}
            await record(connection, caller, "source", name, {"kind": gone[0].kind, "offsets": offsets}, None)
        log.info("source deleted", tenant=caller.tenant, source=name, by=caller.name)
        return SourceDeleted(name, len(gone))


def _after(cursor: str | None) -> tuple[str, str] | None:
    if cursor is None:
        return None
    try:
        name, part = msgspec.json.decode(decode_cursor(cursor), type=tuple[str, str])
    except msgspec.MsgspecError:
        raise bad_cursor() from None
    if "\x00" in name + part:
        raise bad_cursor()
    return name, part


def _view(row: ReadSource) -> SourceView:
    return SourceView(
        row.name, row.kind, row.seen_at, row.connector, row.taken, row.repeated, row.dead, row.problems, row.part,
        row.stored_offset, row.lag, row.problem, row.problem_at, row.taken_at,
    )  # fmt: skip
