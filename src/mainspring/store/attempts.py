"""Attempts to sign in with a password, counted by what may try too often; and the browsers that are known."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.tokens import hash_token

KNOWN_FOR = 180 * 86400.0  # seconds for which a browser is known after a sign-in
MOST_KNOWN = 20  # browsers of a user; the newest
_MOST_DELETED = 100  # old rows at once: more than are inserted meanwhile

_SQL = load("users")


async def charge(connection: Connection, key: bytes, most: float, per_second: float) -> float | None:
    """Count an attempt. None if it is allowed, otherwise in how many seconds it will be."""
    if await connection.fetchval(_SQL["charge"], key, most, per_second) is not None:
        return None
    seconds: float | None = await connection.fetchval(_SQL["wait"], key, most, per_second)
    return seconds or 0.0


async def refund(connection: Connection, keys: Sequence[bytes]) -> None:
    """The attempts were none in vain."""
    await connection.execute(_SQL["refund"], list(keys))


async def delete_old(connection: Connection) -> None:
    await connection.execute(_SQL["delete_old_attempts"], _MOST_DELETED)


async def is_known(connection: Connection, secret: str, user_id: UUID) -> bool:
    """Whether the user has signed in in the browser with this secret before."""
    return await connection.fetchval(_SQL["see_browser"], hash_token(secret), user_id) is not None


async def make_known(connection: Connection, secret: str, user_id: UUID) -> None:
    """Of the browsers of the user the newest stay known."""
    await connection.execute(_SQL["insert_browser"], hash_token(secret), user_id)
    await connection.execute(_SQL["delete_surplus_browsers"], user_id, MOST_KNOWN)
    await connection.execute(_SQL["delete_old_browsers"], KNOWN_FOR, _MOST_DELETED)


async def forget_browsers(connection: Connection, user_id: UUID, *, but: str | None = None) -> None:
    """`but`: the secret of one that stays known."""
    await connection.execute(_SQL["forget_browsers"], user_id, None if but is None else hash_token(but))
