"""Sinks, how far they are, and the changes that wait for them. Secrets are in a table that only `secrets` reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("sinks")
_secrets = msgspec.json.Decoder(dict[str, str]).decode


class SinkRow(msgspec.Struct, frozen=True):
    """A sink. changes: None for all. secret_names: the secret fields that have a value."""

    sink_id: int
    tenant_id: TenantId
    name: str
    kind: str
    version: int
    settings_text: str
    changes: list[str] | None
    queue: str | None
    task: str | None
    job_id: str | None
    labels_text: str | None
    keep_seconds: int
    keep_bytes: int
    paused: bool
    created_at: datetime
    updated_at: datetime
    updated_by: str
    secret_names: list[str]


class SinkProgress(msgspec.Struct, frozen=True):
    """How far a sink is. waiting: changes that it has yet to send, at most 100,000. lag: the age of the oldest."""

    sink_id: int
    position: int
    sent: int
    sent_at: datetime | None
    dropped: int
    dropped_at: datetime | None
    failures: int
    error: str | None
    error_at: datetime | None
    waiting: int
    lag: float | None


class ClaimedSink(msgspec.Struct, frozen=True):
    """A sink that this server sends for."""

    sink_id: int
    tenant_id: TenantId
    tenant: str
    name: str
    kind: str
    version: int
    settings_text: str
    epoch: int
    position: int


class ChangeRow(msgspec.Struct, frozen=True):
    seq: int
    at: datetime
    change: str
    subject: str
    job_id: str
    data_text: str


class SinkToPrune(msgspec.Struct, frozen=True):
    """last: the last change that is dropped. None: none."""

    sink_id: int
    tenant_id: TenantId
    name: str
    position: int
    last: int | None


class TroubledSink(msgspec.Struct, frozen=True):
    name: str
    failures: int
    error: str | None
    dropped: int
    dropped_at: datetime | None
    dropped_lately: bool | None


class SinkContent(msgspec.Struct, frozen=True):
    """What a request makes of a sink, in the order of the statements."""

    kind: str
    settings_text: str
    changes: list[str] | None
    queue: str | None
    task: str | None
    job_id: str | None
    labels_text: str | None
    keep_seconds: int
    keep_bytes: int


_get = RowQuery(SinkRow, _SQL["get_sink"])
_list = RowQuery(SinkRow, _SQL["list_sinks"])
_lock = RowQuery(SinkRow, _SQL["lock_sink"])
_progress = RowQuery(SinkProgress, _SQL["sink_progress"])
_claim = RowQuery(ClaimedSink, _SQL["claim_sinks"])
_changes = RowQuery(ChangeRow, _SQL["read_changes"])
_to_prune = RowQuery(SinkToPrune, _SQL["sinks_to_prune"])
_troubled = RowQuery(TroubledSink, _SQL["troubled_sinks"])


async def get(connection: Connection, tenant: TenantId, name: str) -> SinkRow | None:
    return await _get.first(connection, tenant, name)


async def page(connection: Connection, tenant: TenantId, after: str | None, limit: int) -> list[SinkRow]:
    return await _list.fetch(connection, tenant, after, limit)


async def lock(connection: Connection, tenant: TenantId, name: str) -> SinkRow | None:
    return await _lock.first(connection, tenant, name)


async def count(connection: Connection, tenant: TenantId) -> int:
    number: int = await connection.fetchval(_SQL["count_sinks"], tenant)
    return number


async def insert(
    connection: Connection, tenant: TenantId, name: str, content: SinkContent, secrets: str, by: str
) -> int | None:
    """Create a sink, and the triggers that write changes if it is the first one. None if it exists. Raises
    LockNotAvailableError if a transaction holds one of the tables."""
    sink_id: int | None = await connection.fetchval(
        _SQL["insert_sink"], tenant, name, *msgspec.structs.astuple(content), by
    )
    if sink_id is not None:
        await connection.execute(_SQL["insert_sink_position"], sink_id)
        await connection.execute(_SQL["put_sink_secrets"], sink_id, secrets)
        await watch(connection, wanted=True)
    return sink_id


async def change(connection: Connection, row: SinkRow, content: SinkContent, secrets: str, by: str) -> bool:
    """Change a sink that the caller has locked. False if it is gone."""
    version = await connection.fetchval(
        _SQL["change_sink"], row.sink_id, row.tenant_id, row.version, *msgspec.structs.astuple(content), by
    )
    if version is None:
        return False
    await connection.execute(_SQL["put_sink_secrets"], row.sink_id, secrets)
    await connection.fetchval(_SQL["try_sink_now"], row.sink_id)
    return True


async def pause(connection: Connection, row: SinkRow, by: str, *, paused: bool) -> bool:
    version = await connection.fetchval(_SQL["pause_sink"], row.sink_id, row.tenant_id, row.version, paused, by)
    if version is not None:
        await connection.fetchval(_SQL["try_sink_now"], row.sink_id)
    return version is not None


async def delete(connection: Connection, row: SinkRow) -> bool:
    return await connection.fetchval(_SQL["delete_sink"], row.sink_id, row.tenant_id, row.version) is not None


async def secrets(connection: Connection, sink_id: int) -> dict[str, str]:
    """The secret fields. Only what sends changes, and what stores a sink again, reads them."""
    text: str | None = await connection.fetchval(_SQL["sink_secrets"], sink_id)
    return {} if text is None else _secrets(text)


async def progress(connection: Connection, sink_ids: Collection[int]) -> dict[int, SinkProgress]:
    return {row.sink_id: row for row in await _progress.fetch(connection, list(sink_ids))}


async def troubled(connection: Connection, tenant: TenantId) -> list[TroubledSink]:
    return await _troubled.fetch(connection, tenant)


async def watch(connection: Connection, *, wanted: bool) -> bool:
    """Create the triggers, or drop them if there is no sink. Returns whether that changed anything."""
    changed: bool = await connection.fetchval(_SQL["watch_changes"], wanted)
    return changed


async def exist(connection: Connection) -> tuple[bool, bool]:
    """Whether there are sinks, and whether there is something of them to keep in order."""
    sinks, anything = await connection.fetchrow(_SQL["sinks_at_all"])
    return sinks, anything


async def mark(connection: Connection, known: int) -> tuple[int, int | None]:
    """The number of the last change so far, and a transaction before which all of them are written. None: `known`."""
    last, before = await connection.fetchrow(_SQL["mark_changes"], known)
    return last, before


async def oldest_transaction(connection: Connection) -> int:
    number: int = await connection.fetchval(_SQL["oldest_transaction"])
    return number


async def claim(
    connection: Connection, holder: UUID, lease: float, busy: Collection[int], limit: int, last: int
) -> list[ClaimedSink]:
    return await _claim.fetch(connection, holder, lease, list(busy), limit, last)


async def renew(connection: Connection, holder: UUID, sink_ids: Collection[int], lease: float) -> None:
    """The caller still sends for these. One that another server has taken over stays there."""
    await connection.execute(_SQL["renew_sinks"], holder, list(sink_ids), lease)


async def changes(connection: Connection, sink_id: int, after: int, last: int, limit: int) -> list[ChangeRow]:
    return await _changes.fetch(connection, sink_id, after, last, limit)


async def move(
    connection: Connection, claim: ClaimedSink, holder: UUID, position: int, count: int, lease: float
) -> bool:
    """The receiver has taken this. Returns whether this server goes on with the sink."""
    goes_on: bool | None = await connection.fetchval(
        _SQL["move_sink"], claim.sink_id, holder, claim.epoch, position, count, lease, claim.version
    )
    return bool(goes_on)


async def failed(
    connection: Connection, claim: ClaimedSink, holder: UUID, error: str, first: float, most: float
) -> int | None:
    """Note why the receiver did not take it. Returns how often in a row. None: another server has taken over."""
    failures: int | None = await connection.fetchval(
        _SQL["sink_failed"], claim.sink_id, holder, claim.epoch, error, first, most
    )
    return failures


async def release(connection: Connection, claim: ClaimedSink, holder: UUID) -> None:
    await connection.fetchval(_SQL["release_sink"], claim.sink_id, holder, claim.epoch)


async def lock_pruning(connection: Connection) -> bool:
    got: bool = await connection.fetchval(_SQL["lock_pruning"])
    return got


async def to_prune(connection: Connection) -> Sequence[SinkToPrune]:
    return await _to_prune.fetch(connection)


async def drop(connection: Connection, row: SinkToPrune) -> int:
    """Drop what has waited for too long, and count it. 0 if the sink has moved meanwhile."""
    number: int | None = await connection.fetchval(_SQL["drop_changes"], row.sink_id, row.position, row.last)
    return number or 0


async def delete_done(connection: Connection, limit: int) -> int:
    """Delete changes that were sent, and those of deleted sinks."""
    done = await connection.fetch(_SQL["delete_sent_changes"], limit)
    orphaned = await connection.fetch(_SQL["delete_orphaned_changes"], limit)
    return max(len(done), len(orphaned))
