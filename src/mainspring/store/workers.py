"""Workers: incarnations, sequence numbers, beats."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection, Record
from mainspring.store.queries import load
from mainspring.wire.exchange import Progress, WorkerHello

_SQL = load("workers")


class WorkerState(IntEnum):
    LIVE = 1
    DRAINING = 2
    LOST = 3
    STOPPED = 4


async def register(connection: Connection, tenant: TenantId, worker_id: UUID, hello: WorkerHello) -> WorkerState | None:
    """Write down a new incarnation and give its state; None when it is already known as lost or stopped."""
    state = await connection.fetchval(
        _SQL["register"],
        worker_id,
        tenant,
        hello.name,
        hello.queues,
        hello.tasks,
        msgspec.json.encode(hello.labels).decode(),
        hello.version,
        hello.slots,
    )
    return None if state is None else WorkerState(state)


async def advance(connection: Connection, tenant: TenantId, worker_id: UUID, seq: int, *, again: bool) -> int | None:
    """Lock the worker's row, take `seq` (`again`: this exchange has taken it before) and give the worker's state; None
    when it is not newer or the incarnation is not alive."""
    state: int | None = await connection.fetchval(_SQL["advance"], worker_id, tenant, seq, again)
    return state


async def look(connection: Connection, tenant: TenantId, worker_id: UUID) -> Record | None:
    row: Record | None = await connection.fetchrow(_SQL["look"], worker_id, tenant)
    return row


async def view(connection: Connection, tenant: TenantId, worker_id: UUID) -> Record | None:
    """One worker as `list_workers` has it, whenever it ended."""
    row: Record | None = await connection.fetchrow(_SQL["view_worker"], tenant, worker_id)
    return row


async def set_state(connection: Connection, worker_id: UUID, state: WorkerState) -> bool:
    return await connection.fetchval(_SQL["set_state"], worker_id, int(state)) is not None


async def note_progress(
    connection: Connection, tenant: TenantId, worker_id: UUID, words: Sequence[Progress]
) -> list[UUID]:
    """Keep how far these runs have come, unless a later word is known; gives those that are not this worker's any
    more."""
    rows = await connection.fetch(
        _SQL["note_progress"],
        worker_id,
        [word.run_id for word in words],
        [word.fence for word in words],
        [word.number for word in words],
        [word.fraction for word in words],
        [None if word.message is None else word.message.replace("\x00", "\ufffd") for word in words],
        tenant,
    )
    current = {row["run_id"] for row in rows}
    return [word.run_id for word in words if word.run_id not in current]


async def beat(connection: Connection, table: int, server_id: UUID, worker_ids: Sequence[UUID]) -> None:
    await connection.execute(_SQL[f"beat_{table}"], server_id, worker_ids)


async def silent(connection: Connection, seconds: float) -> list[Record]:
    rows: list[Record] = await connection.fetch(_SQL["silent"], seconds)
    return rows


async def ended_with_runs(connection: Connection) -> list[UUID]:
    return [row["worker_id"] for row in await connection.fetch(_SQL["ended_with_runs"])]


async def truncate_beats(connection: Connection, table: int) -> bool:
    """Empty a beat table that has been quiet for half a minute; locked first, so that no beat slips in between."""
    if not await connection.fetchval(_SQL[f"quiet_{table}"]):
        return False
    async with connection.transaction():
        await connection.execute(f"lock table mainspring.worker_beats_{table} in access exclusive mode nowait")
        if not await connection.fetchval(_SQL[f"quiet_{table}"]):
            return False
        await connection.execute(f"truncate mainspring.worker_beats_{table}")
    return True


async def list_workers(connection: Connection, tenant: TenantId) -> list[Record]:
    rows: list[Record] = await connection.fetch(_SQL["list_workers"], tenant)
    return rows


async def prune(connection: Connection) -> None:
    await connection.execute(_SQL["prune_workers"])


class Offer(msgspec.Struct, frozen=True):
    """What a worker can run; one that drains takes nothing new."""

    queues: set[str]
    tasks: set[str]
    labels: dict[str, str]
    draining: bool = False


class Taker(msgspec.Struct, frozen=True):
    """A worker of some queue that offers some task: its slots, how many queues it serves, how many runs it has, and
    how many of that task."""

    labels: dict[str, str]
    slots: int
    queues: int
    running: int
    of_task: int

    @property
    def free(self) -> int:
        return self.slots - self.running


async def offers(connection: Connection, tenant: TenantId) -> list[Offer]:
    """What the living workers can run, each kind once."""
    return [
        Offer(set(row["queues"]), set(row["tasks"]), msgspec.json.decode(row["labels_text"]), row["draining"])
        for row in await connection.fetch(_SQL["offers"], tenant)
    ]


async def takers(connection: Connection, tenant: TenantId, queue: str, task: str) -> list[Taker]:
    """Workers that take runs of this task from this queue, if they have the labels for it."""
    return [
        Taker(msgspec.json.decode(row["labels_text"]), row["slots"], row["queues"], row["running"], row["of_task"])
        for row in await connection.fetch(_SQL["takers"], tenant, queue, task)
    ]


async def offers_by_queue(connection: Connection, tenant: TenantId) -> dict[str, int]:
    """How many living workers subscribe to each queue."""
    return {row["queue"]: row["workers"] for row in await connection.fetch(_SQL["offers_by_queue"], tenant)}


async def counts(connection: Connection, tenant: TenantId) -> list[Record]:
    """(state, count, slots) of the living workers and of those that ended within the hour."""
    rows: list[Record] = await connection.fetch(_SQL["counts"], tenant)
    return rows


async def beats_forgotten(connection: Connection, witness_id: UUID) -> bool:
    """Whether the beats were emptied since this witness asked last (also true the first time)."""
    return bool(await connection.fetchval(_SQL["witness"], witness_id))
