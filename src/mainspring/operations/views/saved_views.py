"""Save, list and delete views of lists. All of a tenant see them."""

from __future__ import annotations

import msgspec

from mainspring.domain.errors import InvalidInput, NotFound
from mainspring.domain.tags import changed_meanwhile, check_named_version
from mainspring.domain.texts import check_line, read_word, shown
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.paging.cursors import cursor_after_names, name_cursor
from mainspring.operations.paging.search import searching
from mainspring.store import views
from mainspring.store.pool import Store
from mainspring.store.views import ViewRow
from mainspring.wire.views import LISTS, ViewList, ViewRequest, ViewView

MOST_VIEWS = 1000
_LONGEST_NAME = 100

log = get_logger("views")


class SavedViews:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, caller: Caller, name: str, request: ViewRequest, if_version: int | None) -> bool:
        """Save a view, or change it. Returns whether it is new. The same again changes nothing."""
        _check_name(name)
        of_list = read_word(request.of_list, "list", LISTS)
        for field, texts in (("filter", [*request.filter, *request.filter.values()]), ("columns", request.columns)):
            for text in texts:
                check_line(text, field)
        given = msgspec.json.encode(request.filter, order="sorted").decode()
        columns = list(dict.fromkeys(request.columns))
        async with self._store.change() as connection:
            row = await views.lock(connection, caller.tenant, name)
            check_named_version("view", name, row, if_version)
            if row is None:
                if await views.count(connection, caller.tenant) >= MOST_VIEWS:
                    raise InvalidInput(
                        f"the tenant has {MOST_VIEWS} views already", field="name", hint="delete one first"
                    )
                done = await views.insert(connection, caller.tenant, name, of_list, given, columns, caller.name)
            else:
                if (row.of_list, _filter_of(row), row.columns) == (of_list, request.filter, columns):
                    return False
                done = await views.change(connection, row, of_list, given, columns, caller.name)
            if not done:
                raise changed_meanwhile(f"the view {name!r}")
            after = {"list": of_list, "filter": request.filter, "columns": columns}
            await record(connection, caller, "view", name, None if row is None else _audited(row), after)
        log.info("view saved", tenant=caller.tenant, view=name, by=caller.name)
        return row is None

    async def delete(self, caller: Caller, name: str, if_version: int | None) -> ViewView:
        """Delete a view. Returns it as it was."""
        _check_name(name)
        async with self._store.change() as connection:
            row = await views.lock(connection, caller.tenant, name)
            if row is None:
                raise _no_view(name)
            check_named_version("view", name, row, if_version)
            if not await views.delete(connection, row):
                raise changed_meanwhile(f"the view {name!r}")
            await record(connection, caller, "view", name, _audited(row), None)
        log.info("view deleted", tenant=caller.tenant, view=name, by=caller.name)
        return _view(row)

    async def views(self, caller: Caller, of_list: str | None, cursor: str | None, limit: int) -> ViewList:
        """The views of the tenant, by name; of one list, or of all."""
        after = name_cursor(cursor)
        if of_list is not None:
            of_list = read_word(of_list, "list", LISTS)
        async with searching(self._store, caller.tenant, "views") as connection:
            rows = await views.page(connection, caller.tenant, after, of_list, limit + 1)
        return ViewList([_view(row) for row in rows[:limit]], cursor_after_names(rows, limit))

    async def view(self, caller: Caller, name: str) -> ViewView:
        if "\x00" in name:
            raise _no_view(name)
        async with searching(self._store, caller.tenant, "views") as connection:
            row = await views.get(connection, caller.tenant, name)
        if row is None:
            raise _no_view(name)
        return _view(row)


def _check_name(name: str) -> None:
    check_line(name, "name")
    if not 0 < len(name) <= _LONGEST_NAME or name != name.strip() or name in (".", "..") or "/" in name or ":" in name:
        raise InvalidInput(
            f"{shown(name)} cannot be the name of a view", field="name",
            expected=f"at most {_LONGEST_NAME} characters, without / and :",
        )  # fmt: skip


def _no_view(name: str) -> NotFound:
    return NotFound(f"there is no view {name!r}", hint="see GET /v1/views")


def _filter_of(row: ViewRow) -> dict[str, str]:
    return msgspec.json.decode(row.filter_text, type=dict[str, str])


def _audited(row: ViewRow) -> dict[str, object]:
    return {"list": row.of_list, "filter": _filter_of(row), "columns": row.columns}


def _view(row: ViewRow) -> ViewView:
    return ViewView(
        row.name, row.of_list, row.version, row.created_at, row.changed_at, row.changed_by, _filter_of(row),
        list(row.columns),
    )  # fmt: skip
