"""HeldRuns never drops an outcome before it is settled, and never takes a run twice."""

from __future__ import annotations

import msgspec
import pytest

from mainspring.kernel.ids import uuid7
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest, RunOrder, WorkerHello
from mainspring.wire.problems import Problem
from mainspring.worker.exchange.flight import Flight
from mainspring.worker.exchange.held_runs import MAX_OUTCOME_BYTES, MAX_OUTCOMES, HeldRuns
from mainspring.worker.execution.attempt import CANCELLED, RETURNED, SUCCEEDED, Attempt, AttemptEnding, failed

from .exchange_server import an_order

SLOTS = 4


def a_ledger() -> HeldRuns:
    hello = WorkerHello(name="w", queues=["default"], tasks=["noop"], slots=SLOTS)
    return HeldRuns(uuid7(), hello, 0.0)


@pytest.fixture
def held_runs() -> HeldRuns:
    """One that a server knows already."""
    held_runs = a_ledger()
    answer(held_runs, held_runs.compose(0.0, holding=0))
    return held_runs


def answer(held_runs: HeldRuns, flight: Flight, *runs: RunOrder, superseded: bool = False, acked: int | None = None):  # type: ignore[no-untyped-def]
    count = len(flight.request.outcomes) if acked is None else acked
    reply = ExchangeReply(seq=flight.request.seq, acked=count, runs=list(runs), superseded=superseded)
    return held_runs.landed(flight, reply, 1.0)


def take(held_runs: HeldRuns, *orders: RunOrder) -> list[Attempt]:
    taken: list[Attempt] = answer(held_runs, held_runs.compose(0.5, holding=0), *orders).taken
    return taken


def end(held_runs: HeldRuns, attempt: Attempt, ending: AttemptEnding = SUCCEEDED) -> None:
    attempt.started = 1.5
    held_runs.record(attempt, ending, 2.0)


def run_ids(request: ExchangeRequest) -> list[object]:
    return [outcome.run_id for outcome in request.outcomes]


def test_the_hello_is_repeated_until_a_server_has_answered_it() -> None:
    held_runs = a_ledger()
    first = held_runs.compose(0.0, holding=0)
    held_runs.lost(first, 0.1)
    second = held_runs.compose(0.2, holding=0)
    answer(held_runs, second)
    third = held_runs.compose(0.3, holding=0)
    assert first.request.hello is not None
    assert second.request.hello is not None
    assert third.request.hello is None


def test_slots_that_are_about_to_become_free_are_asked_for(held_runs: HeldRuns) -> None:
    assert held_runs.compose(1.0, holding=SLOTS).request.free == 0
    assert held_runs.compose(1.0, holding=SLOTS, soon=3).request.free == 3


def test_the_sequence_rises_by_one_with_every_exchange_sent(held_runs: HeldRuns) -> None:
    flights = [held_runs.compose(1.0, holding=0) for _ in range(3)]
    assert [flight.request.seq for flight in flights] == [2, 3, 4]


def test_an_acknowledged_outcome_is_dropped(held_runs: HeldRuns) -> None:
    (attempt,) = take(held_runs, an_order())
    end(held_runs, attempt)
    flight = held_runs.compose(2.0, holding=0)
    assert run_ids(flight.request) == [attempt.order.run_id]
    assert attempt.key in held_runs.held
    answer(held_runs, flight)
    assert not held_runs.held
    assert not held_runs.compose(2.1, holding=0).request.outcomes


def test_an_outcome_whose_answer_was_lost_is_sent_again_before_newer_ones(held_runs: HeldRuns) -> None:
    first, second = take(held_runs, an_order(), an_order())
    end(held_runs, first)
    lost = held_runs.compose(2.0, holding=1)
    end(held_runs, second)
    held_runs.lost(lost, 2.1)
    again = held_runs.compose(2.2, holding=0)
    assert run_ids(again.request) == [first.order.run_id, second.order.run_id]


def test_a_superseded_answer_without_acknowledgement_settles_nothing(held_runs: HeldRuns) -> None:
    (attempt,) = take(held_runs, an_order())
    end(held_runs, attempt)
    answer(held_runs, held_runs.compose(2.0, holding=0), superseded=True, acked=0)
    assert run_ids(held_runs.compose(2.1, holding=0).request) == [attempt.order.run_id]


def test_a_superseded_answer_that_acknowledges_settles(held_runs: HeldRuns) -> None:
    (attempt,) = take(held_runs, an_order())
    end(held_runs, attempt)
    answer(held_runs, held_runs.compose(2.0, holding=0), superseded=True)
    assert not held_runs.pending
    assert not held_runs.held


