"""The tokens of the data folder (mode 0600). The first start creates them and stores their hashes in the database."""

from __future__ import annotations

import os
from pathlib import Path

from mainspring.domain.errors import InvalidInput, not_ours
from mainspring.kernel.config import TOKEN_FILE_NAME, WORKER_TOKEN_FILE_NAME
from mainspring.kernel.data_folder import record_folder
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.kernel.logs import get_logger
from mainspring.kernel.ownership import ForeignFile, read_own
from mainspring.operations.access.permissions import ADMIN, WORKER
from mainspring.operations.access.sessions import PAGE, make_link
from mainspring.store import tokens
from mainspring.store.database import Database
from mainspring.store.pool import Connection, connect

log = get_logger("token")


async def ensure_admin_token(
    database: str | Database, folder: Path, *, only_first: bool = False, trusted: bool = True
) -> str | None:
    """The admin token of `folder`. It is created if it is missing, and replaced if it was revoked.

    `only_first`: create one only if the database has no admin token at all, for a server that joins others. Returns
    None if none was created. `trusted`: if this is false, the folder can have come with a repository. Then a token in
    it counts only if the database has it already: the user who wrote the file would know the token of an admin.
    """
    file = folder / TOKEN_FILE_NAME
    connection = await connect(database, application="token")
    try:
        async with connection.transaction():
            await tokens.take_turn(connection)  # several servers can start at the same time
            if only_first and not file.exists() and await tokens.has_admin(connection):
                return None
            if (token := await _stored(connection, file, ADMIN, trusted)) is not None:
                return token
            if only_first and await tokens.has_admin(connection):
                return None
            return await _replaced(connection, file, ADMIN)
    finally:
        await connection.close()


async def ensure_worker_token(database: str | Database, folder: Path) -> str:
    """The token of the worker that `mainspring up` starts. It may only do what workers do, in the tenant default."""
    file = folder / WORKER_TOKEN_FILE_NAME
    connection = await connect(database, application="token")
    try:
        async with connection.transaction():
            await tokens.take_turn(connection)
            return await _stored(connection, file, WORKER) or await _replaced(connection, file, WORKER)
    finally:
        await connection.close()


def remember_folder(folder: Path, *, named: bool) -> None:
    """Let commands find the data folder without being told. Where that is not possible they have to be told, also the
    next start, unless it is told anyway."""
    try:
        record_folder(folder)
    except OSError as error:
        say = log.detail if named else log.warning
        say(
            "the data folder is not recorded: commands and the next start need --data or MAINSPRING_DATA",
            folder=str(folder), reason=str(error),
        )  # fmt: skip


async def sign_in_path(database: str | Database, token: str) -> str:
    """The path of the dashboard that signs in as this token, once. If the token was revoked meanwhile, without that."""
    connection = await connect(database, application="token")
    try:
        found = await tokens.find(connection, tokens.hash_token(token))
        return PAGE if found is None else (await make_link(connection, found.principal.token_id)).path
    finally:
        await connection.close()


async def _stored(connection: Connection, file: Path, role: str, trusted: bool = True) -> str | None:
    """The token in the file, stored in the database. None if it was revoked, is there with another role, or is not to
    be trusted."""
    token = _read(file, follow=trusted)
    if token is None:
        _make(file)
        token, trusted = _needed(file), True
    if trusted:
        await tokens.insert(connection, DEFAULT_TENANT, token, role, role)
    found = await tokens.find(connection, tokens.hash_token(token))
    if found is None and not trusted:
        log.warning("the database does not know the token of this folder, which was only found", file=str(file))
    return token if found is not None and found.principal.role == role else None


async def _replaced(connection: Connection, file: Path, role: str) -> str:
    # Who can start a server has access to the database. Refusing would only make them remove the file.
    log.warning(f"the {role} token of this folder is not valid; creating a new one", file=str(file))
    _make(file)
    token = _needed(file)
    await tokens.insert(connection, DEFAULT_TENANT, token, role, role)
    return token


def _make(file: Path) -> None:
    """Create the file together with its content. Another server can read it at any time, and an empty file would be an
    empty token, which anyone can guess."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{uuid7()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as opened:
        opened.write(f"{tokens.new_token()}\n")
        opened.flush()
        os.fsync(handle)
    draft.replace(file)


def _read(file: Path, *, follow: bool = True) -> str | None:
    """Another user who has put a token there would know it, so only files of our own are read."""
    try:
        content = read_own(file.parent, file.name, follow=follow)
    except ForeignFile as error:
        raise not_ours(error) from None
    if content is None:
        return None
    token = content.decode("utf-8", "replace").strip()
    if not token:
        raise InvalidInput(f"{file} is empty. Remove it. The next start creates a new token.", field="data")
    return token


def _needed(file: Path) -> str:
    token = _read(file)
    if token is None:
        raise InvalidInput(f"{file} was removed while it was written. Start again.", field="data")
    return token
