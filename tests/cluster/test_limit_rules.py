"""The rules for limits can fail: for each there is a history with one violation that the rule must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.cluster.history import CANCELLED, HELD, QUEUED, RUNNING, WAITING
from tests.cluster.limit_story import LINE, OTHER, LimitStory, found, limit_story, one_after_another
from tests.cluster.line_book import SET
from tests.cluster.rules import judge
from tests.cluster.rules_gates import s10_no_more_runs_of_a_queue_than_allowed, too_many
from tests.cluster.rules_limits import s10_strict_lines_go_one_after_another
from tests.cluster.story import plain_story, time_of


@pytest.mark.parametrize("strict", [False, True])
def test_runs_that_take_turns_are_fine(strict: bool) -> None:
    story = limit_story(strict=strict)
    one_after_another(story)
    assert [str(violation) for violation in judge(story.history)] == []


def test_a_run_that_backs_off_without_its_slot_is_fine() -> None:
    story = limit_story()
    story.submit(1.0, "a")
    story.admit(1.1, "a")
    story.claim(1.2, "a")
    story.lines("a", 1, start=1.21, fail=1.22)
    story.write(1.22, "server", ("attempts", "I", {}, {"run_id": "a", "attempt": 1, "outcome": "FAILED"}))
    story.back_off(1.23, "a")
    story.admit(1.5, "a")
    story.work(1.6, "a", 1.7, attempt=2)
    story.finish(1.8, "a")
    assert [str(violation) for violation in judge(story.history)] == []


def test_a_lowered_limit_may_have_more_owners_than_it_allows() -> None:
    story = limit_story(2)
    for run in ("a", "b"):
        story.submit(1.0, run)
        story.admit(1.1, run)
    story.change_limit(1.2, 1)
    for run in ("a", "b"):
        story.work(1.3, run, 1.4)
        story.finish(1.5, run)
    assert [str(violation) for violation in judge(story.history)] == []


def test_runs_that_a_changed_overlap_rule_has_adopted_may_be_more_than_it_allows() -> None:
    story = limit_story()
    for run in ("a", "b"):
        story.submit(1.0, run, state=QUEUED, limit_keys=None, held_key=None)
        story.work(1.1, run, 1.4)
    for run in ("a", "b"):
        story.turn(1.2, run, 1, limit_keys=[LINE])
        story.finish(1.5, run)
    assert [str(violation) for violation in judge(story.history)] == []


def two_at_once(story: LimitStory) -> None:
    for run in ("a", "b"):
        story.submit(1.0, run)
        story.admit(1.1, run)
        story.work(1.2, run, 1.3)
    for run in ("a", "b"):
        story.finish(1.5, run)


def admitted_too_early_after_the_limit_was_lowered(story: LimitStory) -> None:
    story.change_limit(0.5, 2)
    story.change_limit(0.6, 1)
    for number, run in enumerate(("a", "b")):
        story.submit(9.0, run)
        story.admit(9.1 + number, run)
    for run in ("a", "b"):
        story.work(11.0, run, 11.1)
        story.finish(11.2, run)


def the_next_one_begins_while_the_last_one_works(story: LimitStory) -> None:
    """The rows take turns, and the processes do not."""
    one_after_another(story)
    story.lines("a", 1, tick=1.69)


def a_rescued_attempt_works_on_beside_another_run(story: LimitStory) -> None:
    story.submit(1.0, "a")
    story.submit(1.0, "b")
    story.admit(1.1, "a")
    story.claim(1.2, "a")
    story.lines("a", 1, start=1.21, tick=1.9)
    story.requeue(1.3, "a", lost=True)
    story.finish(1.4, "a", CANCELLED, to="b")
    story.work(1.5, "b", 1.6)
    story.finish(1.7, "b")


def a_second_limit_that_is_full(story: LimitStory) -> None:
    story.limit(0.1, 1, line=OTHER)
    story.submit(1.0, "a", OTHER)
    story.submit(1.0, "b", LINE, OTHER)
    for run in ("a", "b"):
        story.admit(1.1, run)
        story.work(1.2, run, 1.3)
    for run in ("a", "b"):
        story.finish(1.5, run)


def a_count_that_forgets_a_slot(story: LimitStory) -> None:
    story.submit(1.0, "a")
    story.step(1.1, "a", state=QUEUED, held_key=None)
    story.work(1.2, "a", 1.3)
    story.finish(1.4, "a")


def a_backoff_that_is_not_counted(story: LimitStory) -> None:
    story.submit(1.0, "a")
    story.admit(1.1, "a")
    story.claim(1.2, "a")
    story.step(1.3, "a", state=HELD, fence=2, worker_id=None, held_key=LINE)


def a_held_run_whose_end_gives_back_a_slot(story: LimitStory) -> None:
    story.submit(1.0, "a")
    story.finish(1.1, "a", CANCELLED)
    story.write(1.1, "server", story.count(LINE, -1))


def a_count_that_is_wrong_at_the_end(story: LimitStory) -> None:
    one_after_another(story)
    story.history.counts = [{"name": "limit", "key": "a", "in_use": 1, "owners": 0}]


WRONGS: list[tuple[str, Callable[[LimitStory], None]]] = [
    ("S10", two_at_once),
    ("S10", admitted_too_early_after_the_limit_was_lowered),
    ("S10", the_next_one_begins_while_the_last_one_works),
    ("S10", a_rescued_attempt_works_on_beside_another_run),
    ("S10", a_second_limit_that_is_full),
    ("S10", a_count_that_forgets_a_slot),
    ("S10", a_backoff_that_is_not_counted),
    ("S10", a_held_run_whose_end_gives_back_a_slot),
    ("S10", a_count_that_is_wrong_at_the_end),
]


@pytest.mark.parametrize(("rule", "wrong"), WRONGS, ids=lambda value: getattr(value, "__name__", value))
def test_the_rule_finds_it(rule: str, wrong: Callable[[LimitStory], None]) -> None:
    story = limit_story()
    wrong(story)
    assert rule in found(story), [str(violation) for violation in judge(story.history)]


def test_who_overtakes_in_a_strict_line_is_found() -> None:
    story = limit_story(strict=True)
    for number, run in enumerate(("a", "b")):
        story.submit(1.0 + number / 10, run)
    story.admit(1.2, "b")
    story.work(1.3, "b", 1.4)
    story.finish(1.5, "b", to="a")
    story.work(1.6, "a", 1.7)
    story.finish(1.8, "a")
    assert found(story) == {"S10"}
    story.history.calls[0].ended = 1.15  # the one was sent before the other was acknowledged
    assert found(story) == set()


def test_who_begins_while_another_one_of_a_strict_line_backs_off_is_found() -> None:
    story = limit_story(strict=True)
    for number, run in enumerate(("b", "a")):
        story.submit(1.0 + number / 10, run, attempt=0)
    story.history.calls.clear()
    story.admit(1.2, "a")
    story.claim(1.3, "a")
    story.lines("a", 1, start=1.31, fail=1.32)
    story.write(1.33, "server", ("attempts", "I", {}, {"run_id": "a", "attempt": 1, "outcome": "FAILED"}))
    story.back_off(1.34, "a")
    story.admit(1.4, "b")
    story.work(1.5, "b", 1.6)
    story.finish(1.7, "b", to="a")
    story.work(1.8, "a", 1.9, attempt=2)
    story.finish(2.0, "a")
    assert found(story) == {"S10"}


@pytest.mark.parametrize(
    ("strict_at", "loose_at", "found_it"), [(1.05, 9.0, True), (1.25, 9.0, True), (1.5, 9.0, False), (1.05, 1.3, False)]
)
def test_the_order_of_the_limit_counts_when_a_run_is_admitted(
    strict_at: float, loose_at: float, found_it: bool
) -> None:
    """Of two runs the second is admitted at 1.4, while the first backs off."""
    story = limit_story()
    for at, strict in sorted([(strict_at, True), (loose_at, False)]):
        story.change_limit(at, 1, strict=strict)
    story.submit(1.0, "a")
    story.admit(1.1, "a")
    story.claim(1.11, "a")
    story.back_off(1.2, "a")
    story.submit(1.35, "b")
    story.admit(1.4, "b")
    assert bool(list(s10_strict_lines_go_one_after_another(story.history))) is found_it


@pytest.mark.parametrize(("committed", "found_it"), [(1.15, True), (1.45, False)])
def test_who_came_into_a_strict_line_when_another_one_was_admitted_may_be_passed(
    committed: float, found_it: bool
) -> None:
    """The first was acknowledged long ago, and depended on another job until then."""
    story = limit_story(strict=True)
    story.submit(1.0, "a", limit_keys=None, held_key=None, state=WAITING)
    story.submit(1.1, "b")
    story.step(1.14, "a", limit_keys=[LINE], held_key=LINE, state=HELD)
    story.history.events[-1] = replace(story.history.events[-1], committed=committed)
    story.admit(1.4, "b")
    assert bool(list(s10_strict_lines_go_one_after_another(story.history))) is found_it


def test_who_waits_in_a_strict_line_behind_a_run_that_backs_off_is_fine() -> None:
    story = limit_story(strict=True)
    story.submit(1.0, "a")
    story.submit(1.1, "b")
    story.admit(1.2, "a")
    story.claim(1.3, "a")
    story.lines("a", 1, start=1.31, fail=1.32)
    story.write(1.33, "server", ("attempts", "I", {}, {"run_id": "a", "attempt": 1, "outcome": "FAILED"}))
    story.turn(1.34, "a", -1, state=HELD, fence=2, worker_id=None, held_key=LINE, wake_at=time_of(11))
    story.turn(11.0, "a", wake_at=None)
    story.admit(11.1, "a")
    story.work(11.2, "a", 11.3, attempt=2)
    story.finish(11.4, "a", to="b")
    story.work(11.5, "b", 11.6)
    story.finish(11.7, "b")
    assert found(story) == set()


def test_a_run_that_is_held_although_its_line_has_room_is_found() -> None:
    story = limit_story()
    story.submit(1.0, "a")
    story.submit(1.0, "b")
    story.admit(1.1, "a")
    story.work(1.2, "a", 1.3)
    story.finish(1.4, "a")
    story.admit(9.0, "b")
    story.work(9.1, "b", 9.2)
    story.finish(9.3, "b")
    assert found(story) == {"L5"}


@pytest.mark.parametrize("left", [HELD, QUEUED, RUNNING])
def test_a_run_that_is_not_replaced_by_a_later_one_is_found(left: int) -> None:
    story = plain_story()
    story.job["overlap"] = 3
    story.change(3.5)
    first = story.fire(4.0, 4)
    if left == HELD:
        story.step(4.1, first, state=HELD, limit_keys=[LINE])
    elif left == RUNNING:
        story.claim(4.1, first)
    story.fire(5.0, 5)
    assert "S10" in found(story)


def test_a_run_that_is_replaced_by_a_later_one_is_fine() -> None:
    story = plain_story()
    story.job["overlap"] = 3
    story.change(3.5)
    first = story.fire(4.0, 4)
    story.claim(4.1, first)
    asked = story.runs[first] | {"cancel_requested_at": time_of(5)}
    story.write(5.0, "node", ("runs", "I", {}, story.created(5)), ("runs", "U", story.runs[first], asked))
    assert "S10" not in found(story)


def test_a_run_that_ends_when_it_is_to_be_replaced_is_fine() -> None:
    story = plain_story()
    story.job["overlap"] = 3
    story.change(3.5)
    first = story.fire(4.0, 4)
    story.claim(4.1, first)
    story.lines(first, 1, start=4.2, end=4.99)
    story.fire(5.0, 5)
    story.end(5.01, first)
    assert "S10" not in found(story)


def test_more_starts_than_a_rate_allows_are_found() -> None:
    fine = [0.0, 0.0, 0.0, 0.0, 0.0, 0.25, 0.5, 0.75, 1.0]  # 4/s with a burst of 2, and 250 ms of tokens before it
    assert too_many(fine, 4.0, 2, lambda _: 0.0) is None
    assert too_many([0.0] * 6, 4.0, 2, lambda _: 0.0) == (6, 0.0)
    assert too_many([*fine, 1.0], 4.0, 2, lambda _: 0.0) == (10, 1.0)


@pytest.mark.parametrize(("beside", "claimed_at"), [(1, 5.0), (2, 1.05)])
def test_a_run_of_a_queue_beside_more_than_its_limit_is_found(beside: int, claimed_at: float) -> None:
    story = limit_story(slots=None)
    story.write(0.0, "server", ("lanes", "I", {}, {"lane_id": 7, "queue": "narrow"}))
    gate = {"queue": "narrow", "concurrency": beside, "paused_at": None}
    story.write(0.5, "server", ("gates", "I", {}, gate))
    story.call(SET, 0.505)  # acknowledged
    for number in range(3):
        story.submit(0.7, f"r{number}", lane_id=7)
        story.admit(0.8, f"r{number}")
        story.claim(claimed_at + number / 100, f"r{number}")
    assert list(s10_no_more_runs_of_a_queue_than_allowed(story.history)) == [
        f"queue narrow allows {beside}: r{number} was claimed beside {[f'r{n}' for n in range(number)]}"
        for number in range(beside, 3)
    ]
