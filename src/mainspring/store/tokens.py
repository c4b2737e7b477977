"""Tokens, by hash."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.narrowing import Narrowing
from mainspring.kernel.ids import TenantId, uuid7
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("tokens")


class Principal(msgspec.Struct, frozen=True):
    """The tenant and role of a token, or of a session of this token. user_id: the person whose token it is; member_id:
    of a personal token, that of its member."""

    tenant: TenantId
    role: str
    name: str
    token_id: UUID
    session_id: UUID | None = None
    narrowing: Narrowing | None = None
    user_id: UUID | None = None
    member_id: UUID | None = None


class FoundToken(msgspec.Struct, frozen=True):
    """A valid token, and for how many more seconds it is valid. None means until it is revoked."""

    principal: Principal
    seconds_left: float | None


class TokenRow(msgspec.Struct, frozen=True):
    """A token without its secret. `tenant` is the name of its tenant, or None for a token of every tenant. `user_mail`:
    of the person whose personal token it is."""

    token_id: UUID
    tenant_id: TenantId
    tenant: str | None
    role: str
    name: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    narrowed_text: str | None
    user_mail: str | None

    @property
    def narrowing(self) -> Narrowing | None:
        return read_narrowing(self.narrowed_text)


_get_token = RowQuery(TokenRow, _SQL["get_token"])
_list_tokens = RowQuery(TokenRow, _SQL["list_tokens"])


def new_token() -> str:
    """A new token with 256 random bits."""
    return f"ms_{secrets.token_urlsafe(32)}"


def hash_token(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


async def insert(
    connection: Connection,
    tenant: TenantId,
    token: str,
    role: str,
    name: str,
    *,
    expires_in: float | None = None,
    narrowing: Narrowing | None = None,
    user_id: UUID | None = None,
    member_id: UUID | None = None,
) -> UUID:
    """Store a token. An existing one stays unchanged. Return the id of a new one. user_id, member_id: of a personal
    token."""
    token_id = uuid7()
    narrowed = None if narrowing is None else msgspec.json.encode(narrowing).decode()
    await connection.execute(
        _SQL["insert_token"], token_id, tenant, hash_token(token), role, name, expires_in, narrowed, user_id, member_id
    )
    return token_id


async def find(connection: Connection, token_hash: bytes) -> FoundToken | None:
    row = await connection.fetchrow(_SQL["find_token"], token_hash)
    if row is None:
        return None
    return FoundToken(principal_of(row), row["seconds_left"])


def principal_of(row: Any, session_id: UUID | None = None) -> Principal:
    return Principal(
        TenantId(row["tenant_id"]), row["role"], row["name"], row["token_id"], session_id,
        read_narrowing(row["narrowed_text"]), row["user_id"], row["member_id"],
    )  # fmt: skip


def read_narrowing(text: str | None) -> Narrowing | None:
    return None if text is None else msgspec.json.decode(text, type=Narrowing)


async def get(connection: Connection, tenants: list[TenantId], token_id: UUID) -> TokenRow | None:
    return await _get_token.first(connection, tenants, token_id)


async def list_tokens(connection: Connection, tenants: list[TenantId]) -> list[TokenRow]:
    """The tokens of these tenants: the valid ones first, then newest first."""
    return await _list_tokens.fetch(connection, tenants)


async def revoke(connection: Connection, token_id: UUID) -> bool:
    """Return False if it was revoked before."""
    return await connection.fetchval(_SQL["revoke_token"], token_id) is not None


async def other_admins(connection: Connection, tenant: TenantId, token_id: UUID) -> int:
    """How many valid admin tokens the tenant has besides this one."""
    count: int = await connection.fetchval(_SQL["other_admins"], tenant, token_id)
    return count


async def take_turn(connection: Connection) -> None:
    """Take a lock, so that only one transaction at a time checks for admins and creates or revokes one."""
    await connection.execute(_SQL["take_turn"])


async def has_admin(connection: Connection) -> bool:
    return bool(await connection.fetchval(_SQL["has_admin"]))
