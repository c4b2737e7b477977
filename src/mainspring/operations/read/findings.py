"""What goes wrong slowly, in sentences: forgotten pauses, jobs that never ran or always fail, clocks that differ, and a
database near its limits. The overview shows them, and rules tell of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mainspring.domain.durations import format_duration
from mainspring.domain.notify.messages import one_line
from mainspring.domain.run_key import rfc3339
from mainspring.kernel.ids import DEFAULT_TENANT, TenantId
from mainspring.store import findings, sinks
from mainspring.store.findings import DatabaseLimits, Since, WrongClock
from mainspring.store.pool import Connection
from mainspring.store.sinks import TroubledSink

WEEK = 7 * 86400.0
FAILURES = 3
CLOCK_OFF = 2.0  # seconds
NEAR = 80.0  # percent of the connections
_NAMED = 3
_MOST = 100
_SEEN_WITHIN = 30.0
_WRAPAROUND = 1_000_000_000
_LONG_OPEN = 3600.0
_KEPT_BY_SLOTS = 10 * 1024**3
_REPLAY_LAG = 300.0


async def warnings_of(connection: Connection, tenant: TenantId) -> list[str]:
    """Of a tenant; those of the installation are for the tenant of its administrators."""
    found = [
        await forgotten_pauses(connection, tenant, None, None, WEEK),
        await never_ran(connection, tenant, None, None, WEEK),
        await always_fails(connection, tenant, None, None, FAILURES),
        await troubled_sinks(connection, tenant),
    ]
    if tenant == DEFAULT_TENANT:
        found += [await clocks_differ(connection, CLOCK_OFF), await database_near_limit(connection, NEAR)]
    return [words for words in found if words is not None]


async def forgotten_pauses(
    connection: Connection, tenant: TenantId, task: str | None, queue: str | None, over: float
) -> str | None:
    rows = await findings.forgotten_pauses(connection, tenant, task, queue, over, _MOST)
    return _listed(rows, f"paused for more than {format_duration(round(over))}")


async def never_ran(
    connection: Connection, tenant: TenantId, task: str | None, queue: str | None, over: float
) -> str | None:
    rows = await findings.never_ran(connection, tenant, task, queue, over, _MOST)
    return _listed(rows, "should have run and never did", named="created")


async def always_fails(
    connection: Connection, tenant: TenantId, task: str | None, queue: str | None, failures: int
) -> str | None:
    rows = await findings.always_fails(connection, tenant, task, queue, failures, _MOST)
    return _listed(rows, f"failed at least {failures} times in a row and never succeeded")


async def troubled_sinks(connection: Connection, tenant: TenantId) -> str | None:
    """Sinks that take nothing, or for which changes were dropped in the last day."""
    rows = await sinks.troubled(connection, tenant)
    return "; ".join(text for row in rows[:_NAMED] for text in _sink(row)) or None


async def clocks_differ(connection: Connection, above: float) -> str | None:
    """By more than `above` seconds from the clock of the database."""
    rows = await findings.wrong_clocks(connection, above, _SEEN_WITHIN)
    return "; ".join(map(_clock, rows[:_NAMED])) or None


async def database_near_limit(connection: Connection, above: float) -> str | None:
    """`above`: percent of the connections."""
    return "; ".join(_near(await findings.database_limits(connection), above)) or None


def _listed(rows: Sequence[Since], what: str, named: str = "since") -> str | None:
    if not rows:
        return None
    shown = ", ".join(f"{row.subject} ({named} {rfc3339(row.since)})" for row in rows[:_NAMED])
    more = len(rows) - _NAMED
    number = f"{_MOST} or more" if len(rows) == _MOST else str(len(rows))
    others = f", and {more} more" if 0 < more < _MOST - _NAMED else ", and others" if more > 0 else ""
    return f"{number} {what}: {shown}{others}"


def _clock(row: WrongClock) -> str:
    side = "ahead of" if row.off > 0 else "behind"
    return f"the clock of {row.host} is {abs(row.off):.1f} s {side} the clock of the database; start NTP there"


def _sink(row: TroubledSink) -> Iterator[str]:
    if row.failures > FAILURES - 1:
        yield f"the sink {row.name} takes no changes: {one_line(row.error or '', 200)}"
    if row.dropped_lately and row.dropped_at is not None:
        words = "1 change was" if row.dropped == 1 else f"{row.dropped:,} changes were"
        last = rfc3339(row.dropped_at)
        yield f"{words} dropped for the sink {row.name}, the last at {last}; they had waited too long"


def _near(limits: DatabaseLimits, above: float) -> Iterator[str]:
    if limits.connections > above / 100 * limits.connections_limit:
        yield (
            f"{limits.connections} of {limits.connections_limit} connections of PostgreSQL are used; raise "
            "max_connections, or put a PgBouncer in front"
        )
    if limits.transaction_age > _WRAPAROUND:
        yield (
            f"the oldest transaction of PostgreSQL is {limits.transaction_age:,} back, of 2 billion; vacuum freeze, "
            "and look for old replication slots and prepared transactions"
        )
    if limits.longest_open > _LONG_OPEN:
        yield (
            f"a transaction is open for {format_duration(round(limits.longest_open))}, so dead rows are not removed; "
            "find it in pg_stat_activity"
        )
    if (limits.kept_by_slots or 0) > _KEPT_BY_SLOTS:
        kept = (limits.kept_by_slots or 0) / 1024**3
        yield f"a replication slot keeps {kept:.0f} GiB of the write-ahead log; remove it if nobody reads it"
    if (limits.replay_lag or 0) > _REPLAY_LAG:
        yield f"a standby of PostgreSQL is {format_duration(round(limits.replay_lag or 0))} behind"
    if limits.bloated is not None:
        yield f"the table {limits.bloated} has more dead rows than live ones; see that autovacuum keeps up"
    if limits.waits_for_standby:
        yield "PostgreSQL waits for a synchronous standby, and none is connected; start it"
