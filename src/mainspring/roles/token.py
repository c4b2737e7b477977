"""The admin token: made at the first start, kept in the data folder (0600), its hash in the database."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from mainspring.kernel.config import TOKEN_FILE_NAME
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.store import tokens
from mainspring.store.pool import connect


async def ensure_admin_token(database_url: str, folder: Path, *, only_first: bool = False) -> str | None:
    """The admin token of `folder`, made if it is missing and made known to the database.

    `only_first`: make one only if the database has no admin at all (a server that joins others); None if not made.
    """
    file = folder / TOKEN_FILE_NAME
    connection = await connect(database_url, application="token")
    try:
        if only_first and not file.exists() and await tokens.has_admin(connection):
            return None
        token = _read_or_make(file)
        await tokens.insert(connection, DEFAULT_TENANT, token, "admin", "admin")
    finally:
        await connection.close()
    return token


def _read_or_make(file: Path) -> str:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return file.read_text(encoding="utf-8").strip()
    token = f"ms_{secrets.token_urlsafe(32)}"  # 256 random bits
    with os.fdopen(handle, "w", encoding="utf-8") as opened:
        opened.write(token + "\n")
    return token
