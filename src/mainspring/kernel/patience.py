"""For how long a submission waits while PostgreSQL is away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass

OUTAGE_BUDGET = 15.0  # seconds


@dataclass(frozen=True, slots=True)
class OutagePatience:
    """Of one request. `until` is a time of the event loop. `size`: about how many bytes wait. `is_known`: whether its
    token was valid before. `is_gone` says whether the client has closed its connection; it may be called once the body
    is read."""

    until: float
    size: Callable[[], int]
    is_known: Callable[[], bool]
    is_gone: Callable[[], Awaitable[bool]]


class ClientGone(Exception):
    """The client has closed the connection before its request was carried out. Nothing is written for it."""


# That of the request of this context. None: it does not wait.
patience_here: ContextVar[OutagePatience | None] = ContextVar("patience", default=None)
