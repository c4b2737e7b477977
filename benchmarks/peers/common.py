"""What all peers share: what a task notes, and what a driver measures.

A worker process runs the task `note`, which gets the time at which its job was sent, or is due. When it has seen as
many as EXPECT says, it writes their delays and the time of the last one to the file OUT.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

BATCH = 1000
CLIENTS = 16


class Recorder:
    def __init__(self) -> None:
        self._expected = int(os.environ["EXPECT"])
        self._file = Path(os.environ["OUT"])
        self._delays: list[float] = []

    def note(self, sent: float) -> None:
        now = time.time()
        self._delays.append(now - sent)
        if len(self._delays) == self._expected:
            partial = self._file.with_suffix(".new")
            partial.write_text(json.dumps({"last": now, "delays": self._delays}))
            partial.rename(self._file)


class Peer(Protocol):
    """How jobs reach a peer."""

    async def open(self) -> None: ...

    async def send_many(self, sent: Sequence[float]) -> None: ...

    async def send(self, sent: float) -> None: ...

    async def send_for(self, due: float) -> None: ...

    async def close(self) -> None: ...


async def _throughput(peer: Peer, jobs: int) -> dict[str, Any]:
    began = time.time()
    for start in range(0, jobs, BATCH):
        await peer.send_many([time.time()] * min(BATCH, jobs - start))
    return {"began": began, "sent": time.time()}


async def _singles(peer: Peer, seconds: int) -> dict[str, Any]:
    ends = time.monotonic() + seconds
    counts = [0] * CLIENTS

    async def client(place: int) -> None:
        while time.monotonic() < ends:
            await peer.send(time.time())
            counts[place] += 1

    began = time.monotonic()
    await asyncio.gather(*map(client, range(CLIENTS)))
    return {"per_second": sum(counts) / (time.monotonic() - began)}


async def _pick_up(peer: Peer, jobs: int) -> dict[str, Any]:
    for _ in range(jobs):
        await peer.send(time.time())
        await asyncio.sleep(0.025)
    return {}


async def _lag(peer: Peer, jobs: int) -> dict[str, Any]:
    """Jobs for moments in the near future, 25 ms apart."""
    first = time.time() + 3
    for number in range(jobs):
        await peer.send_for(first + number * 0.025)
    return {}


_PHASES = {"throughput": _throughput, "singles": _singles, "pick_up": _pick_up, "lag": _lag}


def drive(peer: Peer, *, setup: Callable[[], Awaitable[None]], work: Callable[[], Awaitable[None]]) -> None:
    """`PEER.py setup`, `PEER.py work` or `PEER.py PHASE NUMBER`."""
    verb, *rest = sys.argv[1:]

    async def measured() -> dict[str, Any]:
        await peer.open()
        try:
            return await _PHASES[verb](peer, int(rest[0]))
        finally:
            await peer.close()

    if verb == "setup":
        asyncio.run(setup())
    elif verb == "work":
        asyncio.run(work())
    else:
        print(json.dumps(asyncio.run(measured())))
