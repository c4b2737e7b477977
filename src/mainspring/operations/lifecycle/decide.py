"""Decides what follows an attempt that did not succeed: another attempt or an end. This module writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from mainspring.domain.job import Delivery, Spec, spec_from_text, spec_to_show
from mainspring.domain.losses import Death, after_loss
from mainspring.domain.retry import LONGEST_DELAY, RetryVerdict, after_failure
from mainspring.domain.snoozes import after_snooze, out_of_time
from mainspring.domain.transitions import StoredState
from mainspring.domain.workflows.waits import Wait, WaitKind
from mainspring.kernel.texts import storable_text
from mainspring.operations.lifecycle.effects import RunChanges
from mainspring.store.limits import HoldBack
from mainspring.store.runs import Ending, HeldRun, PastAttempt, Requeue
from mainspring.store.waits import Suspension
from mainspring.wire.exchange import Outcome
from mainspring.wire.usage import usage_text

_MAX_ERROR = 65536  # characters of an error that are stored

Random = Callable[[], float]


def decide(
    run: HeldRun,
    outcome: Outcome,
    random: Random,
    changes: RunChanges,
    *,
    lost: bool = False,
    death: Death | None = None,
) -> None:
    """Add to `changes` what follows. `lost`: the worker was lost and has reported nothing. `death`: how it died, if its
    parent has told it."""
    error = None if outcome.error is None else storable_text(outcome.error[:_MAX_ERROR])
    lost = lost or (outcome.status == "RETURNED" and error is not None and not outcome.unstarted)
    loss = int(lost)
    usage = usage_text(outcome.usage)

    def end(state: StoredState, reason: str) -> None:
        before = int(StoredState.RUNNING)
        # The end of a lost attempt is unknown. Its beginning is known if the worker has told it meanwhile.
        known = not lost and not outcome.unstarted
        ran_ms, held_ms = (outcome.ran_ms, outcome.held_ms) if known else (None, None)
        changes.endings.append(
            Ending(
                run.run_id,
                run.fence,
                int(state),
                reason,
                error,
                before,
                ran_ms,
                held_ms,
                run.attempt,
                loss,
                usage=usage,
            )
        )

    def again(how: str, delay: float, given_back: int = 0, snoozed: int = 0) -> None:
        started_at = None if given_back else _began(run, outcome, lost=lost)
        alone = lost and death is not None and death.crashed
        if run.gates is not None:
            changes.gates += run.gates
        if run.limited and _stands_in_line_again(run, waits=delay > 0 and not lost):
            failed = how == "FAILED"
            changes.holds.append(
                HoldBack(run.run_id, run.fence, delay, error, snoozed, loss, given_back, failed, alone)
            )
        else:
            changes.requeues.append(Requeue(run.run_id, run.fence, delay, given_back, error, loss, snoozed, alone))
        changes.attempts.append(
            PastAttempt(run.run_id, run.attempt, run.fence, run.worker_id, started_at, how, error, delay, usage)
        )

    if run.cancel_requested_at is not None:
        end(StoredState.CANCELLED, run.cancel_reason or "cancelled on request")
    elif outcome.status == "CANCELLED":
        end(StoredState.CANCELLED, "cancelled by its worker")
    elif outcome.status == "RETURNED" and not lost:
        again("RETURNED", min(max(outcome.retry_after or 0.0, 0.0), LONGEST_DELAY), given_back=1)
    elif (problem := spec_to_show(run.spec_text)[1]) is not None:
        end(StoredState.FAILED, problem)  # it is not known whether it may be tried again
    elif outcome.snooze is not None and outcome.status == "FAILED" and not lost:
        verdict = after_snooze(spec_from_text(run.spec_text), run.snoozes, outcome.snooze, run.time_left)
        if verdict.delay is None:
            error = verdict.reason  # what the worker says reads as if the snooze had been granted
            end(StoredState.FAILED, verdict.reason)
        else:
            error = None
            again("SNOOZED", verdict.delay, snoozed=1)
    elif outcome.callback and not lost and (callback := spec_from_text(run.spec_text).callback) is not None:
        wait = Wait(WaitKind.CALLBACK, timeout=callback.timeout, on_timeout=callback.on_timeout)
        changes.gates += run.gates or []
        changes.suspensions.append(Suspension(run.run_id, run.fence, wait))
    else:
        verdict = _verdict(spec_from_text(run.spec_text), run, outcome, random, lost=lost, death=death)
        if verdict.delay is None:
            end(StoredState.FAILED, verdict.reason)
        else:
            again("LOST" if lost else "FAILED", verdict.delay)


def _stands_in_line_again(run: HeldRun, *, waits: bool) -> bool:
    """Whether the run gives up its slots. It does while it waits. It keeps its place in a strict line, which admits no
    other run before it (operations/limits/admission.py). What an attempt has used up, each attempt must get again."""
    return waits or any(slot.once for slot in spec_to_show(run.spec_text)[0].line or ())


def _began(run: HeldRun, outcome: Outcome, *, lost: bool) -> datetime | None:
    """When the attempt began, as far as its worker has reported."""
    if lost or run.claimed_at is None:
        return run.started_at
    return None if outcome.unstarted else run.claimed_at + timedelta(milliseconds=outcome.held_ms)


def _verdict(
    spec: Spec, run: HeldRun, outcome: Outcome, random: Random, *, lost: bool, death: Death | None
) -> RetryVerdict:
    """Whether another attempt follows a failed or lost one, by delivery, retry policy, losses and run_timeout."""
    at_most_once = spec.delivery is Delivery.AT_MOST_ONCE
    if lost and at_most_once:
        return RetryVerdict(None, "worker lost, and the job is at most once")
    time_left = run.time_left
    if time_left is not None and time_left <= 0:
        return RetryVerdict(None, out_of_time(spec))
    if lost:
        verdict = after_loss(run.losses + 1, spec.max_losses, random, death)
    else:
        verdict = after_failure(
            spec.retry,
            run.attempt - run.losses - run.snoozes,
            run.max_attempts - run.losses - run.snoozes,
            random,
            cause=outcome.cause,
            wanted=outcome.retry,
            retry_after=outcome.retry_after,
        )
    if verdict.delay is None:
        return verdict
    if at_most_once:  # regardless of the row; intake gives such a job one attempt
        return RetryVerdict(None, "failed, and the job is at most once")
    if time_left is not None and verdict.delay >= time_left:
        return RetryVerdict(None, f"{out_of_time(spec)}: the next attempt would begin later than that")
    return verdict
