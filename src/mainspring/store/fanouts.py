"""Fan-outs: mapped steps, their items, and the cursor over their members."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from mainspring.domain.workflows.rules import Counts
from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("fanouts")
FIRST = UUID(int=0)
_pairs = msgspec.json.Decoder(list[tuple[int, msgspec.Raw]]).decode


class Fanout(msgspec.Struct, frozen=True):
    """A mapped step that is ready. step: its place in the definition. join_id, total, first_number: the join, number
    and first number of its members, once they are known. expanded: how many of them were created. repeats: how many of
    them run again, after others have succeeded in the run `origin` of the step; None: it has all of them."""

    run_id: UUID
    flow_id: UUID
    step: int
    state: int
    join_id: int | None
    total: int | None
    expanded: int
    first_number: int | None
    at_a_time: int | None
    failures: int | None
    targets: list[str] | None
    origin: UUID | None = None
    repeats: int | None = None

    @property
    def own(self) -> int:
        """How many members it has to create."""
        return (self.total or 0) if self.repeats is None else self.repeats

    @property
    def earlier(self) -> int:
        """How many members have succeeded before it."""
        return (self.total or 0) - self.own


class ItemChunk(msgspec.Struct, frozen=True):
    """Pairs of index and item of members that run again. position: the position of the first of them."""

    chunk: int
    items_text: str
    position: int | None


_chunk_at = RowQuery(ItemChunk, _SQL["chunk_at"])
_chunks_by_number = RowQuery(ItemChunk, _SQL["chunks_by_number"])
_get_fanout = RowQuery(Fanout, _SQL["get_fanout"])
_lock_fanout = RowQuery(Fanout, _SQL["lock_fanout"])
_close_fanouts = RowQuery(Fanout, _SQL["close_fanouts"])


async def open_all(connection: Connection, run_ids: Sequence[UUID]) -> list[UUID]:
    """Mapped steps are ready. The caller has locked their runs. Returns those that matched."""
    return [run_id for (run_id,) in await connection.fetch(_SQL["open_fanouts"], run_ids)]


async def get(connection: Connection, run_id: UUID) -> Fanout | None:
    return await _get_fanout.first(connection, run_id)


async def lock(connection: Connection, run_id: UUID) -> Fanout | None:
    return await _lock_fanout.first(connection, run_id)


async def at_work(connection: Connection, after: UUID, limit: int) -> list[UUID]:
    return [run_id for (run_id,) in await connection.fetch(_SQL["fanouts_at_work"], after, limit)]


async def of_joins(connection: Connection, join_ids: Sequence[int]) -> list[UUID]:
    """The mapped steps whose members feed these joins."""
    return [run_id for (run_id,) in await connection.fetch(_SQL["fanouts_of_joins"], join_ids)]


async def begin(
    connection: Connection,
    run_id: UUID,
    *,
    join_id: int,
    total: int,
    first_number: int,
    at_a_time: int | None,
    failures: int | None,
    targets: list[str] | None,
    origin: UUID | None = None,
    repeats: int | None = None,
) -> bool:
    """Store the members of a mapped step. The caller has locked it. False if it has begun, or its run does not wait any
    more."""
    matched = await connection.fetchval(
        _SQL["begin_fanout"], run_id, join_id, total, first_number, at_a_time, failures, targets, origin, repeats
    )
    return matched is not None and await connection.fetchval(_SQL["await_members"], run_id, join_id) is not None


async def insert_items(connection: Connection, run_id: UUID, chunks: Sequence[tuple[int, str, int | None]]) -> None:
    """Store chunks of its list: (number, JSON array, position)."""
    await connection.execute(
        _SQL["insert_items"],
        run_id,
        [number for number, _, _ in chunks],
        [items for _, items, _ in chunks],
        [position for _, _, position in chunks],
    )


async def items(connection: Connection, run_id: UUID, chunk: int) -> str | None:
    text: str | None = await connection.fetchval(_SQL["items_of_chunk"], run_id, chunk)
    return text


async def chunk_at(connection: Connection, run_id: UUID, position: int) -> ItemChunk | None:
    """The chunk that has the member at this position, among the members that run again."""
    return await _chunk_at.first(connection, run_id, position)


async def index_at(connection: Connection, run_id: UUID, position: int) -> int | None:
    """The index of the one at this position."""
    chunk = await chunk_at(connection, run_id, position)
    if chunk is None:
        return None
    index: int = _pairs(chunk.items_text)[position - (chunk.position or 0)][0]
    return index


async def positions(connection: Connection, run_id: UUID, chunks: Sequence[int]) -> dict[int, int]:
    """The positions of members that run again, by index, for those in these chunks."""
    return {
        index: (chunk.position or 0) + place
        for chunk in await _chunks_by_number.fetch(connection, run_id, chunks)
        for place, (index, _) in enumerate(_pairs(chunk.items_text))
    }


async def counted(connection: Connection, fanout: Fanout) -> Counts:
    """The ends of its members so far."""
    row = await connection.fetchrow(_SQL["counted_of_join"], fanout.join_id)
    return Counts(fanout.total or 0, *(row or (0, 0, 0, 0)))


async def advance(connection: Connection, fanout: Fanout, expanded: int, *, close: bool) -> bool:
    """Record how many members are created."""
    return (
        await connection.fetchval(_SQL["advance_fanout"], fanout.run_id, fanout.expanded, expanded, close) is not None
    )


async def close(connection: Connection, run_ids: Sequence[UUID]) -> dict[UUID, Fanout]:
    """Their members have ended."""
    return {fanout.run_id: fanout for fanout in await _close_fanouts.fetch(connection, run_ids)}


async def close_of_flow(connection: Connection, flow_id: UUID) -> None:
    """A workflow run is being stopped: no more members of its mapped steps are created, also if it is run again."""
    await connection.execute(_SQL["close_fanouts_of_flow"], flow_id)


async def targets(
    connection: Connection, tenant: TenantId, labels: str, queue: str, task: str, limit: int
) -> list[str]:
    """The live workers of a broadcast."""
    return [one for (one,) in await connection.fetch(_SQL["broadcast_targets"], tenant, labels, queue, task, limit)]
