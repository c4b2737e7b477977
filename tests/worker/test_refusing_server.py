"""A server that refuses all exchanges, or every outcome of one run: what the worker makes of it."""

from __future__ import annotations

import asyncio
import dataclasses
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest
import uvloop

from mainspring.wire.exchange import ExchangeRequest, RunOrder
from mainspring.worker import worker as worker_module
from tests.eventually import PATIENCE

from .a_worker import QUICK, a_worker, ran
from .exchange_server import ExchangeServer, _problem, an_order

CHECKS_OFTEN = dataclasses.replace(QUICK, beat=5.0, preferred_server_check=0.1, preferred_server_check_longest=0.2)


class Obstinate(ExchangeServer):
    """Takes no outcome of some runs, whatever it says."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: set[UUID] = set()

    async def _answer(self, request: ExchangeRequest) -> bytes | None:
        if any(outcome.run_id in self.refuses for outcome in request.outcomes):
            self.requests.append(request)
            self._tell()
            return _problem(422, "invalid_input")
        return await super()._answer(request)


def test_a_run_of_which_nothing_is_taken_is_let_go_and_the_worker_goes_on() -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE), Obstinate() as server, a_worker(server, 8, QUICK) as worker:
            orders = [an_order("counted", payload={"name": str(number)}) for number in range(5)]
            odd = orders[2]
            server.refuses.add(odd.run_id)
            server.submit(*orders)
            for order in orders:
                if order is not odd:
                    assert (await server.outcome_of(order)).status == "SUCCESS"
            tried = lambda: [o for r in server.requests for o in r.outcomes if o.run_id == odd.run_id]  # noqa: E731
            await server.until(lambda: any(outcome.status == "FAILED" for outcome in tried()))
            for _ in range(2):  # a recovery must not bring it back: it has run
                server.faults.append("drop the answer")
                later = an_order("counted", payload={"name": "later"})
                server.submit(later)
                assert (await server.outcome_of(later)).status == "SUCCESS"
            assert ran["2"] == 1
            assert server.incarnations == [worker.worker_id]
            # Once, or again when an answer was lost meanwhile, but not for ever.
            assert sum(outcome.status == "FAILED" for outcome in tried()) <= 3

    ran.clear()
    uvloop.run(run())


class Picky(ExchangeServer):
    """Takes no outcome of one run but a failure."""

    def __init__(self, odd: RunOrder) -> None:
        super().__init__()
        self.odd = odd

    async def _answer(self, request: ExchangeRequest) -> bytes | None:
        if any(outcome.run_id == self.odd.run_id and outcome.status != "FAILED" for outcome in request.outcomes):
            self.requests.append(request)
            self._tell()
            return _problem(422, "invalid_input")
        return await super()._answer(request)


def test_a_worker_that_is_told_to_stop_while_it_searches_reports_everything_and_then_says_that_it_has_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "_FAREWELL", 30.0)

    async def run() -> None:
        orders = [an_order("counted", payload={"name": str(number)}) for number in range(20)]
        async with asyncio.timeout(PATIENCE), Picky(orders[7]) as server:
            async with a_worker(server, 32, QUICK) as worker:
                await server.until(lambda: server.acknowledged)
                server.submit(*orders)
                await server.until(lambda: any(request.outcomes for request in server.requests))
                worker.stop()
                await server.until(lambda: any(request.stopped for request in server.requests))
            assert {order.run_id: server.outcomes[order.run_id].status for order in orders} == {
                order.run_id: "FAILED" if order is server.odd else "SUCCESS" for order in orders
            }
            assert not server.recorded_twice
            said = [request.stopped for request in server.requests].index(True)
            assert not any(request.outcomes for request in server.requests[said + 1 :])

    uvloop.run(run())


class Moody(ExchangeServer):
    """From the first report on it refuses everything, until it has refused three exchanges."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    async def _answer(self, request: ExchangeRequest) -> bytes | None:
        if self.refused < 3 and (self.refused or request.outcomes):
            self.refused += 1
            self.requests.append(request)
            return _problem(422, "invalid_input")
        return await super()._answer(request)


@pytest.mark.slow
def test_outcomes_are_as_they_were_when_a_server_that_refused_everything_comes_to_its_senses() -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE), Moody() as server, a_worker(server, 8, QUICK) as worker:
            orders = [an_order("counted", payload={"name": str(number)}) for number in range(4)]
            server.submit(*orders)
            for order in orders:
                assert (await server.outcome_of(order)).status == "SUCCESS"
            assert server.refused == 3
            assert not server.recorded_twice
            assert server.incarnations == [worker.worker_id]

    uvloop.run(run())


class Deceptive(ExchangeServer):
    """Answers the first exchange after a refusal when its worker has heard that another server is ready."""

    def __init__(self, other: ExchangeServer) -> None:
        super().__init__(other.records)
        self.other = other
        self.refused = False

    async def _answer(self, request: ExchangeRequest) -> bytes | None:
        if self.refused and not request.outcomes and not self.other.ready:
            self.other.begin_outage("422")
            self.other.ready = True
            asked = self.other.asked_if_ready
            # Twice: the second question is asked when the answer to the first has been heard.
            await self.other.until(lambda: self.other.asked_if_ready > asked + 1)
        self.refused = self.refused or bool(request.outcomes)
        return await super()._answer(request)


def test_a_server_that_refuses_everything_judges_nobody_by_what_another_server_took() -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE), ExchangeServer() as first, Deceptive(first) as second:
            both = cast(ExchangeServer, SimpleNamespace(url=f"{first.url},{second.url}"))
            first.ready = False
            first.begin_outage("503")
            order = an_order()
            second.when_reported(order, "422")
            async with a_worker(both, 4, CHECKS_OFTEN, answered=300.0):
                second.submit(order)
                assert (await second.outcome_of(order)).status == "SUCCESS"

    uvloop.run(run())
