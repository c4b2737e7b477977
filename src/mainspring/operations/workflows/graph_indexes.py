"""Graph indexes of definitions, and parts of workflow runs: which steps are created, and which have ended before."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from mainspring.domain.transitions import StoredState
from mainspring.domain.workflows.flow import number_of, run_in
from mainspring.kernel.compute_thread import in_compute_thread
from mainspring.kernel.ids import TenantId
from mainspring.operations.workflows.definitions import Definitions
from mainspring.operations.workflows.graph_rows import GraphIndex, GraphPart
from mainspring.store import workflows
from mainspring.store.pool import Connection
from mainspring.store.workflow_versions import VersionKey
from mainspring.store.workflows import Flow, StepEnd

_KEPT = 20
_SMALL = 1000  # steps up to which the index is built on the event loop
BLOCKED = "upstream failed"  # how the reasons of steps begin that were skipped because of a failure


class GraphIndexes:
    """A cache of the graph indexes of definitions."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._known: OrderedDict[tuple[TenantId, VersionKey], GraphIndex] = OrderedDict()

    async def get(self, connection: Connection, tenant: TenantId, key: VersionKey) -> GraphIndex:
        """Raises NotFound if there is no such version."""
        found = self._known.get((tenant, key))
        if found is None:
            definition = await self._definitions.get(connection, tenant, key)
            small = len(definition.steps) <= _SMALL
            found = GraphIndex(definition) if small else await in_compute_thread(GraphIndex, definition)
            self._known[(tenant, key)] = found
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return found

    async def of_flow(self, connection: Connection, flow: Flow) -> GraphIndex:
        return await self.get(connection, flow.tenant_id, (flow.job_id, flow.generation, flow.version))


async def current_numbers(connection: Connection, flow: Flow, *, before_rerun: int | None = None) -> dict[int, int]:
    """The number of the newest run of each step, by the place of the step. With `before_rerun`: as it was before that
    rerun."""
    numbers = {place: place for place in range(flow.steps)}
    if flow.reruns:
        for rerun in await workflows.reruns(connection, flow.flow_id):
            if before_rerun is None or rerun.rerun < before_rerun:
                numbers.update({place: rerun.first_number + index for index, place in enumerate(rerun.steps)})
    return numbers


async def ends_by_number(connection: Connection, flow: Flow, numbers: list[int]) -> dict[int, StepEnd]:
    ends: dict[int, StepEnd] = {}
    for first in range(0, len(numbers), _SMALL):
        found = await workflows.ends_of(
            connection, [run_in(flow.prefix, number) for number in numbers[first : first + _SMALL]]
        )
        ends.update({number_of(run_id): end for run_id, end in found.items()})
    return ends


async def part_of(connection: Connection, flow: Flow) -> GraphPart:
    """The part of a workflow run to create when it starts or runs again."""
    part = GraphPart(
        flow_id=flow.flow_id,
        tenant_id=flow.tenant_id,
        workflow_id=flow.job_id,
        generation=flow.generation,
        scheduled_for=flow.scheduled_for,
        block=flow.block,
        prefix=flow.prefix,
        numbers={place: place for place in range(flow.steps)},
    )
    if not flow.reruns:
        return part
    earlier = await current_numbers(connection, flow, before_rerun=flow.reruns)
    last = (await workflows.reruns(connection, flow.flow_id))[-1]
    numbers = {place: last.first_number + index for index, place in enumerate(last.steps)}
    ends = await ends_by_number(connection, flow, list(earlier.values()))
    before = {
        place: (number, ends[number].state if number in ends else int(StoredState.CANCELLED))
        for place, number in earlier.items()
        if place not in numbers
    }
    return msgspec.structs.replace(
        part,
        numbers=numbers,
        before=before,
        blocked={
            place: (end.reason or "").removeprefix(BLOCKED).removeprefix(": ")
            for place, (number, _) in before.items()
            if (end := ends.get(number)) is not None and is_blocked(end)
        },
        again=frozenset(
            place for place in numbers if (end := ends.get(earlier[place])) and end.state == StoredState.SUCCESS
        ),
    )


def is_blocked(end: StepEnd | None) -> bool:
    """Whether a step was skipped because of a failure."""
    return end is not None and end.state == StoredState.SKIPPED and (end.reason or "").startswith(BLOCKED)
