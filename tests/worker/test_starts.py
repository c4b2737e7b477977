"""Which runs a worker tells to have started, and when."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mainspring.kernel.clock import ManualClock
from mainspring.wire.exchange import RunOrder
from mainspring.wire.protocol import BASE_PROTOCOL
from mainspring.worker.exchange.starts import MOMENT, StartReports
from mainspring.worker.execution.attempt import Attempt, key_of
from mainspring.worker.worker import Worker

from .a_worker import against_a_server, pass_time, passes_until, passes_until_reported
from .exchange_server import ExchangeServer, an_order


def told(server: ExchangeServer, order: RunOrder) -> list[float]:
    """The milliseconds that were told with each start of the run."""
    return [
        ago
        for request in server.requests
        for run_id, fence, ago in request.started
        if (run_id, fence) == (order.run_id, order.fence)
    ]


def a_clock() -> ManualClock:
    return ManualClock(datetime(2026, 11, 15, tzinfo=UTC))


def test_a_run_that_outlives_a_moment_is_told_once_and_a_shorter_one_never() -> None:
    clock = a_clock()
    short, long = an_order("sleeps", payload={"seconds": MOMENT / 2}), an_order("sleeps", payload={"seconds": 30.0})

    async def test(server: ExchangeServer, _: Worker) -> None:
        await pass_time(clock, 0.5)
        server.submit(short, long)
        await passes_until_reported(server, clock, short)
        began = clock.monotonic()
        await passes_until(clock, lambda: told(server, long))
        assert clock.monotonic() - began < 1.0
        [ago] = told(server, long)
        assert MOMENT * 1000 <= ago < 1000
        await pass_time(clock, 3.0)
        assert len(told(server, long)) == 1 and told(server, short) == []

    against_a_server(test, clock=clock)


def test_a_start_is_told_again_if_its_exchange_failed_or_the_server_changes() -> None:
    starts, order = StartReports(), an_order("sleeps")
    attempt = Attempt(order, key_of(order), received=9.0, started=10.0)
    assert not starts.collect([attempt], 10.2, "a")
    assert starts.collect([attempt], 10.25, "a")
    assert not starts.collect([attempt], 10.3, "a")
    taken = starts.take(10.5)
    assert taken == [(order.run_id, order.fence, 500.0)] and not starts
    starts.put_back(taken, {attempt.key: attempt})
    assert starts.take(11.0) == [(order.run_id, order.fence, 1000.0)]
    assert starts.collect([attempt], 12.0, "b")
    starts.forget(attempt)
    assert not starts
    attempt.reported = True
    starts.put_back(taken, {attempt.key: attempt})
    assert not starts and not starts.collect([attempt], 13.0, "a")


def test_a_server_that_does_not_know_starts_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = a_clock()
    order = an_order("sleeps", payload={"seconds": 3.0})
    monkeypatch.setattr("tests.worker.exchange_server.PROTOCOL.number", BASE_PROTOCOL)

    async def test(server: ExchangeServer, _: Worker) -> None:
        server.submit(order)
        before = len(server.requests)
        await passes_until_reported(server, clock, order)
        assert told(server, order) == []
        assert len(server.requests) - before < 20  # it does not try again and again
        hellos = [request.hello for request in server.requests if request.hello is not None]
        assert [hello.protocol for hello in hellos] == [BASE_PROTOCOL]

    against_a_server(test, clock=clock)


def test_the_start_of_a_run_with_a_rate_is_told_at_the_next_look() -> None:
    starts, order = StartReports(), an_order("sleeps")
    order.paced = True
    attempt = Attempt(order, key_of(order), received=9.0, started=10.0)
    assert starts.collect([attempt], 10.01, "a")
    assert starts.take(10.02) == [(order.run_id, order.fence, 20.0)]
