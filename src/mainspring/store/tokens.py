"""Tokens, by hash."""

from __future__ import annotations

import hashlib

import msgspec

from mainspring.kernel.ids import TenantId, uuid7
from mainspring.store.pool import Connection
from mainspring.store.queries import load

_SQL = load("tokens")


class Principal(msgspec.Struct, frozen=True):
    """Who a token stands for."""

    tenant: TenantId
    role: str
    name: str


def hash_token(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


async def insert(connection: Connection, tenant: TenantId, token: str, role: str, name: str) -> None:
    await connection.execute(_SQL["insert_token"], uuid7(), tenant, hash_token(token), role, name)


async def find(connection: Connection, token_hash: bytes) -> Principal | None:
    row = await connection.fetchrow(_SQL["find_token"], token_hash)
    return None if row is None else Principal(TenantId(row["tenant_id"]), row["role"], row["name"])


async def take_turn(connection: Connection) -> None:
    """One transaction at a time may look for an admin and make one."""
    await connection.execute(_SQL["take_turn"])


async def has_admin(connection: Connection) -> bool:
    return bool(await connection.fetchval(_SQL["has_admin"]))
