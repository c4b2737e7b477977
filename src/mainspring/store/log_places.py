"""Which server stores logs where, and which of them do so in different places."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("log_places")


class LogPlace(msgspec.Struct, frozen=True):
    """kind: postgresql, folder or objects. place: a path, or the address of an object store."""

    server_id: UUID
    name: str
    kind: str
    place: str


_live = RowQuery(LogPlace, _SQL["live_places"])


async def note(connection: Connection, place: LogPlace, apart: Sequence[str]) -> None:
    """This server is alive and stores logs there. `apart`: the names of servers that store them elsewhere."""
    status = await connection.execute(
        _SQL["note_place"], place.server_id, place.name, place.kind, place.place, list(apart)
    )
    assert status == "INSERT 0 1", status


async def live(connection: Connection) -> list[LogPlace]:
    return await _live.fetch(connection)


async def known(connection: Connection) -> set[UUID]:
    """All servers of the last day."""
    return {row[0] for row in await connection.fetch(_SQL["known_places"])}


async def forget(connection: Connection, server_id: UUID) -> None:
    await connection.execute(_SQL["forget_place"], server_id)


async def apart(connection: Connection) -> list[tuple[str, str]]:
    """Pairs of live servers that store logs in different places, each pair once."""
    rows = await connection.fetch(_SQL["apart"])
    return sorted({(min(one, other), max(one, other)) for one, other in rows})
