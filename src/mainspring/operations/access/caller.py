"""The caller of an operation. The edge creates a Caller from the token and hands it to every operation."""

from __future__ import annotations

from uuid import UUID

import msgspec

from mainspring.kernel.ids import DEFAULT_TENANT, TenantId


class Caller(msgspec.Struct, frozen=True):
    """`credential` is the token that made the call, or whose `session` made it; `address` is the network peer.
    `secret_hash`: the hash of the secret with which a worker proves its incarnation."""

    tenant: TenantId
    role: str
    name: str
    credential: UUID
    address: str | None = None
    secret_hash: bytes | None = None
    session: UUID | None = None

    @property
    def is_instance_admin(self) -> bool:
        """Whether the caller is above tenants: an admin of the tenant `default`."""
        return self.tenant == DEFAULT_TENANT and self.role == "admin"
