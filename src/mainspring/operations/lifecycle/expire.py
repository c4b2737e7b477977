"""Expire: end waiting runs whose time is over."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.durations import format_duration
from mainspring.domain.job import spec_to_show
from mainspring.domain.snoozes import out_of_time
from mainspring.domain.transitions import StoredState
from mainspring.operations.lifecycle.dispatch import CONTAINERS_STOPPED, release, runs_ended
from mainspring.operations.lifecycle.effects import Effects, RunChanges, apply_changes
from mainspring.operations.lifecycle.events import ContainerStopped
from mainspring.store.pool import Connection
from mainspring.store.runs import Ending, OverdueRun


async def expire(connection: Connection, overdue: Sequence[OverdueRun]) -> Effects:
    """The field whose time is over determines the end. A workflow run ends when its last step has. The caller holds the
    locks."""
    effects = Effects(waiting_locked=True)
    await apply_changes(connection, RunChanges([_ending(run) for run in overdue if not run.container]), effects)
    if containers := [run for run in overdue if run.container]:
        stopped = [ContainerStopped(run.run_id, run.fence, _timeout_of_workflow(run), True) for run in containers]
        await CONTAINERS_STOPPED.happened(connection, stopped, effects)
    if left := {run.held_key for run in overdue if run.held_key is not None}:
        effects.given_back.left |= left
    await runs_ended(connection, effects)
    await release(connection, effects)
    return effects


def _ending(run: OverdueRun) -> Ending:
    if run.because == "expires_in":
        state, reason = StoredState.SKIPPED, "expired"
    else:
        state, reason = StoredState.FAILED, out_of_time(spec_to_show(run.spec_text)[0])
    return Ending(run.run_id, run.fence, int(state), reason, None, run.state, attempt=run.attempt)


def _timeout_of_workflow(run: OverdueRun) -> str:
    limit = spec_to_show(run.spec_text)[0].run_timeout or 0.0
    return f"timed out after {format_duration(limit)}, the timeout of the workflow"
