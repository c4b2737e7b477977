"""People as providers of OpenID Connect know them, and which sign-ins there were answered."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery
from mainspring.store.tokens import hash_token

_MOST_DELETED = 100  # old rows at once: more than are inserted meanwhile

_SQL = load("identities")


class IdentityRow(msgspec.Struct, frozen=True):
    """granted: the tenants that the user is in because of groups at the provider."""

    user_id: UUID
    granted: list[TenantId]


_find = RowQuery(IdentityRow, _SQL["find_identity"])


async def find(connection: Connection, issuer: str, subject: str) -> IdentityRow | None:
    return await _find.first(connection, issuer, subject)


async def has_some(connection: Connection, user_id: UUID, issuer: str | None = None) -> bool:
    """Whether the user signs in at this provider, or at any."""
    return await connection.fetchval(_SQL["has_identity"], user_id, issuer) is not None


async def insert(connection: Connection, issuer: str, subject: str, user_id: UUID) -> bool:
    """Return False if there is one of this person, or another one of the user at this provider."""
    return await connection.fetchval(_SQL["insert_identity"], issuer, subject, user_id) is not None


async def set_granted(
    connection: Connection, issuer: str, subject: str, user_id: UUID, tenants: Sequence[TenantId]
) -> bool:
    return await connection.fetchval(_SQL["set_granted"], issuer, subject, user_id, list(tenants)) is not None


async def delete_of(connection: Connection, user_id: UUID) -> None:
    await connection.execute(_SQL["delete_identities"], user_id)


async def answer(connection: Connection, secret: str, seconds: float) -> bool:
    """Record that the sign-in with this secret was answered. Return False if it was before. `seconds`: how old it can
    be."""
    await connection.execute(_SQL["delete_answered_sign_ins"], 2 * seconds, _MOST_DELETED)
    return await connection.fetchval(_SQL["answer_sign_in"], hash_token(secret)) is not None


async def make_fresh(connection: Connection, session_id: UUID, seconds: float) -> None:
    await connection.fetchval(_SQL["make_fresh"], session_id, seconds)


async def is_fresh(connection: Connection, session_id: UUID) -> bool:
    """Whether the person has just proved at the provider who it is."""
    return await connection.fetchval(_SQL["is_fresh"], session_id) is not None
