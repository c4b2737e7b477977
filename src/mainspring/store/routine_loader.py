"""Routines: the functions of routines/*.sql, such as `mainspring.submit`. They are replaced when their text changes.

Grants survive that, because a function is replaced and not dropped. A function whose parameters or result change gets a
new name, or the file drops it first. Servers of several versions may start side by side: the routines of the newest
version stay.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import partial
from importlib.resources import files

import asyncpg

from mainspring.kernel.logs import get_logger
from mainspring.kernel.version import VERSION
from mainspring.store.ddl_transaction import LockPatience, in_ddl_transaction
from mainspring.store.queries import render
from mainspring.store.submit_fields import submit_constants

_RELEASE = re.compile(r"\d+(?:\.\d+)*")
# Servers call these. A server of an older version would drop what it does not know, so they are not in the list.
_OF_SERVERS = ("partition_name", "add_partition", "drop_partition", "watch_changes", "mark_changes")
# Functions that this transaction has created or replaced.
_WRITTEN = """
select p.oid::regprocedure::text as signature from pg_proc p
where p.pronamespace = 'mainspring'::regnamespace and p.xmin = pg_current_xact_id()::xid
  and p.proname <> all ($1::text[])
order by 1
"""

log = get_logger("migrate")


def read_routines() -> str:
    """All routines as one text, with constants and fragments filled in. What `mainspring.submit` takes and refuses
    is generated from the table of fields."""
    constants = submit_constants()
    folder = files("mainspring.store") / "routines"
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return "\n".join(render(file.read_text(encoding="utf-8"), constants) for file in found)


async def load_routines(
    connection: asyncpg.Connection,
    patience: LockPatience,
    *,
    text: str | None = None,
    version: str = VERSION,
) -> bool:
    """Replace the routines if they differ from these and are not of a newer version. Return whether they were
    replaced."""
    routines = _Routines(read_routines() if text is None else text, version)
    if await _known(connection, routines) is None:
        return False
    return await in_ddl_transaction(connection, "loading routines", partial(_replace, connection, routines), patience)


@dataclass(frozen=True, slots=True)
class _Routines:
    text: str
    version: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


async def _known(connection: asyncpg.Connection, routines: _Routines) -> list[str] | None:
    """The functions in the database, or None if they can stay."""
    before = await connection.fetchrow("select version, hash, functions from mainspring.routines")
    if before is None:
        return []
    if before["hash"] == routines.digest or _release(before["version"]) > _release(routines.version):
        return None
    functions: list[str] = before["functions"]
    return functions


async def _replace(connection: asyncpg.Connection, routines: _Routines) -> bool:
    """Returns False if another process was faster."""
    known = await _known(connection, routines)
    if known is None:
        return False
    await connection.execute("set local search_path = pg_catalog")  # so that signatures include their schema
    await connection.execute(routines.text)
    written = [row["signature"] for row in await connection.fetch(_WRITTEN, _OF_SERVERS)]
    for signature in sorted(set(known) - set(written)):
        await _drop(connection, signature)
    # The operator grants the right to call a routine.
    await connection.execute("revoke all on all functions in schema mainspring from public")
    await connection.execute(
        """insert into mainspring.routines (version, hash, functions) values ($1, $2, $3)
           on conflict (only_row) do update set version = excluded.version, hash = excluded.hash,
               functions = excluded.functions, applied_at = excluded.applied_at""",
        routines.version,
        routines.digest,
        written,
    )
    return True


async def _drop(connection: asyncpg.Connection, signature: str) -> None:
    """Drop a routine of an earlier version. If a user's object depends on it, it stays, and the start continues."""
    try:
        async with connection.transaction():
            await connection.execute(f"drop function if exists {signature}")
    except asyncpg.DependentObjectsStillExistError as error:
        log.warning("a routine of an earlier version is still in use", routine=signature, used_by=error.detail)


def _release(version: str) -> tuple[int, ...]:
    found = _RELEASE.match(version)
    return tuple(int(number) for number in found.group().split(".")) if found else ()
