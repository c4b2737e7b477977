"""The rules for losses and starts: a loss uses no attempt, max_losses is kept, and nobody is blamed for a neighbour."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.cluster.history import FAILED, HELD, QUEUED, RUNNING, Event, History, Row
from tests.cluster.rules_client import poison_of

_MAX_LOSSES = 3
_LOST = "worker lost"
_ALONE = "the last time while it was alone on its worker"


def s14_losses_are_counted_and_allowed(history: History) -> Iterator[str]:
    """`losses` counts the attempts that were lost, and `snoozes` those that were snoozed. Each of them grants another
    attempt. A run that is not at most once fails by a loss only after max_losses, or if it is lost again and its worker
    held no other run. A run that has ended its worker is kept apart: it ends no second one."""
    snoozed = Counter(event.new["run_id"] for event in history.of("attempts") if event.new["outcome"] == "SNOOZED")
    lost = Counter(event.new["run_id"] for event in history.of("attempts") if event.new["outcome"] == "LOST")
    for run, life in history.runs.items():
        for event in life:
            if event.table == "runs" and event.op == "U":
                yield from _counted(run, event)
        last = life[-1].row
        for event in life:
            if event.table == "run_history" and event.op == "I" and event.new["state"] == FAILED:
                yield from _allowed(history, run, event)
                last = event.new
        if not 0 <= last.get("losses", 0) - lost[run] <= 1:
            yield f"run {run} tells {last.get('losses', 0)} losses, and {lost[run]} attempts of it were lost"
        if last.get("snoozes", 0) != snoozed[run]:
            yield f"run {run} tells {last.get('snoozes', 0)} snoozes, and {snoozed[run]} attempts of it were snoozed"
    poisoned = Counter(run for ended in history.exits if (run := poison_of(history, ended)))
    for run, times in poisoned.items():
        if times > 1:
            yield f"run {run} ended {times} workers"


def _counted(run: str, event: Event) -> Iterator[str]:
    old, new = event.old, event.new
    more = new.get("losses", 0) - old.get("losses", 0)
    snoozed = new.get("snoozes", 0) - old.get("snoozes", 0)
    granted = new.get("max_attempts", 0) - old.get("max_attempts", 0)
    requeued = old["state"] == RUNNING and new["state"] in (QUEUED, HELD)
    if more + snoozed != granted or (more, snoozed) not in (((0, 0), (1, 0), (0, 1)) if requeued else ((0, 0),)):
        yield f"run {run} got {more} losses, {snoozed} snoozes and {granted} attempts by one step"


def _allowed(history: History, run: str, event: Event) -> Iterator[str]:
    end: Row = event.new
    spec = end.get("spec") or {}
    if end.get("error") != _LOST or spec.get("delivery") == "at_most_once" or "run_timeout" in (end["reason"] or ""):
        return
    if _ALONE in str(end["reason"]):
        if end["losses"] < 2:
            yield f"run {run} failed by its first loss, because it was alone"
        others = [other for other in history.runs if other != run and _held_meanwhile(history, other, event)]
        if others:
            yield f"run {run} failed because it was alone on its worker, which held {', '.join(others)} too"
    elif str(end["reason"]).startswith("lost ") and end["losses"] <= spec.get("max_losses", _MAX_LOSSES):
        yield f"run {run} failed by its loss number {end['losses']}"
    elif not str(end["reason"]).startswith(("lost ", "failed ")):
        yield f"run {run} failed by a loss: {end['reason']}"


def _held_meanwhile(history: History, run: str, end: Event) -> bool:
    """Whether the worker of the run that `end` ends held this run too, visibly and during its whole transaction. What
    that transaction itself takes from the worker was held."""
    since: Event | None = None
    for event in history.runs[run]:
        if event.tx == end.tx or event.at > end.at:
            break
        holds = event.table == "runs" and event.new.get("state") == RUNNING
        if not holds or event.new["worker_id"] != end.new["worker_id"]:
            since = None
        elif since is None:
            since = event
    return since is not None and since.visible < end.began


def s6_an_attempt_begins_once(history: History) -> Iterator[str]:
    """An attempt that is handed back or was not started has the number of the next one. It has begun only once."""
    begun: dict[tuple[str, int], int] = defaultdict(int)
    for line in history.lines:
        begun[line.run, line.attempt] += line.what == "start"
    for (run, attempt), times in begun.items():
        if times > 1:
            yield f"run {run}: attempt {attempt} was begun {times} times"
