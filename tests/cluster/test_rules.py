"""Every rule can fail: for each there is a history with one violation that the rule must find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.history import CANCELLED_JOB, PAUSED_JOB, Injection
from tests.cluster.rules import RULES, judge
from tests.cluster.story import Story, plain_story, time_of
from tests.cluster.wrong_nominal_stories import NOMINAL_WRONGS, two_jitters_that_deal_with_each_time_once
from tests.cluster.wrong_stories import (
    EVEN,
    WRONGS,
    a_drain_that_takes_for_ever,
    a_log,
    a_poisoned_worker,
    an_acknowledged_delete_that_is_forgotten,
    blamed,
    paused,
    second_generation,
)


def test_a_history_in_which_all_is_well_has_no_violation() -> None:
    assert [str(violation) for violation in judge(paused(plain_story()).history)] == []


def test_a_log_that_is_whole_or_truncated_with_a_mark_is_fine() -> None:
    for text, name, truncated in (
        ("run-4 1 0\nrun-4 1 1\nrun-4 1 2\n", "prints-3", False),
        ("run-4 1 0\n", "prints-3-cap-10", True),
    ):
        story = plain_story()
        mark = "\n[mainspring: output truncated at 10]\n" if truncated else ""
        a_log(story, text + mark, name=name, truncated=truncated, counted=len(text))
        assert [str(found) for found in RULES["S12"](story.history)] == []


def test_changes_that_account_for_every_fire_are_fine() -> None:
    """A change fires what is due in its own transaction; pause, delete and a change in a pause record it as missed."""
    story = plain_story()
    fired = story.job | {"last_fired_for": time_of(4), "next_fire_at": time_of(5)}
    changed = fired | {
        "version": 2, "updated_at": time_of(4.02), "schedule": EVEN, "next_fire_at": time_of(6),
    }  # fmt: skip
    run = story.created(4)
    story.write(4.03, "server", ("jobs", "U", story.job, fired), ("runs", "I", {}, run), ("jobs", "U", fired, changed))
    story.job, story.runs["run-4"] = changed, run
    story.claim(4.05, "run-4")
    story.lines("run-4", 1, start=4.06, end=4.1)
    story.end(4.2, "run-4")
    gap = {"job_id": "tick", "first_at": time_of(6), "last_at": time_of(6), "count": 1, "reason": "paused"}
    story.change(6.02, gap, status=PAUSED_JOB, next_fire_at=None, paused_from=time_of(8))
    every = {"kind": "CRON", "cron": "* * * * * *"}
    gap = gap | {"first_at": time_of(8), "last_at": time_of(8)}
    story.change(9.5, gap, schedule=every, paused_from=time_of(10))
    story.change(12.5, story.missed(10, 12, "paused"), status=1, paused_from=None, next_fire_at=time_of(13))
    story.change(13.01, story.missed(13, 13, "deleted"), status=CANCELLED_JOB, next_fire_at=None)
    assert [str(violation) for violation in judge(story.history)] == []


@pytest.mark.parametrize(("at", "fine"), [(0.99, True), (0.4, False)])
def test_a_creation_goes_by_an_estimate_of_the_time(at: float, fine: bool) -> None:
    """The first fire of a job that is created just before a second may be the one after it."""
    story = Story()
    story.node("node")
    story.worker("worker")
    story.grant(0.0, "node")
    story.create(at, next_fire_at=time_of(2))
    story.whole_life(2)
    assert ("L2" not in {violation.rule for violation in judge(story.history)}) is fine


def test_a_revived_job_and_a_second_generation_are_fine() -> None:
    story = plain_story()
    story.change(3.5, status=CANCELLED_JOB, next_fire_at=None)
    story.call("cancel", 3.51)
    story.call("resume", 6.4)
    story.change(6.4, story.missed(4, 6, "cancelled"), status=1, next_fire_at=time_of(7))
    story.whole_life(7)
    story.change(7.5, status=CANCELLED_JOB, next_fire_at=None)
    story.call("cancel", 7.51)
    again = {"body": {"job_id": "tick"}, "job_id": "tick", "generation": 2}
    story.call("submit", 8.1, **again)
    second_generation(story, 8.1)
    story.whole_life(9)
    story.close()
    assert [str(violation) for violation in judge(story.history)] == []


def test_another_jitter_that_neither_repeats_nor_loses_a_time_is_fine() -> None:
    story = plain_story()
    two_jitters_that_deal_with_each_time_once(story)
    story.close()
    assert [str(violation) for violation in judge(story.history)] == []


@pytest.mark.parametrize(
    ("rule", "wrong"), [*WRONGS, *NOMINAL_WRONGS], ids=lambda value: getattr(value, "__name__", value)
)
def test_the_rule_finds_it(rule: str, wrong: Callable[[Story], None]) -> None:
    story = plain_story()
    wrong(story)
    if wrong is not an_acknowledged_delete_that_is_forgotten:
        story.close()
    found = judge(story.history)
    assert rule in {violation.rule for violation in found}, [str(violation) for violation in found]


def test_a_worker_that_a_task_ended_is_not_blamed_for_that() -> None:
    story = plain_story()
    run = story.fire(4.01, 4)
    a_poisoned_worker(story, run, 4.02)
    story.worker("second")
    story.claim(6.0, run, "second")
    story.lines(run, 2, start=6.01, poison=6.1)  # it ends a child of its own
    story.requeue(6.3, run)
    story.claim(7.0, run, "second")
    story.lines(run, 3, start=7.01, end=7.2)
    story.end(7.3, run)
    story.close()
    assert {violation.rule for violation in judge(story.history)} & {"L6", "L8", "S14"} == set()


def test_a_run_that_was_lost_again_while_it_was_alone_is_rightly_a_dead_letter() -> None:
    story = plain_story()
    run, other = story.fire(4.01, 4), story.fire(5.01, 5)
    story.claim(5.02, run)
    story.claim(5.03, other)
    story.exit("worker", "worker", 5.05)
    for each in (run, other):
        story.requeue(5.1, each, lost=True)
    story.worker("second")
    story.claim(6.0, other, "second")
    story.end(6.1, other)
    story.claim(6.2, run, "second")  # when the other has ended
    story.exit("second", "worker", 6.25)
    blamed(story, 6.3, run, 2)
    story.close()
    assert "S14" not in {violation.rule for violation in judge(story.history)}


def test_a_process_that_was_stopped_while_it_drained_is_not_blamed_for_that() -> None:
    story = plain_story()
    a_drain_that_takes_for_ever(story)
    story.history.injections.append(Injection("SIGSTOP scheduler 90 s", "node", 4.6, 94.6))
    story.close()
    assert "L8" not in {violation.rule for violation in judge(story.history)}


@pytest.mark.parametrize(("target", "excused"), [("node", True), ("another", False)])
def test_a_process_that_was_killed_while_it_drained_is_not_blamed_for_that(target: str, excused: bool) -> None:
    story = plain_story()
    story.exit("node", "scheduler", 5.0, code=-9, asked_at=4.5)
    story.history.injections.append(Injection("kill -9 scheduler", target, 4.8, 4.9))
    story.close()
    assert ("L8" not in {violation.rule for violation in judge(story.history)}) == excused


@pytest.mark.parametrize(("seat", "excused"), [("scheduler-2", True), ("scheduler-1", False)])
def test_a_process_that_was_killed_for_another_clock_when_it_was_to_drain_is_not_blamed(
    seat: str, excused: bool
) -> None:
    story = plain_story()
    story.exit("scheduler-2.3", "scheduler", 5.0, code=-9, asked_at=4.5)
    story.history.injections.append(Injection("one clock an hour off", f"{seat}, -3661 s", 4.49, 4.498))
    story.change(30.0, status=CANCELLED_JOB, next_fire_at=None)
    assert ("L8" not in {violation.rule for violation in judge(story.history)}) == excused


def test_every_rule_is_tested() -> None:
    elsewhere = {"S9", "S10", "S16"}  # test_flow_rules.py, test_limit_rules.py, test_event_rules.py
    assert {rule for rule, _ in WRONGS} | elsewhere == set(RULES)
