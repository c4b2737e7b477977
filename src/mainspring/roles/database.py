"""The database at the start of a server, a scheduler or `up`: waited for, checked, migrated as far as a start may, and
usable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mainspring.domain.durations import format_duration
from mainspring.domain.errors import MainspringError
from mainspring.kernel.logs import get_logger
from mainspring.store.database import Database
from mainspring.store.database_errors import TEMPORARY, database_in_words
from mainspring.store.grants import require_grants
from mainspring.store.migrate import migrate_at_start
from mainspring.store.pool import connect
from mainspring.store.preflight import check_database

log = get_logger("database")

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
_SAY_AGAIN = 5.0


async def prepare_database(database: Database) -> list[str]:
    """Returns the migrations that were applied. Raises an error that says what to do."""
    await check_database(database)
    with database_in_words(database):
        await _check_grants(database)  # all that are missing, before the first of them fails
    with database_in_words(database.direct):
        applied = await migrate_at_start(database)
    if applied:
        with database_in_words(database):
            await _check_grants(database)
    return applied


async def when_available(database: Database, start: Callable[[], Awaitable[T]]) -> T:
    """The result of `start`, which is called again while PostgreSQL is down, starts or recovers, for as long as
    `database.wait` says. It must be safe to repeat. Errors that do not pass by themselves are raised at once."""
    began = time.monotonic()
    said_at, pause = -_SAY_AGAIN, _FIRST_PAUSE
    while True:
        try:
            result = await start()
        except MainspringError as error:
            waited = time.monotonic() - began
            if error.code not in TEMPORARY or waited >= database.wait:
                raise
            if waited - said_at >= _SAY_AGAIN:
                said_at = waited
                log.warning(
                    "waiting for PostgreSQL",
                    reason=error.detail,
                    code=error.code,
                    waited=round(waited, 1),
                    until=format_duration(round(database.wait)),
                )
        else:
            if said_at >= 0.0:
                log.info("PostgreSQL is there", waited=round(time.monotonic() - began, 1))
            return result
        await asyncio.sleep(min(pause, max(0.0, database.wait - waited)))
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _check_grants(database: Database) -> None:
    connection = await connect(database, application="start")
    try:
        await require_grants(connection, database)
    finally:
        await connection.close()
