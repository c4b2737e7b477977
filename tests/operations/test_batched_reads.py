"""Reads of many exchanges as one statement."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from mainspring.operations.exchange.batched_reads import BatchedReads

pytestmark = pytest.mark.anyio


async def test_those_who_ask_during_a_read_share_the_next_one() -> None:
    asked: list[list[int]] = []
    go_on = asyncio.Event()

    async def read(keys: Sequence[int]) -> dict[int, str]:
        asked.append(list(keys))
        await go_on.wait()
        return {key: f"row {key}" for key in keys if key != 3}

    reads = BatchedReads(read)
    first = asyncio.create_task(reads.get(1))
    while not asked:
        await asyncio.sleep(0)
    others = [asyncio.create_task(reads.get(key)) for key in (1, 2, 3)]
    await asyncio.sleep(0)
    others[1].cancel()  # one that has gone stops nobody else
    go_on.set()
    assert await first == "row 1"
    assert await asyncio.gather(*others, return_exceptions=True) != []
    assert (others[0].result(), others[1].cancelled(), others[2].result()) == ("row 1", True, None)
    assert asked == [[1], [1, 2, 3]]


async def test_a_read_that_fails_fails_for_those_who_asked_and_for_nobody_later() -> None:
    answers: list[Exception | dict[int, str]] = [OSError("away"), {1: "row"}]

    async def read(keys: Sequence[int]) -> dict[int, str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    reads = BatchedReads(read)
    with pytest.raises(OSError, match="away"):
        await reads.get(1)
    assert await reads.get(1) == "row"
