"""The rules for unique jobs can fail: for each there is a history with one violation that the rule must find."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cluster.history import HELD, QUEUED, RUNNING, SUCCESS
from tests.cluster.limit_story import LimitStory, found, limit_story, one_after_another
from tests.cluster.load_limits import KEPT, LATER, REPLACED
from tests.cluster.rules_unique import s7_one_waiting_job_per_later_key
from tests.cluster.story import time_of


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
