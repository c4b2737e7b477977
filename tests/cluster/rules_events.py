"""The rules for events: one that was acknowledged is stored once, starts each job that wants it once, and in order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.cluster.event_book import EventBook, event_jobs, is_paused, read_events, wants, was_there
from tests.cluster.history import Event, History, Row

_CLOCK_ERROR = 0.05


def s16_an_acknowledged_event_is_stored_once(history: History) -> Iterator[str]:
    """Before its answer, as one of the emissions with its id says."""
    book = read_events(history)
    for event_id in book.changed:
        yield f"event {event_id} was stored twice or changed"
    said: dict[str, list[Row]] = defaultdict(list)
    perhaps: set[str] = set()
    for call, events in book.emissions:
        for event in events:
            said[event["id"]].append(event)
            stored = book.stored.get(event["id"])
            if call.result == "ok" and (stored is None or stored.visible > call.ended + _CLOCK_ERROR):
                yield f"event {event['id']} was acknowledged and not stored before"
            if call.result != "refused":
                perhaps.add(event["id"])
    for event_id, stored in book.stored.items():
        if event_id in said and event_id not in perhaps:
            yield f"event {event_id} was refused and is stored"
        sent = [(one["name"], one.get("key", ""), one["payload"]) for one in said[event_id]]
        if sent and (stored.new["name"], stored.new["key"], stored.new["payload"]) not in sent:
            yield f"event {event_id} is stored with what nobody has sent"


def s16_an_event_starts_each_job_once(history: History) -> Iterator[str]:
    """By the payloads of the runs: no event is lost, none starts a job twice, and none a job that does not want it."""
    book = read_events(history)
    for job, life in event_jobs(history):
        schedule = life[0].row["schedule"]
        counts = Counter(event_id for given in book.given.get(job, ()) for event_id in given.ids)
        for event_id, stored in book.stored.items():
            if counts[event_id] > 1:
                yield f"event {event_id} has started {job} {counts[event_id]} times"
            elif counts[event_id] and not wants(schedule, stored.new):
                yield f"event {event_id} has started {job}, which does not want it"
            elif history.at_rest and not counts[event_id] and _was_to_start(book, job, life, stored):
                yield f"event {event_id} was stored and has not started {job}"
        for given in book.given.get(job, ()):
            for event_id in given.ids:
                if event_id not in book.stored or book.stored[event_id].seq > given.event.seq:
                    yield f"run {given.run} of {job} got the event {event_id}, which was not stored"


def _was_to_start(book: EventBook, job: str, life: list[Event], stored: Event) -> bool:
    schedule = life[0].row["schedule"]
    return wants(schedule, stored.new) and was_there(life, stored) and not _debounced(book, job, schedule, stored)


def _debounced(book: EventBook, job: str, schedule: Row, stored: Event) -> bool:
    """Whether a later event of its key has started the job in its place."""
    if schedule.get("debounce") is None:
        return False
    last = [book.stored[given.ids[-1]].new for given in book.given.get(job, ()) if given.ids[-1] in book.stored]
    return any(one["key"] == stored.new["key"] and one["seq"] > stored.new["seq"] for one in last)


def s16_batches_and_pauses_hold(history: History) -> Iterator[str]:
    """A run has no more events than its batch allows, and a job that is paused starts nothing."""
    book = read_events(history)
    for job, life in event_jobs(history):
        most = life[0].row["schedule"].get("batch") or 1
        for given in book.given.get(job, ()):
            if len(given.ids) > most:
                yield f"run {given.run} of {job} got {len(given.ids)} events, and {most} are allowed"
            if is_paused(life, given.event):
                yield f"run {given.run} of {job} was created while the job was paused"


def s16_events_of_a_key_start_in_order(history: History) -> Iterator[str]:
    """One that was stored before another one was sent starts each job before it."""
    book = read_events(history)
    sent: dict[str, float] = {}
    for call, events in book.emissions:
        for event in events:
            sent[event["id"]] = min(call.began, sent.get(event["id"], call.began))
    for job, _ in event_jobs(history):
        newest: dict[str, tuple[float, str]] = {}  # of each key: when the newest of those that have started was sent
        for given in sorted(book.given.get(job, ()), key=lambda given: given.event.seq):
            for event_id in given.ids:
                stored = book.stored.get(event_id)
                if stored is None or event_id not in sent:
                    continue
                key = stored.new["key"]
                at, other = newest.get(key, (0.0, ""))
                if stored.visible < at:
                    yield f"event {event_id} of the key {key!r} has started {job} after {other}, which was sent later"
                newest[key] = max(newest.get(key, (0.0, "")), (sent[event_id], event_id))
