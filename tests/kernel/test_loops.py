"""Loops run periodic tasks until they are stopped. A failed task is repeated after a backoff."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mainspring.kernel.lifecycle import Loops, Outage, backoff

SOON = 60.0  # ends a test that hangs


class Signalling:
    """A task that records its runs. Tests can wait for its nth run."""

    def __init__(
        self, name: str = "signalling", interval: float = 0.001, body: Callable[[int], Awaitable[None]] | None = None
    ) -> None:
        self.name = name
        self.interval = interval
        self.turns: list[float] = []
        self._body = body
        self._turned = asyncio.Condition()

    async def run_once(self) -> object:
        self.turns.append(asyncio.get_running_loop().time())
        async with self._turned:
            self._turned.notify_all()
        if self._body is not None:
            await self._body(len(self.turns))
        return True

    async def wait_for_turn(self, number: int) -> None:
        async with asyncio.timeout(SOON), self._turned:
            await self._turned.wait_for(lambda: len(self.turns) >= number)


def play(scene: Callable[[Loops], Awaitable[None]]) -> None:
    async def run() -> None:
        loops = Loops()
        try:
            await scene(loops)
        finally:
            async with asyncio.timeout(SOON):
                await loops.stop()

    asyncio.run(run())


def test_periodic_tasks_run_side_by_side_until_they_are_stopped() -> None:
    async def scene(loops: Loops) -> None:
        one, two = Signalling("one"), Signalling("two")
        loops.start(one, two)
        await one.wait_for_turn(3)
        await two.wait_for_turn(3)
        await loops.stop()
        turns = len(one.turns), len(two.turns)
        await asyncio.sleep(0.01)
        assert (len(one.turns), len(two.turns)) == turns

    play(scene)


def test_a_failing_task_is_backed_off_and_tried_again_and_disturbs_nobody() -> None:
    async def fail_first(turn: int) -> None:
        if turn == 1:
            raise ConnectionError("the database is unavailable")

    async def scene(loops: Loops) -> None:
        failing, healthy = Signalling("failing", body=fail_first), Signalling("healthy")
        loops.start(healthy)
        await healthy.wait_for_turn(1)
        loops.start(failing)
        await failing.wait_for_turn(3)
        first, second = failing.turns[:2]
        assert second - first >= backoff(1) * 0.9
        assert any(first < turn < second for turn in healthy.turns)

    play(scene)


def test_stopping_does_not_wait_for_the_next_turn() -> None:
    async def scene(loops: Loops) -> None:
        rare = Signalling("rare", interval=3600.0)
        loops.start(rare)
        await rare.wait_for_turn(1)
        async with asyncio.timeout(SOON):
            await loops.stop()
        assert len(rare.turns) == 1

    play(scene)


def test_stopping_interrupts_a_turn_that_hangs() -> None:
    async def scene(loops: Loops) -> None:
        interrupted = asyncio.Event()

        async def hang(_turn: int) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                interrupted.set()
                raise

        stuck = Signalling("stuck", body=hang)
        loops.start(stuck)
        await stuck.wait_for_turn(1)
        await loops.stop()
        assert interrupted.is_set()

    play(scene)


def test_stopping_twice_or_before_the_start_is_fine() -> None:
    async def scene(loops: Loops) -> None:
        await loops.stop()
        await loops.stop()
        never = Signalling("never")
        loops.start(never)
        await asyncio.sleep(0.01)
        assert never.turns == []

    play(scene)


def test_a_task_of_its_own_is_started_again_after_a_failure_and_ends_when_it_is_done() -> None:
    async def scene(loops: Loops) -> None:
        done, starts = asyncio.Event(), 0

        async def listen() -> None:
            nonlocal starts
            starts += 1
            if starts == 1:
                raise OSError("connection lost")
            done.set()

        loops.start_task("listener", listen)
        async with asyncio.timeout(SOON):
            await done.wait()
        await asyncio.sleep(0.01)
        assert starts == 2

    play(scene)


def test_a_task_of_its_own_is_cancelled_by_the_stop() -> None:
    async def scene(loops: Loops) -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def listen() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        loops.start_task("listener", listen)
        async with asyncio.timeout(SOON):
            await begun.wait()
        await loops.stop()
        assert ended.is_set()

    play(scene)


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 0.2), (2, 0.4), (3, 0.8), (4, 1.6), (5, 2.0), (10, 2.0), (10_000, 2.0)]
)
def test_the_backoff_doubles_up_to_two_seconds(failures: int, seconds: float) -> None:
    assert backoff(failures) == pytest.approx(seconds)


def test_the_backoff_of_a_slow_task_is_no_shorter_than_its_interval_up_to_the_cap() -> None:
    assert backoff(1, floor=1.0) == 1.0
    assert backoff(1, floor=30.0) == 2.0


def test_an_outage_explains_its_own_errors_and_only_for_a_moment_if_it_is_not_confirmed() -> None:
    outage = Outage(ConnectionError)
    refused = ConnectionRefusedError()
    assert outage.explains(refused, 1) and not outage.explains(refused, 10)
    outage.away = True
    assert outage.explains(refused, 1000)
    assert not outage.explains(ValueError("a bug"), 1)


def test_the_end_of_an_outage_ends_the_backoff() -> None:
    async def run() -> None:
        outage = Outage(OSError)
        loops, failing = Loops(outage), Signalling(interval=SOON, body=_away)
        loops.start(failing)
        try:
            for turn in (1, 2, 3):
                await failing.wait_for_turn(turn)
                while not loops._backing_off:
                    await asyncio.sleep(0)
                outage.end()  # without an outage before it changes nothing
                assert len(failing.turns) == turn
                outage.away = True
                outage.end()
        finally:
            await loops.stop()

    asyncio.run(asyncio.wait_for(run(), SOON))


async def _away(_: int) -> None:
    raise OSError
