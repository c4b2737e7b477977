"""The caller of an operation. The edge creates a Caller from the token and hands it to every operation."""

from __future__ import annotations

from uuid import UUID

import msgspec

from mainspring.domain.narrowing import Narrowing
from mainspring.kernel.ids import DEFAULT_TENANT, TenantId


class Caller(msgspec.Struct, frozen=True):
    """`credential` is the token that made the call, or whose `session` made it; `address` is the network peer.
    `secret_hash`: the hash of the secret with which a worker proves its incarnation. `narrowing`: what the token
    reaches of the tenant; None for everything that its role allows. `client`: the program, as it calls itself.
    `operation`: that of the request; None for a part of one whose entry the audit has already. `user`: the person, of
    whom the token is; `member`: of a personal token, what the person is in the tenant."""

    tenant: TenantId
    role: str
    name: str
    credential: UUID
    address: str | None = None
    secret_hash: bytes | None = None
    session: UUID | None = None
    narrowing: Narrowing | None = None
    client: str | None = None
    operation: str | None = None
    user: UUID | None = None
    member: UUID | None = None

    @property
    def owner(self) -> UUID:
        """Whose jobs and runs are the caller's own: those of its token, or of the person."""
        return self.credential if self.member is None else self.member

    @property
    def created_by(self) -> UUID | None:
        """What is stored as the creator of what the caller creates. None: of no token."""
        return self.owner if self.owner.int else None

    @property
    def reaches_all(self) -> bool:
        """Whether the token reaches all jobs and runs of the tenant."""
        return self.narrowing is None or not self.narrowing.of_objects

    @property
    def is_instance_admin(self) -> bool:
        """Whether the caller is above tenants: an admin of the tenant `default` whose token is not narrowed."""
        return self.tenant == DEFAULT_TENANT and self.role == "admin" and self.narrowing is None
