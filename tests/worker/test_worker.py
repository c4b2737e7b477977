"""The worker's loop against a server that loses answers, refuses, falls silent and cancels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mainspring.kernel.clock import ManualClock
from mainspring.kernel.config import Timing
from mainspring.worker.worker import Worker

from .a_worker import ANSWERED, HELD, LAPSES, QUICK, against_a_server, pass_time, passes_until, ran, release
from .exchange_server import ExchangeServer, Fault, an_order
from .processes import alive, ended_soon, written

PATIENT = Timing(beat=0.4, base_kill=30.0, base_rescue=60.0, drain_grace=60.0, kill_grace=30.0)


@pytest.fixture
def fetches_in_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the rate of the last minute, not by that of 75 ms in which the machine may have stood still."""
    monkeypatch.setattr("mainspring.worker.exchange.prefetch.WINDOW", 60.0)
    monkeypatch.setattr("mainspring.worker.exchange.returned_runs._LONGEST_WAIT", 60.0)


def test_it_says_hello_runs_what_it_is_given_and_reports_it() -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        hello = server.requests[0].hello
        assert hello is not None
        assert (hello.name, hello.queues, hello.slots) == ("under test", ["default"], 4)
        assert {"counted", "noop", "shell", "sleeps"} <= set(hello.tasks)
        order = an_order("counted", payload={"name": "a"})
        server.submit(order)
        outcome = await server.outcome_of(order)
        assert (outcome.status, bytes(outcome.result)) == ("SUCCESS", b'"a"')
        assert [request.seq for request in server.requests] == list(range(1, len(server.requests) + 1))
        again = server.requests[1].hello
        assert again is not None, "it is sent whole when the server has said which fields it takes"
        assert (hello.lease, again.lease) == (None, QUICK.rescue)
        assert all(request.hello is None for request in server.requests[2:])

    against_a_server(test)


def test_an_idle_worker_waits_for_work_in_one_long_poll() -> None:
    clock = ManualClock()

    async def test(server: ExchangeServer, _: Worker) -> None:
        await server.until(lambda: len(server.requests) == 3)
        assert [request.wait_ms for request in server.requests] == [0, 0, 200], "the first two say hello"
        assert server.requests[2].free == 4
        await passes_until(clock, lambda: len(server.requests) == 9)
        assert 6 * 0.2 - 0.01 < server.arrivals[8] - server.arrivals[2] < 6 * 0.3

    against_a_server(test, clock=clock)


def test_it_beats_even_when_no_slot_is_free() -> None:
    clock = ManualClock()

    async def test(server: ExchangeServer, _: Worker) -> None:
        server.submit(an_order("sleeps", payload={"seconds": 60}))
        await passes_until(clock, lambda: sum(request.free == 0 for request in server.requests) >= 4)

    against_a_server(test, slots=1, clock=clock)


def test_ten_thousand_no_ops_are_each_run_and_recorded_once() -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        server.submit(*[an_order() for _ in range(10_000)])
        await server.until(lambda: len(server.outcomes) == 10_000)
        assert server.recorded_twice == []
        assert server.most_in_flight <= 2
        assert len(server.requests) < 1000  # in batches, not one by one; the slower the machine the smaller they are

    against_a_server(test, slots=20)


def test_slow_runs_are_not_hoarded() -> None:
    clock = ManualClock()

    async def test(server: ExchangeServer, _: Worker) -> None:
        orders = [an_order("sleeps", payload={"seconds": 4.0}) for _ in range(20)]
        server.submit(*orders)
        await passes_until(clock, lambda: len(server.outcomes) == 20)
        held = max(outcome.held_ms for outcome in server.outcomes.values())
        assert held < 500.0, "one that was taken before there was a slot for it waits for the 4,000 ms of another"
        assert server.most_in_flight <= 2

    against_a_server(test, slots=10, clock=clock)


def test_runs_that_were_prefetched_in_vain_go_back_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    # A rate that a stall of the machine does not hide.
    monkeypatch.setattr("mainspring.worker.exchange.prefetch.WINDOW", 0.5)

    async def test(server: ExchangeServer, _: Worker) -> None:
        quick = [an_order() for _ in range(3000)]
        slow = [an_order("sleeps", payload={"seconds": 60}) for _ in range(500)]
        server.submit(*quick, *slow)
        await server.until(lambda: any(outcome.status == "RETURNED" for outcome in server.outcomes.values()))
        await server.until(lambda: server.held_by_workers() == 4)

    against_a_server(test)


