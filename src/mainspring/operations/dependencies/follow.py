"""What follows the end of a run on whose job others depend, in the transaction that ends it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.domain.dependencies import satisfies
from mainspring.domain.transitions import Follows, StoredState
from mainspring.operations.dependencies.edges import fire_if_met
from mainspring.operations.dependencies.effects import DependencyEffects
from mainspring.operations.dependencies.parents import end_of, ended
from mainspring.operations.dependencies.wait_decisions import settle_waiting
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import RunEnded
from mainspring.store import dependencies
from mainspring.store.dependencies import EndedParent, JobKey, WaitRow
from mainspring.store.pool import Connection

_JOBS = int(Follows.JOBS)


class DependantJobs:
    """Runs have ended on whose jobs others depend: the runs that have waited for them start or end, and jobs that fire
    after them become due."""

    def wants(self, end: RunEnded, /) -> bool:
        return bool(end.follows & _JOBS)

    async def handle(self, connection: Connection, ends: Sequence[RunEnded], effects: Effects, /) -> None:
        parents = await dependencies.ended_parents(connection, [end.run_id for end in ends])
        await _follow(connection, parents, effects)


async def _follow(connection: Connection, parents: Sequence[EndedParent], effects: Effects) -> None:
    await _satisfy(connection, parents, effects)
    found = await dependencies.waiting_for(connection, parents)
    if found is None:  # they are polled after the commit
        await dependencies.poll_again(connection, [(parent.tenant_id, parent.job_id) for parent in parents])
        effects.of(DependencyEffects).check = True
        return
    if not found:
        return
    locked = await dependencies.lock_waiting(connection, sorted(found))
    tenants = {run.run_id: run.tenant_id for run in locked}
    changed: list[WaitRow] = []
    for wait in await dependencies.waits_of(connection, list(tenants)):
        if wait.parent_end is None and wait.looked:
            after = _after(wait, [run for run in parents if _key(run) == (tenants[wait.run_id], wait.parent)])
            if after is not wait:
                changed.append(after)
    if changed:
        await dependencies.write_waits(connection, changed)
    if not all(wait.looked for wait in changed):
        effects.of(DependencyEffects).check = True
    await settle_waiting(connection, locked, effects)


def _after(wait: WaitRow, runs: Sequence[EndedParent]) -> WaitRow:
    """What is known after these runs of the parent have ended."""
    for run in runs:
        if wait.parent_run == run.run_id or (wait.parent_run is None and run.state == StoredState.SUCCESS):
            return ended(wait, run.run_id, *end_of(run.state, run.reason))
    # Perhaps it was the last run of the parent.
    return msgspec.structs.replace(wait, looked=False) if runs and wait.parent_run is None else wait


def _key(run: EndedParent) -> JobKey:
    return (run.tenant_id, run.job_id)


async def _satisfy(connection: Connection, parents: Sequence[EndedParent], effects: Effects) -> None:
    """The jobs that fire after these runs, in the order in which they are locked."""
    keys = [_key(parent) for parent in parents]
    children = await dependencies.after_children(connection, keys, dependencies.FIRST_JOB)
    while children:
        await _satisfy_children(connection, parents, children, effects)
        if len(children) < dependencies.MOST_ROWS:
            return
        children = await dependencies.after_children(connection, keys, children[-1])


async def _satisfy_children(
    connection: Connection, parents: Sequence[EndedParent], children: Sequence[JobKey], effects: Effects
) -> None:
    locked = {
        (child.tenant_id, child.job_id): child for child in await dependencies.lock_children(connection, children)
    }
    ends = [
        (child, parent, int(end))
        for edge in await dependencies.after_edges(connection, children)
        if (child := locked.get((edge.tenant_id, edge.child))) is not None
        for parent in parents
        if _key(parent) == (edge.tenant_id, edge.parent)
        and satisfies(child.rule, end := end_of(parent.state, parent.reason)[0])
    ]
    if ends:
        await dependencies.satisfy(connection, list({(item[0], item[1].job_id): item for item in ends}.values()))
        if await fire_if_met(connection, children):
            effects.of(DependencyEffects).due = True
