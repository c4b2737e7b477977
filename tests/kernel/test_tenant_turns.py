"""Turns are shared fairly between tenants, in number and in bytes, and nobody waits for ever."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.kernel.ids import TenantId
from mainspring.kernel.tenant_turns import NoTurn, Share, TenantTurns

pytestmark = pytest.mark.anyio

FIRST, SECOND, THIRD = TenantId(1), TenantId(2), TenantId(3)


def turns(server: Share, tenant: Share, *, most_waiting: int = 100, longest_wait: float = 60.0) -> TenantTurns:
    return TenantTurns(server, tenant, most_waiting=most_waiting, longest_wait=longest_wait)


class Scene:
    """Requests that hold their turn until they are told to end."""

    def __init__(self, of: TenantTurns) -> None:
        self._turns = of
        self.began: list[str] = []
        self._over: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, tenant: TenantId, name: str, size: int = 0) -> None:
        self._over[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._one(tenant, name, size))
        await self._settle()

    async def end(self, *names: str) -> None:
        for name in names:
            self._over[name].set()
        await asyncio.gather(*(self._tasks[name] for name in names))
        await self._settle()

    async def give_up(self, name: str) -> None:
        self._tasks[name].cancel()
        await self._settle()

    async def _one(self, tenant: TenantId, name: str, size: int) -> None:
        async with self._turns.turn(tenant, size):
            self.began.append(name)
            await self._over[name].wait()

    @staticmethod
    async def _settle() -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_a_tenant_that_sends_many_does_not_keep_another_ones_single_request_waiting() -> None:
    scene = Scene(turns(Share(2), Share(2)))
    for number in range(32):
        await scene.ask(FIRST, f"a{number}")
    await scene.ask(SECOND, "b")
    assert scene.began == ["a0", "a1"]
    await scene.end("a0")
    await scene.end("a1")
    assert scene.began == ["a0", "a1", "a2", "b"]


async def test_a_tenant_has_no_more_than_its_share_though_there_is_room() -> None:
    scene = Scene(turns(Share(3), Share(2)))
    for name in ("a0", "a1", "a2"):
        await scene.ask(FIRST, name)
    await scene.ask(SECOND, "b0")
    await scene.ask(SECOND, "b1")
    assert scene.began == ["a0", "a1", "b0"]
    await scene.end("b0")
    assert scene.began == ["a0", "a1", "b0", "b1"]


async def test_bytes_are_shared_and_one_that_is_alone_may_have_any_number() -> None:
    scene = Scene(turns(Share(4, 100), Share(4, 60)))
    await scene.ask(FIRST, "whole", 80)
    await scene.ask(FIRST, "more", 1)
    await scene.ask(SECOND, "fits", 20)
    await scene.ask(THIRD, "does not fit", 1)
    assert scene.began == ["whole", "fits"]
    await scene.end("fits")
    assert scene.began == ["whole", "fits", "does not fit"]
    await scene.end("whole")
    assert scene.began[-1] == "more"


async def test_small_ones_do_not_pass_a_large_one_that_is_next() -> None:
    scene = Scene(turns(Share(4, 100), Share(4, 100)))
    await scene.ask(FIRST, "a0", 50)
    await scene.ask(SECOND, "large", 90)
    await scene.ask(THIRD, "c0", 1)
    await scene.ask(FIRST, "a1", 1)
    assert scene.began == ["a0"]
    await scene.end("a0")
    assert scene.began == ["a0", "large", "c0", "a1"]


async def test_when_the_one_that_is_next_gives_up_the_others_begin() -> None:
    scene = Scene(turns(Share(4, 100), Share(4, 100)))
    await scene.ask(FIRST, "a0", 50)
    await scene.ask(SECOND, "large", 90)
    await scene.ask(THIRD, "c0", 1)
    await scene.give_up("large")
    assert scene.began == ["a0", "c0"]


async def test_the_waiting_list_of_a_tenant_is_bounded() -> None:
    of = turns(Share(1), Share(1), most_waiting=2)
    scene = Scene(of)
    for name in ("a0", "a1", "a2"):
        await scene.ask(FIRST, name)
    with pytest.raises(NoTurn):
        await of.take(FIRST)
    await scene.ask(SECOND, "b")  # the list of another tenant has room
    await scene.end("a0")
    await scene.end("a1")
    assert scene.began == ["a0", "a1", "b"]


async def test_a_turn_that_does_not_come_in_time_is_refused_and_leaves_nothing_behind() -> None:
    of = turns(Share(1), Share(1), longest_wait=0.0)
    await of.take(FIRST)
    with pytest.raises(NoTurn):
        await of.take(SECOND)
    assert (of.held, of.waiting) == (1, 0)
    of.give_back(FIRST)
    async with of.turn(SECOND):
        assert of.held == 1
    assert (of.held, of.waiting) == (0, 0)


async def test_a_turn_that_comes_while_its_request_gives_up_goes_to_the_next() -> None:
    of = turns(Share(1), Share(1))
    await of.take(FIRST)
    given_up, patient = (asyncio.create_task(of.take(tenant)) for tenant in (SECOND, THIRD))
    await asyncio.sleep(0)
    of.give_back(FIRST)  # the turn is that of `given_up`, which has not run since
    given_up.cancel()
    await asyncio.wait([given_up, patient])
    assert given_up.cancelled() and patient.exception() is None
    assert (of.held, of.waiting) == (1, 0)
    other = asyncio.create_task(of.take(FIRST))
    await asyncio.sleep(0)
    other.cancel()
    of.give_back(THIRD)  # `other` has given up, and has not run since
    await asyncio.wait([other])
    assert (of.held, of.waiting) == (0, 0)
