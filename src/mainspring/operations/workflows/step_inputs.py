"""Steps that get ready: their payloads with the results that they refer to, and the result of a mapped step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.job import Spec, spec_from_text, spec_to_text
from mainspring.domain.limits import NotAKey, slots_of
from mainspring.domain.transitions import StoredState
from mainspring.domain.workflows.flow import number_of, prefix_of, run_in
from mainspring.domain.workflows.references import Unresolved, Values, resolved_payload
from mainspring.domain.workflows.rules import Counts
from mainspring.store import fanouts, joins, workflows
from mainspring.store.fanouts import Fanout
from mainspring.store.joins import Ready
from mainspring.store.pool import Connection
from mainspring.store.workflows import StepEnd

MOST_RESULTS = 1000  # members whose results a mapped step passes on
_MOST_BYTES = 256 * 1024  # of these results together


async def resolve(connection: Connection, run_ids: Sequence[UUID]) -> tuple[dict[UUID, Ready], dict[UUID, str]]:
    """The payloads of these runs with what their references stand for, and the reasons of those that have none. The
    caller has locked the runs."""
    if not run_ids:
        return {}, {}
    found = await joins.to_resolve(connection, run_ids)
    uses: dict[UUID, dict[str, UUID]] = {}
    specs: dict[UUID, Spec] = {}
    for run in found:
        specs[run.run_id] = spec = spec_from_text(run.spec_text)
        used = {} if spec.step is None else spec.step.uses or {}
        uses[run.run_id] = {name: run_in(prefix_of(run.run_id), number) for name, number in used.items()}
    ends = await workflows.ends_of(connection, sorted({run_id for used in uses.values() for run_id in used.values()}))
    parameters = await workflows.parameters(connection, sorted({prefix_of(run_id) for run_id in uses}))
    ready: dict[UUID, Ready] = {}
    failed: dict[UUID, str] = {}
    for run in found:
        values = values_of(uses[run.run_id], ends, parameters.get(prefix_of(run.run_id)))
        try:
            payload = resolved_payload(run.payload_text or "{}", values)
            ready[run.run_id] = Ready(run.run_id, payload, with_lines(specs[run.run_id], run.task, run.job_id, payload))
        except (Unresolved, InvalidInput, NotAKey) as error:
            failed[run.run_id] = str(error)
    return ready, failed


def values_of(uses: Mapping[str, UUID], ends: Mapping[UUID, StepEnd], parameters: str | None) -> Values:
    """What the references of a step stand for. `uses`: the runs of the steps to which it refers. A step that has failed
    has a result if its members have run."""

    def result(step: str) -> Any:
        end = ends.get(uses[step]) if step in uses else None
        if end is None or (end.state != StoredState.SUCCESS and end.result_text is None):
            how = "has not ended" if end is None else f"ended {StoredState(end.state).name}"
            raise Unresolved(f"step {step} has no result: it {how}")
        return None if end.result_text is None else msgspec.json.decode(end.result_text)

    return Values(result, {} if parameters is None else msgspec.json.decode(parameters))


def with_lines(spec: Spec, task: str, job_id: str | None, payload: str) -> str | None:
    """The spec of a run whose lines depend on its payload; None if it stays as it is."""
    if spec.line is None or job_id is None or not any(":payload." in slot.name for slot in spec.line):
        return None
    line = slots_of(
        spec.concurrency or (),
        spec.rate_limit or (),
        spec.circuit_breaker,
        task=task,
        job_id=job_id,
        lasting=True,
        payload=payload,
        labels=spec.labels,
        one_after_another=False,
    )
    return spec_to_text(msgspec.structs.replace(spec, line=line))


async def fanout_results(connection: Connection, fanout: Fanout, counts: Counts, *, wants_results: bool) -> str:
    """The result of a mapped step: counts, and the results of its members if there are not too many, and all are
    kept."""
    total = fanout.total or 0
    results: list[Any] | None = None
    if wants_results and total <= MOST_RESULTS:
        by_index = await _results_by_index(connection, fanout)
        known = len(by_index) == counts.ok
        if known and sum(len(text) for text in by_index.values() if text) <= _MOST_BYTES:
            texts = [by_index.get(index) for index in range(total)]
            results = [None if text is None else msgspec.Raw(text.encode()) for text in texts]
    return msgspec.json.encode(
        {"total": total, "succeeded": counts.ok, "failed": counts.failed, "skipped": counts.skipped, "results": results}
    ).decode()


async def _results_by_index(connection: Connection, fanout: Fanout) -> dict[int, str | None]:
    """The results of the members that have succeeded, also in earlier runs of the step that it goes on with."""
    found: dict[int, str | None] = {}
    run: Fanout | None = fanout
    while run is not None:
        prefix, first = prefix_of(run.run_id), run.first_number or 0
        indexes: Sequence[int] = range(run.own)
        if run.repeats is not None:  # there are up to 1,000 members: one chunk
            indexes = list(await fanouts.positions(connection, run.run_id, [0]))
        if run.own:
            last = run_in(prefix, first + run.own - 1)
            for end in await workflows.ends_between(connection, run_in(prefix, first), last, MOST_RESULTS):
                if end.state == StoredState.SUCCESS:
                    found[indexes[number_of(end.run_id) - first]] = end.result_text
        run = None if run.origin is None else await fanouts.get(connection, run.origin)
    return found
