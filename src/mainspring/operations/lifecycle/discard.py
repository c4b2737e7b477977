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


async def discard_of_steps(
    connection: Connection, tenant: TenantId, first: UUID, last: UUID, places: Sequence[int], most: int
) -> int:
    """Discard the dead letters of some steps, by their places, of a workflow run: those from `first` to `last`."""
    return await dead_letters.discard_of_steps(connection, tenant, first, last, places, most)
