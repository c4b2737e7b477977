"""Several operations in one transaction: a store whose every pool is one connection.

An operation that opens a transaction of its own gets a savepoint, and one that takes a connection gets this one. So the
operations on jobs, workflows and calendars work as they are, and all of them are committed together or not at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mainspring.store.pool import Connection, Store


class _OneConnection:
    """In the place of a pool."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @asynccontextmanager
    async def acquire(self, **_options: Any) -> AsyncIterator[Connection]:
        yield self._connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def joined_store(store: Store, connection: Connection) -> Store:
    """A store for operations that join the transaction of `connection`, one after the other."""
    one = _OneConnection(connection)
    return Store(store.database, one, one, one, one, one)
