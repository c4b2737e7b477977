"""People: users, what they are in tenants, and the links that are sent to them."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId, uuid7
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery
from mainspring.store.tokens import TokenRow, hash_token

NEW_PASSWORD = TenantId(0)  # in place of a tenant: the link is for a new password

_SQL = load("users")


class UserRow(msgspec.Struct, frozen=True):
    user_id: UUID
    mail: str
    name: str
    password_hash: str | None
    password_at: datetime | None
    disabled_at: datetime | None
    created_at: datetime


class PlaceRow(msgspec.Struct, frozen=True):
    """A tenant that a user is in. token_id: of the member; None if the user is only invited, until `invited_until`.
    name, created_at: what the user is called there, and since when."""

    user_id: UUID
    mail: str
    name: str
    disabled_at: datetime | None
    created_at: datetime
    tenant_id: TenantId
    tenant: str
    role: str
    token_id: UUID | None
    invited_until: datetime | None


class MemberRow(msgspec.Struct, frozen=True):
    token_id: UUID
    tenant_id: TenantId
    tenant: str
    role: str
    name: str


class UserLinkRow(msgspec.Struct, frozen=True):
    """tenant, role: None in a link for a new password."""

    user_id: UUID
    tenant_id: TenantId
    tenant: str | None
    name: str
    role: str | None
    mail: str
    password_hash: str | None
    disabled_at: datetime | None


_of_mail = RowQuery(UserRow, _SQL["user_of_mail"])
_get = RowQuery(UserRow, _SQL["get_user"])
_lock = RowQuery(UserRow, _SQL["lock_user"])
_places = RowQuery(PlaceRow, _SQL["places"])
_members = RowQuery(MemberRow, _SQL["members_of"])
_lock_member = RowQuery(MemberRow, _SQL["lock_member"])
_link = RowQuery(UserLinkRow, _SQL["find_link"])
_invitations = RowQuery(UserLinkRow, _SQL["invitations_of"])
_own_tokens = RowQuery(TokenRow, _SQL["own_tokens"])


async def ensure(connection: Connection, mail: str, name: str) -> UserRow:
    """The user with this mail address, who is created if there is none. Locked until the transaction ends."""
    await connection.execute(_SQL["insert_user"], uuid7(), mail, name)
    row = await _of_mail.first(connection, mail)
    assert row is not None
    locked = await lock(connection, row.user_id)
    return row if locked is None else locked


async def of_mail(connection: Connection, mail: str) -> UserRow | None:
    return await _of_mail.first(connection, mail)


async def get(connection: Connection, user_id: UUID) -> UserRow | None:
    return await _get.first(connection, user_id)


async def lock(connection: Connection, user_id: UUID) -> UserRow | None:
    return await _lock.first(connection, user_id)


async def share(connection: Connection, user_id: UUID, password_hash: str) -> bool:
    """Whether the user may still sign in with this password. It stays so until the transaction ends."""
    return await connection.fetchval(_SQL["share_user"], user_id, password_hash) is not None


async def set_password(connection: Connection, user_id: UUID, new: str, old: str | None) -> bool:
    """Return False if the password is not `old` any more."""
    return await connection.fetchval(_SQL["set_password"], user_id, new, old) is not None


async def drop_password(connection: Connection, user_id: UUID) -> bool:
    """It signs in no more. Return False if there was none."""
    return await connection.fetchval(_SQL["drop_password"], user_id) is not None


async def set_disabled(connection: Connection, user_id: UUID, disabled: bool) -> bool:
    """Return False if it was so before."""
    return await connection.fetchval(_SQL["set_disabled"], user_id, disabled) is not None


async def delete(connection: Connection, user_id: UUID) -> bool:
    """Return False if the user is in a tenant, or invited to one."""
    return await connection.fetchval(_SQL["delete_user"], user_id) is not None


async def places(
    connection: Connection, tenants: Sequence[TenantId] | None, limit: int,
    *, user_id: UUID | None = None, mail: str | None = None,
) -> list[PlaceRow]:  # fmt: skip
    """The tenants of users, by mail address. `tenants`: only these; None: all."""
    return await _places.fetch(connection, None if tenants is None else list(tenants), user_id, mail, limit)


async def members_of(connection: Connection, user_id: UUID) -> list[MemberRow]:
    return await _members.fetch(connection, user_id)


async def lock_member(connection: Connection, user_id: UUID, tenant: TenantId) -> MemberRow | None:
    return await _lock_member.first(connection, user_id, tenant)


async def put_member(
    connection: Connection, user_id: UUID, tenant: TenantId, role: str, name: str
) -> UUID:  # fmt: skip
    """Make the user a member of the tenant. The secret of the row is thrown away."""
    nobodys = hashlib.sha256(secrets.token_bytes(32)).digest()
    token_id: UUID = await connection.fetchval(_SQL["put_member"], uuid7(), tenant, nobodys, role, name, user_id)
    return token_id


async def set_member_role(connection: Connection, token_id: UUID, role: str) -> bool:
    """Return False if the member has the role already."""
    return await connection.fetchval(_SQL["set_member_role"], token_id, role) is not None


async def revoke_of(connection: Connection, user_id: UUID, tenants: Sequence[TenantId] | None) -> int:
    """End what the user is in these tenants, and the personal tokens. Returns how many tokens that were."""
    return len(await connection.fetch(_SQL["revoke_of_user"], user_id, None if tenants is None else list(tenants)))


async def revoke_personal(
    connection: Connection, user_id: UUID, tenant: TenantId | None = None, *, keep: Sequence[str] = ()
) -> int:
    """Revoke personal tokens, except those with one of these roles. Returns how many."""
    return len(await connection.fetch(_SQL["revoke_personal"], user_id, tenant, list(keep)))


async def revoke_own(connection: Connection, token_id: UUID, member_id: UUID) -> bool:
    """Return False if it was revoked before."""
    return await connection.fetchval(_SQL["revoke_own"], token_id, member_id) is not None


async def own_tokens(connection: Connection, member_id: UUID, user_id: UUID) -> list[TokenRow]:
    return await _own_tokens.fetch(connection, member_id, user_id)


async def end_sessions(
    connection: Connection, user_id: UUID, tenants: Sequence[TenantId] | None = None, *, but: UUID | None = None
) -> int:
    """End the sessions of the user, and the links that begin some. Returns how many sessions."""
    await connection.execute(_SQL["delete_own_links"], user_id)
    ended = await connection.fetch(_SQL["end_sessions"], user_id, None if tenants is None else list(tenants), but)
    return len(ended)


async def put_link(
    connection: Connection, user_id: UUID, tenant: TenantId, name: str, role: str | None, code: str, seconds: float
) -> datetime:
    """Store a link, in place of an earlier one for the same. Return when it expires."""
    until: datetime = await connection.fetchval(
        _SQL["put_link"], user_id, tenant, name, role, hash_token(code), seconds
    )
    return until


async def find_link(connection: Connection, code: str) -> UserLinkRow | None:
    return await _link.first(connection, hash_token(code))


async def invitations_of(connection: Connection, user_id: UUID) -> list[UserLinkRow]:
    """Those that the user can accept."""
    return await _invitations.fetch(connection, user_id)


async def take_link(connection: Connection, code: str) -> bool:
    """Return False if it was taken before, or has expired."""
    return await connection.fetchval(_SQL["take_link"], hash_token(code)) is not None


async def drop_links(connection: Connection, user_id: UUID, tenants: Sequence[TenantId] | None = None) -> int:
    """Delete links of the user. Returns how many."""
    return len(await connection.fetch(_SQL["drop_links"], user_id, None if tenants is None else list(tenants)))
