"""Runs that this worker holds and has not started, and that go back to the server because others start them sooner."""

from __future__ import annotations

from uuid import UUID

from mainspring.kernel.logs import get_logger
from mainspring.worker.exchange.held_runs import HeldRuns
from mainspring.worker.exchange.prefetch import WINDOW
from mainspring.worker.execution.attempt import Attempt
from mainspring.worker.execution.runner import Runner

# A prefetched run that waits longer than this, and is not covered by the rate of completions, goes back to the server.
_LONGEST_WAIT = 0.5

log = get_logger("worker")


def return_paused(runner: Runner, taken: list[Attempt], run_ids: frozenset[UUID]) -> None:
    """Their queue is paused: return those that have not started, also those that have just come."""
    runner.queue.extend(attempt for attempt in taken if attempt.order.run_id in run_ids)
    returned = runner.return_these(run_ids)
    if returned:
        log.info("returned runs of a paused queue", runs=returned)


def return_recalled(runner: Runner, held_runs: HeldRuns, wanted: int, now: float) -> None:
    """Other workers are idle: return runs that they can start sooner, and stop prefetching."""
    held_runs.observe_rate(now)
    keep = 0 if runner.stuck_for(now) > WINDOW else held_runs.prefetch.prefetch
    returned = runner.return_unstarted(keep=max(keep, runner.unstarted - wanted))
    if returned:
        held_runs.prefetch.reset()
        log.info("returned runs for idle workers", runs=returned)


def return_overdue(runner: Runner, held_runs: HeldRuns, now: float) -> None:
    """Return prefetched runs that have waited too long for a slot."""
    if runner.longest_wait(now) <= _LONGEST_WAIT:
        return
    held_runs.observe_rate(now)
    returned = runner.return_unstarted(keep=held_runs.prefetch.prefetch)
    if returned:
        log.info("returned runs that waited for a slot", runs=returned)
