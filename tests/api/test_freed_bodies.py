"""Nothing of a large request stays in memory after its answer, while its connection stays open. The garbage collector
comes too late for this: 32 bodies of 64 MiB would be 2 GiB before it looks at them."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

from mainspring.roles.assembly import Assembly
from tests.api.slices import listening
from tests.conftest import TOKEN
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio

LARGE = 300_000  # bytes; the bodies below have more
TEXT = b"x" * 1000
STEPS = [{"name": f"s{number}", "task": "t", "payload": {"a": "x" * 1000}} for number in range(500)]
OUTCOME = {"run_id": str(uuid4()), "fence": 1, "status": "FAILED", "error": "x" * 1000}
BODIES = {
    "a batch": ("POST", "/v1/jobs:batch", b"[" + b",".join([b'{"task":"x","payload":{"a":"%b"}}' % TEXT] * 500) + b"]"),
    "a job that is too large": ("POST", "/v1/jobs:batch", b'{"jobs":[{"description":"' + TEXT * 2000 + b'"}]}'),
    "a batch that is not JSON": ("POST", "/v1/jobs:batch", b'{"jobs":[' + TEXT * 500),
    "a workflow": ("POST", "/v1/workflows:validate", json.dumps({"steps": STEPS}).encode()),
    "a workflow with a mistake": ("POST", "/v1/workflows:validate", json.dumps({"steps": STEPS, "x": 1}).encode()),
    "a calendar": ("PUT", "/v1/calendars/c", json.dumps({"dates": ["2027-01-01"] * 50_000}).encode()),
    "a job": ("POST", "/v1/jobs", b'{"task":"x","payload":{"a":"' + TEXT * 500 + b'"}}'),
    "an exchange": (
        "POST", "/v1/exchange",
        json.dumps({"worker_id": str(uuid4()), "seq": 1, "outcomes": [OUTCOME] * 500}).encode(),
    ),
    "a path that nobody has": ("POST", "/v1/nothing", TEXT * 500),
}  # fmt: skip


@pytest.fixture
async def port(assembly: Assembly) -> AsyncIterator[int]:
    async with listening(assembly) as port:
        yield port


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, limit=2**20)


def head(method: str, path: str, length: int) -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


async def answered(reader: asyncio.StreamReader) -> int:
    text = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(int(line.partition(":")[2]) for line in text.split("\r\n") if line.startswith("content-length"))
    await reader.readexactly(length)
    return int(text.split()[1])


def large_objects(known: bytes) -> list[str]:
    """What holds texts of this size, besides this test."""
    ours = {id(BODIES), *map(id, BODIES.values())}
    return [
        f"{type(holder).__module__}.{type(holder).__qualname__}"
        for holder in gc.get_objects()
        if id(holder) not in ours
        for one in gc.get_referents(holder)
        if isinstance(one, (bytes, bytearray, str)) and one is not known and len(one) > LARGE
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
async def test_nothing_of_a_large_body_stays_after_its_answer(port: int, without_collector: None, name: str) -> None:
    method, path, body = BODIES[name]
    before = sorted(large_objects(body))
    open_ = []
    for _ in range(3):
        reader, writer = await connect(port)
        open_.append(writer)
        writer.write(head(method, path, len(body)))
        writer.write(body)
        assert await answered(reader) < 500
    await until(lambda: sorted(large_objects(body)) == before)
    for writer in open_:
        writer.transport.abort()


async def test_nothing_stays_of_a_client_that_hangs_up(port: int, without_collector: None) -> None:
    method, path, body = BODIES["a batch"]
    before = sorted(large_objects(body))
    for _ in range(3):
        _, writer = await connect(port)
        writer.write(head(method, path, 2 * len(body)))
        writer.write(body)
        await writer.drain()
        await asyncio.sleep(0)  # some of it arrives
        writer.transport.abort()
    await until(lambda: sorted(large_objects(body)) == before)
