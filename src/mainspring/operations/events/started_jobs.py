"""Which jobs events start: noted in the transaction that marks the events as matched. The starter creates the runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Self

import msgspec

from mainspring.domain.conditions.condition import NoAnswer, condition
from mainspring.domain.errors import MainspringError
from mainspring.domain.schedules.schedule import Schedule
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.lifecycle.effects import Effects, Part
from mainspring.operations.lifecycle.events import EventEmitted
from mainspring.operations.signals import Signals
from mainspring.store import events
from mainspring.store.events import NewStart, StartedJob
from mainspring.store.jobs import schedule_from_text
from mainspring.store.pool import Connection

log = get_logger("events")


class StartEffects(Part):
    """jobs: those that events are to start."""

    jobs: set[tuple[TenantId, str]] = msgspec.field(default_factory=set)

    def merge(self, other: Self, /) -> None:
        self.jobs |= other.jobs

    def publish(self, signals: Signals, /) -> None:
        if self.jobs:
            signals.event_starts.publish(self.jobs)


class StartedJobs:
    """Events were emitted: the jobs with `"schedule": {"event": name}` are to start, if their condition holds."""

    def wants(self, _: EventEmitted, /) -> bool:
        return True

    async def handle(self, connection: Connection, emitted: Sequence[EventEmitted], effects: Effects, /) -> None:
        names = sorted({(event.tenant_id, event.name) for event in emitted})
        jobs: dict[tuple[TenantId, str], list[tuple[StartedJob, Schedule]]] = defaultdict(list)
        for job in await events.started_by(connection, names):
            if (schedule := _readable(job)) is not None and schedule.event is not None:
                jobs[job.tenant_id, schedule.event].append((job, schedule))
        if not jobs:
            return
        starts: list[NewStart] = []
        slices = TimeSlices()
        for event in emitted:
            values: dict[str, Any] | None = None
            for job, schedule in jobs.get((event.tenant_id, event.name), ()):
                if slices.over:
                    await slices.pause()
                if schedule.condition is not None:
                    values = (
                        values_of(event.name, event.key, event.event_id, event.payload) if values is None else values
                    )
                    if not _holds(schedule.condition, values):
                        continue
                starts.append(_start(event, job, schedule))
        if starts:
            await events.insert_starts(connection, starts)
            effects.of(StartEffects).jobs |= {(start.tenant_id, start.job_id) for start in starts}


def values_of(name: str, key: str, event_id: str, payload: str | None) -> dict[str, Any]:
    """What a condition sees of an event. A payload that cannot be decoded is an empty one."""
    try:
        decoded = msgspec.json.decode(payload) if payload is not None else {}
    except (msgspec.DecodeError, RecursionError):
        decoded = {}
    return {"payload": decoded, "name": name, "key": key, "id": event_id}


def _readable(job: StartedJob) -> Schedule | None:
    try:
        return schedule_from_text(job.schedule_text)
    except MainspringError as error:
        log.error("a job cannot be read and is not started", tenant=job.tenant_id, job=job.job_id, error=str(error))
        return None


def _holds(text: str, values: dict[str, Any]) -> bool:
    """A condition without an answer does not hold."""
    try:
        return condition(text).matches(values)
    except (NoAnswer, MainspringError, RecursionError):
        return False


def _start(event: EventEmitted, job: StartedJob, schedule: Schedule) -> NewStart:
    of_key = schedule.debounce is not None or schedule.by_key
    delay = schedule.batch_wait or schedule.debounce or 0.0
    return NewStart(
        job.tenant_id, event.event_id, job.job_id, job.generation, event.seq, event.key if of_key else "", delay
    )
