"""Detects stalls of the machine: a noisy neighbour, a disk that hangs, a virtual machine that was paused."""

from __future__ import annotations

import threading
import time
from typing import Self

_TICK = 0.05
_STALL = 0.3  # a thread that wakes up later than this was blocked by the machine


class StallWatch:
    """A thread that wakes up twenty times a second and records when it could not. The guarantees about time do not
    apply to these periods. All others do."""

    def __init__(self) -> None:
        self.windows: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stall-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def stood_still(self) -> float:
        """The total seconds of all stalls so far."""
        return sum(over - begin for begin, over in self.windows)

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._over.wait(_TICK):
            now = time.monotonic()
            if now - last > _TICK + _STALL:
                self.windows.append((last, now))
            last = now
