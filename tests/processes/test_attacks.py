"""Requests that held up a server for seconds: its worker keeps its runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import uuid4

import httpx
import pytest

from tests.processes.cluster import SLOW, Cluster, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.mark.slow
async def test_runs_live_through_requests_that_are_too_large(cluster: Cluster) -> None:
    await cluster.server()
    await cluster.worker()
    go = cluster.folder / "go"
    jobs = [await cluster.submit(command=f"until [ -e {go} ]; do sleep 0.05; done") for _ in range(2)]

    async def both_run() -> bool:
        return all([(await cluster.latest_run(job_id)).get("status") == "RUNNING" for job_id in jobs])

    await eventually(both_run, SLOW, "both jobs run")
    assert await _header(cluster.port) in (b"431", b"")
    assert await _status(cluster, "/v1/exchange", _hello()) == 413
    assert await _status(cluster, "/v1/jobs:batch", b"[" + b"{}," * 20_000_000 + b"{}]") == 422
    assert await _status(cluster, "/v1/jobs:batch", _calls()) == 201
    go.touch()
    for job_id in jobs:
        run = await cluster.ended(job_id)
        assert (run["status"], run["attempt_number"]) == ("SUCCESS", 1)


async def _header(port: int) -> bytes:
    """The status of the answer to a header of 80 MB, sent without a token; empty if the server hung up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        for _ in range(80):
            writer.write(b"x" * 1_000_000)
            await writer.drain()
        return b"".join((await reader.readline()).split()[1:2])
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


async def _status(cluster: Cluster, path: str, body: bytes) -> int:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 1_000_000):
            yield body[start : start + 1_000_000]

    headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    try:
        return (await cluster.http.post(path, content=pieces(), headers=headers)).status_code
    except httpx.WriteError:  # it was refused before all of it was sent
        return 413


def _hello() -> bytes:
    """34 MB with 150 signatures."""
    schema = {"type": "object", "properties": {f"p{n}": {"type": "integer", "minimum": n} for n in range(5000)}}
    signatures = {f"t{n}": schema for n in range(150)}
    hello = {"name": "w", "queues": ["q"], "tasks": list(signatures), "slots": 1, "signatures": signatures}
    return json.dumps({"worker_id": str(uuid4()), "seq": 1, "hello": hello}).encode()


def _calls() -> bytes:
    """10,000 http jobs with a long path, which nobody runs."""
    call = {"url": "https://example.com/", "success": {"json": "$" + ".a" * 499}}
    return json.dumps([{"http": call, "queue": "nobody"}] * 10_000).encode()
