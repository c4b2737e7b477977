"""One check of ready lanes for all exchanges that ask at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from mainspring.operations.claim.ready_check import ReadyCheck

pytestmark = pytest.mark.anyio


async def test_those_who_ask_during_a_check_share_the_next_one_and_each_sees_its_own_lanes() -> None:
    asked: list[set[int]] = []
    go_on = asyncio.Event()

    async def check(lanes: Collection[int]) -> list[int]:
        asked.append(set(lanes))
        await go_on.wait()
        return [lane for lane in lanes if lane != 3]

    checks = ReadyCheck(check)
    first = asyncio.create_task(checks.any_of([1]))
    while not asked:
        await asyncio.sleep(0)
    others = [asyncio.create_task(checks.any_of(lanes)) for lanes in ([1, 2], [3], [2, 3], [4])]
    await asyncio.sleep(0)
    others[3].cancel()  # one that has gone stops nobody else
    go_on.set()
    assert await first
    assert [await other for other in others[:3]] == [True, False, True]
    assert asked == [{1}, {1, 2, 3, 4}]


async def test_a_check_that_fails_fails_for_those_who_asked_and_for_nobody_later() -> None:
    answers: list[Exception | list[int]] = [OSError("away"), [1]]

    async def check(_: Collection[int]) -> list[int]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    checks = ReadyCheck(check)
    with pytest.raises(OSError, match="away"):
        await checks.any_of([1])
    assert await checks.any_of([1])
