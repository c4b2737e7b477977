"""The admin token. The first start creates it in the data folder (mode 0600) and stores its hash in the database."""

from __future__ import annotations

import os
from pathlib import Path

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.config import TOKEN_FILE_NAME
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.kernel.logs import get_logger
from mainspring.store import tokens
from mainspring.store.pool import connect

log = get_logger("token")


async def ensure_admin_token(database_url: str, folder: Path, *, only_first: bool = False) -> str | None:
    """The admin token of `folder`. It is created if it is missing, and replaced if it was revoked.

    `only_first`: create one only if the database has no admin token at all, for a server that joins others. Returns
    None if none was created.
    """
    file = folder / TOKEN_FILE_NAME
    connection = await connect(database_url, application="token")
    try:
        async with connection.transaction():
            await tokens.take_turn(connection)  # several servers can start at the same time
            if only_first and not file.exists() and await tokens.has_admin(connection):
                return None
            token = _read_or_make(file)
            await tokens.insert(connection, DEFAULT_TENANT, token, "admin", "admin")
            if await tokens.find(connection, tokens.hash_token(token)) is not None:
                return token
            if only_first and await tokens.has_admin(connection):
                return None
            # Who can start a server has access to the database. Refusing would only make them remove the file.
            log.warning("the admin token of this folder was revoked; creating a new one", file=str(file))
            _make(file)
            token = _read_or_make(file)
            await tokens.insert(connection, DEFAULT_TENANT, token, "admin", "admin")
    finally:
        await connection.close()
    return token


def _make(file: Path) -> None:
    """Create the file together with its content. Another server can read it at any time, and an empty file would be an
    empty token, which everybody can guess."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{uuid7()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as opened:
        opened.write(f"{tokens.new_token()}\n")
        opened.flush()
        os.fsync(handle)
    draft.replace(file)


def _read_or_make(file: Path) -> str:
    if not file.exists():
        _make(file)
    token = file.read_text(encoding="utf-8").strip()
    if not token:
        raise InvalidInput(f"{file} is empty. Remove it. The next start creates a new token.", field="data")
    return token
