"""A worker with two servers goes on at the second, as the same incarnation, when the first hangs or is in trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest
import uvloop

from mainspring.kernel.clock import ManualClock
from mainspring.kernel.config import Timing
from mainspring.wire.exchange import ExchangeRequest
from tests.eventually import PATIENCE

from .a_worker import a_worker, passes_until, passes_until_reported, release
from .exchange_server import ExchangeServer, Fault, an_order

TIMING = Timing(beat=2.0, base_kill=30.0, base_rescue=60.0, kill_grace=0.3, drain_grace=0.3)


@asynccontextmanager
async def two_servers(
    clock: ManualClock, kind: type[ExchangeServer] = ExchangeServer
) -> AsyncIterator[tuple[ExchangeServer, ExchangeServer, ExchangeServer]]:
    """Two servers of one database, the first of the given kind, and both of them as a worker is told of them."""
    async with kind(clock=clock) as first, ExchangeServer(first.records, clock=clock) as second:
        yield first, second, cast(ExchangeServer, SimpleNamespace(url=f"{first.url},{second.url}"))


@pytest.mark.parametrize("fault", ["hang", "503", "store_down", "drop the answer", "401"])
def test_it_goes_on_at_the_second_server_as_the_same_incarnation(fault: Fault) -> None:
    async def run() -> None:
        clock = ManualClock()
        async with (
            asyncio.timeout(PATIENCE),
            two_servers(clock) as (first, second, both),
            a_worker(both, 4, TIMING, answered=300.0, clock=clock) as worker,
        ):
            before, after = an_order(), an_order()
            first.submit(before)
            assert (await first.outcome_of(before)).status == "SUCCESS"
            assert not second.requests
            first.begin_outage(fault)
            second.submit(after)
            await passes_until_reported(second, clock, after)
            assert second.outcomes[after.run_id].status == "SUCCESS"
            assert {request.worker_id for request in second.requests} == {worker.worker_id}
            asked = second.requests[0]
            if fault != "401":
                assert asked.wait_ms == 0, "an answer is needed before the lease ends, not after a long poll"
                assert any(request.recover for request in second.requests), "an answer may have been lost"
            assert asked.hello is None

    uvloop.run(run())


def test_when_a_parked_exchange_and_a_report_wait_for_a_server_that_hangs_a_third_goes_to_the_other() -> None:
    """A worker that reported something to the server since it hangs would else lose its lease, and kill its runs."""

    async def run() -> None:
        clock = ManualClock()
        async with asyncio.timeout(PATIENCE), two_servers(clock) as (first, second, both):
            release["ordinary"].clear()
            async with a_worker(both, 4, TIMING, answered=300.0, clock=clock) as worker:
                order = an_order("blocks", payload={"name": "ordinary"})
                first.submit(order)
                await passes_until(clock, lambda: first.held_by_workers() and first.requests[-1].wait_ms)
                first.begin_outage("hang")
                release["ordinary"].set()
                told = lambda: any(o.run_id == order.run_id for r in second.requests for o in r.outcomes)  # noqa: E731
                await passes_until(clock, told)
                assert {request.worker_id for request in second.requests} == {worker.worker_id}

    uvloop.run(run())


class Unforgiving(ExchangeServer):
    """Refuses those who leave."""

    async def _answer(self, request: ExchangeRequest) -> bytes | None:
        if request.stopped:
            self.faults.append("401")
        return await super()._answer(request)


def test_a_worker_whose_farewell_is_refused_says_it_to_the_other_server() -> None:
    async def run() -> None:
        clock = ManualClock()
        async with (
            asyncio.timeout(PATIENCE),
            two_servers(clock, Unforgiving) as (first, second, both),
            a_worker(both, 4, TIMING, answered=300.0, clock=clock) as worker,
        ):
            await first.until(lambda: first.acknowledged)
            worker.stop()
            await passes_until(clock, lambda: any(request.stopped for request in second.requests))

    uvloop.run(run())
