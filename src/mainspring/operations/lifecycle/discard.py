"""Discard: delete dead letters. Their runs have ended and stay in the history."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from mainspring.kernel.ids import TenantId
from mainspring.store import dead_letters
from mainspring.store.pool import Connection


async def discard(connection: Connection, tenant: TenantId, run_ids: Sequence[UUID]) -> int:
    """Return how many were deleted."""
    return await dead_letters.discard(connection, tenant, run_ids)
