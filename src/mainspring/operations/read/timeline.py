"""The timeline of a run, from its row and its attempts: every state with time, attempt, node, worker and reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from mainspring.domain.job import DUE_TOGETHER, STILL_ALIVE, spec_to_show
from mainspring.domain.schedules.words import names_in_words
from mainspring.domain.transitions import RunState, StoredState
from mainspring.kernel.ids import uuid7_time
from mainspring.operations.read.why import ASSIGNED
from mainspring.store.history import AttemptRow, EndedRun, LiveRun, Run
from mainspring.store.waits import OpenWait
from mainspring.wire.runs import AttemptView, TimelineEntry
from mainspring.wire.states import TimelineState
from mainspring.wire.usage import usage_view

Names = Mapping[UUID, str]
_WAITED = "it waits without a slot"
_HOLDS_BACK = ("FAILED", TimelineState.SNOOZED)


def workers_in(attempts: Sequence[AttemptRow], run: Run | None) -> list[UUID]:
    """The workers that ran this run."""
    seen = {one.worker_id for one in attempts} | {run.worker_id if run is not None else None}
    return sorted(worker_id for worker_id in seen if worker_id is not None)


def attempt_views(attempts: Sequence[AttemptRow], ended: EndedRun | None, names: Names) -> list[AttemptView]:
    """Every attempt of an ended run, including the last one."""
    views = [
        AttemptView(
            one.attempt,
            one.outcome,
            *_worker(one.worker_id, names),
            one.started_at,
            one.ended_at,
            one.error,
        )
        for one in attempts
    ]
    if ended is not None and ended.worker_id is not None:
        views.append(
            AttemptView(
                ended.attempt,
                StoredState(ended.state).name,
                *_worker(ended.worker_id, names),
                ended.started_at,
                ended.ended_at,
                ended.error,
            )
        )
    return views


def timeline_of(
    run: Run, attempts: Sequence[AttemptRow], names: Names, replay_id: UUID | None, hold: str | None = None
) -> list[TimelineEntry]:
    """The entries of a run in order. `attempts` are those before the present one. `hold`: the quota that holds it."""
    known_until = run.ended_at if isinstance(run, EndedRun) else run.now
    spec = spec_to_show(run.spec_text)[0]
    line = spec.line
    parents = [] if run.trigger not in (None, "at") or _overlaps(run) else spec.depends_on or []
    entries = list(_creation(run, limited=line is not None, parents=parents))
    if parents and not attempts and isinstance(run, LiveRun) and run.state != StoredState.WAITING and line is None:
        entries.append(TimelineEntry(run.ready_at, RunState.QUEUED, reason="its rule is met"))
    if attempts and attempts[0].earlier:
        first = attempts[0].started_at or attempts[0].ended_at
        entries.append(TimelineEntry(first, TimelineState.LEFT_OUT, reason=f"{attempts[0].earlier} earlier attempts"))
    for one in attempts:
        entries += _past_attempt(one, names, known_until, gives_up=line is not None)
    if line is not None and isinstance(run, LiveRun):
        entries += _admission(run, entries)
    if hold is not None and entries and entries[-1].state == RunState.QUEUED:
        entries[-1].state, entries[-1].reason = RunState.HELD, hold
    entries += _end(run, names) if isinstance(run, EndedRun) else _present(run, names)
    if replay_id is not None:
        # The time in an id comes from a server's clock, in milliseconds. All other times are the database's.
        replayed_at = max(uuid7_time(replay_id), known_until)
        entries.append(TimelineEntry(replayed_at, TimelineState.REPLAYED, reason=f"as run {replay_id}"))
    entries.sort(key=lambda entry: entry.at)  # a cancel may have been requested before its attempt began
    return entries


def began_to_wait(wait: OpenWait) -> TimelineEntry:
    return TimelineEntry(wait.began_at, RunState.WAITING, reason=wait.in_words)


def timeline_of_wait(run: Run, wait: OpenWait | None) -> list[TimelineEntry]:
    """The entries of a step that waits without a slot. `wait`: None before it begins and after its end."""
    entries = [
        TimelineEntry(run.fired_at or run.scheduled_for, TimelineState.FIRED, reason=_trigger_in_words(run)),
    ]
    if wait is not None:
        entries.append(began_to_wait(wait))
    if isinstance(run, EndedRun):
        if run.started_at is not None:
            entries.append(TimelineEntry(run.started_at, RunState.WAITING, reason=_WAITED))
        entries.append(TimelineEntry(run.ended_at, StoredState(run.state).name, reason=run.reason))
    return entries


def _admission(run: LiveRun, entries: Sequence[TimelineEntry]) -> Iterator[TimelineEntry]:
    """When a live run got its slots. It is not recorded for those that have ended."""
    known = any(entry.state == RunState.QUEUED and entry.at == run.ready_at for entry in entries)
    if run.state != StoredState.HELD and run.ready_at <= run.now and not known:
        yield TimelineEntry(run.ready_at, RunState.QUEUED)


def _overlaps(run: Run) -> bool:
    """Whether it was skipped when it was fired."""
    return isinstance(run, EndedRun) and run.reason in (STILL_ALIVE, DUE_TOGETHER)


def _creation(run: Run, *, limited: bool, parents: Sequence[str]) -> Iterator[TimelineEntry]:
    fired_at, trigger = run.fired_at, run.trigger
    if fired_at is None:
        yield TimelineEntry(run.scheduled_for, TimelineState.SUBMITTED, reason="to run at once")
    else:
        if trigger == "at" and run.job_id is None:  # the run has the id that its job got when it was submitted
            submitted_at = min(uuid7_time(run.run_id), fired_at)
            yield TimelineEntry(submitted_at, TimelineState.SUBMITTED, reason=f"to run at {_stamp(run)}")
        yield TimelineEntry(fired_at, TimelineState.FIRED, node_id=_text(run.node_id), reason=_trigger_in_words(run))
    if parents:
        yield TimelineEntry(fired_at or run.scheduled_for, RunState.WAITING, reason=f"for {names_in_words(parents)}")
    elif run.state != StoredState.SKIPPED:
        yield TimelineEntry(fired_at or run.scheduled_for, RunState.HELD if limited else RunState.QUEUED)


def _trigger_in_words(run: Run) -> str:
    kind, _, run_id = (run.trigger or "").partition(":")
    match kind:
        case "manual":
            return "by hand"
        case "replay":
            return f"to repeat run {run_id}, of {_stamp(run)}"
        case "parent":
            return f"by a step of the workflow run {run_id.partition(':')[0]}"
        case "backfill":
            return f"by backfill {run_id}, for {_stamp(run)}"
        case _:
            return f"by its schedule, for {_stamp(run)}"


def _past_attempt(one: AttemptRow, names: Names, known_until: datetime, *, gives_up: bool) -> Iterator[TimelineEntry]:
    """An attempt that was followed by another one: its start, its end, and the wait after it. `gives_up`: it stands in
    the line of its limit again afterwards."""
    attempt, started_at, ended_at, ready_at = one.attempt, one.started_at, one.ended_at, one.ready_at
    worker, name = _worker(one.worker_id, names)
    if started_at is not None:
        yield TimelineEntry(started_at, RunState.RUNNING, attempt, worker, name)
    took = None if started_at is None else round((ended_at - started_at).total_seconds(), 6)
    reason = "handed back unstarted" if one.outcome == TimelineState.RETURNED else None
    usage = usage_view(one.usage_text, samples=False)
    yield TimelineEntry(
        ended_at, one.outcome, attempt, worker, name, reason=reason, error=one.error, duration=took, usage=usage
    )
    if ready_at is not None and ready_at > ended_at:
        waits = "snoozed" if one.outcome == TimelineState.SNOOZED else "backing off"
        until = f"{waits} until {ready_at:%Y-%m-%dT%H:%M:%SZ}"
        yield TimelineEntry(ended_at, RunState.SCHEDULED, attempt, reason=until)
    if ready_at is None or ready_at <= known_until:
        again = gives_up and one.outcome in _HOLDS_BACK and ready_at is not None and ready_at > ended_at
        yield TimelineEntry(ready_at or ended_at, RunState.HELD if again else RunState.QUEUED)


def _present(run: LiveRun, names: Names) -> Iterator[TimelineEntry]:
    if run.state != StoredState.RUNNING:
        return
    assert run.claimed_at is not None  # a claim sets both
    worker, name = _worker(run.worker_id, names)
    if run.started_at is None:
        yield TimelineEntry(run.claimed_at, RunState.QUEUED, run.attempt, worker, name, reason=ASSIGNED)
    else:
        yield TimelineEntry(run.started_at, RunState.RUNNING, run.attempt, worker, name)
    yield from _cancel(run)


def _end(run: EndedRun, names: Names) -> Iterator[TimelineEntry]:
    worker_id, state = run.worker_id, StoredState(run.state).name
    worker, name = _worker(worker_id, names)
    attempt = run.attempt if worker_id is not None else None
    if worker_id is not None and run.started_at is not None:
        yield TimelineEntry(run.started_at, RunState.RUNNING, attempt, worker, name)
    yield from _cancel(run)
    took = None if worker_id is None or run.ran_ms is None else round(run.ran_ms / 1000, 6)
    usage = usage_view(run.usage_text, samples=False) if worker_id is not None else None
    yield TimelineEntry(
        run.ended_at, state, attempt, worker, name, reason=run.reason, error=run.error, duration=took, usage=usage
    )


def _cancel(run: Run) -> Iterator[TimelineEntry]:
    if run.cancel_requested_at is not None:
        yield TimelineEntry(run.cancel_requested_at, TimelineState.CANCEL_REQUESTED, run.attempt)


def _stamp(run: Run) -> str:
    return f"{run.scheduled_for:%Y-%m-%dT%H:%M:%SZ}"


def _worker(worker_id: UUID | None, names: Names) -> tuple[str | None, str | None]:
    """The id of a worker, and its name if it is still known."""
    return (None, None) if worker_id is None else (str(worker_id), names.get(worker_id))


def _text(some_id: UUID | None) -> str | None:
    return None if some_id is None else str(some_id)
