"""Members of a map that run again because they did not succeed: which they are, and their items.

A rerun names the mapped steps of which only such members run again. When one of them is ready, the ends of the earlier
members are read, 1,000 in a statement. Those that did not succeed are stored in chunks, as pairs of index and item, and
the cursor runs over them. The join has counted the others before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.workflows.definition import StepDefinition
from mainspring.domain.workflows.flow import number_of, prefix_of, run_in
from mainspring.operations.workflows.graph_indexes import current_numbers
from mainspring.operations.workflows.members import CHUNK, Chunk, Mapped
from mainspring.store import fanouts, workflows
from mainspring.store.fanouts import Fanout
from mainspring.store.pool import Connection
from mainspring.store.workflows import Flow

_AT_ONCE = 1000  # ends that one statement reads
_pairs = msgspec.json.Decoder(list[tuple[int, msgspec.Raw]]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


async def read_repeats(connection: Connection, flow: Flow, step: StepDefinition, fanout: Fanout) -> Mapped | None:
    """The members that run again. None: all of them."""
    origin = await _origin(connection, flow, fanout)
    if origin is None or origin.total is None:
        return None
    counts = await fanouts.counted(connection, origin)
    positions = [*await _did_not_succeed(connection, origin), *range(origin.expanded, origin.own)]
    if len(positions) != origin.total - counts.ok:
        return None  # it is not known how all of them have ended
    chunks: list[Chunk] = []
    before = 0
    for number, pairs in await _in_chunks(connection, step, origin, positions):
        chunks.append(Chunk(number, _encode(pairs).decode(), before))
        before += len(pairs)
    return Mapped(origin.total, chunks, origin=origin.run_id, repeats=len(positions))


async def _origin(connection: Connection, flow: Flow, fanout: Fanout) -> Fanout | None:
    """The run of a mapped step before the last rerun, if that repeats only members that did not succeed."""
    if not flow.reruns:
        return None
    last = (await workflows.reruns(connection, flow.flow_id))[-1]
    if fanout.step not in (last.maps or ()):
        return None
    earlier = await current_numbers(connection, flow, before_rerun=last.rerun)
    return await fanouts.get(connection, run_in(flow.prefix, earlier[fanout.step]))


async def _did_not_succeed(connection: Connection, origin: Fanout) -> list[int]:
    """The positions of the members that were created and did not succeed."""
    if not origin.expanded:
        return []
    prefix, number = prefix_of(origin.run_id), origin.first_number or 0
    first, last = run_in(prefix, number), run_in(prefix, number + origin.expanded - 1)
    found: list[int] = []
    while True:
        part = await workflows.bad_ends(connection, first, last, _AT_ONCE)
        found += [number_of(run_id) - number for run_id in part]
        if len(part) < _AT_ONCE:
            return found
        first = run_in(prefix, number_of(part[-1]) + 1)


async def _in_chunks(
    connection: Connection, step: StepDefinition, origin: Fanout, positions: Sequence[int]
) -> list[tuple[int, list[tuple[int, Any]]]]:
    """Indexes and items of the members at these positions, by the chunk of the index."""
    if origin.repeats is not None:
        return await _of_repeats(connection, origin, positions)
    found: list[tuple[int, list[tuple[int, Any]]]] = []
    for number, indexes in groupby(positions, lambda index: index // CHUNK):
        if step.map is not None and step.map.range is not None:
            start, _, by = step.map.range
            found.append((number, [(index, start + by * index) for index in indexes]))
        else:
            items = _items(await fanouts.items(connection, origin.run_id, number) or "[]")
            found.append((number, [(index, items[index % CHUNK]) for index in indexes]))
    return found


async def _of_repeats(
    connection: Connection, origin: Fanout, positions: Sequence[int]
) -> list[tuple[int, list[tuple[int, Any]]]]:
    """As `_in_chunks`, for members that ran again before and did not succeed then."""
    found: list[tuple[int, list[tuple[int, Any]]]] = []
    place = 0
    while place < len(positions):
        chunk = await fanouts.chunk_at(connection, origin.run_id, positions[place])
        assert chunk is not None and chunk.position is not None  # the cursor has run over it
        pairs = _pairs(chunk.items_text)
        end = place
        while end < len(positions) and positions[end] < chunk.position + len(pairs):
            end += 1
        found.append((chunk.chunk, [pairs[position - chunk.position] for position in positions[place:end]]))
        place = end
    return found


async def member_runs(connection: Connection, run_id: UUID, indexes: range) -> dict[int, UUID]:
    """The newest run of each of these members of a mapped step, by index."""
    found: dict[int, UUID] = {}
    fanout = await fanouts.get(connection, run_id)
    while fanout is not None:
        positions = {index: index for index in indexes}
        if fanout.repeats is not None:
            chunks = range(indexes[0] // CHUNK, indexes[-1] // CHUNK + 1)
            positions = await fanouts.positions(connection, fanout.run_id, list(chunks))
        for index in indexes:
            if index not in found and positions.get(index, fanout.expanded) < fanout.expanded:
                number = (fanout.first_number or 0) + positions[index]
                found[index] = run_in(prefix_of(fanout.run_id), number)
        fanout = None if fanout.origin is None else await fanouts.get(connection, fanout.origin)
    return found


async def next_repeats(connection: Connection, fanout: Fanout) -> list[tuple[int, Any]]:
    """Indexes and items of the next members, to the end of their chunk."""
    chunk = await fanouts.chunk_at(connection, fanout.run_id, fanout.expanded)
    assert chunk is not None and chunk.position is not None
    pairs: list[tuple[int, Any]] = msgspec.json.decode(chunk.items_text)
    return pairs[fanout.expanded - chunk.position :]
