"""Waiting for a server in another process."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 60.0


def until(holds: Callable[[], bool]) -> None:
    """Look again and again, until it holds. Fails after a minute."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.02)
