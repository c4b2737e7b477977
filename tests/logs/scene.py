"""Helpers for tests of logs: a claimed run, log shipments, and a reader that follows a log."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import httpx
import msgspec
import pytest

from mainspring.wire.exchange import RunOrder
from mainspring.wire.logs import LogChunk, LogReceipt, LogShipment
from tests.eventually import PATIENCE
from tests.operations.hand_worker import HandWorker

encode = msgspec.json.Encoder().encode
IN_A_FOLDER = pytest.mark.parametrize("log_files", ["folder"], indirect=True)
IN_POSTGRESQL = pytest.mark.parametrize("log_files", ["postgresql"], indirect=True)
JSON = {"Content-Type": "application/json"}


async def a_run(worker: HandWorker, **fields: Any) -> RunOrder:
    """A run that the worker has claimed."""
    answer = await worker.api.post("/v1/jobs", json={"task": "noop", **fields})
    assert answer.status_code == 201, answer.text
    (order,) = await worker.claim()
    return order


def chunk(order: RunOrder, offset: int, data: bytes, **fields: Any) -> LogChunk:
    return LogChunk(order.run_id, order.fence, order.attempt, offset, data, **fields)


async def ship(worker: HandWorker, *chunks: LogChunk) -> LogReceipt:
    answer = await ask(worker, *chunks)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=LogReceipt)


async def ask(worker: HandWorker, *chunks: LogChunk) -> httpx.Response:
    body = encode(LogShipment(worker.worker_id, list(chunks)))
    return await worker.api.post("/v1/exchange/logs", content=body, headers=worker.headers)


async def text(api: httpx.AsyncClient, run_id: UUID, **params: Any) -> str:
    answer = await api.get(f"/v1/runs/{run_id}/logs", params=params)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    return answer.text


class Follower:
    """Reads the events of a log as they arrive."""

    def __init__(self, api: httpx.AsyncClient, run_id: UUID, **headers: str) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        self._api = api
        self._run_id = run_id
        self._headers = headers

    async def run(self, **params: Any) -> None:
        name = mark = ""
        url = f"/v1/runs/{self._run_id}/logs"
        async with self._api.stream("GET", url, params={"follow": "true", **params}, headers=self._headers) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            async for line in answer.aiter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "id":
                    mark = value
                elif field == "data":
                    self.events.append((name, mark, msgspec.json.decode(value)))

    @property
    def output(self) -> str:
        return "".join(data["text"] for name, _, data in self.events if name in ("output", "truncated"))

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.events]


async def claim_soon(worker: HandWorker) -> list[RunOrder]:
    async with asyncio.timeout(PATIENCE):
        while True:
            if runs := (await worker.exchange(free=1)).runs:
                return runs
