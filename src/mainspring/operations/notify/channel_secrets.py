"""The one place that resolves the secret fields of a channel before a message is sent."""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.kernel.ids import TenantId
from mainspring.store import channels
from mainspring.store.pool import Connection


async def resolved_secrets(connection: Connection, tenant: TenantId, name: str) -> Mapping[str, str]:
    """The values of the secret fields of a channel. A reference to a secret by its name would be resolved here."""
    return await channels.secrets(connection, tenant, name)
