"""Waits: steps that wait without a slot."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.event_payloads import StartingEvent
from mainspring.domain.workflows.waits import Wait, WaitKind, wait_from_text, wait_to_text
from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("waits")


class NewWait(msgspec.Struct, frozen=True):
    """A step that begins to wait. payload: None if it stays as it is."""

    run_id: UUID
    fence: int
    payload: str | None
    wait: Wait


class DueWait(msgspec.Struct, frozen=True):
    """A locked run whose wait is over by its time. event_*: the event that it has waited for, if one has come.
    left_out: its payload is too large. callback_text: what its service has sent."""

    run_id: UUID
    fence: int
    attempt: int
    kind: int
    about_text: str
    event_id: str | None
    event_name: str | None
    event_key: str | None
    event_at: datetime | None
    payload_text: str | None
    left_out: bool | None
    callback_text: str | None

    @property
    def wait(self) -> Wait:
        return wait_from_text(self.about_text)

    @property
    def event(self) -> StartingEvent | None:
        if self.event_id is None or self.event_at is None:
            return None
        return StartingEvent(
            self.event_id, self.event_name or "", self.event_key or "", self.event_at, self.payload_text
        )


class Suspension(msgspec.Struct, frozen=True):
    """A run whose service answers later."""

    run_id: UUID
    fence: int
    wait: Wait


class CalledWaits(msgspec.Struct, frozen=True):
    """Waits for events of a name and a key are over. at: the newest of these events."""

    tenant_id: TenantId
    name: str
    key: str
    at: datetime


class OpenWait(msgspec.Struct, frozen=True):
    run_id: UUID
    kind: int
    began_at: datetime
    wake_at: datetime | None
    about_text: str
    child: UUID | None = None

    @property
    def in_words(self) -> str:
        return wait_from_text(self.about_text).in_words(self.wake_at, self.child)


class LockedWait(msgspec.Struct, frozen=True):
    """A locked run that waits."""

    run_id: UUID
    fence: int
    attempt: int
    about_text: str

    @property
    def wait(self) -> Wait:
        return wait_from_text(self.about_text)


class ApprovalRow(msgspec.Struct, frozen=True):
    """A step that waits for a person."""

    run_id: UUID
    lane_id: int
    job_id: str | None
    trigger: str | None
    name: str | None
    began_at: datetime
    wake_at: datetime | None
    about_text: str
    spec_text: str | None

    @property
    def wait(self) -> Wait:
        return wait_from_text(self.about_text)


_lock_wait = RowQuery(LockedWait, _SQL["lock_wait"])
_open_approvals = RowQuery(ApprovalRow, _SQL["open_approvals"])
_due_waits = RowQuery(DueWait, _SQL["due_waits"])
_waits_by_run = RowQuery(OpenWait, _SQL["waits_by_run"])


async def open_all(connection: Connection, new: Sequence[NewWait]) -> list[float | None]:
    """Let these steps wait. Returns in how many seconds the time of each comes. The caller compares the count."""
    rows = await connection.fetch(
        _SQL["open_waits"],
        [one.run_id for one in new],
        [one.fence for one in new],
        [one.payload for one in new],
        [one.wait.kind for one in new],
        [one.wait.wakes_after for one in new],
        [one.wait.until for one in new],
        [wait_to_text(one.wait) for one in new],
        [one.wait.name if one.wait.kind == WaitKind.EVENT else None for one in new],
        [one.wait.key if one.wait.kind == WaitKind.EVENT else None for one in new],
        [one.wait.since for one in new],
    )
    return [seconds for (seconds,) in rows]


async def due(connection: Connection, limit: int, most_bytes: int) -> list[DueWait]:
    """Waits whose time has come. Their runs are locked. most_bytes: of the payload of an event."""
    return await _due_waits.fetch(connection, limit, most_bytes)


async def mark(connection: Connection, called: Sequence[CalledWaits]) -> int:
    """Let the waits for these events be due. Returns how many."""
    rows = await connection.fetch(
        _SQL["mark_waits"], [one.tenant_id for one in called], [one.name for one in called],
        [one.key for one in called], [one.at for one in called],
    )  # fmt: skip
    return len(rows)


async def look(connection: Connection, limit: int) -> int:
    """Let new waits look for events that came before them. Returns how many have looked."""
    return len(await connection.fetch(_SQL["look_for_events"], limit))


async def next_wake(connection: Connection) -> float | None:
    """In how many seconds the next one comes."""
    seconds: float | None = await connection.fetchval(_SQL["next_wake"])
    return seconds


async def close(connection: Connection, run_ids: Sequence[UUID]) -> None:
    """Forget the waits of runs that have ended."""
    await connection.execute(_SQL["close_waits"], run_ids)


async def forget(connection: Connection, limit: int) -> int:
    """Forget waits and callbacks whose runs are gone. Returns how many."""
    gone = await connection.execute(_SQL["forget_callbacks"], limit)
    return int((await connection.execute(_SQL["forget_waits"], limit)).split()[-1]) + int(gone.split()[-1])


async def of_runs(connection: Connection, run_ids: Sequence[UUID]) -> dict[UUID, OpenWait]:
    """The waits of those of these runs that wait."""
    return {one.run_id: one for one in await _waits_by_run.fetch(connection, run_ids)}


async def suspend(connection: Connection, items: Sequence[Suspension]) -> int:
    """Let these runs wait for callbacks. The caller has locked them, and compares the count."""
    ordered = sorted(items, key=lambda item: item.run_id)
    rows = await connection.fetch(
        _SQL["suspend_runs"], [item.run_id for item in ordered], [item.fence for item in ordered],
        [wait_to_text(item.wait) for item in ordered], [item.wait.timeout for item in ordered],
    )  # fmt: skip
    return len(rows)


async def lock_called(connection: Connection, run_id: UUID) -> tuple[int, int] | None:
    """State and fence of a run, locked. None if it has ended."""
    row = await connection.fetchrow(_SQL["lock_called"], run_id)
    return None if row is None else (row[0], row[1])


async def keep_callback(connection: Connection, run_id: UUID, fence: int, body: str, *, waiting: bool) -> bool:
    """Keep what a service has sent. False if it has sent something before. The caller has locked the run."""
    return bool(await connection.fetchval(_SQL["keep_callback"], run_id, fence, body, waiting))


async def callback_key(connection: Connection, new: bytes) -> bytes:
    """The key of the installation: `new`, or the one that there is."""
    key: bytes | None = await connection.fetchval(_SQL["callback_key"], new)
    while key is None:  # another server has just made it
        key = await connection.fetchval(_SQL["callback_key"], new)
    return key


async def lock(connection: Connection, tenant: TenantId, run_id: UUID, kind: WaitKind) -> LockedWait | None:
    """The run, locked. None if it does not wait for something of this kind."""
    return await _lock_wait.first(connection, tenant, run_id, int(kind))


async def approvals(connection: Connection, tenant: TenantId, before: UUID | None, limit: int) -> list[ApprovalRow]:
    """The steps that wait for people, newest first."""
    return await _open_approvals.fetch(connection, tenant, before, limit)
