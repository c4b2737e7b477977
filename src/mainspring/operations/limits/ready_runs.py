"""Makes waiting runs ready, with the payloads that they have got. Those with limits then stand in a line."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.operations.lifecycle.effects import Effects, check_count
from mainspring.operations.limits.effects import LimitEffects
from mainspring.store import joins
from mainspring.store.joins import Ready
from mainspring.store.pool import Connection


async def make_ready(
    connection: Connection, plain: Sequence[Ready], limited: Sequence[Ready], effects: Effects
) -> None:
    """The caller has locked the runs as WAITING. Raises Conflict if one is not."""
    if plain:
        lanes = await joins.make_ready(connection, plain)
        check_count(len(lanes), len(plain))
        effects.ready.update(lanes)
    if limited:
        lines = await joins.hold_ready(connection, limited)
        check_count(len(lines), len(limited))
        effects.of(LimitEffects).wake(lines)
