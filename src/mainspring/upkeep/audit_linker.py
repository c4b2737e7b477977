"""Links entries of the audit into the chain of their tenant. One process at a time does so, under an advisory lock.

Entries are linked after their commit, so that no two changes wait for each other. A round links the entries of all
transactions before the oldest one that is under way: no entry with a smaller number can appear any more. A round that a
killed process has not committed is made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from mainspring.domain.audit import FIRST_HASH, entry_hash, link_hash
from mainspring.kernel.logs import get_logger
from mainspring.store import audit
from mainspring.store.audit import ChainHead, Link, NumberedEntry, Position
from mainspring.store.pool import Connection, Store

log = get_logger("audit_linker")

_AT_ONCE = 500
_ALL_DAYS = datetime.fromisoformat("2000-01-01T00:00:00+00:00")
_MOVED_AGAIN = timedelta(minutes=10)  # without entries the position is written so often


class AuditLinker:
    name = "audit_linker"
    interval = 0.5

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> int:
        """Link all entries whose transactions have ended. Returns how many."""
        linked = 0
        while True:
            some = await self._round()
            linked += some
            if some < _AT_ONCE:
                return linked

    async def _round(self) -> int:
        async with self._store.reads.acquire() as connection:
            place = await audit.position(connection)
            is_recent = place.now - place.next_since < _MOVED_AGAIN
            if not _restored(place) and is_recent and not await audit.unlinked(connection, place, 1):
                return 0
            async with connection.transaction():
                if not await audit.turn(connection):
                    return 0
                return await _link_next(connection, await audit.position(connection))


async def _link_next(connection: Connection, place: Position) -> int:
    if _restored(place):
        log.warning("the database was restored elsewhere; entries of the audit that have no link are linked now")
        entries = await audit.unlinked_of_all(connection, place)
        after = msgspec.structs.replace(
            place, xid=place.xmin, since=_ALL_DAYS, next_xid=place.xmax, next_since=place.now
        )
    else:
        entries = await audit.unlinked(connection, place, _AT_ONCE)
        after = _moved(place, entries[-1].xid + 1 if len(entries) >= _AT_ONCE else place.xmin)
    if entries:
        await _link(connection, entries)
    if not await audit.move(connection, place, after):
        raise RuntimeError("the position of the audit has moved under the lock")
    return len(entries)


def _restored(place: Position) -> bool:
    """Whether the numbers of transactions began anew."""
    return place.xid > place.xmax


def _moved(place: Position, xid: int) -> Position:
    if xid < place.next_xid:
        return msgspec.structs.replace(place, xid=xid)
    return msgspec.structs.replace(place, xid=xid, since=place.next_since, next_xid=place.xmax, next_since=place.now)


async def _link(connection: Connection, entries: Sequence[NumberedEntry]) -> None:
    tenants = sorted({entry.tenant_id for entry in entries})
    known = await audit.heads(connection, tenants)
    before = {tenant: known[tenant].seq if tenant in known else 0 for tenant in tenants}
    heads = {tenant: known.get(tenant) or ChainHead(tenant, 0, FIRST_HASH) for tenant in tenants}
    links = []
    for entry in entries:
        head, own = heads[entry.tenant_id], entry_hash(entry)
        made = link_hash(head.hash, head.seq + 1, own)
        heads[entry.tenant_id] = ChainHead(entry.tenant_id, head.seq + 1, made)
        links.append(Link(entry.tenant_id, head.seq + 1, entry.entry_id, entry.at, own, made))
    await audit.insert_links(connection, links)
    if await audit.move_heads(connection, [(before[tenant], heads[tenant]) for tenant in tenants]) != len(tenants):
        raise RuntimeError("a chain of the audit has grown under the lock")
