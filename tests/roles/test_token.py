"""The admin token when several servers start at once: exactly one is created, and all servers use it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.config import TOKEN_FILE_NAME
from mainspring.roles.token import ensure_admin_token
from mainspring.store import tokens

pytestmark = pytest.mark.anyio
TOGETHER = 12


@pytest.fixture
async def without_admin(database_url: str, connection: asyncpg.Connection) -> str:
    await connection.execute("delete from mainspring.tokens")
    return database_url


async def known(connection: asyncpg.Connection) -> list[bytes]:
    return [row["token_hash"] for row in await connection.fetch("select token_hash from mainspring.tokens")]


async def test_servers_on_one_folder_share_one_token(
    without_admin: str, connection: asyncpg.Connection, tmp_path: Path
) -> None:
    starts = [ensure_admin_token(without_admin, tmp_path, only_first=True) for _ in range(TOGETHER)]
    [token] = set(await asyncio.gather(*starts))
    assert token and token == (tmp_path / TOKEN_FILE_NAME).read_text().strip()
    assert await known(connection) == [tokens.hash_token(token)]
    assert [file.name for file in tmp_path.iterdir()] == [TOKEN_FILE_NAME]
    assert (tmp_path / TOKEN_FILE_NAME).stat().st_mode & 0o777 == 0o600


async def test_of_servers_on_folders_of_their_own_one_makes_a_token(
    without_admin: str, connection: asyncpg.Connection, tmp_path: Path
) -> None:
    starts = [ensure_admin_token(without_admin, tmp_path / str(n), only_first=True) for n in range(TOGETHER)]
    made = [token for token in await asyncio.gather(*starts) if token is not None]
    assert len(made) == 1
    assert await known(connection) == [tokens.hash_token(made[0])]


async def test_an_empty_file_is_no_token(without_admin: str, connection: asyncpg.Connection, tmp_path: Path) -> None:
    (tmp_path / TOKEN_FILE_NAME).touch()
    with pytest.raises(InvalidInput, match=r"is empty\. Remove it"):
        await ensure_admin_token(without_admin, tmp_path)
    assert await known(connection) == []


async def test_a_token_that_was_revoked_is_made_anew_at_the_next_start(
    without_admin: str, connection: asyncpg.Connection, tmp_path: Path
) -> None:
    """Otherwise `mainspring up` would start a worker whose token is rejected."""
    token = await ensure_admin_token(without_admin, tmp_path)
    assert token is not None
    assert await ensure_admin_token(without_admin, tmp_path) == token, "valid, so it stays"
    await connection.execute("update mainspring.tokens set revoked_at = clock_timestamp()")
    another = await ensure_admin_token(without_admin, tmp_path)
    assert another is not None and another != token
    assert another == (tmp_path / TOKEN_FILE_NAME).read_text().strip()
    assert (tmp_path / TOKEN_FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert await tokens.find(connection, tokens.hash_token(token)) is None, "revoked for good"
    assert await tokens.find(connection, tokens.hash_token(another)) is not None


async def test_a_server_that_joins_others_makes_none_in_its_place(
    without_admin: str, connection: asyncpg.Connection, tmp_path: Path
) -> None:
    token = await ensure_admin_token(without_admin, tmp_path, only_first=True)
    assert token is not None
    await connection.execute("update mainspring.tokens set revoked_at = clock_timestamp()")
    elsewhere = await ensure_admin_token(without_admin, tmp_path / "other", only_first=True)
    assert elsewhere is not None
    assert await ensure_admin_token(without_admin, tmp_path, only_first=True) is None
    assert (tmp_path / TOKEN_FILE_NAME).read_text().strip() == token
    assert set(await known(connection)) == {tokens.hash_token(token), tokens.hash_token(elsewhere)}
