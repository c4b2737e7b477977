"""The rules for events and waits can fail: for each there is a history with one violation that the rule must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster import rules_events, rules_waits
from tests.cluster.event_book import EMIT
from tests.cluster.history import FAILED, PAUSED_JOB, SUCCESS, WAITING, Call
from tests.cluster.rules_waits import APPROVE, REJECT
from tests.cluster.story import Story

RULES = [
    rule for module in (rules_events, rules_waits) for name, rule in vars(module).items() if name.startswith("s16_")
]


class EventStory(Story):
    """A job that event e starts; a step that sleeps, one that waits for event e, and one for a decision."""

    def __init__(self) -> None:
        super().__init__()
        self.create(0.0, schedule={"kind": "EVENT", "event": "made"})

    def emit(self, at: float, *, n: int = 1, stored: int | None = None, event_id: str = "e") -> None:
        """It is acknowledged 10 ms after it was sent, and stored in between."""
        row = {"event_id": event_id, "name": "made", "key": "", "payload": {"n": n}, "seq": int(at * 10)}
        body = {"name": "made", "id": event_id, "payload": {"n": n}}
        self.history.calls.append(Call(EMIT, "", body, at, at + 0.01, "ok", 201, {}))
        if stored is not None:
            self.write(at + 0.005, "server", ("events", "I", {}, row | {"payload": {"n": stored}}))

    def start(self, at: float, run: str, *ids: str) -> None:
        payload = {"events": [{"id": one} for one in ids]} if len(ids) > 1 else {"event": {"id": ids[0]}}
        self.write(at, "server", ("given_events", "I", {}, {"run_id": run, "job_id": "tick", "payload": payload}))

    def begin(self, at: float, run: str, **payload: Any) -> None:
        row = self.created(0) | {
            "run_id": run,
            "trigger": "step:f:1",
            "job_id": f"{run}@w",
            "state": WAITING,
            "rule": 0,
        }
        self.runs[run] = row
        wait = {"run_id": run}
        self.write(at, "server", ("runs", "I", {}, row), ("waits", "I", {}, wait),
                   ("begun_waits", "I", {}, {"run_id": run, "job_id": row["job_id"], "payload": payload}))  # fmt: skip

    def child(self, at: float, run: str) -> None:
        self.runs[run] = self.created(0) | {"run_id": run, "job_id": "inner", "trigger": "parent:f:1"}
        self.write(at, "server", ("runs", "I", {}, self.runs[run]))

    def over(self, at: float, run: str, state: int = SUCCESS, *, left: bool = False, **fields: Any) -> None:
        old = self.runs[run]
        ended = old | {"state": state, "reason": None, "result": None} | fields
        gone = () if left else (("waits", "D", {"run_id": run}, {}),)
        self.write(at, "server", ("runs", "D", old, {}), ("run_history", "I", {}, ended), *gone)

    def decide(self, at: float, verb: str = APPROVE) -> None:
        self.history.calls.append(Call(verb, "gate", {}, at - 0.05, at, "ok", 200, {}))


def one_decision(story: EventStory) -> None:
    story.over(2.5, "gate", result={"approval": "release"})
    story.decide(2.51)


def child_ends(story: EventStory) -> None:
    story.over(2.6, "child", left=True)
    story.over(2.7, "call")


def two_children(story: EventStory) -> None:
    story.child(1.4, "child")
    story.child(1.5, "twin")


def told(**changes: Callable[[EventStory], None]) -> EventStory:
    """The whole story, with something else in the place of some of its parts."""
    result = {"event": {"id": "e"}}
    parts: dict[str, Callable[[EventStory], None]] = {
        "napping": lambda story: story.begin(1.0, "nap", sleep="2s"),
        "waiting": lambda story: story.begin(1.1, "paid", wait={"event": "made", "timeout": "5s"}),
        "asking": lambda story: story.begin(1.2, "gate", wait={"approval": "release", "timeout": "5s"}),
        "emitted": lambda story: story.emit(2.0, stored=1),
        "started": lambda story: story.start(2.1, "run-1", "e"),
        "paid": lambda story: story.over(2.2, "paid", result=result),
        "decided": one_decision,
        "awake": lambda story: story.over(3.01, "nap"),
        "calling": lambda story: story.begin(1.3, "call", workflow="inner"),
        "born": lambda story: story.child(1.4, "child"),
        "back": child_ends,
    }  # fmt: skip
    story = EventStory()
    for part in (parts | changes).values():
        part(story)
    return story


def found(story: EventStory) -> list[str]:
    return [rule.__name__ for rule in RULES if list(rule(story.history))]


def test_a_history_in_which_all_is_well_has_no_violation() -> None:
    assert found(told()) == []


def test_a_repeated_event_and_a_refused_decision_are_fine() -> None:
    def again(story: EventStory) -> None:
        story.start(2.1, "run-1", "e")
        story.emit(2.12, n=9)
        story.history.calls.append(Call(REJECT, "gate", {}, 2.4, 2.6, "refused", 409, {}))

    assert found(told(started=again)) == []


def nothing(_: EventStory) -> None: ...


def two_starts(story: EventStory) -> None:
    story.start(2.1, "run-1", "e")
    story.start(2.1, "run-2", "e")


def a_start_in_a_pause(story: EventStory) -> None:
    story.change(2.05, status=PAUSED_JOB)
    story.start(2.1, "run-1", "e")


def a_later_event_first(story: EventStory) -> None:
    story.emit(2.3, stored=1, event_id="f")
    story.start(2.4, "run-2", "f")
    story.start(2.5, "run-1", "e")


def two_decisions(story: EventStory) -> None:
    one_decision(story)
    story.decide(2.52)


WRONGS: list[tuple[str, dict[str, Any]]] = [
    ("s16_an_acknowledged_event_is_stored_once", {"emitted": lambda story: story.emit(2.0)}),
    ("s16_an_acknowledged_event_is_stored_once", {"emitted": lambda story: story.emit(2.0, stored=7)}),
    ("s16_an_event_starts_each_job_once", {"started": nothing}),
    ("s16_an_event_starts_each_job_once", {"started": two_starts}),
    ("s16_an_event_starts_each_job_once", {"started": lambda story: story.start(2.1, "run-1", "other")}),
    ("s16_batches_and_pauses_hold", {"started": lambda story: story.start(2.1, "run-1", "e", "f")}),
    ("s16_batches_and_pauses_hold", {"started": a_start_in_a_pause}),
    ("s16_events_of_a_key_start_in_order", {"started": a_later_event_first}),
    ("s16_a_wait_begins_and_ends_once", {"awake": lambda story: story.over(3.01, "nap", left=True)}),
    ("s16_a_wait_begins_and_ends_once", {"awake": lambda story: [story.over(3.01, "nap") for _ in (1, 2)] and None}),
    ("s16_a_step_has_one_child", {"born": two_children}),
    ("s16_a_step_has_one_child", {"back": lambda story: story.over(2.7, "call")}),
    ("s16_a_step_has_one_child", {"back": lambda story: story.over(2.6, "child", left=True)}),
    ("s16_a_sleep_is_neither_short_nor_long", {"awake": lambda story: story.over(2.6, "nap")}),
    ("s16_a_sleep_is_neither_short_nor_long", {"awake": nothing}),
    ("s16_a_sleep_is_neither_short_nor_long", {"awake": lambda story: story.over(9.6, "nap")}),
    (
        "s16_a_timeout_is_neither_short_nor_long",
        {"decided": lambda story: story.over(3.0, "gate", FAILED, reason="timed out after 5s: it did not come")},
    ),
    (
        "s16_an_event_ends_the_wait_for_it",
        {"paid": lambda story: story.over(6.2, "paid", FAILED, reason="timed out after 5s: it did not come")},
    ),
    (
        "s16_an_event_ends_the_wait_for_it",
        {"paid": lambda story: story.over(2.2, "paid", result={"event": {"id": "other"}})},
    ),
    ("s16_an_event_ends_the_wait_for_it", {"paid": nothing}),
    ("s16_a_decision_counts_once", {"decided": two_decisions}),
    ("s16_a_decision_counts_once", {"decided": lambda story: story.over(2.5, "gate", result={})}),
    ("s16_a_decision_counts_once", {"decided": lambda story: story.decide(2.5, REJECT)}),
]


@pytest.mark.parametrize(("rule", "changes"), WRONGS)
def test_every_rule_finds_its_violation(rule: str, changes: dict[str, Any]) -> None:
    assert rule in found(told(**changes))


def test_every_rule_is_tested() -> None:
    assert {rule for rule, _ in WRONGS} == {rule.__name__ for rule in RULES}
