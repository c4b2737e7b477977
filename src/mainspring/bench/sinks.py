"""Sinks: no-op jobs while a webhook gets their changes, beside the same jobs without a sink, in turn."""

from __future__ import annotations

import asyncio
import re
import time

import httpx
import uvloop
from rich.progress import Progress

from mainspring.bench.arena import Arena, fresh_postgres, product
from mainspring.bench.figures import progress, show
from mainspring.bench.throughput import drive

JOBS = 50_000
_ALLOW = {"MAINSPRING_NOTIFY_ALLOW": "127.0.0.1"}
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_ID = re.compile(rb'"specversion":"1.0","id":"([^"]+)"')
_ENDS = ["run.succeeded", "run.failed", "run.cancelled", "run.skipped"]
_OF_A_RUN = 3  # created, started, succeeded


def main(jobs: int | None, as_json: bool) -> int:
    show("sinks", uvloop.run(run(jobs or JOBS)), as_json)
    return 0


async def run(jobs: int) -> dict[str, object]:
    with progress() as bar:
        before, _ = await _measure(jobs, bar, None, 0)
        ends, _ = await _measure(jobs, bar, _ENDS, jobs)
        everything, sent = await _measure(jobs, bar, [], _OF_A_RUN * jobs)
        after, _ = await _measure(jobs, bar, None, 0)
    plain = (before + after) / 2
    return {
        "jobs": jobs,
        "without_per_s": round(jobs / plain),
        "ends_per_s": round(jobs / ends),
        "ends_ratio": round(plain / ends, 3),
        "all_changes_per_s": round(jobs / everything),
        "all_changes_ratio": round(plain / everything, 3),
        "sent_per_s": round(_OF_A_RUN * jobs / sent),
    }


async def _measure(jobs: int, bar: Progress, on: list[str] | None, changes: int) -> tuple[float, float]:
    """Seconds until all jobs are recorded, and until the receiver has got `changes`. on: None for no sink."""
    receiver = _Receiver()
    server = await asyncio.start_server(receiver.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with fresh_postgres() as (postgres, folder), product(postgres, folder, variables=_ALLOW) as arena:
            if on is not None:
                await _create(arena, port, on)
            began = time.perf_counter()
            seconds = await drive(arena, jobs, bar)
            await receiver.has(changes)
            return seconds, time.perf_counter() - began
    finally:
        server.close()


async def _create(arena: Arena, port: int, on: list[str]) -> None:
    body: dict[str, object] = {
        "kind": "webhook", "url": f"http://127.0.0.1:{port}/", "secret": "bench", "batch": 500, "keep_size": "4GiB",
    }  # fmt: skip
    async with httpx.AsyncClient(headers=arena.headers, timeout=60) as client:
        answer = await client.put(f"{arena.server_url}/v1/sinks/bench", json={**body, **({"on": on} if on else {})})
        answer.raise_for_status()


class _Receiver:
    """Answers each POST, and keeps the ids of its events."""

    def __init__(self) -> None:
        self._ids: set[bytes] = set()
        self._more = asyncio.Condition()

    async def has(self, number: int) -> None:
        async with self._more:
            await self._more.wait_for(lambda: len(self._ids) >= number)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            found = _LENGTH.search(head)
            body = await reader.readexactly(int(found[1]) if found else 0)
            async with self._more:
                self._ids.update(_ID.findall(body))
                self._more.notify_all()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        finally:
            writer.close()
