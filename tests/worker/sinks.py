"""A log sink that keeps what it gets, and is full when the test says so."""

from __future__ import annotations

import asyncio

from mainspring.worker.execution.attempt import Attempt


class KeptLog:
    def __init__(self) -> None:
        self.data = bytearray()
        self.opened = 0
        self.finished = False
        self.most = float("inf")
        self.has_room = asyncio.Event()
        self.waited_for = asyncio.Event()
        self._news = asyncio.Event()

    def open(self, attempt: Attempt) -> KeptLog:
        self.opened += 1
        attempt.log = self
        return self

    @property
    def full(self) -> bool:
        return len(self.data) >= self.most

    async def room(self) -> None:
        self.waited_for.set()
        await self.has_room.wait()

    def write(self, data: bytes) -> None:
        self.data += data
        self._news.set()

    async def said(self, words: bytes) -> None:
        """Returns when they stand in the log."""
        while words not in self.data:
            self._news.clear()
            await self._news.wait()

    async def finish(self) -> None:
        await asyncio.sleep(0)
        self.finished = True


class DroppedLog(KeptLog):
    """Counts only."""

    size = 0

    def write(self, data: bytes) -> None:
        self.size += len(data)
