"""Explains in one sentence why a run is not running."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mainspring.domain.limits import read_name
from mainspring.domain.rates import format_rate
from mainspring.domain.schedules.words import names_in_words
from mainspring.domain.showing import snoozed_until
from mainspring.domain.transitions import RunState
from mainspring.operations.limits.gate_views import closed_in_words, own_gates, pause_in_words
from mainspring.operations.signatures.offers import lacking
from mainspring.store.dependencies import WaitRow
from mainspring.store.gates import GateState
from mainspring.store.lanes import Lane
from mainspring.store.limit_reads import LineOfLimit, SlotHolder
from mainspring.store.workers import Offer, Taker
from mainspring.wire.runs import RunView

FOR_A_SLOT = "waiting for a free slot"
FOR_OTHERS = "waiting for the runs that it depends on"
HELD_BY_A_LIMIT = "waiting for room in a limit"
ASSIGNED = "assigned to a worker, not started yet"
A_MOMENT = 1.0  # seconds within which a worker with a free slot fetches a run


def kept_back(lane: Lane, offers: Sequence[Offer], gates: Sequence[GateState]) -> str | None:
    """Why a ready run of this lane is not claimed: a pause, no worker for it, or a limit of its queue or tenant."""
    own = own_gates(gates, lane.queue)
    return unready(lane, offers, gates) or closed_in_words(own)


def unready(lane: Lane, offers: Sequence[Offer], gates: Sequence[GateState]) -> str | None:
    """The same without limits."""
    return pause_in_words(own_gates(gates, lane.queue)) or lacking(lane, offers)


def held_by_quota(hold: str, other: str | None) -> str:
    """Why a run over quota does not start. `other`: what keeps it back besides."""
    return hold if other is None else f"{hold}; besides, {other}"


def left_waiting(lane: Lane, takers: Sequence[Taker], waited: float) -> str | None:
    """Why workers with free slots do not take a run that has waited for so many seconds. None if it waits for a slot or
    is about to be fetched. The server does not know the limits of a worker, so it infers them from its runs."""
    required = lane.required_labels or {}
    with_room = [taker for taker in takers if taker.free > 0 and required.items() <= taker.labels.items()]
    if waited < A_MOMENT or not with_room:
        return None
    may_keep = [taker for taker in with_room if taker.free < taker.queues]
    at_limit = [taker.of_task for taker in with_room if taker.of_task]
    if len(at_limit) + sum(not taker.of_task for taker in may_keep) < len(with_room):
        return None
    reasons = []
    if at_limit:
        most = max(at_limit) if max(at_limit) == min(at_limit) else f"up to {max(at_limit)}"
        subject = "the worker with free slots runs" if len(at_limit) == 1 else "each worker with free slots runs"
        reasons.append(f"{subject} {most} of task {lane.task}, as many as its worker_concurrency allows")
    if may_keep:
        reasons.append("the free slots are kept for other queues (weights)")
    return ", or ".join(reasons)


def held_by(line: LineOfLimit | None) -> str:
    """What a HELD run waits for, in a few words. `line`: the one in which it stands; None if it is not open yet."""
    if line is None:
        return HELD_BY_A_LIMIT
    name = read_name(line.name)
    if line.kept_back_by is not None:
        order = "overlap" if name.kind == "overlap" else f"strict order of {name.in_words(line.key)}"
        return f"waiting for run {line.kept_back_by}, which is before it and cannot start yet ({order})"
    if name.kind == "overlap":
        return "waiting for an earlier run of its job to end (overlap)"
    if name.what == "breaker":
        return f"the circuit breaker of {name.kind} {name.of} {_breaker(line)}"
    if line.every is not None:
        return f"waiting for its turn under the rate of {name.in_words(line.key)}: {format_rate(line.every)}"
    use = f"{line.in_use} in use" if line.slots is None else f"{line.in_use} of {line.slots} in use"
    return f"waiting for room in the limit of {name.in_words(line.key)}: {use}"


def waits_in_words(waits: Sequence[WaitRow]) -> str:
    """Which jobs a run waits for, in a few words."""
    names = sorted(wait.parent for wait in waits if wait.parent_end is None)
    return f"waiting for {names_in_words(names)}" if names else FOR_OTHERS


def waits_sentence(waits: Sequence[WaitRow]) -> str:
    """Which jobs a run waits for, and for what of them; and which have ended."""
    still = [wait for wait in sorted(waits, key=lambda wait: wait.parent) if wait.parent_end is None]
    if not still:
        return f"It is {FOR_OTHERS}."
    words = f"It waits for {names_in_words([_awaited(wait) for wait in still])}."
    ended = len(waits) - len(still)
    return words if not ended else f"{words} {ended} of {len(waits)} jobs it depends on have ended."


def _awaited(wait: WaitRow) -> str:
    if wait.parent_run is not None:
        return f"run {wait.parent_run} of job {wait.parent}"
    return f"job {wait.parent} to succeed" if wait.looked else f"job {wait.parent}"


def held_sentence(
    line: LineOfLimit | None, holders: Sequence[tuple[SlotHolder, str]], ahead: int, expires_at: datetime | None
) -> str:
    """Which limit holds up a run, who owns its slots, and the place of the run in line. `holders`: with the name of the
    job of each."""
    words = f"It is held: {held_by(line)}"
    if line is not None and holders and line.slots is not None:
        named = ", ".join(f"run {holder.run_id} ({name})" for holder, name in holders)
        if line.in_use > len(holders):
            named += f" and {line.in_use - len(holders)} more"
        if read_name(line.name).kind == "overlap":
            words = f"It is held: waiting for {named} of the same job to end (overlap)"
        else:
            words += f", by {named}"
    place = "It is the next in line" if not ahead else f"{_runs(ahead)} ahead of it in line"
    return f"{words}. {place}.{_expiry(expires_at)}"


def _breaker(line: LineOfLimit) -> str:
    """What the circuit breaker of a line does, after `failed` failures in a row."""
    if line.opened_at is None:
        return "has just closed"
    after = f"after {line.failed} failures in a row"
    if line.probe is not None:
        return f"is open {after}, and run {line.probe} is its probe"
    return f"is open {after}" + ("" if line.next_at is None else f", until {_stamp(line.next_at)}")


def _runs(number: int) -> str:
    return "1 run is" if number == 1 else f"{number} runs are"


def of_backfill(view: RunView) -> str:
    """Where a run comes from, if a backfill has created it."""
    return (
        "" if view.backfill_id is None else f" It is of backfill {view.backfill_id}, for {_stamp(view.scheduled_for)}."
    )


def sentence(view: RunView, ahead: int, deadline: datetime | None = None, expires_at: datetime | None = None) -> str:
    """One sentence on why a run is not running, or how it ended. Others give its last error, expiry and deadline."""
    match view.status:
        case RunState.QUEUED:
            words = f"It is queued: {view.reason}."
            if ahead and view.reason == FOR_A_SLOT:
                runs = "1 run of its lane is" if ahead == 1 else f"{ahead} runs of its lane are"
                words = f"It waits for a free slot; {runs} ahead of it."
            elif view.reason == ASSIGNED:
                words = f"It is queued: assigned to worker {view.executor_id}, not started yet."
            return words + _expiry(expires_at) + _until(deadline)
        case RunState.SCHEDULED:
            assert view.ready_at is not None
            if view.reason == snoozed_until(view.ready_at):
                return f"It asked to come back later: it is {view.reason}.{_until(deadline)}"
            return f"It is {view.reason}, until {_stamp(view.ready_at)}.{_last_error(view)}{_until(deadline)}"
        case RunState.HELD:
            return f"It is held by the {view.reason}.{_expiry(expires_at)}{_until(deadline)}"
        case RunState.RUNNING:
            if view.reason:
                return f"It runs on worker {view.executor_id}: {view.reason}."
            words = f"It is running on worker {view.executor_id}, attempt {view.attempt_number} of {view.max_attempts}."
            return words + _until(deadline)
        case RunState.WAITING:
            return f"It is {view.reason}."
        case RunState.SUCCESS:
            if not view.attempt_number:
                return "It succeeded."
            return f"It ran and succeeded on attempt {view.attempt_number}."
        case _:
            return f"It ended {view.status}: {view.reason or 'no reason was recorded'}.{_last_error(view)}"


def _last_error(view: RunView) -> str:
    if not view.error_message or view.error_message == view.reason:
        return ""
    return f" The last error: {view.error_message.splitlines()[0]}"


def _expiry(expires_at: datetime | None) -> str:
    return (
        "" if expires_at is None else f" It expires at {_stamp(expires_at)} if it has not started by then (expires_in)."
    )


def _until(deadline: datetime | None) -> str:
    return "" if deadline is None else f" It must be over by {_stamp(deadline)} (run_timeout)."


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
