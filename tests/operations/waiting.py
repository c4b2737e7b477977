"""Waiting for a moment without sleeping through it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def until(condition: Callable[[], bool | Awaitable[bool]], seconds: float = 60.0) -> None:
    """Give way to the others until `condition` holds; a TimeoutError when it never does."""
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0)
