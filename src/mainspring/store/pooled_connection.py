"""Our connections, and those through a PgBouncer in transaction mode.

A connection can be terminated between two steps of one statement, for example by `Store.cut`. The driver then calls a
method of the protocol that it no longer has, and an AttributeError would look like a defect of the statement.

The driver asks PostgreSQL about each array type that a statement uses, on each connection again, by two or three
statements. PostgreSQL's own types are the same everywhere, so one answer is enough for all connections: after a
failover each of them is new, and a busy machine takes long for every question.

Through a PgBouncer in transaction mode each transaction may run in another session of PostgreSQL. So nothing may
outlive a transaction. A setting of the session becomes SET LOCAL, which travels with BEGIN. A statement outside a
transaction gets one of its own. Prepared statements have no name: each execution parses its text again, in the same
round trip. What is known about its parameters and its result is kept here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg

_BEGIN = "BEGIN"

_FIRST_OF_INITDB = 10_000  # smaller ids are the same in every database, and in every version that has the type


class _Asked(NamedTuple):
    """In place of the statement that has asked. The driver looks at its name: without one, it would have taken the
    place of the statement that is being prepared."""

    name: str = "asked before"


class StoreConnection(asyncpg.Connection):  # type: ignore[misc] # asyncpg has no types
    _asked: dict[frozenset[int], Any] = {}  # noqa: RUF012 - of all connections

    async def _introspect_types(self, typeoids: Sequence[int], timeout: float | None) -> tuple[Any, Any]:
        key = frozenset(typeoids)
        if max(key) >= _FIRST_OF_INITDB:
            return await super()._introspect_types(typeoids, timeout)  # type: ignore[no-any-return]
        known = self._asked.get(key)
        if known is not None:
            return known, _Asked()
        found, statement = await super()._introspect_types(typeoids, timeout)
        self._asked[key] = found
        return found, statement

    async def _do_execute(self, *args: Any, **options: Any) -> Any:
        try:
            return await super()._do_execute(*args, **options)
        except AttributeError as error:
            if self._protocol is None:
                raise asyncpg.ConnectionDoesNotExistError("the connection was terminated between two steps") from error
            raise


class TransactionConnection(StoreConnection):
    """Needs `statement_cache_size=0`: only then does asyncpg parse unnamed statements again."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._local = ""
        self._known: dict[tuple[Any, ...], Any] = {}

    def use(self, settings: Mapping[str, str]) -> None:
        """The settings of every transaction."""
        self._local = "".join(f" set local {name} = '{value}';" for name, value in settings.items())

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        if not args and query.startswith(_BEGIN):
            query += self._local
        status: str = await super().execute(query, *args, timeout=timeout)
        return status

    async def _execute(self, *args: Any, **options: Any) -> Any:
        if self.is_in_transaction():
            return await super()._execute(*args, **options)
        async with self.transaction():
            return await super()._execute(*args, **options)

    async def _get_statement(
        self,
        query: str,
        timeout: float | None,
        *,
        ignore_custom_codec: bool = False,
        record_class: Any = None,
        **_named: Any,
    ) -> Any:
        """The statement without a name, also for cursors: their portal does not need it once it is bound."""
        key = (query, ignore_custom_codec, record_class)
        state = self._known.get(key)
        if state is None:
            state = await super()._get_statement(
                query, timeout, ignore_custom_codec=ignore_custom_codec, record_class=record_class
            )
            state.mark_unprepared()
            self._known[key] = state
        return state
