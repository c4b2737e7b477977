"""Gates: limits of queues and tenants at the claim. A run that was claimed owns the gates of its lane that limit how
many run at once. It gives them back with a mark, which needs no lock."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from mainspring.domain.limits import is_gate
from mainspring.domain.quotas import lower
from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("gates")


class Gate(msgspec.Struct, frozen=True):
    """The settings of a queue, of a tenant (`queue` is None) or of all tenants (`tenant_id` is EVERY_TENANT), and the
    quotas that narrow those of a tenant: `concurrent_runs`, `runs_per_minute` and `queued_runs`."""

    gate_id: int
    tenant_id: TenantId
    queue: str | None
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    concurrency: int | None = None
    rate: str | None = None
    burst: int | None = None
    max_depth: int | None = None
    version: int = 1
    concurrent_runs: int | None = None
    runs_per_minute: int | None = None
    queued_runs: int | None = None

    @property
    def has_settings(self) -> bool:
        """Whether it limits or pauses anything."""
        return self.paused_at is not None or self.limits_claims or self.most_waiting is not None

    @property
    def limits_claims(self) -> bool:
        return self.most_at_once is not None or self.has_rate

    @property
    def has_rate(self) -> bool:
        return self.rate is not None or self.runs_per_minute is not None

    @property
    def most_at_once(self) -> int | None:
        return lower(self.concurrency, self.concurrent_runs)

    @property
    def most_waiting(self) -> int | None:
        return lower(self.max_depth, self.queued_runs)


class GateState(Gate, frozen=True):
    """`in_use`: how many runs own it. `tat`: when the bucket of its rate is full again."""

    in_use: int = 0
    tat: datetime | None = None
    now: datetime = datetime.min


class LockedGate(msgspec.Struct, frozen=True):
    """`concurrency` is narrowed by the quota of the tenant, and `runs_per_minute` narrows `rate`."""

    gate_id: int
    concurrency: int | None
    rate: str | None
    burst: int | None
    runs_per_minute: int | None
    in_use: int
    counted: bool
    tat: datetime | None
    paused: bool


class TriedGate(LockedGate, frozen=True):
    """A gate that was locked without waiting. `marks`: how often it was given back; `now`: the time of the database."""

    marks: int
    now: datetime


class LookBeforeGates(msgspec.Struct, frozen=True):
    """held: how many runs the worker holds, started or not. ready: the lanes that have runs to claim."""

    held: int
    ready: list[int]


class UncountedGate(msgspec.Struct, frozen=True):
    gate_id: int
    tenant_id: TenantId
    queue: str | None


class Passed(msgspec.Struct, frozen=True):
    """What a claim changed at a gate: how many more runs own it, and the new `tat`."""

    gate_id: int
    passed: int
    tat: datetime | None


_all_gates = RowQuery(Gate, _SQL["all_gates"])
_gates_of_tenant = RowQuery(GateState, _SQL["gates_of_tenant"])
_gates_with_quotas = RowQuery(GateState, _SQL["gates_with_quotas"])
_lock_gate = RowQuery(Gate, _SQL["lock_gate"])
_change_gate = RowQuery(Gate, _SQL["change_gate"])
_lock_gates = RowQuery(LockedGate, _SQL["lock_gates"])
_try_gates = RowQuery(TriedGate, _SQL["try_gates"])
_look_before_gates = RowQuery(LookBeforeGates, _SQL["look_before_gates"])
_lock_uncounted = RowQuery(UncountedGate, _SQL["lock_uncounted"])


async def revision(connection: Connection) -> int:
    found: int = await connection.fetchval(_SQL["revision"])
    return found


async def all_gates(connection: Connection) -> list[Gate]:
    return await _all_gates.fetch(connection)


async def of_tenant(connection: Connection, tenant: TenantId) -> list[GateState]:
    """The gates of the tenant, with that of all tenants."""
    return await _gates_of_tenant.fetch(connection, tenant)


async def with_quotas(connection: Connection, tenants: Collection[TenantId]) -> list[GateState]:
    """The gates of these tenants that have a quota of runs."""
    return await _gates_with_quotas.fetch(connection, list(tenants))


async def count(connection: Connection, tenant: TenantId) -> int:
    found: int = await connection.fetchval(_SQL["count_gates"], tenant)
    return found


async def lock(connection: Connection, tenant: TenantId, queue: str | None) -> Gate:
    """The gate, locked. It is created if there is none."""
    gate = await _lock_gate.first(connection, tenant, queue)
    while gate is None:
        await connection.execute(_SQL["create_gate"], tenant, queue)
        gate = await _lock_gate.first(connection, tenant, queue)
    return gate


async def change(connection: Connection, before: Gate, after: Gate, caller: str) -> Gate | None:
    """Store the settings of `after`, and let every server know. None if the gate has changed since `before`."""
    changed = await _change_gate.first(
        connection, before.gate_id, before.version, after.paused_at is not None, caller, after.concurrency, after.rate,
        after.burst, after.max_depth, after.pause_reason,
    )  # fmt: skip
    await raise_revision(connection)
    return changed


async def raise_revision(connection: Connection) -> None:
    """Let every server know that a gate or a quota has changed."""
    await connection.fetchval(_SQL["raise_revision"])


async def hot_transactions(connection: Connection) -> list[str]:
    """The open transactions in which some server may make a claim."""
    return [row[0] for row in await connection.fetch(_SQL["hot_transactions"])]


async def still_open(connection: Connection, transactions: Sequence[str]) -> list[str]:
    return [row[0] for row in await connection.fetch(_SQL["still_open"], transactions)]


async def uncounted(connection: Connection) -> list[int]:
    return [row[0] for row in await connection.fetch(_SQL["uncounted"])]


async def adopt_running(connection: Connection, gate_id: int) -> int | None:
    """Count the runs that were claimed before the gate had a limit. None if they are counted. No claim that does not
    know the gate may be under way."""
    gate = await _lock_uncounted.first(connection, gate_id)
    if gate is None:
        return None
    adopted = await connection.fetch(_SQL["adopt_running"], gate_id, gate.tenant_id, gate.queue)
    await connection.fetchval(_SQL["counted"], gate_id, len(adopted))
    return len(adopted)


async def give_back(connection: Connection, freed: Mapping[int, int]) -> dict[int, int]:
    """Give back the gates among `freed`, which also has keys of limits. Return them."""
    given = {gate_id: number for gate_id, number in freed.items() if is_gate(gate_id)}
    if given:
        await connection.execute(_SQL["give_back"], list(given), list(given.values()))
    return given


async def lock_for_claim(connection: Connection, gate_ids: Sequence[int]) -> list[LockedGate]:
    return await _lock_gates.fetch(connection, gate_ids)


async def try_for_claim(connection: Connection, gate_ids: Sequence[int]) -> list[TriedGate] | None:
    """Lock these gates and take their marks. None if another transaction has one of them."""
    locked = await _try_gates.fetch(connection, gate_ids)
    return locked if len(locked) == len(gate_ids) else None


async def take_marks(connection: Connection, gate_ids: Sequence[int]) -> dict[int, int]:
    """How often each of these gates was given back since the last call. The caller has locked them."""
    return {row["gate_id"]: row["n"] for row in await connection.fetch(_SQL["take_marks"], gate_ids)}


async def pass_through(connection: Connection, passed: Sequence[Passed]) -> None:
    """Write what a claim changed. The caller has locked the gates."""
    written = await connection.fetch(
        _SQL["pass_gates"],
        [item.gate_id for item in passed],
        [item.passed for item in passed],
        [item.tat for item in passed],
    )
    if len(written) != len(passed):
        raise asyncpg.InternalClientError("a locked gate is gone")


async def clock(connection: Connection) -> datetime:
    """The time of the database. It is read after the gates are locked."""
    now: datetime = await connection.fetchval(_SQL["clock"])
    return now


async def look(connection: Connection, worker_id: UUID, lanes: Sequence[tuple[int, int, datetime]]) -> LookBeforeGates:
    """`lanes`: lane, priority and lower bound."""
    lane_ids, bounds = [lane[0] for lane in lanes], [lane[2] for lane in lanes]
    found = await _look_before_gates.first(connection, worker_id, lane_ids, bounds)
    assert found is not None
    return found


async def unstarted_of(connection: Connection, worker_id: UUID, lane_ids: Sequence[int]) -> list[UUID]:
    return [row[0] for row in await connection.fetch(_SQL["unstarted_of"], worker_id, lane_ids)]


async def count_waiting(connection: Connection, lane_ids: Sequence[int], most: int) -> int:
    found: int = await connection.fetchval(_SQL["count_waiting"], lane_ids, most)
    return found
