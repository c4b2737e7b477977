"""Checks that all servers store logs in the same place. A server whose folder is not the others' says so.

Each server puts a mark, a file with its id, into its folder, and writes into a table where it stores logs. Then it
looks for the marks of the other servers. A path says nothing: two machines have the same path for different folders,
and one folder can have two.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg

from mainspring.kernel.ids import uuid7
from mainspring.kernel.logs import get_logger
from mainspring.store import log_places
from mainspring.store.log_files import LogFiles
from mainspring.store.log_places import LogPlace
from mainspring.store.log_stores import LogStore
from mainspring.store.pool import AWAY, Store

log = get_logger("log_places")

POSTGRESQL, FOLDER, OBJECTS = "postgresql", "folder", "objects"
_MARKS = ".servers"


class LogPlaceChecker:
    name = "log_place_checker"
    interval = 10.0

    def __init__(self, store: Store, written: LogStore, name: str | None = None) -> None:
        self._store = store
        self._folder = written.folder if isinstance(written, LogFiles) else None
        kind, place = _place_of(written)
        self.place = LogPlace(uuid7(), name or f"{socket.gethostname()}-{os.getpid()}", kind, place)
        self._apart: list[str] | None = None

    async def run_once(self) -> list[str]:
        """The names of live servers that store logs elsewhere."""
        await self._mark()
        async with self._store.reads.acquire() as connection:
            await log_places.note(connection, self.place, self._apart or [])
            if self._apart is None:
                await self._clear_marks(await log_places.known(connection))
            others = [place for place in await log_places.live(connection) if place.server_id != self.place.server_id]
            elsewhere = [other for other in others if not await self._is_here(other)]
            found = [other.name for other in elsewhere]
            if found != (self._apart or []):
                await log_places.note(connection, self.place, found)
        self._tell(elsewhere)
        self._apart = found
        return found

    async def close(self) -> None:
        """The server stops. Others need not look for it."""
        if self._apart is None:
            return
        if self._folder is not None:
            await asyncio.to_thread(_remove, self._folder / _MARKS / str(self.place.server_id))
        with suppress(*AWAY, asyncpg.PostgresError):
            async with asyncio.timeout(1), self._store.reads.acquire() as connection:
                await log_places.forget(connection, self.place.server_id)

    def _tell(self, elsewhere: list[LogPlace]) -> None:
        found = [other.name for other in elsewhere]
        if found and found != self._apart:
            log.warning(
                "other servers store logs in another place, so each lacks output that the others have",
                here=self.place.place,
                others={other.name: other.place for other in elsewhere},
                hint="start all servers with the same --log-store, or without: then PostgreSQL has the logs",
            )
        elif self._apart and not found:
            log.info("all servers store logs in the same place", place=self.place.place)

    async def _is_here(self, other: LogPlace) -> bool:
        if other.kind != self.place.kind:
            return False
        if self._folder is None:
            return other.place == self.place.place
        return await asyncio.to_thread((self._folder / _MARKS / str(other.server_id)).exists)

    async def _mark(self) -> None:
        """Before others can learn of this server."""
        if self._folder is not None:
            await asyncio.to_thread(_write, self._folder / _MARKS / str(self.place.server_id))

    async def _clear_marks(self, known: set[UUID]) -> None:
        """Remove the marks of servers that were killed days ago."""
        if self._folder is not None:
            await asyncio.to_thread(_clear, self._folder / _MARKS, {str(server_id) for server_id in known})


def _place_of(written: LogStore) -> tuple[str, str]:
    if not isinstance(written, LogFiles):
        return POSTGRESQL, written.where
    if written.folder is not None:
        return FOLDER, str(written.folder)
    parts = urlsplit(written.where)
    return OBJECTS, parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def _write(mark: Path) -> None:
    mark.parent.mkdir(mode=0o700, exist_ok=True)
    mark.touch(mode=0o600)


def _remove(mark: Path) -> None:
    with suppress(OSError):
        mark.unlink()
        mark.parent.rmdir()


def _clear(marks: Path, known: set[str]) -> None:
    with suppress(OSError):
        for mark in marks.iterdir():
            if mark.name not in known:
                mark.unlink(missing_ok=True)
