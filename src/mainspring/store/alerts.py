"""Alerts: what rules have to tell, and have told."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("alerts")


class EndedRuns(msgspec.Struct, frozen=True):
    """Runs of a job, or of a task, that failed or succeeded. words: why the last one failed. notify_text: the rules of
    their job."""

    tenant_id: TenantId
    queue: str
    task: str
    job_id: str | None
    failed: bool
    notify_text: str | None
    labels_text: str | None
    count: int
    exhausted: bool
    first_at: datetime
    last_at: datetime
    run_id: UUID
    words: str | None


class MissedFiresRow(msgspec.Struct, frozen=True):
    tenant_id: TenantId
    queue: str
    task: str
    job_id: str
    notify_text: str | None
    labels_text: str | None
    count: int
    first_at: datetime
    last_at: datetime
    words: str | None


class NotableEvent(msgspec.Struct, frozen=True):
    tenant_id: TenantId
    event: str
    subject: str
    job_id: str | None
    task: str | None
    queue: str | None
    path: str | None
    reason: str | None
    happened_at: datetime
    notify_text: str | None
    labels_text: str | None


class NewAlert(msgspec.Struct):
    """What a rule has to tell of one subject. channels: of rules of jobs. due_at: when it is told first."""

    tenant_id: TenantId
    grp: str
    event: str
    subject: str
    channels: list[str] | None
    job_id: str | None
    item: str
    opened_at: datetime
    last_at: datetime
    count: int
    due_at: datetime | None


class AlertRow(msgspec.Struct, frozen=True):
    tenant_id: TenantId
    grp: str
    event: str
    subject: str
    channels: list[str] | None
    job_id: str | None
    item_text: str
    opened_at: datetime
    last_at: datetime
    count: int
    told_at: datetime | None
    closed_at: datetime | None
    acknowledged_at: datetime | None
    escalated_at: datetime | None

    @property
    def key(self) -> tuple[TenantId, str, str, str]:
        return self.tenant_id, self.grp, self.event, self.subject


class ToldAlert(msgspec.Struct, frozen=True):
    """What becomes of an alert."""

    alert: AlertRow
    told_at: datetime | None
    escalated_at: datetime | None
    due_at: datetime | None


_ended_runs = RowQuery(EndedRuns, _SQL["ended_runs"])
_missed_jobs = RowQuery(MissedFiresRow, _SQL["missed_jobs"])
_take_events = RowQuery(NotableEvent, _SQL["take_events"])
_due_alerts = RowQuery(AlertRow, _SQL["due_alerts"])
_encode = msgspec.json.Encoder().encode


async def lock(connection: Connection) -> bool:
    """Whether this transaction may work on alerts. No other transaction may until it ends."""
    locked: bool = await connection.fetchval(_SQL["alert_lock"])
    return locked


async def seen_until(connection: Connection) -> datetime | None:
    """What ended before it has been compared with the rules. None: there are no channels."""
    until: datetime | None = await connection.fetchval(_SQL["seen_until"])
    return until


async def move_seen(connection: Connection, before: datetime, after: datetime) -> bool:
    done: str = await connection.execute(_SQL["move_seen"], before, after)
    return done == "UPDATE 1"


async def stop_watching(connection: Connection) -> None:
    await connection.execute(_SQL["stop_watching"])


async def watching_tenants(connection: Connection) -> list[TenantId]:
    return [tenant for (tenant,) in await connection.fetch(_SQL["watching_tenants"])]


async def ended_runs(
    connection: Connection,
    start: datetime,
    end: datetime,
    tenants: Sequence[TenantId],
    successes: Sequence[TenantId],
) -> list[EndedRuns]:
    return await _ended_runs.fetch(connection, start, end, tenants, successes)


async def missed_jobs(
    connection: Connection, start: datetime, end: datetime, tenants: Sequence[TenantId]
) -> list[MissedFiresRow]:
    return await _missed_jobs.fetch(connection, start, end, tenants)


async def take_events(connection: Connection, limit: int) -> list[NotableEvent]:
    """Read events, and delete them."""
    return await _take_events.fetch(connection, limit)


async def note_worker(connection: Connection, worker_id: UUID, reason: str) -> None:
    await connection.execute(_SQL["note_worker"], worker_id, reason)


async def note_breakers(connection: Connection, lines: Collection[int], *, opened: bool) -> None:
    await connection.execute(_SQL["note_breakers"], sorted(lines), opened)


async def note_approvals(connection: Connection, run_ids: Sequence[UUID]) -> None:
    """Steps have begun to wait for people."""
    await connection.execute(_SQL["note_approvals"], run_ids)


async def note_event(
    connection: Connection,
    tenant: TenantId,
    event: str,
    subject: str,
    *,
    job_id: str | None,
    path: str | None,
    reason: str | None,
) -> None:
    await connection.execute(_SQL["note_event"], tenant, event, subject, job_id, path, reason)


async def raise_alerts(connection: Connection, new: Sequence[NewAlert]) -> None:
    """Each key once."""
    await connection.execute(
        _SQL["raise_alerts"],
        [one.tenant_id for one in new],
        [one.grp for one in new],
        [one.event for one in new],
        [one.subject for one in new],
        [None if one.channels is None else _encode(one.channels).decode() for one in new],
        [one.job_id for one in new],
        [one.item for one in new],
        [one.opened_at for one in new],
        [one.last_at for one in new],
        [one.count for one in new],
        [one.due_at for one in new],
    )


async def close_alerts(
    connection: Connection, succeeded: Sequence[EndedRuns], now: datetime, events: Collection[str]
) -> None:
    """Jobs have succeeded after they had failed."""
    of_jobs = [one for one in succeeded if one.job_id is not None]
    await connection.execute(
        _SQL["close_alerts"],
        [one.tenant_id for one in of_jobs],
        [one.job_id for one in of_jobs],
        [one.last_at for one in of_jobs],
        now,
        sorted(events),
    )


async def close_condition(
    connection: Connection, tenant: TenantId, group: str, event: str, subject: str, now: datetime
) -> None:
    await connection.execute(_SQL["close_condition"], tenant, group, event, subject, now)


async def due_alerts(connection: Connection, now: datetime, limit: int) -> list[AlertRow]:
    return await _due_alerts.fetch(connection, now, limit)


async def set_alerts(connection: Connection, told: Sequence[ToldAlert]) -> None:
    await connection.execute(
        _SQL["set_alerts"],
        *_keys([one.alert for one in told]),
        [one.told_at for one in told],
        [one.escalated_at for one in told],
        [one.due_at for one in told],
    )


async def delete_alerts(connection: Connection, rows: Sequence[AlertRow]) -> None:
    await connection.execute(_SQL["delete_alerts"], *_keys(rows))


def _keys(rows: Sequence[AlertRow]) -> tuple[list[TenantId], list[str], list[str], list[str]]:
    return (
        [row.tenant_id for row in rows],
        [row.grp for row in rows],
        [row.event for row in rows],
        [row.subject for row in rows],
    )


async def told_groups(
    connection: Connection, groups: Collection[tuple[TenantId, str]]
) -> dict[tuple[TenantId, str], datetime]:
    """When each of the groups was told something last."""
    rows = await connection.fetch(_SQL["told_groups"], [one[0] for one in groups], [one[1] for one in groups])
    return {(tenant, group): told_at for tenant, group, told_at in rows}


async def group_told(connection: Connection, tenant: TenantId, group: str, now: datetime) -> None:
    await connection.execute(_SQL["group_told"], tenant, group, now)


async def acknowledge(connection: Connection, tenant: TenantId, group: str, until: datetime, by: str) -> None:
    """`by` takes care of what the group was told until then."""
    await connection.execute(_SQL["acknowledge_alerts"], tenant, group, until, by)


async def forget_group(connection: Connection, tenant: TenantId, group: str) -> None:
    await connection.execute(_SQL["forget_group"], tenant, group)


async def make_due(connection: Connection, tenant: TenantId, group: str) -> None:
    """The next round decides about all alerts of the group."""
    await connection.execute(_SQL["make_due"], tenant, group)


async def prune_groups(connection: Connection, seconds: float) -> None:
    await connection.execute(_SQL["prune_groups"], seconds)
