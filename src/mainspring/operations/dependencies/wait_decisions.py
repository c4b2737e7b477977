"""Decides about runs that wait for other jobs: they start, or end by their rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.dependencies import RUNS, ParentEnd, Wait, WaitVerdict, verdict
from mainspring.domain.job import Spec, spec_from_text
from mainspring.domain.transitions import StoredState
from mainspring.domain.workflows.references import Unresolved, Values, may_refer, resolved_payload
from mainspring.kernel.config import MAX_SHELL_PAYLOAD_BYTES
from mainspring.operations.lifecycle.effects import Effects, RunChanges, apply_changes
from mainspring.operations.limits.ready_runs import make_ready
from mainspring.store import dependencies, joins
from mainspring.store.dependencies import DependantRun, WaitRow
from mainspring.store.pool import Connection
from mainspring.store.runs import Ending

_WAITING = int(StoredState.WAITING)


async def settle_waiting(connection: Connection, locked: Sequence[DependantRun], effects: Effects) -> None:
    """Start or end those of the runs whose rule is decided. The caller has locked them. What follows their ends is in
    `effects`."""
    waits = _by_run(await dependencies.waits_of(connection, [run.run_id for run in locked]))
    decided: list[tuple[DependantRun, WaitVerdict]] = []
    for run in locked:
        spec = spec_from_text(run.spec_text)
        found = decision(spec, waits.get(run.run_id, []))
        if found is not None:
            decided.append((run, found))
    if not decided:
        return
    results = await _results(connection, decided, waits)
    queued: list[joins.Ready] = []
    held: list[joins.Ready] = []
    endings: list[Ending] = []
    for run, found in decided:
        payload = None
        if found is RUNS and may_refer(run.payload_text):
            payload, found = _resolved(run, _result_of(waits.get(run.run_id, []), results))
        if found.end is not None:
            endings.append(
                Ending(run.run_id, run.fence, int(found.end), found.reason, None, _WAITING, attempt=run.attempt)
            )
        else:
            (held if run.limited else queued).append(joins.Ready(run.run_id, payload))
    await make_ready(connection, queued, held, effects)
    await apply_changes(connection, RunChanges(endings), effects)
    await dependencies.delete_waits(
        connection, [run.run_id for run, _ in decided], [(run.tenant_id, run.job_id) for run, _ in decided]
    )


def decision(spec: Spec, waits: Sequence[WaitRow]) -> WaitVerdict | None:
    """Decide by the rule of the run. A job without depends_on has fired after its parents, and only takes their
    results."""
    if spec.depends_on is None:
        return RUNS
    place = {parent: index for index, parent in enumerate(spec.depends_on)}
    ordered = sorted(waits, key=lambda wait: place.get(wait.parent, 0))
    return verdict(
        spec,
        [
            Wait(wait.parent, None if wait.parent_end is None else ParentEnd(wait.parent_end), wait.cause)
            for wait in ordered
        ],
    )


def _by_run(rows: Sequence[WaitRow]) -> dict[UUID, list[WaitRow]]:
    found: dict[UUID, list[WaitRow]] = {}
    for row in rows:
        found.setdefault(row.run_id, []).append(row)
    return found


async def _results(
    connection: Connection, decided: Sequence[tuple[DependantRun, WaitVerdict]], waits: dict[UUID, list[WaitRow]]
) -> dict[UUID, str | None]:
    """The results that payloads may refer to, by the run of the parent."""
    wanted = {
        wait.parent_run
        for run, found in decided
        if found is RUNS and may_refer(run.payload_text)
        for wait in waits.get(run.run_id, ())
        if wait.parent_run is not None and wait.parent_end == ParentEnd.SUCCESS
    }
    return await dependencies.results(connection, list(wanted)) if wanted else {}


def _result_of(waits: Sequence[WaitRow], results: dict[UUID, str | None]) -> Callable[[str], Any]:
    runs = {wait.parent: wait.parent_run for wait in waits}

    def result(job_id: str) -> Any:
        run_id = runs.get(job_id)
        if run_id is None or run_id not in results:
            raise Unresolved(f"there is no result of {job_id}")
        text = results[run_id]
        return None if text is None else msgspec.json.decode(text)

    return result


def _resolved(run: DependantRun, result: Callable[[str], Any]) -> tuple[str | None, WaitVerdict]:
    assert run.payload_text is not None
    try:
        payload = resolved_payload(run.payload_text, Values(result=result))
    except Unresolved as error:
        return None, WaitVerdict(StoredState.FAILED, str(error))
    size = len(payload.encode())
    if spec_from_text(run.spec_text).command is not None and size > MAX_SHELL_PAYLOAD_BYTES:
        return None, WaitVerdict(
            StoredState.FAILED, f"the payload has {size} bytes; a command takes at most {MAX_SHELL_PAYLOAD_BYTES}"
        )
    return payload, RUNS
