"""What follows a failed, lost or snoozed attempt in a box. The domain decides, as in a server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from mainspring.domain.job import Delivery
from mainspring.domain.losses import Death, after_loss
from mainspring.domain.retry import RetryVerdict, after_failure
from mainspring.domain.snoozes import after_snooze
from mainspring.sdk.testing.attempt import AttemptFailure
from mainspring.sdk.testing.records import BoxRun


def verdict_of(run: BoxRun, failure: AttemptFailure, chance: Callable[[], float]) -> RetryVerdict:
    """Whether a failed or lost run is tried again, and when. A loss is counted, and uses no attempt."""
    spec = run.definition.spec
    if failure.lost:
        run.losses += 1
        if spec.delivery is Delivery.AT_MOST_ONCE:
            return RetryVerdict(None, "worker lost, and the job is at most once")
        death = Death(crashed=True, exit="killed by SIGKILL", alone=True) if failure.lost_alone else None
        return after_loss(run.losses, spec.max_losses, chance, death)
    return after_failure(
        spec.retry,
        run.attempt - run.losses - run.snoozes,
        run.max_attempts - run.losses - run.snoozes,
        chance,
        cause=failure.cause,
        wanted=failure.wanted,
        retry_after=failure.retry_after,
    )


def verdict_of_snooze(run: BoxRun, seconds: float, now: datetime) -> RetryVerdict:
    """Whether a run may start `seconds` later. The clock of the box stands still during an attempt, so only snoozes and
    retries use up the run_timeout."""
    spec = run.definition.spec
    left = None
    if spec.run_timeout is not None and run.first_started_at is not None:
        left = spec.run_timeout - (now - run.first_started_at).total_seconds()
    return after_snooze(spec, run.snoozes, seconds, left)
