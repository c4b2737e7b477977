"""Routines: the functions of routines/*.sql, such as `mainspring.submit`. They are replaced when their text changes.

Grants survive that, because a function is replaced and not dropped. A function whose parameters or result change gets a
new name, or the file drops it first. Servers of several versions may start side by side: the routines of the newest
version stay.
"""

from __future__ import annotations

import hashlib
import re
from functools import partial
from importlib.resources import files

import asyncpg

from mainspring.kernel.logs import get_logger
from mainspring.kernel.version import VERSION
from mainspring.store.ddl_transaction import LockPatience, in_ddl_transaction
from mainspring.store.queries import render

_RELEASE = re.compile(r"\d+(?:\.\d+)*")
# Functions that this transaction has created or replaced.
_WRITTEN = """
select p.oid::regprocedure::text as signature from pg_proc p
where p.pronamespace = 'mainspring'::regnamespace and p.xmin = pg_current_xact_id()::xid
order by 1
"""

log = get_logger("migrate")


def read_routines() -> str:
    """All routines as one text, with constants and fragments filled in."""
    folder = files("mainspring.store") / "routines"
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return "\n".join(render(file.read_text(encoding="utf-8")) for file in found)


async def load_routines(
    connection: asyncpg.Connection, patience: LockPatience, *, text: str | None = None, version: str = VERSION
) -> bool:
    """Replace the routines if they differ from these and are not of a newer version. Return whether they were replaced.
    Only one process may call this at a time."""
    text = read_routines() if text is None else text
    digest = hashlib.sha256(text.encode()).hexdigest()
    before = await connection.fetchrow("select version, hash, functions from mainspring.routines")
    if before is not None and (before["hash"] == digest or _release(before["version"]) > _release(version)):
        return False
    known: list[str] = [] if before is None else before["functions"]
    await in_ddl_transaction(
        connection, "loading routines", partial(_replace, connection, text, digest, version, known), patience
    )
    return True


async def _replace(connection: asyncpg.Connection, text: str, digest: str, version: str, known: list[str]) -> None:
    await connection.execute("set local search_path = pg_catalog")  # so that signatures include their schema
    await connection.execute(text)
    written = [row["signature"] for row in await connection.fetch(_WRITTEN)]
    for signature in sorted(set(known) - set(written)):
        await _drop(connection, signature)
    # The operator grants the right to call a routine.
    await connection.execute("revoke all on all functions in schema mainspring from public")
    await connection.execute(
        """insert into mainspring.routines (version, hash, functions) values ($1, $2, $3)
           on conflict (only_row) do update set version = excluded.version, hash = excluded.hash,
               functions = excluded.functions, applied_at = excluded.applied_at""",
        version,
        digest,
        written,
    )


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
