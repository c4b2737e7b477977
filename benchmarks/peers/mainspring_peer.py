"""Mainspring: one server and one worker over HTTP, batches of 1,000, asynchronous tasks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import uvloop
from common import CLIENTS, Recorder, drive

from mainspring import Mainspring
from mainspring.kernel.http_client import HttpServer

app = Mainspring()
recorder: Recorder | None = None


@app.task("note")
async def note(sent: float) -> None:
    global recorder
    if recorder is None:
        recorder = Recorder()
    recorder.note(sent)


class MainspringPeer:
    """Plain HTTP over open connections, as any client sends it."""

    async def open(self) -> None:
        token = Path(os.environ["MAINSPRING_TOKEN_FILE"]).read_text(encoding="utf-8").strip()
        server = HttpServer(os.environ["MAINSPRING_URL"])
        self._one, self._many = server.post("/v1/jobs", token), server.post("/v1/jobs:batch", token)
        self._free = [await server.connect() for _ in range(CLIENTS)]

    async def send_many(self, sent: Sequence[float]) -> None:
        await self._post(self._many, {"jobs": [{"task": "note", "payload": {"sent": each}} for each in sent]})

    async def send(self, sent: float) -> None:
        await self._post(self._one, {"task": "note", "payload": {"sent": sent}})

    async def send_for(self, due: float) -> None:
        at = datetime.fromtimestamp(due, UTC).isoformat()
        await self._post(self._one, {"task": "note", "payload": {"sent": due}, "schedule": {"at": at}})

    async def _post(self, head: bytes, body: object) -> None:
        connection = self._free.pop()
        status, answer = await connection.ask(head, msgspec.json.encode(body))
        assert status == 201, answer
        self._free.append(connection)

    async def close(self) -> None:
        for connection in self._free:
            connection.close()


async def setup() -> None: ...


async def work() -> None:
    """The worker is `mainspring worker --app mainspring_peer:app`."""
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.install()
    drive(MainspringPeer(), setup=setup, work=work)
