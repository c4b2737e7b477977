"""A worker with two servers goes on at the second, as the same incarnation, when the first hangs or is in trouble."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
import uvloop

from .a_worker import QUICK, a_worker
from .exchange_server import ExchangeServer, Fault, an_order


@pytest.mark.parametrize("fault", ["hang", "503", "store_down", "drop the answer", "401"])
def test_it_goes_on_at_the_second_server_as_the_same_incarnation(fault: Fault) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), ExchangeServer() as first, ExchangeServer() as second:
            both = cast(ExchangeServer, SimpleNamespace(url=f"{first.url},{second.url}"))
            async with a_worker(both, 4, QUICK, answered=300.0) as worker:
                before, after = an_order(), an_order()
                first.submit(before)
                assert (await first.outcome_of(before)).status == "SUCCESS"
                assert not second.requests
                first.begin_outage(fault)
                second.submit(after)
                assert (await second.outcome_of(after)).status == "SUCCESS"
                assert {request.worker_id for request in second.requests} == {worker.worker_id}
                asked = second.requests[0]
                if fault != "401":
                    assert asked.wait_ms == 0, "an answer is needed before the lease ends, not after a long poll"
                    assert any(request.recover for request in second.requests), "an answer may have been lost"
                assert asked.hello is None

    uvloop.run(run())
