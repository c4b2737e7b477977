"""What jobs and tasks declare about limits, and the lines of limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from mainspring.domain.limits import Slot, key_id
from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("limits")
_CHUNK = 1000  # rows of a statement


class _Declared(msgspec.Struct, frozen=True):
    name: str
    limit_id: int
    declared: int | None
    strict: bool
    every: float | None
    burst: int | None
    failures: int | None
    open_for: float | None

    def says(self, slot: Slot) -> bool:
        """Whether this is what the slot declares."""
        here = self.declared, self.strict, self.every, self.burst, self.failures, self.open_for
        return here == slot.declared


_declared_limits = RowQuery(_Declared, _SQL["declared_limits"])


async def declare(connection: Connection, tenant: TenantId, slots: Sequence[Slot]) -> set[str]:
    """Store what jobs declare in the transaction of the caller, and open the lines that do not exist yet. The last slot
    of a limit counts. Returns the names of limits in strict order that a slot declares without it."""
    wanted = {slot.name: slot for slot in slots}
    found = await _read(connection, tenant, wanted)
    changed = sorted(name for name, slot in wanted.items() if name not in found or not found[name].says(slot))
    if changed:
        # Rows are locked by name, in all transactions alike. What is as declared is not locked.
        await _write(connection, _SQL["declare_limits"], tenant, [wanted[name] for name in changed])
        found |= await _read(connection, tenant, changed)
    await _open(connection, tenant, slots, found)
    return {slot.name for slot in slots if found[slot.name].strict and not slot.strict}


async def restore(connection: Connection, tenant: TenantId, slots: Sequence[Slot]) -> None:
    """Open lines that a stored run needs. A limit that exists stays as it is."""
    wanted = {slot.name: slot for slot in slots}
    await _write(connection, _SQL["restore_limits"], tenant, [wanted[name] for name in sorted(wanted)])
    await _open(connection, tenant, slots, await _read(connection, tenant, wanted))


async def _read(connection: Connection, tenant: TenantId, names: Iterable[str]) -> dict[str, _Declared]:
    return {row.name: row for row in await _declared_limits.fetch(connection, tenant, list(names))}


async def _write(connection: Connection, query: str, tenant: TenantId, slots: Sequence[Slot]) -> None:
    for start in range(0, len(slots), _CHUNK):
        some = slots[start : start + _CHUNK]
        await connection.execute(
            query,
            tenant,
            [slot.name for slot in some],
            [slot.slots for slot in some],
            [slot.strict for slot in some],
            [slot.every for slot in some],
            [slot.burst for slot in some],
            [slot.failures for slot in some],
            [slot.open_for for slot in some],
        )


async def _open(
    connection: Connection, tenant: TenantId, slots: Sequence[Slot], found: Mapping[str, _Declared]
) -> None:
    lines = sorted({key_id(tenant, slot): slot for slot in slots}.items())
    for start in range(0, len(lines), _CHUNK):
        some = lines[start : start + _CHUNK]
        await connection.execute(
            _SQL["open_lines"],
            [line for line, _ in some],
            [found[slot.name].limit_id for _, slot in some],
            [slot.key for _, slot in some],
        )
