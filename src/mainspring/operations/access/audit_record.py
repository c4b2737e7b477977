"""Entries of the audit. An operation that changes something writes one in the transaction of the change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from mainspring.domain.audit import AuditRedactor, StoredEntry, differing
from mainspring.kernel.ids import TenantId, uuid7
from mainspring.operations.access.caller import Caller
from mainspring.store import audit
from mainspring.store.pool import Connection
from mainspring.wire.jobs import JobView

API = "api"
SYSTEM = "system"
MAINSPRING = "mainspring"  # who decides what no caller does

_LONGEST = 1000
_OF_THE_DATABASE = datetime.min  # the table has the time of the insert
_NOT_OF_A_CHANGE = frozenset(
    {
        "version", "created_at", "updated_at", "next_fire_at", "last_fired_for", "latest_run", "error_message",
        "shard_id", "generation", "runs_left", "schedule_in_words", "warnings", "calendar_version",
    }
)  # fmt: skip
Members = Mapping[str, Any] | msgspec.Struct | None


async def record(
    connection: Connection,
    caller: Caller,
    kind: str,
    object_id: object,
    before: Members = None,
    after: Members = None,
    *,
    tenants: Iterable[TenantId] | None = None,
) -> None:
    """Write what the operation of this caller has changed: the members of `before` and `after` that differ. None of
    them: nothing has changed, and nothing is written. `tenants`: whose object it is, if not the caller's.

    A caller without an operation carries out a part of a change that has an entry already."""
    if caller.operation is None:
        return
    old, new = differing(_members(before), _members(after))
    if before is not None and after is not None and not old and not new:
        return
    redactor = AuditRedactor(await audit.digest_key(connection))
    for tenant in sorted({caller.tenant} if tenants is None else set(tenants)):
        entry = StoredEntry(
            entry_id=uuid7(),
            at=_OF_THE_DATABASE,
            tenant_id=tenant,
            source=API,
            token_id=caller.credential,
            session_id=caller.session,
            actor=caller.name,
            role=caller.role,
            address=caller.address,
            client=caller.client,
            operation=caller.operation,
            kind=kind,
            object_id=str(object_id)[:_LONGEST],
            before=redactor.text(old),
            after=redactor.text(new),
        )
        await audit.insert(connection, entry)


def audited_job(view: JobView) -> dict[str, Any]:
    """A job as its entries show it: without what follows from the rest, or changes with each fire."""
    members = _members(view) or {}
    return {name: value for name, value in members.items() if name not in _NOT_OF_A_CHANGE}


def _members(given: Members) -> Mapping[str, Any] | None:
    if isinstance(given, msgspec.Struct):
        members: dict[str, Any] = msgspec.to_builtins(given, builtin_types=(msgspec.Raw,))
        return {name: value for name, value in members.items() if not _is_absent(value)}
    return given


def _is_absent(value: object) -> bool:
    """Whether it is a payload that was not given."""
    return isinstance(value, msgspec.Raw) and not memoryview(value)
