"""Workers: incarnations, sequence numbers and heartbeats."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from uuid import UUID

import msgspec

from mainspring.domain.worker_state import WorkerState as WorkerState
from mainspring.kernel.config import DEFAULT_TIMING
from mainspring.kernel.ids import TenantId
from mainspring.store import pages
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import PageRow, RowQuery, size_of
from mainspring.wire.exchange import Progress, Start, WorkerHello
from mainspring.wire.usage import usage_text

_SQL = load("workers")
_RECENT = 5.0  # seconds


_decode_labels = msgspec.json.Decoder(dict[str, str]).decode


class WorkerRow(PageRow, frozen=True):
    """A worker as clients see it. `state` is a WorkerState. `left_out`: large columns that a list does not read."""

    worker_id: UUID
    tenant_id: TenantId
    name: str
    queues: list[str]
    tasks: list[str]
    labels_text: str
    version: str
    slots: int
    state: int
    registered_at: datetime
    left_out: list[str]
    last_beat_at: datetime | None
    running: int
    holding: int

    @property
    def labels(self) -> dict[str, str]:
        return _decode_labels(self.labels_text)

    @property
    def weight(self) -> int:
        return size_of(*(self.queues or ()), *(self.tasks or ()), self.labels_text, self.name, self.version)


class Registration(msgspec.Struct, frozen=True):
    """The part of a worker's row that an exchange needs."""

    queues: list[str]
    tasks: list[str]
    labels_text: str
    slots: int
    state: int
    last_seq: int
    notice_at: datetime | None
    protocol: int
    secret_hash: bytes | None
    token_id: UUID | None

    @property
    def labels(self) -> dict[str, str]:
        return _decode_labels(self.labels_text)


class SilentWorker(msgspec.Struct, frozen=True):
    """A worker that is not ended and has sent no heartbeat, with its lease: after how many seconds of silence its
    ordinary and its exclusive runs are given to others."""

    worker_id: UUID
    name: str
    last_seq: int
    rescue_after: float
    exclusive_rescue_after: float


class LastHeard(msgspec.Struct, frozen=True):
    """When a worker was last heard, in seconds since 1970, and by which server. None: by none yet."""

    worker_id: UUID
    at: float
    server_id: UUID | None


class Holdings(msgspec.Struct, frozen=True):
    """Which kinds of runs a worker holds, and when it got the last of them, in seconds since 1970."""

    worker_id: UUID
    claimed_at: float
    exclusive: bool
    ordinary: bool


class StillSilent(msgspec.Struct, frozen=True):
    """A worker that is to be locked if it has taken no sequence number and sent no heartbeat for so many seconds."""

    worker_id: UUID
    last_seq: int
    seconds: float


class WorkerCount(msgspec.Struct, frozen=True):
    """How many workers are in a state, and the sum of their slots."""

    state: int
    count: int
    slots: int


_registration = RowQuery(Registration, _SQL["look"])
_view_worker = RowQuery(WorkerRow, _SQL["view_worker"])
_list_workers = RowQuery(WorkerRow, _SQL["list_workers"])
_silent = RowQuery(SilentWorker, _SQL["silent"])
_last_heard = RowQuery(LastHeard, _SQL["last_heard"])
_holdings = RowQuery(Holdings, _SQL["holdings"])
_counts = RowQuery(WorkerCount, _SQL["counts"])


async def register(
    connection: Connection,
    tenant: TenantId,
    worker_id: UUID,
    hello: WorkerHello,
    *,
    secret_hash: bytes | None = None,
    token_id: UUID | None = None,
    rescue_after: float = DEFAULT_TIMING.base_rescue,
    exclusive_rescue_after: float = DEFAULT_TIMING.base_rescue,
    patience: str = "5s",
) -> WorkerState | None:
    """Register an incarnation with its lease and return its state. None if it is lost or stopped already, or bound to
    another secret or token. Raises LockNotAvailableError if another transaction has locked the row for longer than
    `patience`."""
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
        secret_hash,
        rescue_after,
        exclusive_rescue_after,
        hello.protocol,
        token_id,
        patience,
    )
    return None if state is None else WorkerState(state)


