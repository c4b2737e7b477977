"""Large answers have turns: few are in the memory of a server at a time, and tenants share these turns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from mainspring.api.large_answers import LARGE_ANSWER, LargeAnswers
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.roles.assembly import Assembly
from tests.api.slices import listening
from tests.conftest import TOKEN
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio

FILLER = "x" * 200_000
STEPS = [{"name": f"s{number}", "task": "t", "payload": {"a": FILLER}} for number in range(60)]  # 12 MB
SMALL_BUFFER = 64 * 1024


@pytest.fixture
async def port(assembly: Assembly) -> AsyncIterator[int]:
    async with listening(assembly) as port:
        yield port


@pytest.fixture
def answers(assembly: Assembly) -> LargeAnswers:
    found: LargeAnswers = assembly.app.state.large_answers
    return found


async def ask(port: int, path: str, token: str = TOKEN) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request, and take nothing of the answer beyond what fits into small buffers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=SMALL_BUFFER)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    return reader, writer


async def taken(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(int(line.partition(": ")[2]) for line in head.split("\r\n") if line.lower().startswith("content-l"))
    return int(head.split()[1]), await reader.readexactly(length)


@pytest.mark.slow
async def test_few_are_in_memory_while_the_clients_do_not_take_them(
    api: httpx.AsyncClient, port: int, answers: LargeAnswers
) -> None:
    created = await api.post("/v1/workflows", json={"workflow_id": "large", "steps": STEPS})
    assert created.status_code == 201, created.text
    other = str((await api.post("/v1/tenants", json={"name": "other"})).json()["admin_token"]["token"])
    theirs = {"Authorization": f"Bearer {other}"}
    assert (await api.post("/v1/workflows", json={"workflow_id": "large", "steps": STEPS}, headers=theirs)).is_success
    clients = [await ask(port, "/v1/workflows/large") for _ in range(6)]
    try:
        await until(lambda: (answers.turns.held, answers.turns.waiting) == (2, 4))
        # Others do not wait for them, and what is small never waits.
        status, body = await taken((others := await ask(port, "/v1/workflows/large", other))[0])
        assert status == 200 and len(json.loads(body)["steps"]) == len(STEPS)
        others[1].transport.abort()
        assert (await api.get("/v1/workflows")).json()["workflows"][0]["step_count"] == len(STEPS)
        clients.pop(0)[1].transport.abort()
        for status, body in await asyncio.gather(*(taken(reader) for reader, _ in clients)):
            assert status == 200 and json.loads(body)["steps"] == STEPS
        await until(lambda: (answers.turns.held, answers.turns.waiting) == (0, 0))
    finally:
        for _, writer in clients:
            writer.transport.abort()


async def test_too_many_are_refused_and_a_change_is_not(
    api: httpx.AsyncClient, answers: LargeAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"workflow_id": "large", "steps": STEPS}
    created = await api.post("/v1/workflows", json=body)
    assert created.status_code == 201, created.text
    monkeypatch.setattr(answers.turns, "_longest_wait", 0.0)
    await answers.turns.take(DEFAULT_TENANT, LARGE_ANSWER * 60)
    refused = await api.get("/v1/workflows/large")
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
    assert "ask for fewer at a time" in refused.json()["hint"]
    paused = await api.post("/v1/workflows/large:pause")
    assert (paused.status_code, paused.json()["status"], paused.json()["steps"]) == (200, "PAUSED", [])
    assert paused.json()["step_count"] == len(STEPS)
    answers.turns.give_back(DEFAULT_TENANT, LARGE_ANSWER * 60)
    assert len((await api.get("/v1/workflows/large")).json()["steps"]) == len(STEPS)
    assert (await api.head("/v1/workflows/large")).status_code == 200
    assert answers.turns.held == 0
