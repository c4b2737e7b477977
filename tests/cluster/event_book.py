"""Events as the clients and the audit tell them: what was emitted and stored, the jobs that they start, and the runs
that got them. The audit keeps payloads for this, so nothing here comes from the product's own notes about events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from tests.cluster.history import CANCELLED_JOB, PAUSED_JOB, Call, Event, History, Row

EMIT = "emit"
# The conditions that the load and the scenes use, once more in Python.
CONDITIONS: dict[str, Callable[[Any, str], bool]] = {
    "payload.n >= 50": lambda payload, _: payload["n"] >= 50,
    "payload.n % 2 == 0 && key != ''": lambda payload, key: payload["n"] % 2 == 0 and key != "",
}


@dataclass(frozen=True, slots=True)
class Given:
    """A run that got events: these, in this order."""

    run: str
    job: str
    ids: tuple[str, ...]
    event: Event


@dataclass(slots=True)
class EventBook:
    """stored: the row of each event when it was stored. changed: those that were stored again or changed. given: the
    runs of each job that got events."""

    stored: dict[str, Event] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    given: dict[str, list[Given]] = field(default_factory=lambda: defaultdict(list))
    emissions: list[tuple[Call, list[Row]]] = field(default_factory=list)


_known: WeakKeyDictionary[History, EventBook] = WeakKeyDictionary()


def read_events(history: History) -> EventBook:
    if history not in _known:
        _known[history] = _read(history)
    return _known[history]


def _read(history: History) -> EventBook:
    book = EventBook()
    for event in history.of("events"):
        if event.op == "U" or (event.op == "I" and event.new["event_id"] in book.stored):
            book.changed.append(event.new["event_id"])
        elif event.op == "I":
            book.stored[event.new["event_id"]] = event
    for event in history.of("given_events"):
        payload = event.new["payload"]
        found = payload["events"] if "events" in payload else [payload["event"]]
        job = str(event.new["job_id"])
        book.given[job].append(Given(event.new["run_id"], job, tuple(one["id"] for one in found), event))
    for call in history.calls:
        if call.verb == EMIT:
            book.emissions.append((call, call.body.get("events") or [call.body]))
    return book


def wants(schedule: Row, stored: Row) -> bool:
    """Whether a job with this schedule wants this event."""
    if schedule.get("event") != stored["name"]:
        return False
    text = schedule.get("condition")
    return text is None or CONDITIONS[text](stored["payload"], stored["key"])


def event_jobs(history: History) -> Iterator[tuple[str, list[Event]]]:
    """The jobs that events start, with their lives."""
    for job, life in history.jobs.items():
        if (life[0].row.get("schedule") or {}).get("event") is not None:
            yield job, life


def was_there(life: list[Event], stored: Event) -> bool:
    """Whether the job existed before the event, and was not cancelled later."""
    return life[0].visible < stored.began and all(_alive(event) for event in life)


def _alive(event: Event) -> bool:
    return event.op != "D" and event.new["status"] != CANCELLED_JOB


def is_paused(life: list[Event], birth: Event) -> bool:
    """Whether the job was paused when this run was created. Both are written under the lock of the job."""
    before = [event for event in life if event.seq < birth.seq]
    return bool(before) and before[-1].row["status"] == PAUSED_JOB
