"""What steps run that are workflows: checked when a workflow is stored, as far as it can be seen then."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from mainspring.domain.dependencies import find_cycle
from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.workflows import run_parameters
from mainspring.domain.texts import shown
from mainspring.domain.transitions import StoredJobStatus
from mainspring.domain.workflows.children import MOST_LEVELS
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.ownership import check_own
from mainspring.operations.workflows.preparation import CallByStep
from mainspring.store import child_runs
from mainspring.store.child_runs import CalledWorkflow
from mainspring.store.pool import Connection, Store


class CallCheck:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def check(self, caller: Caller, workflow_id: str | None, calls: Sequence[CallByStep]) -> None:
        """As `check_calls`, of a workflow that is not stored."""
        if calls:
            async with self._store.reads.acquire() as connection:
                await check_calls(connection, caller, workflow_id or "", calls)


async def check_calls(connection: Connection, caller: Caller, workflow_id: str, calls: Sequence[CallByStep]) -> None:
    """Raise InvalidInput for a workflow that there is not, that has no such parameter, or that runs this one in turn.
    Raise Forbidden for one that the caller may not run."""
    if not calls:
        return
    names = {call.workflow for call in calls}
    fields = {call.workflow: f"{call.field}.workflow" for call in reversed(calls)}
    if workflow_id in names:
        raise _cyclic([workflow_id], fields[workflow_id])
    found = await child_runs.called(connection, caller.tenant, names)
    for call in calls:
        check_call(found.get(call.workflow), call)
        check_own(caller, found[call.workflow].created_by, f"workflow {call.workflow!r}")
    below = {workflow_id: sorted(names)} | {one.job_id: one.calls or [] for one in found.values()}
    for _ in range(MOST_LEVELS):
        left = {name for called in below.values() for name in called} - below.keys()
        if not left:
            break
        deeper = await child_runs.called(connection, caller.tenant, left)
        below.update({name: deeper[name].calls or [] if name in deeper else [] for name in left})
    else:
        raise InvalidInput(
            f"the workflows are nested in more than {MOST_LEVELS} levels", code="invalid_reference",
            field=next(iter(fields.values())), hint="let some of them run on their own",
        )  # fmt: skip
    if (cycle := find_cycle(below)) is not None:
        field = next((fields[name] for name in cycle if name in fields), next(iter(fields.values())))
        raise _cyclic(cycle[::-1], field)


def check_call(found: CalledWorkflow | None, call: CallByStep) -> None:
    """Raise InvalidInput unless the workflow can be run with these parameters."""
    field = f"{call.field}.workflow"
    if found is None or found.status == StoredJobStatus.CANCELLED:
        raise InvalidInput(
            f"there is no workflow {shown(call.workflow)}" + ("" if found is None else ": it was deleted"),
            code="unknown_job", field=field, hint="create it before the one whose step runs it",
        )  # fmt: skip
    stored = {} if found.payload_text is None else msgspec.json.decode(found.payload_text)
    run_parameters(stored, dict.fromkeys(call.parameters or ()), f"{call.field}.parameters")


def may_run(calls_of: UUID | None, created_by: UUID | None) -> bool:
    """Whether a version may run a workflow with this creator. calls_of: as it is stored with the version."""
    return calls_of is None or calls_of == created_by


def _cyclic(cycle: Sequence[str], field: str) -> InvalidInput:
    named = " runs ".join(map(shown, [*cycle, cycle[0]]))
    return InvalidInput(
        f"the workflows run each other: {named}", code="cycle", field=field,
        hint="a workflow cannot be a step of itself",
    )  # fmt: skip
