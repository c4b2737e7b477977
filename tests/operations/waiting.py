"""Waits for a condition without a fixed sleep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def until(condition: Callable[[], bool | Awaitable[bool]], seconds: float = 60.0) -> None:
    """Yield to other tasks until `condition` holds. Raises TimeoutError if it never does."""
    turns = 0
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            turns += 1
            # After many turns it probably waits for another process, so this one sleeps for a moment.
            await asyncio.sleep(0 if turns < 200 else 0.002)
