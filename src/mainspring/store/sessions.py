"""Sessions of browsers and the links that open them, by hash."""

from __future__ import annotations

import secrets
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId, uuid7
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery
from mainspring.store.tokens import FoundToken, Principal, hash_token, principal_of

LONGEST = 7 * 86400.0  # seconds from sign-in to the end of a session
IDLE = 12 * 3600.0  # seconds without a request after which it ends
LINK_LIFE = 300.0
_TOUCH = 300.0  # seconds; a use is stored once in this time

_SQL = load("sessions")


class SessionRow(msgspec.Struct, frozen=True):
    session_id: UUID
    created_at: datetime
    expires_at: datetime


class OpenSessionRow(msgspec.Struct, frozen=True):
    """ends_at: if it is not used any more."""

    session_id: UUID
    token_id: UUID
    name: str
    role: str
    created_at: datetime
    seen_at: datetime
    ends_at: datetime


_list_sessions = RowQuery(OpenSessionRow, _SQL["list_sessions"])
_end_of_tenant = RowQuery(OpenSessionRow, _SQL["end_session_of_tenant"])
_get_session = RowQuery(SessionRow, _SQL["get_session"])


def new_secret() -> str:
    """A secret of a session, or the code of a link: 256 random bits."""
    return secrets.token_urlsafe(32)


async def insert_link(connection: Connection, token_id: UUID, code: str) -> datetime:
    """Store a link that signs in as this token, once. Return when it expires."""
    await connection.execute(_SQL["delete_expired_links"])
    until: datetime = await connection.fetchval(_SQL["insert_link"], hash_token(code), token_id, LINK_LIFE)
    return until


async def use_link(connection: Connection, code: str, *, preview: bool = False) -> Principal | None:
    """The token of the link, which does not work again, unless this is a preview. None if there is no such link, or the
    link or the token has ended."""
    statement = _SQL["get_link"] if preview else _SQL["use_link"]
    row = await connection.fetchrow(statement, hash_token(code))
    if row is None:
        return None
    return principal_of(row)


async def insert(connection: Connection, token_id: UUID, secret: str, seconds: float = LONGEST) -> UUID | None:
    """Begin a session of this token. None if the token is not valid any more."""
    await connection.execute(_SQL["delete_expired_sessions"])
    session_id: UUID | None = await connection.fetchval(
        _SQL["insert_session"], uuid7(), hash_token(secret), token_id, seconds
    )
    return session_id


async def find(connection: Connection, secret_hash: bytes) -> FoundToken | None:
    """The rights of a session that has not ended. This is a use of it."""
    row = await connection.fetchrow(_SQL["find_session"], secret_hash, IDLE, _TOUCH)
    if row is None:
        return None
    if row["unseen"]:
        await connection.execute(_SQL["touch_session"], row["session_id"], _TOUCH)
    return FoundToken(principal_of(row, row["session_id"]), row["seconds_left"])


async def get(connection: Connection, session_id: UUID) -> SessionRow | None:
    return await _get_session.first(connection, session_id)


async def seconds_left(connection: Connection, session_id: UUID) -> float:
    """Until the session ends, however much it is used. 0 if it has ended."""
    left: float | None = await connection.fetchval(_SQL["seconds_left"], session_id)
    return max(0.0, left or 0.0)


async def open_of(connection: Connection, tenant: TenantId, limit: int) -> list[OpenSessionRow]:
    """The sessions of a tenant that have not ended, newest first."""
    return await _list_sessions.fetch(connection, tenant, IDLE, limit)


async def end_of(connection: Connection, tenant: TenantId, session_id: UUID) -> OpenSessionRow | None:
    """End a session of the tenant. None if it has none with this id, or it had ended before."""
    return await _end_of_tenant.first(connection, tenant, session_id)


async def end(connection: Connection, session_id: UUID) -> bool:
    """Return False if it had ended before."""
    return await connection.fetchval(_SQL["end_session"], session_id) is not None
