"""A run's life, told from its row and its tries: every state with time, attempt, node, worker and reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from mainspring.domain.transitions import RunState, StoredState
from mainspring.operations.read.views import uuid7_time
from mainspring.store.pool import Record
from mainspring.wire.runs import AttemptView, TimelineEntry

Names = Mapping[UUID, str]


def workers_in(tries: Sequence[Record], row: Record | None) -> list[UUID]:
    """The workers that had a hand in it."""
    seen = {one["worker_id"] for one in tries} | {row["worker_id"] if row is not None else None}
    return sorted(worker_id for worker_id in seen if worker_id is not None)


def tries_of(tries: Sequence[Record], ended: Record | None, names: Names) -> list[AttemptView]:
    """Every try of a run that has ended, the last one included."""
    views = [
        AttemptView(
            one["attempt"],
            one["outcome"],
            _text(one["worker_id"]),
            names.get(one["worker_id"]),
            one["started_at"],
            one["ended_at"],
            one["error"],
        )
        for one in tries
    ]
    if ended is not None and ended["worker_id"] is not None:
        outcome, worker_id = StoredState(ended["state"]).name, ended["worker_id"]
        views.append(
            AttemptView(
                ended["attempt"],
                outcome,
                str(worker_id),
                names.get(worker_id),
                ended["started_at"],
                ended["ended_at"],
                ended["error"],
            )
        )
    return views


def life_of(row: Record, tries: Sequence[Record], names: Names, replay_id: UUID | None) -> list[TimelineEntry]:
    """The run's entries in order; `row` is the live or the ended run, `tries` those before the present one."""
    ended = "ended_at" in row
    told_until: datetime = row["ended_at"] if ended else row["now"]
    entries = list(_birth(row))
    for one in tries:
        entries += _try(one, names, told_until)
    entries += _end(row, names) if ended else _present(row, names)
    if replay_id is not None:
        # An id tells its moment by a server's clock and to the millisecond; all other moments are the database's.
        replayed_at = max(uuid7_time(replay_id), told_until)
        entries.append(TimelineEntry(replayed_at, "REPLAYED", reason=f"as run {replay_id}"))
    entries.sort(key=lambda entry: entry.at)  # a cancel may have been asked for before its attempt began
    return entries


def _birth(row: Record) -> Iterator[TimelineEntry]:
    fired_at, trigger = row["fired_at"], row["trigger"]
    if fired_at is None:
        yield TimelineEntry(row["scheduled_for"], "SUBMITTED", reason="to run at once")
    else:
        if trigger == "at" and row["job_id"] is None:  # the run bears the id that its job got when it was submitted
            submitted_at = min(uuid7_time(row["run_id"]), fired_at)
            yield TimelineEntry(submitted_at, "SUBMITTED", reason=f"to run at {_stamp(row)}")
        yield TimelineEntry(fired_at, "FIRED", node_id=_text(row["node_id"]), reason=_trigger_in_words(row))
    if row["state"] != StoredState.SKIPPED:
        yield TimelineEntry(fired_at or row["scheduled_for"], RunState.QUEUED)


def _trigger_in_words(row: Record) -> str:
    kind, _, run_id = (row["trigger"] or "").partition(":")
    match kind:
        case "manual":
            return "by hand"
        case "replay":
            return f"to repeat run {run_id}, of {_stamp(row)}"
        case _:
            return f"by its schedule, for {_stamp(row)}"


def _try(one: Record, names: Names, told_until: datetime) -> Iterator[TimelineEntry]:
    """A try that was followed by another one: its claim, its end, and the wait after it."""
    attempt, worker_id = one["attempt"], one["worker_id"]
    started_at, ended_at, ready_at = one["started_at"], one["ended_at"], one["ready_at"]
    worker, name = _text(worker_id), names.get(worker_id)
    if started_at is not None:
        yield TimelineEntry(started_at, RunState.RUNNING, attempt, worker, name)
    took = None if started_at is None else round((ended_at - started_at).total_seconds(), 6)
    reason = "handed back unstarted" if one["outcome"] == "RETURNED" else None
    yield TimelineEntry(
        ended_at, one["outcome"], attempt, worker, name, reason=reason, error=one["error"], duration=took
    )
    if ready_at is not None and ready_at > ended_at:
        until = f"backing off until {ready_at:%Y-%m-%dT%H:%M:%SZ}"
        yield TimelineEntry(ended_at, RunState.SCHEDULED, attempt, reason=until)
    if ready_at is None or ready_at <= told_until:
        yield TimelineEntry(ready_at or ended_at, RunState.QUEUED)


def _present(row: Record, names: Names) -> Iterator[TimelineEntry]:
    if row["state"] != StoredState.RUNNING:
        return
    worker_id = row["worker_id"]
    yield TimelineEntry(row["claimed_at"], RunState.RUNNING, row["attempt"], str(worker_id), names.get(worker_id))
    yield from _cancel(row)


def _end(row: Record, names: Names) -> Iterator[TimelineEntry]:
    worker_id, state = row["worker_id"], StoredState(row["state"]).name
    worker, name = _text(worker_id), names.get(worker_id)
    attempt = row["attempt"] if worker_id is not None else None
    if worker_id is not None and row["started_at"] is not None:
        yield TimelineEntry(row["started_at"], RunState.RUNNING, attempt, worker, name)
    yield from _cancel(row)
    took = None if worker_id is None or row["ran_ms"] is None else round(row["ran_ms"] / 1000, 6)
    yield TimelineEntry(
        row["ended_at"], state, attempt, worker, name, reason=row["reason"], error=row["error"], duration=took
    )


def _cancel(row: Record) -> Iterator[TimelineEntry]:
    if row["cancel_requested_at"] is not None:
        yield TimelineEntry(row["cancel_requested_at"], "CANCEL_REQUESTED", row["attempt"])


def _stamp(row: Record) -> str:
    return f"{row['scheduled_for']:%Y-%m-%dT%H:%M:%SZ}"


def _text(some_id: UUID | None) -> str | None:
    return None if some_id is None else str(some_id)