def hash_secret(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


async def knows_secret(connection: Connection, worker_id: UUID, secret: str) -> bool:
    """Whether this is the secret of the incarnation. It locks nothing."""
    stored: bytes | None = await connection.fetchval(_SQL["secret_of"], worker_id)
    return stored is not None and hmac.compare_digest(stored, hash_secret(secret))


async def take_notice(connection: Connection, worker_id: UUID, secret: str) -> tuple[str, bool] | None:
    """End an incarnation because its watchdog says that nothing of it is left. Returns its name and whether it was
    alive until now, or None if the secret is wrong."""
    row = await connection.fetchrow(_SQL["take_notice"], worker_id, hash_secret(secret))
    return None if row is None else (row["name"], row["lost"])


async def held_number(connection: Connection, worker_id: UUID) -> int:
    """How many runs a worker holds, also those that another transaction has locked."""
    number: int = await connection.fetchval(_SQL["held_number"], worker_id)
    return number


async def advance(
    connection: Connection, tenant: TenantId, worker_id: UUID, seq: int, *, again: bool, patience: str = "10s"
) -> tuple[int, int] | None:
    """Lock the worker's row, take `seq`, and return the worker's state and the revision of the gates. `again`: this
    exchange has taken it before. None if the number is not newer or the incarnation has ended. From here on the
    transaction waits for a lock for `patience` at most, and then raises LockNotAvailableError."""
    row = await connection.fetchrow(_SQL["advance"], worker_id, tenant, seq, again, patience)
    return None if row is None else (row[0], row[1])


async def registration(connection: Connection, tenant: TenantId, worker_id: UUID) -> Registration | None:
    return await _registration.first(connection, worker_id, tenant)


async def count_others(connection: Connection, tenant: TenantId, worker_id: UUID | None, most: int) -> int:
    """How many live workers the tenant has besides this one, at most `most`. None: all of them."""
    count: int = await connection.fetchval(_SQL["count_others"], tenant, worker_id, most)
    return count


async def bind(
    connection: Connection, worker_id: UUID, secret_hash: bytes | None, token_id: UUID, patience: str
) -> bool:
    """Bind an incarnation that is bound to nothing yet. False if another process was faster. Raises
    LockNotAvailableError if another transaction has locked the row for longer than `patience`."""
    return await connection.fetchval(_SQL["bind"], worker_id, secret_hash, token_id, patience) is not None


async def states(connection: Connection, worker_ids: Sequence[UUID]) -> dict[UUID, int]:
    return {row["worker_id"]: row["state"] for row in await connection.fetch(_SQL["states"], worker_ids)}


async def view(connection: Connection, tenant: TenantId, worker_id: UUID) -> WorkerRow | None:
    """One worker as in `list_workers`, even if it ended long ago."""
    return await _view_worker.first(connection, tenant, worker_id)


async def set_state(
    connection: Connection, worker_id: UUID, state: WorkerState, only_from: WorkerState | None = None
) -> bool:
    """Set the state of a worker that is in a live state or in this one. Return whether it has changed."""
    return await connection.fetchval(_SQL["set_state"], worker_id, int(state), only_from) is not None


async def note_progress(
    connection: Connection, tenant: TenantId, worker_id: UUID, words: Sequence[Progress], patience: str = "10s"
) -> list[UUID]:
    """Store the progress of these runs, unless newer progress is stored. Return the runs that this worker no longer
    holds. Raises LockNotAvailableError if another transaction has locked one for longer than `patience`."""
    rows = await connection.fetch(
        _SQL["note_progress"],
        worker_id,
        [word.run_id for word in words],
        [word.fence for word in words],
        [word.number for word in words],
        [word.fraction for word in words],
        [None if word.message is None else word.message.replace("\x00", "\ufffd") for word in words],
        tenant,
        patience,
        [usage_text(word.usage) for word in words],
    )
    current = {row["run_id"] for row in rows}
    return [word.run_id for word in words if word.run_id not in current]


async def note_starts(connection: Connection, worker_id: UUID, starts: Sequence[Start]) -> set[UUID]:
    """Store that these runs have started, and return those that this has changed. Runs that another transaction has
    locked are left out, and those that the worker no longer holds."""
    run_ids, fences, ago = zip(*starts, strict=True)
    rows = await connection.fetch(_SQL["note_starts"], worker_id, run_ids, fences, ago)
    return {row["run_id"] for row in rows}


async def assume_started(connection: Connection, worker_id: UUID, run_ids: Sequence[UUID]) -> None:
    """Record a start for runs that were just claimed by a worker that does not report starts."""
    await connection.execute(_SQL["assume_started"], worker_id, run_ids)


async def forget_assumed_starts(connection: Connection, worker_id: UUID) -> None:
    await connection.execute(_SQL["forget_assumed_starts"], worker_id)


async def beat(connection: Connection, table: int, server_id: UUID, worker_ids: Sequence[UUID]) -> None:
    await connection.execute(_SQL[f"beat_{table}"], server_id, worker_ids)


async def silent(connection: Connection, seconds: float) -> list[SilentWorker]:
    return await _silent.fetch(connection, seconds)


async def last_heard(connection: Connection, worker_ids: Sequence[UUID]) -> list[LastHeard]:
    return await _last_heard.fetch(connection, worker_ids)


async def last_beats(connection: Connection, worker_ids: Sequence[UUID]) -> dict[UUID, datetime]:
    """The last heartbeats of these workers. Most were heard within seconds, and with thousands of workers it takes long
    to read all heartbeats."""
    found: dict[UUID, datetime] = dict(await connection.fetch(_SQL["last_beats"], worker_ids, _RECENT))
    if rest := [worker_id for worker_id in worker_ids if worker_id not in found]:
        found.update(await connection.fetch(_SQL["last_beats"], rest, None))
    return found


async def heard_by_server(connection: Connection, server_id: UUID, since: float, until: float) -> int:
    """How many workers a server heard in this time, in seconds since 1970."""
    count: int = await connection.fetchval(_SQL["heard_by_server"], server_id, since, until)
    return count


async def longest_leases(connection: Connection) -> tuple[float, float, float]:
    """The longest lease of ordinary runs, that of exclusive ones, and the time of the database."""
    ordinary, exclusive, now = await connection.fetchrow(_SQL["longest_leases"])
    return ordinary, exclusive, now


async def holdings(connection: Connection, worker_ids: Sequence[UUID]) -> list[Holdings]:
    """What those of these workers hold that hold anything."""
    return await _holdings.fetch(connection, worker_ids)


async def mark_lost(connection: Connection, judged: Sequence[StillSilent]) -> set[UUID]:
    """Mark workers as LOST. Return those that were still silent and not locked by others."""
    return {row["worker_id"] for row in await connection.fetch(_SQL["mark_lost"], *_columns(judged))}


async def lock_silent(connection: Connection, judged: StillSilent) -> bool:
    """Lock a worker. False if it is not silent any more, or locked by others."""
    return bool(await connection.fetch(_SQL["lock_silent"], *_columns([judged])))


def _columns(judged: Sequence[StillSilent]) -> tuple[list[UUID], list[int], list[float]]:
    return [each.worker_id for each in judged], [each.last_seq for each in judged], [each.seconds for each in judged]


async def ended_with_runs(connection: Connection) -> list[UUID]:
    return [row["worker_id"] for row in await connection.fetch(_SQL["ended_with_runs"])]


async def holds_runs(connection: Connection, worker_id: UUID) -> bool:
    return bool(await connection.fetchval(_SQL["holds_runs"], worker_id))


async def truncate_beats(connection: Connection, table: int) -> bool:
    """Truncate a beat table without heartbeats for half a minute. It is locked first, so no heartbeat is lost, and the
    last one of a worker is kept in the worker's row. False if that cannot be done now."""
    if not await connection.fetchval(_SQL[f"quiet_{table}"]):
        return False
    async with connection.transaction():
        await connection.execute(f"lock table mainspring.worker_beats_{table} in access exclusive mode nowait")
        if not await connection.fetchval(_SQL[f"quiet_{table}"]):
            return False
        if await connection.fetchval(_SQL[f"keep_last_beats_{table}"]):
            return False  # another transaction has locked the row of a worker
        await connection.execute(f"truncate mainspring.worker_beats_{table}")
    return True


async def list_workers(connection: Connection, tenant: TenantId, limit: int) -> list[WorkerRow]:
    return await pages.read(connection, _list_workers, tenant, limit)


async def prune(connection: Connection) -> None:
    await connection.execute(_SQL["prune_workers"])


class Offer(msgspec.Struct, frozen=True):
    """What a worker can run. A draining worker takes no new runs."""

    queues: set[str]
    tasks: set[str]
    labels: dict[str, str]
    draining: bool = False


class Taker(msgspec.Struct, frozen=True):
    """A worker that takes runs of a task from a queue: its slots, how many queues it serves, how many runs it has, and
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
    """What the live workers can run, without duplicates."""
    return [
        Offer(set(queues), set(tasks), _decode_labels(labels), draining)
        for queues, tasks, labels, draining in await connection.fetch(_SQL["offers"], tenant)
    ]


async def takers(connection: Connection, tenant: TenantId, queue: str, task: str) -> list[Taker]:
    """Workers that take runs of this task from this queue, if they have the labels for it."""
    return [
        Taker(_decode_labels(labels), *counts)
        for labels, *counts in await connection.fetch(_SQL["takers"], tenant, queue, task)
    ]


async def offers_by_queue(connection: Connection, tenant: TenantId) -> dict[str, int]:
    """How many live workers subscribe to each queue."""
    return dict(await connection.fetch(_SQL["offers_by_queue"], tenant))


async def free_by_queue(connection: Connection, tenant: TenantId) -> dict[str, int]:
    """How many slots of the live workers of each queue hold nothing."""
    return dict(await connection.fetch(_SQL["free_by_queue"], tenant))


async def counts(connection: Connection, tenant: TenantId) -> list[WorkerCount]:
    """By state: the live workers, and those that ended within the last hour."""
    return await _counts.fetch(connection, tenant)


async def beats_forgotten(connection: Connection, witness_id: UUID) -> bool:
    """Whether a crash has emptied the beat tables since the last call of this witness. Also true for the first call."""
    return bool(await connection.fetchval(_SQL["witness"], witness_id))
