"""The definitions of workflows as this process knows them. A version never changes, so it is read once."""

from __future__ import annotations

from collections import OrderedDict

from mainspring.domain.errors import NotFound
from mainspring.domain.workflows.definition import WorkflowDefinition, definition_from_text
from mainspring.kernel.compute_thread import in_compute_thread
from mainspring.kernel.ids import TenantId
from mainspring.store import workflow_versions
from mainspring.store.pool import Connection
from mainspring.store.workflow_versions import VersionKey

_SMALL = 64 * 1024  # bytes that are decoded at once
_MOST_KEPT = 32 * 1024 * 1024  # bytes of JSON; the objects take several times as much


class Definitions:
    def __init__(self) -> None:
        self._known: OrderedDict[tuple[TenantId, VersionKey], tuple[int, WorkflowDefinition]] = OrderedDict()
        self._kept = 0

    async def get(self, connection: Connection, tenant: TenantId, key: VersionKey) -> WorkflowDefinition:
        """Raises NotFound if there is no such version."""
        known = self._known.get((tenant, key))
        if known is not None:
            self._known.move_to_end((tenant, key))
            return known[1]
        text = await workflow_versions.definition(connection, tenant, key)
        if text is None:
            raise NotFound(f"there is no version {key[2]} of workflow {key[0]!r}", hint="see GET /v1/workflows")
        small = len(text) < _SMALL
        found = definition_from_text(text) if small else await in_compute_thread(definition_from_text, text)
        self._keep((tenant, key), len(text), found)
        return found

    def _keep(self, key: tuple[TenantId, VersionKey], size: int, definition: WorkflowDefinition) -> None:
        if key in self._known:
            return
        self._known[key] = (size, definition)
        self._kept += size
        while self._kept > _MOST_KEPT and len(self._known) > 1:
            self._kept -= self._known.popitem(last=False)[1][0]
