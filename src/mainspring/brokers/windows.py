"""Sends events side by side, and those of a job one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from mainspring.domain.sinks.cloud_events import CloudEvent, NotTaken, windows

_WINDOW = 100
_SHOWN = 300


async def send_windows(
    events: Sequence[CloudEvent], publish: Callable[[CloudEvent], Awaitable[object]], secrets: Mapping[str, str]
) -> int:
    """`publish` returns when the broker has stored an event. Raises NotTaken with the number of those before the first
    one that failed."""
    taken = 0
    for window in windows(events, _WINDOW):
        results = await asyncio.gather(*map(publish, window), return_exceptions=True)
        for index, result in enumerate(results):
            if isinstance(result, BaseException):
                if not isinstance(result, Exception):
                    raise result
                raise NotTaken(in_words(result, secrets), taken + index) from None
        taken += len(window)
    return taken


def in_words(error: BaseException, secrets: Mapping[str, str]) -> str:
    """What a library says, on one line and without secrets."""
    said = " ".join("".join(one if one.isprintable() else " " for one in str(error)).split())
    for value in secrets.values():
        said = said.replace(value, "***")
    name = type(error).__name__
    return f"{name}: {said}"[:_SHOWN] if said else name