def test_a_lost_answer_asks_for_recovery_with_everything_held(held_runs: HeldRuns) -> None:
    running, ended = take(held_runs, an_order(), an_order())
    end(held_runs, ended)
    held_runs.lost(held_runs.compose(2.0, holding=1), 2.1)
    recovery = held_runs.compose(2.2, holding=1, wait_ms=1000)
    assert recovery.request.recover
    assert {(line.run_id, line.fence) for line in recovery.request.inventory} == {
        (running.order.run_id, 1),
        (ended.order.run_id, 1),
    }
    assert (recovery.request.free, recovery.request.wait_ms) == (0, 0)
    answer(held_runs, recovery)
    after = held_runs.compose(2.3, holding=1)
    assert not after.request.recover
    assert not after.request.inventory


def test_an_exchange_from_before_the_loss_does_not_count_as_recovery(held_runs: HeldRuns) -> None:
    waiting = held_runs.compose(2.0, holding=0, wait_ms=1000)
    held_runs.lost(held_runs.compose(2.1, holding=0), 2.2)
    answer(held_runs, waiting)
    assert held_runs.compose(2.3, holding=0).request.recover


def test_a_refused_exchange_needs_no_recovery(held_runs: HeldRuns) -> None:
    held_runs.lost(held_runs.compose(2.0, holding=0), 2.1, answered=True)
    assert not held_runs.compose(2.2, holding=0).request.recover


def test_a_run_that_is_held_is_not_taken_again(held_runs: HeldRuns) -> None:
    order = an_order()
    assert len(take(held_runs, order)) == 1
    assert take(held_runs, order) == []


def test_the_same_run_under_a_new_fence_is_another_attempt(held_runs: HeldRuns) -> None:
    order = an_order()
    (first,) = take(held_runs, order)
    (second,) = take(held_runs, an_order(run_id=order.run_id, fence=2))
    assert first.key != second.key


def test_a_returned_run_may_come_back_with_the_very_answer_that_settles_its_return(held_runs: HeldRuns) -> None:
    (attempt,) = take(held_runs, an_order())
    held_runs.record(attempt, RETURNED, 1.5)
    flight = held_runs.compose(2.0, holding=0)
    landing = answer(held_runs, flight, an_order(run_id=attempt.order.run_id, fence=2))
    assert [taken.order.fence for taken in landing.taken] == [2]
    assert len(held_runs.held) == 1


def test_a_run_that_was_settled_while_its_recovery_was_under_way_is_not_run_again(held_runs: HeldRuns) -> None:
    """The recovery was composed before the run arrived; its answer comes after the run was reported."""
    order = an_order()
    waiting = held_runs.compose(1.0, holding=0, wait_ms=1000)
    held_runs.lost(held_runs.compose(1.1, holding=0), 1.2)
    recovery = held_runs.compose(1.3, holding=0)
    (attempt,) = answer(held_runs, waiting, order).taken
    end(held_runs, attempt)
    answer(held_runs, held_runs.compose(2.0, holding=0))
    assert answer(held_runs, recovery, order).taken == []


def test_a_run_that_a_recovery_brought_is_not_run_again_when_the_first_answer_comes_after_all(
    held_runs: HeldRuns,
) -> None:
    """One server claimed it and is slow to say so; meanwhile another one handed it out again, and it was reported."""
    order = an_order()
    slow = held_runs.compose(1.0, holding=0, wait_ms=1000)
    held_runs.lost(held_runs.compose(1.1, holding=0), 1.2)
    (attempt,) = answer(held_runs, held_runs.compose(1.3, holding=0), order).taken
    end(held_runs, attempt)
    answer(held_runs, held_runs.compose(2.1, holding=0))
    assert not held_runs.held
    assert answer(held_runs, slow, order).taken == []
    assert not held_runs._settled_meanwhile, "nobody can bring it any more"


def test_runs_of_a_superseded_answer_are_taken(held_runs: HeldRuns) -> None:
    waiting = held_runs.compose(1.0, holding=0, wait_ms=1000)
    held_runs.compose(1.1, holding=0)
    assert len(answer(held_runs, waiting, an_order(), superseded=True).taken) == 1


def test_an_exchange_that_reports_does_not_wait(held_runs: HeldRuns) -> None:
    (attempt,) = take(held_runs, an_order())
    assert held_runs.compose(1.0, holding=1, wait_ms=1000).request.wait_ms == 1000
    end(held_runs, attempt)
    assert held_runs.compose(2.0, holding=0, wait_ms=1000).request.wait_ms == 0


def test_what_an_exchange_under_way_asks_for_is_not_asked_for_twice(held_runs: HeldRuns) -> None:
    waiting = held_runs.compose(1.0, holding=0, wait_ms=1000)
    assert waiting.request.free == SLOTS
    assert held_runs.compose(1.1, holding=0).request.free == 0
    assert held_runs.free(0) == 0


