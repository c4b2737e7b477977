"""What follows the end of a run on whose job others depend, in the transaction that ends it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.domain.dependencies import satisfies
from mainspring.domain.transitions import Follows, StoredState
from mainspring.operations.dependencies.edges import fire_if_met
from mainspring.operations.dependencies.parents import end_of, ended
from mainspring.operations.dependencies.waiting import settle_waiting
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.workflows.rule_engine import follow
from mainspring.store import dependencies
from mainspring.store.dependencies import EndedParent, JobKey, WaitRow
from mainspring.store.pool import Connection

_JOBS = int(Follows.JOBS)


async def follow_ends(connection: Connection, effects: Effects, *, by_marks: bool = False) -> None:
    """Deal with the ends in `effects`, and with those that follow from them: of runs that other jobs wait for, and of
    runs that belong to workflows. Other transactions pay only for the checks. The runs of other jobs are locked before
    joins. `by_marks`: the caller must lock no join."""
    seen = await _follow_jobs(connection, effects, 0)
    while effects.ends:
        await follow(connection, effects, by_marks=by_marks)
        seen = await _follow_jobs(connection, effects, seen)


async def _follow_jobs(connection: Connection, effects: Effects, seen: int) -> int:
    """Start or end the runs that have waited for the runs in `effects.following`, from the place `seen` on, and what
    follows these ends in turn. Jobs that fire after them become due. Returns how many were seen."""
    while seen < len(effects.following):
        run_ids = [row[0] for row in effects.following[seen:] if (row[1] or 0) & _JOBS]
        seen = len(effects.following)
        if run_ids:
            await _follow(connection, await dependencies.ended_parents(connection, run_ids), effects)
    return seen


async def _follow(connection: Connection, parents: Sequence[EndedParent], effects: Effects) -> None:
    await _satisfy(connection, parents, effects)
    found = await dependencies.waiting_for(connection, parents)
    if found is None:  # they are looked at after the commit
        await dependencies.look_again(connection, [(parent.tenant_id, parent.job_id) for parent in parents])
        effects.look = True
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
    effects.look |= not all(wait.looked for wait in changed)
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
        effects.due |= await fire_if_met(connection, children) > 0