@pytest.mark.parametrize("fault", ["drop the answer", "cut the answer short", "hang"])
def test_a_run_whose_claim_was_lost_on_the_way_is_handed_out_again_and_run_once(fault: Fault) -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        await server.until(lambda: len(server.requests) == 2)
        server.faults.append(fault)
        server.submit(an_order("counted", payload={"name": "first"}))
        await server.until(lambda: not server.faults)
        orders = [an_order("counted", payload={"name": name}) for name in ("a", "b", "c")]
        server.submit(*orders)
        for order in orders:
            await server.outcome_of(order)
        await server.until(lambda: len(server.outcomes) == 4)
        assert ran == {"first": 1, "a": 1, "b": 1, "c": 1}
        assert any(request.recover for request in server.requests)

    against_a_server(test, answered=0.8 if fault == "hang" else ANSWERED)


def test_an_outcome_whose_acknowledgement_was_lost_is_reported_again_and_not_run_again() -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        order = an_order("counted", payload={"name": "a"})
        server.submit(order)
        server.when_reported(order, "drop the answer")
        await server.until(lambda: order.run_id in server.recorded_twice)
        assert ran == {"a": 1}
        recovery = next(request for request in server.requests if request.recover)
        assert [line.run_id for line in recovery.inventory] == [order.run_id]
        await server.until(lambda: not server.requests[-1].outcomes)

    against_a_server(test)


def test_outcomes_survive_an_outage_of_the_server() -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        server.faults.extend(["503"] * 3)
        order = an_order("counted", payload={"name": "a"})
        server.submit(order)
        assert (await server.outcome_of(order)).status == "SUCCESS"
        assert len(server.incarnations) == 1

    against_a_server(test)


