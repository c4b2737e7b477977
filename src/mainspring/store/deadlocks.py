"""PostgreSQL ends one of two transactions that wait for each other (40P01). Nothing of it is stored, and it is
repeated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from mainspring.kernel.logs import get_logger

T = TypeVar("T")

log = get_logger("deadlocks")

_TRIES = 5


async def despite_deadlocks(transaction: Callable[[], Awaitable[T]]) -> T:
    """Run a whole transaction, again if PostgreSQL ended it because of a deadlock."""
    for _ in range(_TRIES - 1):
        try:
            return await transaction()
        except asyncpg.DeadlockDetectedError as error:
            log.info("deadlock: the transaction is repeated", error=repr(error))
    return await transaction()
