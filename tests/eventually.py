"""Polling of another process, which cannot wake a test."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 300.0  # ends a test that hangs


def until(holds: Callable[[], bool]) -> None:
    """Check again and again until it holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.02)
