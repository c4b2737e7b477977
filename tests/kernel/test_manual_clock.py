"""The clock that tests move by hand: timers fire in order, sleeps and timeouts end when their time has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from mainspring.kernel.clock import LoopClock, ManualClock, SystemClock

CLOCKS: list[Callable[[], LoopClock]] = [ManualClock, SystemClock]


def test_timers_fire_in_the_order_of_their_times() -> None:
    clock = ManualClock()
    begin, wall, fired = clock.monotonic(), clock.wall(), list[tuple[str, float]]()

    def note(name: str) -> None:
        fired.append((name, clock.monotonic() - begin))

    clock.call_later(2.0, note, "second")
    clock.call_later(1.0, note, "first")
    clock.call_later(1.0, note, "of the same time")
    clock.call_later(5.0, note, "not yet")
    clock.advance(3.0)
    assert fired == [("first", 1.0), ("of the same time", 1.0), ("second", 2.0)]
    assert clock.monotonic() - begin == 3.0
    assert clock.wall() - wall == timedelta(seconds=3)
    assert clock.next_timer == begin + 5.0


def test_a_timer_that_a_timer_sets_fires_in_the_same_advance() -> None:
    clock, fired = ManualClock(), list[float]()

    def again() -> None:
        fired.append(clock.monotonic() - 1000.0)
        clock.call_later(1.0, again)

    clock.call_later(1.0, again)
    clock.advance(3.5)
    assert fired == [1.0, 2.0, 3.0]


def test_a_cancelled_timer_does_not_fire() -> None:
    clock, fired = ManualClock(), list[str]()
    clock.call_later(1.0, fired.append, "cancelled").cancel()
    clock.advance(2.0)
    assert fired == []
    assert clock.next_timer is None


@pytest.mark.anyio
async def test_a_sleep_ends_when_its_time_has_come() -> None:
    clock = ManualClock()
    sleeping = asyncio.create_task(clock.sleep(2.0))
    await asyncio.sleep(0)
    clock.advance(1.9)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not sleeping.done()
    clock.advance(0.1)
    await sleeping
    await clock.sleep(0.0)


@pytest.mark.anyio
async def test_a_timeout_breaks_off_its_block() -> None:
    clock = ManualClock()

    async def waits() -> None:
        async with clock.timeout(2.0):
            await asyncio.Event().wait()

    waiting = asyncio.create_task(waits())
    await asyncio.sleep(0)
    clock.advance(2.0)
    with pytest.raises(TimeoutError):
        await waiting


@pytest.mark.anyio
@pytest.mark.parametrize("make", CLOCKS)
async def test_a_block_that_ends_in_time_is_not_disturbed(make: Callable[[], LoopClock]) -> None:
    clock = make()
    async with clock.timeout(60.0):
        await asyncio.sleep(0)
    with pytest.raises(KeyError):
        async with clock.timeout(60.0):
            raise KeyError


@pytest.mark.anyio
async def test_the_system_clock_sets_timers_on_the_loop() -> None:
    clock, fired = SystemClock(), asyncio.Event()
    clock.call_later(60.0, pytest.fail).cancel()
    clock.call_later(0.0, fired.set)
    await fired.wait()
    await clock.sleep(0.0)
    with pytest.raises(TimeoutError):
        async with clock.timeout(0.0):
            await asyncio.Event().wait()
