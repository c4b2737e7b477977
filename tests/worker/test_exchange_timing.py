"""When exchanges start: at once when there is something to say, at least every beat, no more than two at a server."""

from __future__ import annotations

from functools import partial

import pytest

from mainspring.kernel.config import Timing
from mainspring.kernel.ids import uuid7
from mainspring.wire.exchange import ExchangeReply, WorkerHello
from mainspring.worker.exchange.exchange_timing import BATCH_SECONDS, ExchangeTiming, pause_after
from mainspring.worker.exchange.flight import Flight
from mainspring.worker.exchange.held_runs import HeldRuns
from mainspring.worker.execution.attempt import SUCCEEDED

from .exchange_server import an_order

BEAT = 2.0
NOW = 100.0


class Scene:
    """Held runs and their exchange timing, at times that the test chooses."""

    def __init__(self) -> None:
        self.held_runs = HeldRuns(uuid7(), WorkerHello(name="w", queues=["q"], tasks=["noop"], slots=20), NOW)
        self.exchange_timing = ExchangeTiming(BEAT, NOW)
        self.holding = 0
        self.land(self.start(NOW), NOW)

    def start(self, at: float, wait_ms: int = 1800) -> Flight:
        flight = self.held_runs.compose(at, holding=self.holding, wait_ms=wait_ms)
        self.exchange_timing.started(at)
        return flight

    def land(
        self, flight: Flight, at: float, runs: int = 0, superseded: bool = False, retry_in: float | None = None
    ) -> None:
        reply = ExchangeReply(seq=flight.request.seq, superseded=superseded, runs=[an_order() for _ in range(runs)])
        reply.retry_in = retry_in
        taken = self.held_runs.landed(flight, reply, at).taken
        self.holding += len(taken)
        pause = pause_after(flight, reply, newest=self.held_runs.is_newest(flight))
        self.exchange_timing.landed(flight, at, useful=bool(taken) or superseded, pause=pause)

    def complete(self, at: float, count: int = 1) -> None:
        for attempt in list(self.held_runs.held.values())[:count]:
            attempt.started = at
            self.held_runs.record(attempt, SUCCEEDED, at)
            self.holding -= 1

    def next(self, at: float, news: float = float("inf")) -> float:
        return self.exchange_timing.next_start(self.held_runs, self.holding, at, wants_runs=True, news=news)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_an_idle_worker_parks_at_once(scene: Scene) -> None:
    assert scene.next(NOW) <= NOW


def test_news_may_interrupt_a_parked_exchange_but_no_other(scene: Scene) -> None:
    scene.start(NOW)
    assert scene.next(NOW + 0.1, news=NOW + 0.3) == NOW + 0.3
    second = scene.start(NOW + 0.3)
    assert scene.next(NOW + 0.3, news=NOW + 0.3) == float("inf"), "never more than two"
    scene.land(second, NOW + 0.31)
    scene.land(scene.held_runs.flights[0], NOW + 0.32, superseded=True)
    scene.start(NOW + 0.4, wait_ms=0)
    assert scene.next(NOW + 0.4, news=NOW + 0.4) == NOW + 0.4 + BEAT, "its answer is on its way"


def test_a_parked_exchange_is_followed_by_the_next_beat(scene: Scene) -> None:
    scene.start(NOW)
    assert scene.next(NOW + 0.1) == NOW + BEAT


def test_a_lone_outcome_is_reported_at_once_beside_the_parked_exchange(scene: Scene) -> None:
    scene.land(scene.start(NOW), NOW, runs=1)
    scene.start(NOW + BATCH_SECONDS)
    scene.complete(NOW + 1.0)
    assert scene.next(NOW + 1.0) <= NOW + 1.0


def test_outcomes_are_gathered_while_more_may_come(scene: Scene) -> None:
    scene.land(scene.start(NOW), NOW, runs=10)
    scene.complete(NOW + 0.001)
    assert scene.next(NOW + 0.001) == pytest.approx(NOW + 0.001 + BATCH_SECONDS)


def test_enough_outcomes_go_without_waiting_for_more(scene: Scene) -> None:
    scene.land(scene.start(NOW), NOW, runs=10)
    scene.complete(NOW + 0.001, count=5)
    assert scene.next(NOW + 0.001) <= NOW + 0.001


def test_what_has_just_arrived_gets_a_moment_before_the_next_exchange(scene: Scene) -> None:
    scene.land(scene.start(NOW), NOW, runs=3)
    assert scene.next(NOW) == pytest.approx(NOW + BATCH_SECONDS)


def test_while_an_exchange_reports_only_a_beat_starts_another(scene: Scene) -> None:
    scene.land(scene.start(NOW), NOW, runs=2)
    scene.complete(NOW + 1)
    scene.start(NOW + 1)
    scene.complete(NOW + 1.1)
    assert scene.next(NOW + 1.1) == NOW + 1 + BEAT


def test_a_third_exchange_never_starts(scene: Scene) -> None:
    scene.start(NOW)
    scene.start(NOW + BEAT)
    scene.exchange_timing.hurry(NOW + BEAT)
    assert scene.next(NOW + 10 * BEAT) == float("inf")


