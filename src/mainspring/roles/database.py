"""The database at the start of a server, a scheduler or `up`: checked, migrated as far as a start may, and usable."""

from __future__ import annotations

from mainspring.store.database import Database
from mainspring.store.database_errors import database_in_words
from mainspring.store.grants import require_grants
from mainspring.store.migrate import migrate_at_start
from mainspring.store.pool import connect
from mainspring.store.preflight import check_database


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


async def _check_grants(database: Database) -> None:
    connection = await connect(database, application="start")
    try:
        await require_grants(connection, database)
    finally:
        await connection.close()