def test_a_draining_worker_asks_for_nothing(held_runs: HeldRuns) -> None:
    request = held_runs.compose(1.0, holding=0, draining=True).request
    assert request.draining
    assert request.free == 0


def test_at_most_2000_outcomes_go_at_once_and_stopped_goes_with_the_last(held_runs: HeldRuns) -> None:
    attempts = take(held_runs, *[an_order() for _ in range(MAX_OUTCOMES + 1)])
    for attempt in attempts:
        end(held_runs, attempt)
    first = held_runs.compose(2.0, holding=0, stopping=True)
    held_runs.landed(first, ExchangeReply(first.request.seq, MAX_OUTCOMES), 2.1)
    second = held_runs.compose(2.2, holding=0, stopping=True)
    assert [len(flight.request.outcomes) for flight in (first, second)] == [MAX_OUTCOMES, 1]
    assert [flight.request.stopped for flight in (first, second)] == [False, True]


@pytest.mark.parametrize("how", ["landed", "lost", "refused"])
def test_nobody_has_stopped_while_an_outcome_is_under_way(held_runs: HeldRuns, how: str) -> None:
    """Its exchange may be refused, or lost, and who has stopped is not heard any more."""
    [attempt] = take(held_runs, an_order())
    end(held_runs, attempt)
    reporting = held_runs.compose(2.0, holding=0)
    beat = held_runs.compose(4.0, holding=0, stopping=True)
    assert not beat.request.stopped and held_runs.unreported == 1
    held_runs.landed(beat, ExchangeReply(beat.request.seq), 4.1)
    if how == "landed":
        held_runs.landed(reporting, ExchangeReply(reporting.request.seq, 1), 4.2)
    elif how == "lost":
        held_runs.lost(reporting, 4.2)
    else:
        held_runs.refused(reporting, Problem(type="", title="", status=422, code="", detail=""), 4.2)
        control = held_runs.compose(4.3, holding=0, stopping=True)
        assert not control.request.stopped
        held_runs.landed(control, ExchangeReply(control.request.seq), 4.4)
        trial = held_runs.compose(4.5, holding=0, stopping=True)
        assert len(trial.request.outcomes) == 1 and not trial.request.stopped
        held_runs.landed(trial, ExchangeReply(trial.request.seq, 1), 4.6)
    farewell = held_runs.compose(5.0, holding=0, stopping=True).request
    assert farewell.stopped and len(farewell.outcomes) == (1 if how == "lost" else 0)


def test_heavy_results_are_spread_over_several_exchanges(held_runs: HeldRuns) -> None:
    result = AttemptEnding(result=msgspec.Raw(b'"' + b"x" * 65_000 + b'"'))
    count = 2 * MAX_OUTCOME_BYTES // 65_000
    for attempt in take(held_runs, *[an_order() for _ in range(count)]):
        end(held_runs, attempt, result)
    sent = []
    while held_runs.pending:
        sent.append(len(held_runs.compose(2.0, holding=0).request.outcomes))
    assert sum(sent) == count
    assert len(sent) in (2, 3)


def test_only_runs_that_are_held_and_not_ended_are_stopped_and_once(held_runs: HeldRuns) -> None:
    running, ended = take(held_runs, an_order(), an_order())
    end(held_runs, ended, CANCELLED)
    ended.reported = True
    stop = [running.order.run_id, ended.order.run_id, uuid7()]
    flight = held_runs.compose(2.0, holding=1)
    landing = held_runs.landed(flight, ExchangeReply(seq=flight.request.seq, stop=stop), 2.1)
    assert landing.stop == [running]


def test_an_outcome_tells_how_long_it_was_held_and_how_long_it_ran(held_runs: HeldRuns) -> None:
    (attempt,) = take(held_runs, an_order())  # received at 1.0
    end(held_runs, attempt, failed("ValueError: no", retry=False))  # started at 1.5, ended at 2.0
    (outcome,) = held_runs.compose(2.0, holding=0).request.outcomes
    assert (outcome.held_ms, outcome.ran_ms) == (500.0, 500.0)
    assert (outcome.status, outcome.error, outcome.retry) == ("FAILED", "ValueError: no", False)


def test_every_request_can_be_read_back_from_the_wire(held_runs: HeldRuns) -> None:
    first, second = take(held_runs, an_order(), an_order())
    end(held_runs, first)
    end(held_runs, second, AttemptEnding(result=msgspec.Raw(b'{"a":1}')))
    held_runs.lost(held_runs.compose(2.0, holding=0), 2.1)
    data = msgspec.json.encode(held_runs.compose(2.2, holding=0).request)
    request = msgspec.json.decode(data, type=ExchangeRequest)
    assert bytes(request.outcomes[1].result) == b'{"a":1}'
    assert len(request.inventory) == 2