def test_a_worker_that_the_server_does_not_know_any_more_kills_its_runs_and_begins_anew(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        server.submit(an_order("shell", command=f"echo $$ > {tmp_path}/pid; {HELD}"))
        (pid,) = map(int, await written(tmp_path / "pid"))
        server.faults.append("unknown_worker")
        assert await ended_soon(pid)
        await server.until(lambda: len(server.incarnations) == 2)
        newborn = next(request for request in server.requests if request.worker_id == server.incarnations[1])
        assert newborn.hello is not None
        assert (newborn.seq, newborn.outcomes, newborn.inventory) == (1, [], [])
        order = an_order("counted", payload={"name": "after"})
        server.submit(order)
        await server.outcome_of(order)
        assert [outcome.status for outcome in server.outcomes.values()] == ["SUCCESS"]

    against_a_server(test)


def test_without_an_acknowledgement_in_time_the_runs_are_killed(tmp_path: Path) -> None:
    clock = ManualClock()

    async def test(server: ExchangeServer, _: Worker) -> None:
        server.submit(an_order("shell", command=f"trap '' TERM; echo $$ > {tmp_path}/pid; {HELD}"))
        (pid,) = map(int, await written(tmp_path / "pid"))
        server.begin_outage("hang")
        await pass_time(clock, server.acknowledged + LAPSES.base_kill - 0.1 - clock.monotonic())
        assert alive(pid)
        await pass_time(clock, 0.2 + LAPSES.beat)
        assert await ended_soon(pid)
        server.end_outage()
        await passes_until(clock, lambda: len(server.incarnations) == 2)

    against_a_server(test, timing=LAPSES, answered=0.8, clock=clock)


def test_a_silent_server_does_not_cost_an_idle_worker_its_incarnation() -> None:
    clock = ManualClock()

    async def test(server: ExchangeServer, _: Worker) -> None:
        server.begin_outage("hang")
        await pass_time(clock, LAPSES.base_kill + 1.0)
        server.end_outage()
        order = an_order()
        server.submit(order)
        await passes_until(clock, lambda: order.run_id in server.outcomes)
        assert len(server.incarnations) == 1

    against_a_server(test, timing=LAPSES, answered=0.8, clock=clock)


def test_a_cancelled_shell_run_is_reported_once_it_is_gone_without_spinning_meanwhile(tmp_path: Path) -> None:
    clock = ManualClock()

    async def test(server: ExchangeServer, _: Worker) -> None:
        order = an_order("shell", command=f"trap '' TERM; echo $$ > {tmp_path}/pid; {HELD}")
        server.submit(order)
        (pid,) = map(int, await written(tmp_path / "pid"))
        before, begun = len(server.requests), clock.monotonic()
        server.cancel(order.run_id)  # from now on every exchange is answered early with the same wish
        await passes_until(clock, lambda: order.run_id in server.outcomes)
        assert server.outcomes[order.run_id].status == "CANCELLED"
        assert await ended_soon(pid, 0)
        assert len(server.requests) - before < 25 + 15 * (clock.monotonic() - begun)

    against_a_server(test, tell_again=0.0, clock=clock)


@pytest.mark.usefixtures("fetches_in_advance")
def test_a_cancelled_async_run_and_an_unstarted_one() -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        server.submit(*[an_order() for _ in range(2000)])  # quick ones, so that some are held unstarted
        slow = [an_order("sleeps", payload={"seconds": 60}) for _ in range(10)]
        server.submit(*slow)
        await server.until(lambda: server.held_by_workers() == 10 and len(server.outcomes) == 2000)
        for order in slow:
            server.cancel(order.run_id)
        outcomes = [await server.outcome_of(order) for order in slow]
        statuses = {outcome.status for outcome in outcomes}
        assert statuses <= {"CANCELLED", "RETURNED"}
        assert sum(outcome.ran_ms > 0 for outcome in outcomes if outcome.status == "CANCELLED") == 2

    against_a_server(test, slots=2)


@pytest.mark.usefixtures("fetches_in_advance")
def test_drain_hands_back_what_has_not_started_and_lets_the_rest_finish() -> None:
    async def test(server: ExchangeServer, worker: Worker) -> None:
        server.submit(*[an_order() for _ in range(2000)])
        slow = [an_order("blocks", payload={"name": "ordinary"}) for _ in range(10)]
        server.submit(*slow)
        await server.until(lambda: server.held_by_workers() == 10 and len(server.outcomes) == 2000)
        await server.until(lambda: ran["ordinary"] == 2)  # what the server has given, the worker has
        worker.stop()
        # A long poll from before the drain may still bring some; the first exchange of the drain ends it.
        await server.until(lambda: server.requests[-1].draining)
        late = an_order()
        server.submit(late)
        release["ordinary"].set()
        await server.until(lambda: server.requests[-1].stopped)
        await server.until(lambda: server.held_by_workers() == 0)
        statuses = Counter(server.outcomes[order.run_id].status for order in slow)
        assert statuses == {"SUCCESS": 2, "RETURNED": 8}
        assert late.run_id not in server.outcomes
        draining = [request for request in server.requests if request.draining]
        assert all(request.free == 0 for request in draining)

    against_a_server(test, slots=2, timing=PATIENT)


def test_a_drain_that_takes_too_long_stops_what_still_runs(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, worker: Worker) -> None:
        shell = an_order("shell", command=f"trap '' TERM; echo $$ > {tmp_path}/pid; {HELD}")
        sleeper = an_order("sleeps", payload={"seconds": 60})
        server.submit(shell, sleeper)
        (pid,) = map(int, await written(tmp_path / "pid"))
        worker.stop()
        for order in (shell, sleeper):
            outcome = await server.outcome_of(order)
            assert (outcome.status, outcome.retry) == ("FAILED", True)
            assert (outcome.error or "").startswith("worker stopped")
        assert await ended_soon(pid, 0)
        await server.until(lambda: server.requests[-1].stopped)

    against_a_server(test)


def test_a_drain_does_not_report_an_exclusive_run_that_lives_on() -> None:
    clock = ManualClock()

    async def test(server: ExchangeServer, worker: Worker) -> None:
        ordinary = an_order("blocks", payload={"name": "ordinary"})
        exclusive = an_order("blocks", payload={"name": "exclusive"}, exclusive=True)
        server.submit(ordinary, exclusive)
        await passes_until(clock, lambda: ran.total() == 2)
        worker.stop()
        await passes_until(clock, lambda: ordinary.run_id in server.outcomes)
        assert server.outcomes[ordinary.run_id].status == "FAILED"
        release["ordinary"].set()
        await pass_time(clock, 0.5)  # the farewell would be said by now
        assert exclusive.run_id not in server.outcomes
        assert not any(request.stopped for request in server.requests)
        release["exclusive"].set()
        await passes_until(clock, lambda: exclusive.run_id in server.outcomes)
        assert server.outcomes[exclusive.run_id].error == "worker stopped"
        await passes_until(clock, lambda: server.requests[-1].stopped)

    against_a_server(test, last_breath=1.0, clock=clock)


def test_a_second_signal_ends_the_drain_at_once(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, worker: Worker) -> None:
        order = an_order("shell", command=f"trap '' TERM; echo $$ > {tmp_path}/pid; {HELD}")
        server.submit(order)
        (pid,) = map(int, await written(tmp_path / "pid"))
        worker.stop()
        worker.stop()
        assert await ended_soon(pid, 20.0), "long before the drain's grace, and before that of the kill"
        assert (await server.outcome_of(order)).status == "FAILED"

    against_a_server(test, timing=PATIENT)
