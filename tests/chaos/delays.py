"""A pytest plugin that delays the start of asyncio tasks, requests and connections at random.

Use `-p tests.chaos.delays` with MAINSPRING_CHAOS=<seed>. The same seed gives a test the same delays. It does not work
for tests of the order of the event loop's queue (tests/operations/test_submit_batching.py), nor with uvloop.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Coroutine
from typing import Any

import asyncpg.pool
import httpx
import pytest

SEED = os.environ.get("MAINSPRING_CHAOS", "1")
_HOW_OFTEN = 0.3
_LONGEST = 0.5

_chance = random.Random(SEED)
_create_task = asyncio.BaseEventLoop.create_task
_send = httpx.AsyncClient.send
_acquire = asyncpg.pool.PoolConnectionHolder.acquire


def pytest_configure(config: pytest.Config) -> None:
    asyncio.BaseEventLoop.create_task = create_task  # type: ignore[method-assign]
    httpx.AsyncClient.send = send  # type: ignore[method-assign]
    asyncpg.pool.PoolConnectionHolder.acquire = acquire


def pytest_report_header(config: pytest.Config) -> str:
    return f"restless: MAINSPRING_CHAOS={SEED}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    _chance.seed(SEED + item.nodeid)


def create_task(self: Any, work: Coroutine[Any, Any, Any], **named: Any) -> Any:
    seconds = a_pause()
    if seconds and not getattr(work, "__qualname__", "").startswith("TestRunner"):
        work = late(work, seconds)
    return _create_task(self, work, **named)


async def late(work: Coroutine[Any, Any, Any], seconds: float) -> Any:
    try:
        await asyncio.sleep(seconds)
    except BaseException:
        work.close()
        raise
    return await work


async def send(self: httpx.AsyncClient, request: httpx.Request, **named: Any) -> httpx.Response:
    await asyncio.sleep(a_pause())
    answer = await _send(self, request, **named)
    await asyncio.sleep(a_pause())
    return answer


async def acquire(self: Any) -> Any:
    await asyncio.sleep(a_pause() / 3)
    return await _acquire(self)


def a_pause() -> float:
    return _chance.random() ** 3 * _LONGEST if _chance.random() < _HOW_OFTEN else 0.0