def test_a_slot_that_comes_free_without_an_outcome_is_offered(scene: Scene) -> None:
    scene.holding = 20
    scene.start(NOW)
    assert scene.next(NOW + 0.1) == NOW + BEAT
    scene.holding = 19
    assert scene.next(NOW + 0.2) <= NOW + 0.2


def test_failures_back_off_from_a_tenth_of_a_second_to_one(scene: Scene) -> None:
    pauses = []
    for _ in range(6):
        scene.exchange_timing.failed(NOW)
        pauses.append(round(scene.next(NOW) - NOW, 3))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_third_is_for_another_server_when_two_have_waited_for_a_beat(scene: Scene) -> None:
    scene.start(NOW)
    scene.start(NOW + 1.5, wait_ms=0)
    at = NOW + 1.6
    assert scene.next(at) == float("inf"), "there is no other"
    several = partial(scene.exchange_timing.next_start, scene.held_runs, 0, at, wants_runs=True, several=True)
    assert several() == NOW + BEAT
    scene.exchange_timing.failed(at)
    assert several() == max(NOW + BEAT, at + 0.1)
    scene.start(NOW + BEAT, wait_ms=0)
    assert several() == float("inf")


def test_a_pause_after_a_failure_is_no_longer_than_a_beat() -> None:
    exchange_timing, held_runs = ExchangeTiming(0.25, NOW), Scene().held_runs
    for _ in range(6):
        exchange_timing.failed(NOW)
    assert exchange_timing.next_start(held_runs, 0, NOW, wants_runs=True) == NOW + 0.25


def test_a_refusal_waits_five_seconds(scene: Scene) -> None:
    scene.exchange_timing.refused(NOW)
    assert scene.next(NOW) == NOW + 5.0


def test_one_refusal_does_not_cost_the_lease_of_who_holds_runs() -> None:
    """Such as 429 or 403 of a proxy, or of a server that is being replaced."""
    timing = Timing()
    exchange_timing = ExchangeTiming(timing.beat, NOW)
    scene = Scene()
    scene.holding = 3
    acknowledged = NOW - timing.beat  # the exchange before the refused one
    exchange_timing.refused(NOW, holding=scene.holding)
    assert (
        exchange_timing.next_start(scene.held_runs, scene.holding, NOW, wants_runs=True)
        <= acknowledged + timing.kill - 1.0
    )


def test_what_cannot_wait_goes_in_spite_of_both(scene: Scene) -> None:
    scene.exchange_timing.failed(NOW)
    scene.exchange_timing.refused(NOW)
    scene.exchange_timing.hurry(NOW)
    assert scene.next(NOW) <= NOW


def test_early_answers_with_nothing_new_slow_the_worker_down(scene: Scene) -> None:
    pauses = []
    for _ in range(30):
        scene.land(scene.start(NOW), NOW)
        pauses.append(round(scene.next(NOW) - NOW, 3))
    assert pauses[0] == 0.005
    assert pauses[-1] == 0.1
    scene.land(scene.start(NOW), NOW, superseded=True)
    assert scene.next(NOW) <= NOW


@pytest.mark.parametrize(("retry_in", "until"), [(1.2, 1.2), (60.0, BEAT)])
def test_a_worker_comes_back_when_the_server_says_so_and_within_a_beat(retry_in: float, until: float) -> None:
    scene = Scene()
    scene.land(scene.start(NOW), NOW, runs=2)
    scene.complete(NOW + 0.1, count=2)
    report = scene.start(NOW + 0.1)
    scene.land(report, NOW + 0.2, superseded=True, retry_in=retry_in)
    assert scene.held_runs.pending, "the outcomes are sent again"
    assert scene.next(NOW + 0.2) == pytest.approx(NOW + 0.2 + until)
    scene.exchange_timing.hurry(NOW + 0.3)
    assert scene.next(NOW + 0.3) == NOW + 0.3, "one that drains waits for nothing"


def test_a_report_that_is_superseded_by_nothing_newer_is_not_repeated_at_once() -> None:
    """The server does not say when: another transaction holds a row, or it is an older server that is busy."""
    scene = Scene()
    scene.land(scene.start(NOW), NOW, runs=2)
    scene.complete(NOW + 0.1, count=2)
    scene.land(scene.start(NOW + 0.1), NOW + 0.2, superseded=True)
    assert NOW + 0.4 <= scene.next(NOW + 0.2) <= NOW + 1.0


def test_a_poll_that_a_newer_report_has_superseded_is_followed_by_another_without_a_pause() -> None:
    scene = Scene()
    scene.land(scene.start(NOW), NOW, runs=1)
    poll = scene.start(NOW + 0.1)
    scene.complete(NOW + 0.2)
    report = scene.start(NOW + 0.2)
    scene.land(poll, NOW + 0.21, superseded=True)
    scene.land(report, NOW + 0.22)
    assert scene.next(NOW + 0.22) == NOW + 0.22
