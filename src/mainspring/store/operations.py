"""Operations: one verb on many jobs, runs or dead letters, and how far it is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.narrowing import Narrowing
from mainspring.domain.tags import changed_meanwhile
from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery
from mainspring.store.tokens import read_narrowing

_SQL = load("operations")


class OperationRow(msgspec.Struct, frozen=True):
    """`place`: where the next slice begins. `ids`: what was chosen by ids; then there is no filter."""

    operation_id: UUID
    tenant_id: TenantId
    target: str
    verb: str
    filter_text: str | None
    ids: list[str] | None
    state: int
    count: int
    exact: bool
    expected: int | None
    place: str | None
    done: int
    failed: int
    failures_text: str
    reason: str | None
    requested_by: str
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    token_id: UUID | None
    narrowed_text: str | None

    @property
    def narrowing(self) -> Narrowing | None:
        """What the token that began it reaches."""
        return read_narrowing(self.narrowed_text)


class NewOperation(msgspec.Struct, frozen=True):
    operation_id: UUID
    target: str
    verb: str
    filter_text: str | None
    ids: Sequence[str] | None
    count: int
    exact: bool
    expected: int | None
    requested_by: str
    token_id: UUID | None


class Advance(msgspec.Struct, frozen=True):
    """What a slice changes in the row of its operation."""

    place: str | None
    done: int
    failed: int
    failures_text: str
    state: int
    reason: str | None = None


_get = RowQuery(OperationRow, _SQL["get_operation"])
_list = RowQuery(OperationRow, _SQL["list_operations"])
_at_work = RowQuery(OperationRow, _SQL["operations_at_work"])


async def insert(connection: Connection, tenant: TenantId, new: NewOperation, most: int) -> bool:
    """Return False if `most` operations of the tenant have not ended."""
    made = await connection.fetchval(
        _SQL["insert_operation"], new.operation_id, tenant, new.target, new.verb, new.filter_text, new.ids, new.count,
        new.exact, new.expected, new.requested_by, most, new.token_id,
    )  # fmt: skip
    return made is not None


async def get(connection: Connection, tenant: TenantId, operation_id: UUID) -> OperationRow | None:
    return await _get.first(connection, tenant, operation_id)


async def page(
    connection: Connection,
    tenant: TenantId,
    before: UUID | None,
    states: Sequence[int] | None,
    limit: int,
    begun_by: UUID | None = None,
) -> list[OperationRow]:
    """Newest first, of all tokens or of one."""
    return await _list.fetch(connection, tenant, before, states, limit, begun_by)


async def at_work(connection: Connection, limit: int) -> list[OperationRow]:
    """The operations of all tenants that have not ended."""
    return await _at_work.fetch(connection, limit)


async def lock(connection: Connection, row: OperationRow) -> bool:
    """Lock the operation for a slice. Return False if it is not the turn of this slice."""
    return await connection.fetchval(_SQL["lock_operation"], row.operation_id, row.place) is not None


async def advance(connection: Connection, row: OperationRow, step: Advance) -> None:
    """Note what a slice has done. The caller has locked the operation."""
    found = await connection.fetchval(
        _SQL["advance_operation"], row.operation_id, row.place, step.place, step.done, step.failed, step.failures_text,
        step.state, step.reason,
    )  # fmt: skip
    if found is None:
        raise changed_meanwhile(f"operation {row.operation_id}")


async def cancel(connection: Connection, tenant: TenantId, operation_id: UUID, reason: str) -> bool:
    """Return False if it has ended."""
    return await connection.fetchval(_SQL["cancel_operation"], tenant, operation_id, reason) is not None


async def prune(connection: Connection, days: float, batch: int = 1000) -> int:
    """Forget operations that ended long ago. Returns how many."""
    deleted = 0
    while True:
        done = int((await connection.execute(_SQL["prune_operations"], days, batch)).rpartition(" ")[2])
        deleted += done
        if done < batch:
            return deleted
