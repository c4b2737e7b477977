"""The rules for limits can fail: for each there is a history with one violation that the rule must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.cluster.history import CANCELLED, HELD, QUEUED, RUNNING, SUCCESS, WAITING, Call
from tests.cluster.line_book import SET
from tests.cluster.load_limits import KEPT, LATER, REPLACED
from tests.cluster.rules import judge
from tests.cluster.rules_gates import s10_no_more_runs_of_a_queue_than_allowed, too_many
from tests.cluster.rules_limits import s10_strict_lines_go_one_after_another
from tests.cluster.rules_unique import s7_one_waiting_job_per_later_key
from tests.cluster.story import Story, plain_story, time_of

LINE, OTHER = -11, -12


class LimitStory(Story):
    """A story with runs that stand in lines. Each of its runs is a job of its own."""

    def limit(self, at: float, slots: int | None, *, line: int = LINE, strict: bool = False) -> None:
        row = {"limit_id": -line, "name": f"limit{line}", "slots": slots, "strict": strict}
        self.write(at, "server", ("limits", "I", {}, row))
        self.write(at, "server", ("limit_keys", "I", {}, {"key_id": line, "limit_id": -line, "key": "a", "in_use": 0}))

    def change_limit(self, at: float, slots: int, *, line: int = LINE, strict: bool = False) -> None:
        row = {"limit_id": -line, "name": f"limit{line}", "slots": slots, "strict": strict}
        self.write(at, "server", ("limits", "U", row, row))

    def submit(self, at: float, run: str, *lines: int, **fields: Any) -> str:
        """Create a HELD run. It was sent and acknowledged a hundredth of a second before and after."""
        keys = list(lines or (LINE,))
        row = self.created(0) | {
            "run_id": run, "job_id": None, "state": HELD, "limit_keys": keys, "held_key": keys[0], "wake_at": None,
        } | fields  # fmt: skip
        self.write(at, "server", ("runs", "I", {}, row))
        self.runs[run] = row
        call = Call("submit", "", {"idempotency_key": run}, at - 0.01, at + 0.01, "ok", 201, {"job_id": run})
        self.history.calls.append(call)
        return run

    def count(self, line: int, change: int) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
        return "limit_keys", "U", {"key_id": line, "in_use": 5}, {"key_id": line, "in_use": 5 + change}

    def turn(self, at: float, run: str, change: int = 0, **fields: Any) -> None:
        """A step of a run that takes (1) or gives back (-1) its slots."""
        new = self.runs[run] | fields
        counts = [self.count(line, change) for line in new["limit_keys"]] if change else []
        self.write(at, "server", ("runs", "U", self.runs[run], new), *counts)
        self.runs[run] = new

    def admit(self, at: float, run: str) -> None:
        self.turn(at, run, 1, state=QUEUED, held_key=None)

    def back_off(self, at: float, run: str) -> None:
        old = self.runs[run]
        self.turn(at, run, -1, state=HELD, fence=old["fence"] + 1, worker_id=None, held_key=old["limit_keys"][0])

    def work(self, at: float, run: str, until: float, *, attempt: int = 1) -> None:
        self.claim(at, run)
        self.lines(run, attempt, start=at + 0.001, end=until)

    def finish(self, at: float, run: str, state: int = SUCCESS, *, to: str | None = None) -> None:
        """The run ends. The one that gets its slots is admitted in the same transaction."""
        old = self.runs[run]
        changes = [("runs", "D", old, {}), ("run_history", "I", {}, old | {"state": state})]
        if to is None:
            changes += [self.count(line, -1) for line in old["limit_keys"] if old["state"] != HELD]
        else:
            new = self.runs[to] | {"state": QUEUED, "held_key": None}
            changes.append(("runs", "U", self.runs[to], new))
            self.runs[to] = new
        self.write(at, "server", *changes)


def limit_story(slots: int | None = 1, *, strict: bool = False) -> LimitStory:
    story = LimitStory()
    story.node("node")
    story.worker("worker")
    story.limit(0.0, slots, strict=strict)
    return story


def one_after_another(story: LimitStory) -> None:
    for number, run in enumerate(("a", "b")):
        story.submit(1.0 + number / 10, run)
    story.admit(1.2, "a")
    story.work(1.3, "a", 1.4)
    story.finish(1.5, "a", to="b")
    story.work(1.6, "b", 1.7)
    story.finish(1.8, "b")


def found(story: Story) -> set[str]:
    return {violation.rule for violation in judge(story.history)}


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


def unique_story(name: str, state_of_the_first: int) -> LimitStory:
    """A second job with the key of the first one."""
    story = limit_story()
    story.submit(1.0, "a", name=name)
    if state_of_the_first != HELD:
        story.admit(1.1, "a")
    if state_of_the_first == RUNNING:
        story.claim(1.2, "a")
    if state_of_the_first == SUCCESS:
        story.work(1.2, "a", 1.3)
        story.finish(1.4, "a")
    story.submit(2.0, "b", name=name)
    return story


@pytest.mark.parametrize("name", [KEPT, REPLACED])
@pytest.mark.parametrize("state", [HELD, QUEUED, RUNNING, SUCCESS])
def test_a_second_job_with_a_unique_key_is_found_while_the_first_one_has_it(name: str, state: int) -> None:
    free = state == SUCCESS or (name == REPLACED and state == RUNNING)
    assert ("S7" in found(unique_story(f"{name}1", state))) is not free


def handed_back_story(name: str, *, began: float, written: float, handed_back: float, committed: float) -> LimitStory:
    """A run is claimed at 1.0, and handed back. Another job with its key is created meanwhile."""
    story = limit_story(slots=None)
    story.submit(0.5, "a", name=name)
    story.admit(0.6, "a")
    story.claim(1.0, "a")
    story.requeue(handed_back, "a")
    story.history.events[-1] = replace(story.history.events[-1], began=handed_back - 0.1, committed=committed)
    story.submit(written, "b", name=name)
    story.history.events[-1] = replace(story.history.events[-1], began=began, committed=written + 0.1)
    return story


def test_a_job_that_is_created_before_a_hand_back_is_committed_is_fine() -> None:
    """A drill has recorded this: the hand-back was written before the submission, and committed after it."""
    times = {"began": 358.859, "written": 359.357, "handed_back": 359.170, "committed": 359.845}
    assert "S7" not in found(handed_back_story(f"{REPLACED}1", **times))


@pytest.mark.parametrize(
    ("name", "began", "found_it"),
    [
        (REPLACED, 8.0, True),  # all had seen for seconds that it was handed back
        (REPLACED, 5.5, False),  # it may have been handed back when the submission had looked
        (REPLACED, 4.0, False),
        (KEPT, 4.0, True),  # such a key is not given up while it runs
    ],
)
def test_a_job_that_is_created_after_a_hand_back_is_found_if_everybody_saw_that(
    name: str, began: float, found_it: bool
) -> None:
    story = handed_back_story(f"{name}1", began=began, written=9.0, handed_back=5.0, committed=5.1)
    assert ("S7" in found(story)) is found_it


@pytest.mark.parametrize(("committed", "found_it"), [(1.9, False), (2.05, True)])
@pytest.mark.parametrize("how", ["claimed", "ended"])
def test_a_job_that_is_created_before_the_other_one_visibly_gave_up_the_key_is_found(
    how: str, committed: float, found_it: bool
) -> None:
    """The claim or the end was written before, and not committed."""
    story = limit_story(slots=None)
    story.submit(0.5, "a", name=f"{REPLACED if how == 'claimed' else KEPT}1")
    story.admit(0.6, "a")
    story.claim(1.0, "a")
    if how == "ended":
        story.finish(1.0, "a")
    last = story.history.events[-1].tx
    story.history.events = [
        replace(event, committed=committed) if event.tx == last else event for event in story.history.events
    ]
    story.submit(2.0, "b", name=story.runs["a"]["name"])
    assert ("S7" in found(story)) is found_it


@pytest.mark.parametrize(("at", "fine"), [(1.25, True), (3.0, False)])
def test_a_submission_that_is_merged_into_a_job_that_has_ended_is_found(at: float, fine: bool) -> None:
    story = limit_story()
    one_after_another(story)
    story.call("submit", at, body={"idempotency_key": "k"}, job_id="a", unique="kept")
    assert ("S7" not in found(story)) is fine


def test_a_job_lives_until_the_end_of_it_is_committed() -> None:
    """A server was stopped between the write and the commit, and a submission was merged meanwhile."""
    story = limit_story()
    one_after_another(story)
    story.history.events = [
        replace(event, committed=event.at + 5.0) if event.op == "D" else event for event in story.history.events
    ]
    story.call("submit", 3.0, body={"idempotency_key": "k"}, job_id="a", unique="kept")
    assert "S7" not in found(story)


def test_more_starts_than_a_rate_allows_are_found() -> None:
    fine = [0.0, 0.0, 0.0, 0.0, 0.0, 0.25, 0.5, 0.75, 1.0]  # 4/s with a burst of 2, and 250 ms of tokens before it
    assert too_many(fine, 4.0, 2, 0.0) is None
    assert too_many([0.0] * 6, 4.0, 2, 0.0) == (6, 0.0)
    assert too_many([*fine, 1.0], 4.0, 2, 0.0) == (10, 1.0)


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


@pytest.mark.parametrize(
    ("second", "next_fire", "bad"),
    [(None, 3, False), (1.5, 3, True), (4.5, 3, False), (None, 0, True), (None, 30, True)],
)
def test_the_key_of_a_job_that_is_pushed_belongs_to_one_and_its_time_only_rises(
    second: float | None, next_fire: int, bad: bool
) -> None:
    story = limit_story()
    job = {"job_id": "a", "name": f"{LATER}1", "created_at": time_of(0), "next_fire_at": time_of(2)}
    story.write(0.0, "server", ("jobs", "I", {}, job))
    story.write(1.0, "server", ("jobs", "U", job, job | {"next_fire_at": time_of(next_fire)}))
    if second is not None:
        story.write(second, "server", ("jobs", "I", {}, job | {"job_id": "b", "created_at": time_of(second)}))
    assert bool(list(s7_one_waiting_job_per_later_key(story.history))) is bad
