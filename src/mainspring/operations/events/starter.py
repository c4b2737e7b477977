"""The event starter creates the runs that events start.

A step is one transaction that locks the job, takes what is due of it in the order of the events, creates the runs and
notes them with the events. A process that is killed in a step has changed nothing, and the next step of any server
continues. One job that is locked or cannot be read does not hold up the others.

Events that share a run: with `batch`, up to `size` of them, or those that came in `wait` after the first one; with
`debounce`, those of a key after which no other one came for so long, or ten times as long after the first one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from operator import attrgetter

import asyncpg
import msgspec

from mainspring.domain.errors import MainspringError
from mainspring.domain.event_payloads import StartingEvent, with_events
from mainspring.domain.intake.kind_checks import KINDS_BY_TASK
from mainspring.domain.intake.rerun import with_payload
from mainspring.domain.job import JobDefinition, Overlap, stored_spec
from mainspring.domain.limits import NotAKey
from mainspring.domain.schedules.schedule import Schedule
from mainspring.domain.transitions import StoredJobStatus
from mainspring.domain.workflows.flow import WORKFLOW_TASK
from mainspring.kernel import metrics
from mainspring.kernel.config import MAX_PAYLOAD_BYTES, MAX_SHELL_PAYLOAD_BYTES
from mainspring.kernel.ids import TenantId, uuid7_batch
from mainspring.kernel.logs import get_logger
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.lifecycle.dispatch import release, runs_ended
from mainspring.operations.lifecycle.fire import FireEffects, cancel_earlier, from_store, run_now
from mainspring.operations.lookup import load_lane
from mainspring.operations.signals import Signals
from mainspring.store import events, jobs
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.events import NewEventRun, PendingStart, StartNote
from mainspring.store.jobs import LockedJob
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import AWAY, NOT_NOW, Connection, Store

log = get_logger("event_starter")

MOST_JOBS = 1000  # of a round
_MOST_EVENTS = 1000  # of a job that a step looks at
_MOST_RUNS = 500  # of a step
_STEPS = 20  # of a job, before it is the turn of the next one
_LONGEST_DEBOUNCE = 10  # times the debounce, after the first event
TRIGGER = "event:"
JobKey = tuple[TenantId, str]


class EventStarter:
    name = "event_starter"
    interval = 1.0

    def __init__(self, store: Store, lanes: LaneRegistry, signals: Signals) -> None:
        self._store = store
        self._lanes = lanes
        self._signals = signals
        self._wanted: set[JobKey] = set()
        self._starting: asyncio.Task[None] | None = None
        signals.event_starts.subscribe(self.wake)

    async def run_once(self) -> int:
        """Return how many runs were created."""
        async with self._store.reads.acquire() as connection:
            found = await events.jobs_to_start(connection, MOST_JOBS)
        return await self._start_jobs(found)

    def wake(self, wanted: Collection[JobKey]) -> None:
        """Start what is due of these jobs soon."""
        self._wanted.update(wanted)
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._answer())

    async def close(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)

    async def _answer(self) -> None:
        try:
            while self._wanted:
                wanted, self._wanted = sorted(self._wanted), set()
                await self._start_jobs(wanted)
        except NOT_NOW as error:
            log.warning("jobs of events could not be started; the next round does it", error=repr(error))

    async def _start_jobs(self, found: Sequence[JobKey]) -> int:
        created = 0
        for tenant, job_id in found:
            try:
                for _ in range(_STEPS):
                    done, again = await despite_deadlocks(partial(self._step, tenant, job_id))
                    created += done
                    if not again:
                        break
            except Exception as error:
                if isinstance(error, AWAY) and not isinstance(error, asyncpg.QueryCanceledError):
                    raise
                log.error("a job cannot be started by events now", tenant=tenant, job=job_id, error=repr(error))
        return created

    async def _step(self, tenant: TenantId, job_id: str) -> tuple[int, bool]:
        """Returns how many runs were created, and whether there is more to do at once."""
        fired = FireEffects()
        async with self._store.change() as connection:
            job = await jobs.lock(connection, tenant, job_id)
            found = await events.pending(connection, tenant, job_id, _MOST_EVENTS)
            if not found or (job is not None and job.status == StoredJobStatus.PAUSED):
                return 0, False
            lost = [one for one in found if job is None or _is_over(job, one)]
            notes = [StartNote(one.event_id, None, "the job was cancelled or replaced") for one in lost]
            due: list[list[PendingStart]] = []
            if job is not None and len(lost) < len(found):
                schedule = jobs.schedule_from_text(job.schedule_text)
                left = [one for one in found if one not in lost] if lost else found
                due = list(_due_together(left, schedule, job.now))
                fired, more = await self._created(connection, job, schedule, due[:_MOST_RUNS])
                notes += more
            if notes:
                await events.note_starts(connection, tenant, job_id, notes)
            await runs_ended(connection, fired)
            await release(connection, fired)
        metrics.fired.inc(fired.total)
        self._signals.ready.publish(fired.created)
        fired.publish(self._signals)
        return fired.total, len(due) > _MOST_RUNS or (len(found) == _MOST_EVENTS and bool(notes))

    async def _created(
        self, connection: Connection, job: LockedJob, schedule: Schedule, due: Sequence[Sequence[PendingStart]]
    ) -> tuple[FireEffects, list[StartNote]]:
        """Create a run for each of these groups of events."""
        definition = jobs.definition_of(job, await load_lane(self._lanes, connection, job.lane_id))
        new: list[NewEventRun] = []
        notes: list[StartNote] = []
        slices = TimeSlices()
        for run_id, group in zip(uuid7_batch(len(due)), due, strict=True):
            try:
                payload = _payload(definition, schedule, group, job.now)
                spec = msgspec.structs.replace(definition.spec, repeat=str(run_id))  # a key of its own
                whole = msgspec.structs.replace(definition, payload=payload, spec=spec)
                new.append(
                    NewEventRun(run_id, f"{TRIGGER}{group[-1].event_id}", payload, stored_spec(whole, job.job_id))
                )
                notes += [StartNote(one.event_id, run_id) for one in group]
            except (MainspringError, NotAKey) as error:
                notes += [StartNote(one.event_id, None, str(error)[:1000]) for one in group]
            if slices.over:
                await slices.pause()
        if not new:
            return FireEffects(), notes
        if job.overlap == Overlap.ALLOW:
            rows = await events.create_runs(connection, job.tenant_id, job.job_id, job.generation, new)
            return await from_store(connection, rows), notes
        fired = FireEffects()
        for run in new:
            one = await run_now(
                connection, job.tenant_id, job.job_id, run.run_id, run.trigger, (run.payload, run.spec), job.created_by
            )
            assert one is not None  # the job is locked and not cancelled
            if job.overlap == Overlap.CANCEL_PREVIOUS:
                await cancel_earlier(connection, job.tenant_id, job.job_id, [run.run_id], one)
            fired.add(one)
        return fired, notes


def _is_over(job: LockedJob, start: PendingStart) -> bool:
    return job.generation != start.generation or job.status == StoredJobStatus.CANCELLED


def _due_together(found: Sequence[PendingStart], schedule: Schedule, now: datetime) -> Iterator[list[PendingStart]]:
    """The groups of events that each start a run now, in the order of their last events."""
    if schedule.batch is None and schedule.debounce is None:
        yield from ([one] for one in found)
        return
    groups = []
    for _, part in groupby(sorted(found, key=attrgetter("part", "seq")), attrgetter("part")):
        groups += list(_of_part(list(part), schedule, now))
    yield from sorted(groups, key=lambda group: group[-1].seq)


def _of_part(part: list[PendingStart], schedule: Schedule, now: datetime) -> Iterator[list[PendingStart]]:
    if schedule.debounce is not None:
        longest = timedelta(seconds=schedule.debounce * (_LONGEST_DEBOUNCE - 1))
        if part[-1].due_at <= now or part[0].due_at + longest <= now:
            yield part
        return
    assert schedule.batch is not None
    group: list[PendingStart] = []
    size = 0
    for one in part:
        more = len(one.payload_text or "") + 1000
        if group and (len(group) == schedule.batch or size + more > MAX_PAYLOAD_BYTES):
            yield group
            group, size = [], 0
        group.append(one)
        size += more
    if group and (len(group) == schedule.batch or group[0].due_at <= now):
        yield group


def _payload(definition: JobDefinition, schedule: Schedule, group: Sequence[PendingStart], now: datetime) -> str:
    """The payload of a run. Raises InvalidInput if the job cannot take it."""
    own = definition.payload
    given = [StartingEvent(one.event_id, one.name, one.key, one.at, one.payload_text) for one in group]
    if definition.task == WORKFLOW_TASK:
        member = "event" if schedule.batch is None else "events"
        if own is None or member not in msgspec.json.decode(own):
            return own or "{}"
        return with_payload(definition, msgspec.Raw(with_events(None, schedule, given).encode()), now).payload or "{}"
    if definition.task in KINDS_BY_TASK and definition.spec.command is None:
        return own or "{}"  # it is the call
    payload = with_events(own, schedule, given)
    if definition.spec.command is not None and len(payload.encode()) > MAX_SHELL_PAYLOAD_BYTES:
        raise MainspringError(
            f"the payload with the event has more than {MAX_SHELL_PAYLOAD_BYTES} bytes, which a command cannot take"
        )
    return payload
