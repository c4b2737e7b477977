"""The rules for steps that wait: each ends once, with what it has waited for, and neither early nor never."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mainspring.domain.durations import parse_duration
from tests.cluster.event_book import read_events
from tests.cluster.history import CANCELLED, FAILED, SKIPPED, SUCCESS, Event, History, Row

APPROVE, REJECT = "approve a step", "reject a step"
_PARENT, _STEP = "parent:", "step:"
_SOON = 5.0  # seconds: a few rounds of matcher and sweeper
_CLOCK_ERROR = 0.05
_SINCE = 300.0  # seconds before a wait in which an event counts


@dataclass(frozen=True, slots=True)
class WaitOf:
    """A step that has begun to wait. end: its row in the history."""

    run: str
    began: Event
    end: Event | None

    @property
    def about(self) -> Row:
        """What is waited for: event, approval, sleep or workflow."""
        payload: Row = self.began.new["payload"]
        about: Row = payload.get("wait", payload)
        return about

    @property
    def timeout(self) -> float | None:
        given = self.about.get("timeout")
        return None if given is None else parse_duration(given, "timeout")

    @property
    def timed_out(self) -> bool:
        """Whether it ended by its timeout, as far as the state and the result say it."""
        if self.end is None or self.end.new["state"] == CANCELLED:
            return False
        if self.end.new["state"] == SUCCESS:
            return bool((self.end.new["result"] or {}).get("timed_out"))
        return str(self.end.new["reason"] or "").startswith("timed out after")


def _waits(history: History) -> Iterator[WaitOf]:
    for began in history.of("begun_waits"):
        run = began.new["run_id"]
        ends = [event for event in history.runs.get(run, ()) if event.table == "run_history"]
        yield WaitOf(run, began, ends[0] if ends else None)


def s16_a_wait_begins_and_ends_once(history: History) -> Iterator[str]:
    """With its run, and in the same transaction."""
    for run, count in Counter(event.new["run_id"] for event in history.of("begun_waits")).items():
        if count > 1:
            yield f"step run {run} began to wait {count} times"
    for run, life in history.runs.items():
        ends = [event for event in life if event.table == "run_history" and event.op == "I"]
        if len(ends) > 1 and any(event.new["run_id"] == run for event in history.of("begun_waits")):
            yield f"step run {run} waited and has ended {len(ends)} times"
    left: dict[str, Event] = {}
    for event in history.of("waits"):
        run = event.row["run_id"]
        if event.op == "I":
            left[run] = event
            continue
        left.pop(run, None)
        if not any(one.table == "run_history" and one.new.get("run_id") == run for one in history.by_tx[event.tx]):
            yield f"the wait of {run} is gone, and its run has not ended with it"
    for run in left:
        if any(event.table == "run_history" for event in history.runs.get(run, ())):
            yield f"step run {run} has ended, and its wait is there"


def s16_a_step_has_one_child(history: History) -> Iterator[str]:
    """A step that runs a workflow has started one run of it, and ends as that has, soon after it."""
    children: dict[str, list[str]] = {}
    for run, life in history.runs.items():
        trigger = str(life[0].row["trigger"] or "")
        if trigger.startswith(_PARENT):
            children.setdefault(trigger.removeprefix(_PARENT), []).append(run)
    for step, runs in children.items():
        if len(runs) > 1:
            yield f"step {step} has {len(runs)} children"
    for wait in _waits(history):
        if "workflow" not in wait.about:
            continue
        named = str(wait.began.new["run_id"])
        trigger = str(history.runs[named][0].row["trigger"]).removeprefix(_STEP)
        child = _end_of(history, children.get(trigger, [""])[0])
        if (
            wait.end is not None
            and wait.end.new["state"] == SUCCESS
            and (child is None or child.new["state"] != SUCCESS or child.seq > wait.end.seq)
        ):
            yield f"step run {named} succeeded, and its child has not"
        if child is None:
            if history.at_rest and wait.end is None:
                yield f"step run {named} waits for a child that has not ended"
            continue
        if wait.end is not None and child.new["state"] == SUCCESS and wait.end.new["state"] == FAILED:
            yield f"step run {named} failed, and its child succeeded"
        yield from _late(history, wait, max(child.visible, wait.began.visible), "its child had ended")


def _end_of(history: History, run: str) -> Event | None:
    return next((event for event in history.runs.get(run, ()) if event.table == "run_history"), None)


def s16_a_sleep_is_neither_short_nor_long(history: History) -> Iterator[str]:
    for wait in _waits(history):
        given = wait.about.get("sleep")
        if not isinstance(given, (int, float, str)) or (wait.end is not None and wait.end.new["state"] == CANCELLED):
            continue
        over = wait.began.at + parse_duration(given, "sleep")
        if wait.end is not None and wait.end.at < over - _CLOCK_ERROR:
            yield f"step run {wait.run} slept {over - wait.end.at:.2f} s less than {given}"
        yield from _late(history, wait, max(over, wait.began.visible), "its sleep was over")


def s16_a_timeout_is_neither_short_nor_long(history: History) -> Iterator[str]:
    for wait in _waits(history):
        if wait.timeout is None:
            continue
        over = wait.began.at + wait.timeout
        if wait.timed_out and wait.end is not None and wait.end.at < over - _CLOCK_ERROR:
            yield f"step run {wait.run} timed out {over - wait.end.at:.2f} s early"
        yield from _late(history, wait, max(over, wait.began.visible), "its timeout was over")


def s16_an_event_ends_the_wait_for_it(history: History) -> Iterator[str]:
    """It ends with an event that counts, and with nothing else once there is one."""
    stored = read_events(history).stored
    for wait in _waits(history):
        if wait.about.get("event") is None:
            continue
        counts = {event_id: event for event_id, event in stored.items() if _counts(wait, event)}
        got = _event_of(wait)
        if got is not None and (got not in counts or (wait.end is not None and counts[got].seq > wait.end.seq)):
            yield f"step run {wait.run} got the event {got}, which it did not wait for"
        first = min((event.visible for event in counts.values()), default=None)
        if first is None:
            if wait.end is not None and wait.end.new["state"] == SUCCESS and not wait.timed_out:
                yield f"step run {wait.run} is a SUCCESS without an event"
            continue
        if wait.timed_out and wait.end is not None and first < wait.end.began:
            yield f"step run {wait.run} timed out {wait.end.began - first:.2f} s after the event that it waits for"
        yield from _late(history, wait, max(first, wait.began.visible), "its event was stored")


def _counts(wait: WaitOf, event: Event) -> bool:
    about, row = wait.about, event.new
    if row["name"] != about["event"] or row["key"] != str(about.get("key", "")):
        return False
    since = about.get("since")
    return event.at >= wait.began.at - (_SINCE if since is None else parse_duration(since, "since"))


def _event_of(wait: WaitOf) -> str | None:
    result: Any = None if wait.end is None else wait.end.new["result"]
    return None if not isinstance(result, dict) or "event" not in result else str(result["event"]["id"])


def _late(history: History, wait: WaitOf, since: float, what: str) -> Iterator[str]:
    """It has ended soon after this, unless the history was read before."""
    deadline = history.deadline(since, _SOON)
    if wait.end is None and (history.at_rest or (history.events[-1].at > deadline)):
        yield f"step run {wait.run} waits on, although {what}"
    elif wait.end is not None and wait.end.at > deadline:
        yield f"step run {wait.run} ended {wait.end.at - since:.2f} s after {what}"


def s16_a_decision_counts_once(history: History) -> Iterator[str]:
    """One decision is acknowledged at most, the step has ended by then as it says, and none ends undecided."""
    for wait in _waits(history):
        if wait.about.get("approval") is None:
            continue
        calls = [call for call in history.calls if call.verb in (APPROVE, REJECT) and call.target == wait.run]
        taken = [call for call in calls if call.result == "ok"]
        if len(taken) > 1:
            yield f"step run {wait.run} was decided {len(taken)} times"
        end = wait.end
        for call in taken:
            state = SUCCESS if call.verb == APPROVE else FAILED
            if end is None or end.new["state"] != state or end.at > call.ended or wait.timed_out:
                yield f"step run {wait.run}: {call.verb!r} was acknowledged, and it ended otherwise or later"
        if end is None or wait.timed_out or end.new["state"] in (CANCELLED, SKIPPED):
            continue
        verb = APPROVE if end.new["state"] == SUCCESS else REJECT
        decided = [call for call in calls if call.verb == verb and call.result != "refused" and call.began < end.at]
        if not decided and not str(end.new["reason"] or "").startswith("the wait cannot begin"):
            yield f"step run {wait.run} ended with {end.new['state']}, and nobody has decided that"
