"""Reads limits: which there are, their lines, and who owns their slots."""

from __future__ import annotations

from collections import defaultdict

from mainspring.domain.errors import InvalidInput
from mainspring.domain.rates import format_rate
from mainspring.domain.tags import limit_tag
from mainspring.operations.access.caller import Caller
from mainspring.operations.lookup import no_limit
from mainspring.operations.paging.cursors import cursor_after_names, name_cursor
from mainspring.operations.paging.search import searching
from mainspring.operations.read.runs import ONE_SNAPSHOT
from mainspring.store import limit_reads
from mainspring.store.limit_reads import LimitRow
from mainspring.store.pool import Store
from mainspring.wire.limits import LimitDetails, LimitLineView, LimitList, LimitView

_LONGEST_TEXT = 200  # that is searched for
_MOST_LINES = 100
_MOST_HOLDERS = 20


class LimitReader:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def limits(self, caller: Caller, text: str | None, cursor: str | None, limit: int) -> LimitList:
        """The limits of the tenant, by name."""
        if text is not None and len(text) > _LONGEST_TEXT:
            raise InvalidInput(
                "q is too long", code="invalid_parameter", field="q", expected=f"at most {_LONGEST_TEXT} characters"
            )
        after = name_cursor(cursor)
        async with searching(self._store, caller.tenant, "limits") as connection:
            rows = await limit_reads.page(connection, caller.tenant, after, text, limit + 1)
        return LimitList([_view(row) for row in rows[:limit]], cursor_after_names(rows, limit))

    async def limit(self, caller: Caller, limit_id: int) -> LimitDetails:
        async with searching(self._store, caller.tenant, "limits", isolation=ONE_SNAPSHOT) as connection:
            row = await limit_reads.get(connection, caller.tenant, limit_id)
            if row is None:
                raise no_limit(str(limit_id))
            lines = await limit_reads.lines_of(connection, limit_id, _MOST_LINES)
            used = [line.key_id for line in lines if line.in_use]
            found = await limit_reads.holders(connection, caller.tenant, used, _MOST_HOLDERS) if used else []
        owners: dict[int, list[str]] = defaultdict(list)
        for holder in found:
            owners[holder.key_id].append(str(holder.run_id))
        views = [LimitLineView(line.key, line.in_use, line.held, owners[line.key_id]) for line in lines]
        return LimitDetails(_view(row), views)


def _view(row: LimitRow) -> LimitView:
    return LimitView(
        limit_id=row.limit_id,
        name=row.name,
        limit=row.slots,
        declared=row.declared,
        pinned=row.pinned,
        order="strict" if row.strict else "priority",
        keys=row.keys,
        in_use=row.in_use,
        held=row.held,
        updated_at=row.updated_at,
        rate=None if row.every is None else format_rate(row.every),
        burst=row.burst,
        etag=limit_tag(row.slots, row.declared, pinned=row.pinned, strict=row.strict),
    )
