"""A reader of an event stream, and a server whose streams are told by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec

from mainspring.roles.assembly import Assembly
from tests.operations.waiting import until

Work = Callable[[], Awaitable[object]]
Event = tuple[str, str, dict[str, Any]]  # id, name, data


class Watcher:
    """Reads the events of a stream as they arrive."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self.events: list[Event] = []
        self.comments = 0
        self.ended = False

    async def read(self, answer: httpx.Response) -> None:
        mark = name = ""
        async for line in answer.aiter_lines():
            field, _, value = line.partition(": ")
            if field == "id":
                mark = value
            elif field == "event":
                name = value
            elif field == "data":
                self.events.append((mark, name, msgspec.json.decode(value)))
            elif line.startswith(":"):
                self.comments += 1
        self.ended = True

    @property
    def names(self) -> list[str]:
        return [name for _, name, _ in self.events]

    def of(self, topic: str) -> list[dict[str, Any]]:
        return [data for _, name, data in self.events if name == "change" and data["topic"] == topic]

    def counted(self, topic: str) -> int:
        return sum(data["changes"] for data in self.of(topic))

    async def told(self, topic: str, work: Work | None = None) -> dict[str, Any]:
        """Tell the streams until this one has a further event of the topic; return it. `work` is done meanwhile."""
        before = len(self.of(topic))
        await self._until(lambda: len(self.of(topic)) > before, work)
        return self.of(topic)[before]

    async def shown(self, topic: str, work: Work | None = None, **fields: Any) -> None:
        """Tell the streams until the last event of the topic has these fields."""

        def is_shown() -> bool:
            last = {} if not self.of(topic) else self.of(topic)[-1]
            return bool(last) and all(last.get(name) == fields[name] for name in fields)

        await self._until(is_shown, work)

    async def _until(self, true: Callable[[], bool], work: Work | None) -> None:
        async def has_come() -> bool:
            if work is not None:
                await work()
            await self._assembly.services.streams.run_once()
            await asyncio.sleep(0)
            return true()

        try:
            await until(has_come)
        except TimeoutError:
            raise AssertionError(self.events) from None


@asynccontextmanager
async def watching(assembly: Assembly, client: httpx.AsyncClient, *topics: str) -> AsyncIterator[Watcher]:
    """A stream that has begun."""
    watcher = Watcher(assembly)
    async with client.stream("GET", "/v1/stream", params={"topics": ",".join(topics)}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        reading = asyncio.create_task(watcher.read(answer))
        await until(lambda: watcher.names[:1] == ["open"])
        try:
            yield watcher
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
