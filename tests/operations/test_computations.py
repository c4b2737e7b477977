"""Long computations of requests: one at a time, in turns by tenant, and few wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from mainspring.domain.errors import TooManyRequests
from mainspring.kernel.ids import TenantId
from mainspring.operations.computations import Computations
from mainspring.operations.signatures import signature_compiler
from mainspring.operations.signatures.signature_compiler import SignatureCompiler
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio

FIRST, SECOND = TenantId(1), TenantId(2)


class Work:
    """Computations that end when they are told to."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self._over = threading.Semaphore(0)

    def __call__(self, name: str) -> str:
        self.began.append(name)
        assert self._over.acquire(timeout=60)
        return name

    def end_one(self) -> None:
        self._over.release()


async def test_one_at_a_time_and_a_tenant_that_asks_often_does_not_keep_another_waiting() -> None:
    computations, work = Computations(), Work()
    many = [asyncio.create_task(computations.run(FIRST, work, f"a{number}")) for number in range(5)]
    await until(lambda: work.began == ["a0"])
    one = asyncio.create_task(computations.run(SECOND, work, "b"))
    await asyncio.sleep(0)
    for expected in (["a0", "a1"], ["a0", "a1", "b"]):
        work.end_one()
        await until(lambda expected=expected: work.began == expected)  # type: ignore[misc]
    for _ in range(4):
        work.end_one()
    assert await asyncio.gather(one, *many) == ["b", "a0", "a1", "a2", "a3", "a4"]


async def test_a_computation_whose_request_is_gone_keeps_its_turn_until_it_ends() -> None:
    computations, work = Computations(), Work()
    gone = asyncio.create_task(computations.run(FIRST, work, "gone"))
    await until(lambda: work.began == ["gone"])
    gone.cancel()
    following = asyncio.create_task(computations.run(FIRST, work, "next"))
    await asyncio.sleep(0)
    assert work.began == ["gone"]
    work.end_one()
    work.end_one()
    assert await following == "next" and gone.cancelled()


async def test_too_many_of_a_tenant_are_refused() -> None:
    computations, work = Computations(), Work()
    tasks = [asyncio.create_task(computations.run(FIRST, work, f"a{number}")) for number in range(33)]
    await until(lambda: work.began == ["a0"])
    with pytest.raises(TooManyRequests):
        await computations.run(FIRST, work, "one too many")
    for _ in tasks:
        work.end_one()
    await asyncio.gather(*tasks)


async def test_a_hello_waits_for_one_turn_of_another_tenant_and_not_for_all_its_signatures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work, compiler = Work(), SignatureCompiler()
    compile_one = signature_compiler._compiled
    monkeypatch.setattr(signature_compiler, "_compiled", lambda task, text: work(task) and compile_one(task, text))
    large = b'{"type":"object","properties":{},"description":"%b"}' % (b"x" * 100_000)
    tasks = [
        asyncio.create_task(compiler.compile(FIRST, [(f"a{hello}.{number}", large) for number in range(5)]))
        for hello in range(8)
    ]
    await until(lambda: len(work.began) == 1)
    other = asyncio.create_task(compiler.compile(SECOND, [("b", b'{"type":"object","properties":{}}')]))
    await asyncio.sleep(0)
    for count in range(2, 4):
        work.end_one()
        await until(lambda count=count: len(work.began) == count)  # type: ignore[misc]
    assert "b" in work.began
    for _ in range(41):
        work.end_one()
    await asyncio.gather(other, *tasks)
