"""Waiting for a moment without sleeping through it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def until(condition: Callable[[], bool | Awaitable[bool]], seconds: float = 60.0) -> None:
    """Give way to the others until `condition` holds; a TimeoutError when it never does."""
    turns = 0
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            turns += 1
            # After many turns it waits for another process, which needs the processor more than we do.
            await asyncio.sleep(0 if turns < 200 else 0.002)
