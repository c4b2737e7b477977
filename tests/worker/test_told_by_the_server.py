"""What a worker does when it is told to: give runs back, drain; and what it tells: progress, shares, limits."""

from __future__ import annotations

from collections import Counter

import pytest
import uvloop

from mainspring.kernel.clock import ManualClock
from mainspring.kernel.config import Timing
from mainspring.wire.exchange import RunOrder
from mainspring.worker.worker import Worker

from .a_worker import a_worker, against_a_server, passes_until, ran
from .exchange_server import ExchangeServer, an_order

SLOW_BEATS = Timing(beat=2.0, base_kill=30.0, base_rescue=60.0, drain_grace=30.0)


def sleeper(seconds: float = 60) -> RunOrder:
    return an_order("sleeps", payload={"seconds": seconds})


def test_unstarted_runs_are_given_back_when_others_are_idle_and_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "mainspring.worker.exchange.returned_runs._LONGEST_WAIT", 60.0
    )  # it does not hand back without being asked
    # It prefetches by the rate of the last minute, not by that of 75 ms in which the machine may have stood still.
    monkeypatch.setattr("mainspring.worker.exchange.prefetch.WINDOW", 60.0)

    async def test(server: ExchangeServer, _: Worker) -> None:
        server.submit(*[an_order() for _ in range(3000)], *[sleeper() for _ in range(500)])
        await server.until(lambda: server.requests[-1].unstarted >= 5 and server.requests[-1].wait_ms)
        while len(server.outcomes) <= 3000:  # at first it trusts the rate; then it sees that no slot becomes free
            seen = len(server.requests)
            server.ask_back(3)
            # What it gives back is in the next exchange: after several it has given nothing, and is asked again.
            await server.until(lambda: len(server.outcomes) > 3000 or len(server.requests) > seen + 5)  # noqa: B023
        assert Counter(outcome.status for outcome in server.outcomes.values()) == {"SUCCESS": 3000, "RETURNED": 3}
        assert server.requests[-1].free == 0

    against_a_server(test)


def test_told_to_drain_it_finishes_and_leaves() -> None:
    clock = ManualClock()

    async def test(server: ExchangeServer, worker: Worker) -> None:
        running = sleeper(0.3)
        server.submit(running)
        await server.until(lambda: server.held_by_workers())
        server.ask_to_drain()
        await passes_until(clock, lambda: server.requests[-1].stopped)
        assert server.outcomes[running.run_id].status == "SUCCESS"
        assert any(request.draining for request in server.requests)

    against_a_server(test, timing=SLOW_BEATS, clock=clock)


def test_told_that_its_token_is_of_all_tenants_it_leaves_without_a_start_unless_it_may_take_them() -> None:
    async def test(may_take: bool) -> None:
        order = an_order("counted", payload={"name": "run"})
        async with ExchangeServer() as server:
            server.tokens_of_all_tenants = True
            server.submit(order)
            async with a_worker(server, 1, SLOW_BEATS, takes_all_tenants=may_take) as worker:
                await server.until(lambda: order.run_id in server.outcomes)
                if not may_take:
                    await server.until(lambda: server.requests[-1].stopped)
        assert worker.refused_token is not may_take
        assert server.outcomes[order.run_id].status == ("SUCCESS" if may_take else "RETURNED")
        assert ran["run"] == may_take

    for may_take in (False, True):
        ran.clear()
        uvloop.run(test(may_take))


def test_progress_is_told_at_once_and_then_at_most_twice_a_second_and_the_parked_poll_goes_on() -> None:
    clock = ManualClock()

    async def test(server: ExchangeServer, _: Worker) -> None:
        order = an_order("tells", payload={"steps": 140, "pause": 0.01})
        begun = clock.monotonic()
        server.submit(order)
        await passes_until(clock, lambda: any(request.progress for request in server.requests), step=0.01)
        assert order.run_id not in server.outcomes
        await passes_until(clock, lambda: order.run_id in server.outcomes, step=0.01)
        assert server.outcomes[order.run_id].status == "SUCCESS"
        told = [word for request in server.requests for word in request.progress]
        assert 2 <= len(told) <= 2 + (clock.monotonic() - begun) / 0.5
        assert [word.number for word in told] == list(range(1, len(told) + 1))
        shares = [word.fraction or 0 for word in told]
        assert shares == sorted(shares) and told[-1].message
        other = an_order()
        server.submit(other)  # the worker still asks for work
        await passes_until(clock, lambda: other.run_id in server.outcomes)

    against_a_server(test, timing=SLOW_BEATS, clock=clock)


def test_progress_whose_exchange_was_lost_is_told_again() -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        order = an_order("tells", payload={"steps": 1, "pause": 60})
        await server.until(lambda: len(server.requests) >= 2)
        server.submit(order)
        await server.until(lambda: any(request.progress for request in server.requests))
        first = next(i for i, request in enumerate(server.requests) if request.progress)
        await server.hang_up()
        await server.until(lambda: any(request.progress for request in server.requests[first + 1 :]))

    against_a_server(test, timing=SLOW_BEATS)  # whose long polls wait long enough to be lost


def test_a_worker_with_weights_asks_in_shares_and_never_for_more_than_its_slots() -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        asked = server.requests[0]
        assert [(share.queue, share.most) for share in asked.shares[:2]] == [("heavy", 1), ("light", 3)]
        server.submit(*[an_order(queue="light") for _ in range(2000)])
        await server.until(lambda: len(server.outcomes) == 2000)
        assert all(request.free <= 4 for request in server.requests), "nothing is prefetched"

    against_a_server(test, queues=["heavy", "light"], weights={"heavy": 1, "light": 3})


def test_a_worker_says_how_much_room_a_limited_task_has() -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        assert server.requests[0].room == {"sleeps": 2}
        server.submit(sleeper())
        await server.until(lambda: any(request.room.get("sleeps") == 1 for request in server.requests))
        server.submit(sleeper())
        await server.until(lambda: any(request.room.get("sleeps") == 0 for request in server.requests))

    against_a_server(test, task_limits={"sleeps": 2})
