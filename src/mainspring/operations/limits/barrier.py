"""Waits until every claim has ended that may not know of a change.

A claim reads the revision of the gates when its transaction begins. So one that begins after the commit of a change
knows it, and only the transactions that are open now may not.
"""

from __future__ import annotations

import asyncio

from mainspring.domain.errors import Unavailable
from mainspring.kernel.clock import Clock
from mainspring.store import gates
from mainspring.store.pool import Store

_LOOK = 0.005  # seconds between looks
_MOST = 10.0  # seconds. PostgreSQL ends a transaction of a server that stands still after two.


async def wait_for_older_claims(store: Store, clock: Clock) -> None:
    """The caller has committed a change. Raises Unavailable if a claim from before takes too long."""
    until = clock.monotonic() + _MOST
    async with store.reads.acquire() as connection:
        left = await gates.hot_transactions(connection)
        while left:
            left = await gates.still_open(connection, left)
            if not left:
                return
            if clock.monotonic() > until:
                raise Unavailable(
                    "the change is stored, but a claim from before it is still under way",
                    code="unavailable", hint="send the request again to make sure",
                )  # fmt: skip
            await asyncio.sleep(_LOOK)
