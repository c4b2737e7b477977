"""One outcome that a server will not take costs its own run its outcome, and nobody else anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.kernel.ids import uuid7
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest, Outcome, Progress, WorkerHello
from mainspring.wire.problems import Problem
from mainspring.worker.exchange.flight import Flight
from mainspring.worker.exchange.held_runs import HeldRuns
from mainspring.worker.exchange.rejected_outcomes import (
    REFUSED,
    OutcomeBatch,
    RejectedOutcomes,
    Rejection,
    in_words,
    plain,
)
from mainspring.worker.execution.attempt import CANCELLED, RETURNED, Attempt, AttemptEnding, failed

from .exchange_server import an_order


def a_problem(field: str | None = None, status: int = 422, **fields: Any) -> Problem:
    document = {"type": "", "title": "", "status": status, "code": "invalid_input", "detail": "it is wrong"}
    return Problem(**{**document, "field": field, **fields})


class Picky:
    """A server that will not take outcomes or words of some runs; it may name the first of them."""

    def __init__(self, *, names: bool) -> None:
        self.bad: set[UUID] = set()
        self.takes_plain = True
        self.refuses_all = False
        self.taken: list[Outcome | Progress] = []
        self.asked = 0
        self._names = names

    def asks(self, request: ExchangeRequest) -> Problem | None:
        self.asked += 1
        if self.refuses_all:
            return a_problem("shares")
        for name, items in (("outcomes", request.outcomes), ("progress", request.progress)):
            for index, item in enumerate(items):
                if self._refuses(item):
                    return a_problem(f"{name}[{index}].error" if self._names else None)
        self.taken += [*request.outcomes, *request.progress]
        return None

    def _refuses(self, item: Outcome | Progress) -> bool:
        is_plain = isinstance(item, Outcome) and item.cause is not None and item.cause.errors == [REFUSED]
        return item.run_id in self.bad and not (is_plain and self.takes_plain)

    def of(self, attempt: Attempt) -> list[Outcome | Progress]:
        return [item for item in self.taken if item.run_id == attempt.order.run_id]


class Scene:
    """Held runs, and what their exchanges lead to."""

    def __init__(self, count: int) -> None:
        self.held_runs = HeldRuns(uuid7(), WorkerHello(name="w", queues=["default"], tasks=["noop"], slots=4), 0.0)
        flight = self.held_runs.compose(0.0, holding=0)
        orders = [an_order() for _ in range(count)]
        self.attempts = self.held_runs.landed(flight, ExchangeReply(1, runs=orders), 0.1).taken
        self.rejections: list[Rejection] = []

    def end(self, attempt: Attempt, ending: AttemptEnding | None = None) -> None:
        attempt.started, attempt.reported = 1.0, True
        self.held_runs.record(attempt, ending or AttemptEnding(), 2.0)

    def fly(self, words: list[Progress] | None = None) -> Flight:
        flight = self.held_runs.compose(2.0, holding=0)
        if words and not flight.trial:
            flight.request.progress = words
        return flight

    def land(self, flight: Flight, problem: Problem | None) -> None:
        if problem is not None:
            self.rejections.append(self.held_runs.refused(flight, problem, 3.0))
        else:
            self.held_runs.landed(flight, ExchangeReply(flight.request.seq, len(flight.request.outcomes)), 3.0)

    def exchange(self, server: Picky, words: list[Progress] | None = None) -> None:
        flight = self.fly(words)
        self.land(flight, server.asks(flight.request))

    def settle(self, server: Picky) -> None:
        """Exchange until nothing is left to report."""
        while self.held_runs.rejected_outcomes.busy or self.held_runs.pending:
            self.exchange(server)


@pytest.mark.parametrize("names", [True, False])
@given(good=st.integers(0, 60), bad=st.lists(st.integers(0, 60), max_size=4, unique=True), words=st.integers(0, 10))
def test_all_that_can_be_taken_is_taken_once_and_the_others_are_told_plainly(
    names: bool, good: int, bad: list[int], words: int
) -> None:
    scene, server = Scene(good + len(bad) + words), Picky(names=names)
    telling, ending = scene.attempts[:words], scene.attempts[words:]
    said = [Progress(each.order.run_id, each.order.fence, 1, 0.5) for each in telling]
    server.bad = {scene.attempts[place % len(scene.attempts)].order.run_id for place in bad}
    for attempt in ending:
        scene.end(attempt)
    scene.exchange(server, said)
    scene.settle(server)
    for attempt in scene.attempts:
        is_bad = attempt.order.run_id in server.bad
        taken = server.of(attempt)
        if attempt in telling:
            assert len(taken) == (0 if is_bad else 1)
        else:
            [outcome] = taken
            assert isinstance(outcome, Outcome)
            assert (outcome.status, outcome.retry) == (("FAILED", False) if is_bad else ("SUCCESS", True))
    assert server.asked <= 2 + len(server.bad) * 3 * (len(scene.attempts).bit_length() + 2)
    assert not any(rejection.let_go or rejection.not_contents for rejection in scene.rejections)
    assert set(scene.held_runs.held) == {attempt.key for attempt in telling}


def test_the_reason_is_told_and_a_rule_may_name_it() -> None:
    scene, server = Scene(3), Picky(names=True)
    for attempt in scene.attempts:
        scene.end(attempt)
    server.bad = {scene.attempts[1].order.run_id}
    scene.settle(server)
    [told] = server.of(scene.attempts[1])
    assert isinstance(told, Outcome) and told.cause is not None
    assert told.error == "the server refused this outcome: invalid_input error: it is wrong"
    assert told.cause.errors == [REFUSED]
    assert not told.result


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (a_problem("outcomes[0].status", expected="a status"), "invalid_input status: expected a status"),
        (a_problem("outcomes[0]"), "invalid_input: it is wrong"),
        (a_problem("$", code="invalid_json", detail="not JSON"), "invalid_json: not JSON"),
        (a_problem(None, 413, code="", detail="<h1>Too large</h1>"), "413: <h1>Too large</h1>"),
        (a_problem(None, detail="a\x00\ud800b"), "invalid_input: a\ufffd?b"),
    ],
)
def test_a_refusal_in_words(problem: Problem, words: str) -> None:
    assert in_words(problem) == words


def test_a_refusal_without_end_is_told_in_short() -> None:
    assert len(in_words(a_problem(detail="x" * 100_000))) <= 500


@pytest.mark.parametrize(
    ("ending", "status", "retry"),
    [
        (AttemptEnding(), "FAILED", False),
        (failed("odd"), "FAILED", True),
        (failed("odd", retry=False), "FAILED", False),
        (RETURNED, "RETURNED", True),
        (CANCELLED, "CANCELLED", True),
    ],
)
def test_what_is_told_instead(ending: AttemptEnding, status: str, retry: bool) -> None:
    """What had failed is tried again as it would have been. What had not begun spends no attempt."""
    odd = Outcome(uuid7(), 3, ending.status, held_ms=1e300, ran_ms=1e300, retry=ending.retry, retry_after=-1.0)
    told = plain(odd, a_problem())
    assert (told.run_id, told.fence, told.status, told.retry) == (odd.run_id, 3, status, retry)
    assert (told.held_ms, told.ran_ms, told.retry_after) == (0.0, 0.0, None)


def test_a_server_that_refuses_an_empty_exchange_too_finds_nobody_guilty() -> None:
    scene, server = Scene(5), Picky(names=False)
    for attempt in scene.attempts:
        scene.end(attempt)
    server.refuses_all = True
    for _ in range(4):
        scene.exchange(server)
    assert [rejection.not_contents for rejection in scene.rejections] == [False, True, False, True]
    assert all(rejection.rejected is None for rejection in scene.rejections)
    assert len(scene.held_runs.pending) == 5, "for the next try"
    server.refuses_all = False
    scene.settle(server)
    assert [item.status for item in server.taken if isinstance(item, Outcome)] == ["SUCCESS"] * 5


def test_one_alone_is_not_judged_by_a_server_that_refuses_everything() -> None:
    scene, server = Scene(1), Picky(names=True)
    scene.end(scene.attempts[0])
    server.bad = {scene.attempts[0].order.run_id}
    server.refuses_all = True
    scene.exchange(server)
    assert scene.rejections[-1].rejected is None
    scene.exchange(server)
    assert scene.rejections[-1].not_contents


def test_a_run_of_which_not_even_a_plain_outcome_is_taken_is_let_go_and_not_run_again() -> None:
    scene, server = Scene(4), Picky(names=False)
    for attempt in scene.attempts:
        scene.end(attempt)
    lost = scene.attempts[2]
    server.bad, server.takes_plain = {lost.order.run_id}, False
    scene.settle(server)
    assert [rejection.let_go for rejection in scene.rejections].count(True) == 1
    assert len(server.taken) == 3
    scene.held_runs.lost(scene.fly(), 4.0)
    recovery = scene.fly()
    assert [line.run_id for line in recovery.request.inventory] == [lost.order.run_id], "it is not handed out again"
    again = scene.held_runs.landed(recovery, ExchangeReply(recovery.request.seq, runs=[lost.order]), 5.0)
    assert not again.taken


@pytest.mark.parametrize("how", ["lost", "superseded", "refused for another reason"])
def test_what_is_on_trial_when_an_exchange_fails_is_tried_again_and_the_culprit_found(how: str) -> None:
    def fail(scene: Scene, flight: Flight) -> None:
        if how == "superseded":
            scene.held_runs.landed(flight, ExchangeReply(flight.request.seq, superseded=True), 3.0)
        else:
            scene.held_runs.lost(flight, 3.0, answered=how != "lost")

    scene, server = Scene(6), Picky(names=False)
    for attempt in scene.attempts:
        scene.end(attempt)
    server.bad = {scene.attempts[3].order.run_id}
    scene.exchange(server)
    for _ in range(60):  # every second exchange fails
        if scene.held_runs.rejected_outcomes.busy:
            fail(scene, scene.fly())
            scene.exchange(server)
    scene.settle(server)
    outcomes = [item for item in server.taken if isinstance(item, Outcome)]
    assert sorted(item.status for item in outcomes) == ["FAILED"] + ["SUCCESS"] * 5
    assert not scene.held_runs.pending and not scene.held_runs.held


def test_an_outcome_at_which_a_server_stumbles_each_time_keeps_nobody_else_waiting() -> None:
    """The exchanges that carry nothing keep the lease: without an end to the search the worker would live on for ever,
    and report nothing."""
    scene, server = Scene(20), Picky(names=False)
    for attempt in scene.attempts:
        scene.end(attempt)
    stumbles = scene.attempts[11].order.run_id
    server.bad = {scene.attempts[4].order.run_id}
    scene.exchange(server)
    exchanges = 0
    while scene.held_runs.rejected_outcomes.busy:
        exchanges += 1
        assert exchanges < 60
        flight = scene.fly()
        if any(outcome.run_id == stumbles for outcome in flight.request.outcomes):
            scene.held_runs.lost(flight, 3.0)
        else:
            scene.land(flight, server.asks(flight.request))
    assert [outcome.run_id for outcome in scene.held_runs.pending] == [stumbles], "it is reported as any other"
    assert not scene.fly().trial
    assert len(server.taken) == 19 and {item.run_id for item in server.taken} == {
        attempt.order.run_id for attempt in scene.attempts if attempt.order.run_id != stumbles
    }


def test_what_ends_meanwhile_waits_and_an_old_proof_does_not_count_for_a_new_refusal() -> None:
    scene, server = Scene(4), Picky(names=True)
    first, second, third, fourth = scene.attempts
    server.bad = {first.order.run_id}
    scene.end(first)
    scene.end(second)
    scene.exchange(server)
    scene.end(third)
    control = scene.fly()
    assert control.trial and not control.carries and control.request.wait_ms == 0 and not control.request.stopped
    scene.land(control, server.asks(control.request))
    scene.settle(server)
    assert len(server.of(third)) == 1
    server.bad.add(fourth.order.run_id)
    scene.end(fourth)
    scene.exchange(server)
    assert scene.rejections[-1].rejected is None, "first it is proved that the server takes anything at all"
    scene.settle(server)
    assert [item.status for item in server.of(fourth) if isinstance(item, Outcome)] == ["FAILED"]


def test_a_word_of_an_attempt_that_has_ended_meanwhile_is_not_tried_again() -> None:
    scene, server = Scene(2), Picky(names=False)
    words = [Progress(each.order.run_id, each.order.fence, 1, 0.5) for each in scene.attempts]
    server.bad = {scene.attempts[0].order.run_id}
    scene.exchange(server, words)
    for attempt in scene.attempts:
        scene.end(attempt)
    scene.settle(server)
    assert not any(isinstance(item, Progress) for item in server.taken)


@pytest.mark.parametrize("field", ["outcomes[7].error", "progress[9]", "outcomes[99999999999999999999]", "hello.name"])
def test_a_name_that_names_nothing_leads_to_halves(field: str) -> None:
    outcomes = [Outcome(uuid7(), 1) for _ in range(4)]
    words = [Progress(uuid7(), 1, 1) for _ in range(4)]
    rejected_outcomes = RejectedOutcomes()
    rejected_outcomes.refused(OutcomeBatch(outcomes, words), a_problem(field), trial=False)
    rejected_outcomes.passed(OutcomeBatch())
    assert [
        (batch.outcomes, batch.progress) for batch in _all(rejected_outcomes.take, lambda: rejected_outcomes.busy)
    ] == [
        (outcomes, []),
        ([], words),
    ]


def _all(take: Callable[[], OutcomeBatch], more: Callable[[], bool]) -> list[OutcomeBatch]:
    found = []
    while more():
        found.append(take())
    return found
