"""Long work that is cut into slices: each turn of the loop has one slice, however many work at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
import uvloop

from mainspring.kernel.can_wait import can_wait
from mainspring.kernel.time_slices import TimeSlices


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_one_slice_in_each_turn_of_the_loop(run: object) -> None:
    slices_in_turn: Counter[int] = Counter()
    turn = 0

    async def work() -> None:
        slices = TimeSlices(length=0.0)
        for _ in range(10):
            assert slices.over
            await slices.pause()
            slices_in_turn[turn] += 1

    async def scene() -> None:
        nonlocal turn
        tasks = [asyncio.create_task(work()) for _ in range(20)]
        cancelled = asyncio.create_task(work())
        await asyncio.sleep(0)
        cancelled.cancel()
        while not all(task.done() for task in tasks):
            turn += 1
            await asyncio.sleep(0)

    run(scene())  # type: ignore[operator]
    assert max(slices_in_turn.values()) == 1
    assert slices_in_turn.total() == 200


def test_what_is_urgent_comes_first_and_the_others_still_get_on() -> None:
    order: list[str] = []

    async def work(name: str) -> None:
        can_wait.set(name == "client")
        slices = TimeSlices(length=0.0)
        for _ in range(12):
            await slices.pause()
            order.append(name)

    async def scene() -> None:
        await asyncio.gather(*(work("client") for _ in range(5)), work("exchange"))

    asyncio.run(scene())
    assert order[:16].count("exchange") == 12 and order[:16].count("client") == 4
