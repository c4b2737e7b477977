"""The payload of a manual run of a job that takes results of its parents: their newest ones."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.domain.dependencies import parents_of
from mainspring.domain.errors import Conflict
from mainspring.domain.job import JobDefinition
from mainspring.domain.workflows.references import Unresolved, Values, resolved_payload
from mainspring.kernel.ids import TenantId
from mainspring.store import dependencies
from mainspring.store.pool import Connection


async def with_newest_results(connection: Connection, tenant: TenantId, definition: JobDefinition) -> str:
    """Raises Conflict if a parent has no result."""
    assert definition.payload is not None
    runs = await dependencies.newest_successes(connection, tenant, parents_of(definition))
    results = await dependencies.results(connection, list(runs.values()))

    def result(job_id: str) -> Any:
        if job_id not in runs:
            raise Unresolved(f"job {job_id!r} has not succeeded yet")
        text = results.get(runs[job_id])
        return None if text is None else msgspec.json.decode(text)

    try:
        return resolved_payload(definition.payload, Values(result=result))
    except Unresolved as error:
        raise Conflict(
            str(error), code="no_result", field="payload", hint="give a payload without references"
        ) from None
