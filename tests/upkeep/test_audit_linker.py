"""The chain over the audit: entries are linked after their commit, a change of them is found, and retention leaves an
anchor."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.domain.audit import FIRST_HASH, ChainCheck, CheckedLink, StoredEntry
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.audit.reader import _end, _link
from mainspring.roles.assembly import Assembly
from mainspring.store import audit, partitions
from mainspring.store.pool import Store
from mainspring.upkeep.audit_linker import AuditLinker
from mainspring.upkeep.partition_maintainer import AuditPruner
from mainspring.wire.audit import AuditChain

pytestmark = pytest.mark.anyio

CALLER = Caller(DEFAULT_TENANT, "admin", "ada", uuid7(), operation="queues.pause")


async def change(connection: Any, queue: str) -> None:
    """An entry, in a transaction of its own unless the caller has one."""
    await record(connection, CALLER, "queue", queue, {"paused": False}, {"paused": True})


async def chain(api: httpx.AsyncClient, **parameters: Any) -> AuditChain:
    answer = await api.get("/v1/audit/chain", params=parameters)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=AuditChain)


def problems(page: AuditChain, noted: tuple[int, bytes] | None = None) -> list[str]:
    anchor = (0, FIRST_HASH) if page.anchor is None else (page.anchor.seq, bytes.fromhex(page.anchor.hash))
    check = ChainCheck(*anchor, noted)
    for link in page.links:
        entry = None if link.entry is None else msgspec.convert(msgspec.to_builtins(link.entry), StoredEntry)
        check.take(CheckedLink(link.seq, bytes.fromhex(link.entry_hash), bytes.fromhex(link.hash), entry, link.dropped))
    check.end(None if page.head is None else (page.head.seq, bytes.fromhex(page.head.hash)))
    return check.problems


def linked(page: AuditChain) -> list[str]:
    return [link.entry.object_id for link in page.links if link.entry is not None]


async def unprotected(connection: asyncpg.Connection, statement: str, *arguments: Any) -> None:
    """What only the owner of the tables can do, and only by intent."""
    await connection.execute("alter table mainspring.audit_entries disable trigger kept")
    await connection.execute("alter table mainspring.audit_links disable trigger kept")
    await connection.execute(statement, *arguments)


async def test_entries_are_linked_in_the_order_of_transactions_never_past_one_that_is_open(
    api: httpx.AsyncClient, store: Store, connection: asyncpg.Connection
) -> None:
    linker = AuditLinker(store)
    await change(connection, "first")
    async with store.reads.acquire() as early, early.transaction():
        await change(early, "early")
        await change(connection, "late")
        assert await linker.run_once() == 1
        page = await chain(api)
        assert (linked(page), page.unlinked) == (["first"], 1), "the open transaction comes before the other"
    assert await linker.run_once() == 2
    page = await chain(api)
    assert (linked(page), page.unlinked, problems(page)) == (["first", "early", "late"], 0, [])
    assert await linker.run_once() == 0
    async with connection.transaction():  # a transaction may have several
        for queue in ("a", "b"):
            await change(connection, queue)
    assert await linker.run_once() == 2
    assert problems(await chain(api)) == []


async def test_two_linkers_at_once_link_each_entry_once(
    api: httpx.AsyncClient, store: Store, connection: asyncpg.Connection
) -> None:
    for number in range(20):
        await change(connection, f"queue-{number}")
    done = await asyncio.gather(*(AuditLinker(store).run_once() for _ in range(4)))
    assert sum(done) == 20
    page = await chain(api, limit=7)
    assert (page.next_seq, len(page.links)) == (8, 7)
    assert problems(await chain(api)) == []


async def test_a_batch_ends_between_transactions(
    api: httpx.AsyncClient, store: Store, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.upkeep.audit_linker._AT_ONCE", 3)
    for _ in range(4):
        async with connection.transaction():
            await change(connection, "x")
            await change(connection, "y")
    assert await AuditLinker(store).run_once() == 8
    assert problems(await chain(api)) == []


async def test_what_is_changed_later_breaks_the_chain_where_it_is(
    api: httpx.AsyncClient, store: Store, connection: asyncpg.Connection
) -> None:
    for number in range(1, 6):
        await change(connection, f"queue-{number}")
    await AuditLinker(store).run_once()
    whole = await chain(api)
    noted = (5, bytes.fromhex(whole.links[4].hash))
    third = "entry_id = (select entry_id from mainspring.audit_links where seq = 3)"
    changed = "link 3: the entry {} was changed"
    for statement, told in (
        (f"update mainspring.audit_entries set actor = 'eve' where {third}", changed),
        (f"update mainspring.audit_entries set after = null where {third}", changed),
        (f"delete from mainspring.audit_entries where {third}", "link 3: the entry is missing"),
        ("delete from mainspring.audit_links where seq = 3", "link 3 is missing"),
        ("delete from mainspring.audit_links where seq >= 4", "links 4 to 5 are missing"),
        ("update mainspring.audit_links set hash = sha256('x') where seq = 5", "link 5 does not follow from link 4"),
    ):  # fmt: skip
        transaction = connection.transaction()
        await transaction.start()
        await unprotected(connection, statement)
        entry_id = whole.links[2].entry_id
        rows = await audit.chain(connection, DEFAULT_TENANT, 1, 100)
        heads = await audit.heads(connection, [DEFAULT_TENANT])
        await transaction.rollback()
        page = AuditChain([_link(row, DEFAULT_TENANT) for row in rows], _end(heads[DEFAULT_TENANT]))
        assert told.format(entry_id) in problems(page), statement
    assert problems(whole, noted) == []
    # Who rewrites the whole chain is found by a head that was noted elsewhere.
    assert problems(whole, (5, FIRST_HASH)) == ["link 5 is not the one that was noted"]
    assert problems(whole, (9, FIRST_HASH)) == ["links 6 to 9 are missing"]


async def test_nobody_changes_entries_by_mistake(connection: asyncpg.Connection) -> None:
    await change(connection, "mails")
    today = datetime.now(UTC).date()
    for table in ("audit_entries", f"audit_entries_{today:%Y%m%d}"):
        for statement in (f"update mainspring.{table} set actor = 'x'", f"delete from mainspring.{table}",
                          f"truncate mainspring.{table}"):  # fmt: skip
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="are not changed"):
                await connection.execute(statement)


async def test_retention_drops_whole_days_and_leaves_an_anchor(
    api: httpx.AsyncClient, store: Store, connection: asyncpg.Connection
) -> None:
    await old_days(connection, store)
    await change(connection, "new")
    await AuditLinker(store).run_once()
    assert linked(await chain(api)) == ["old", "middle", "new"]
    dropped = await AuditPruner(store, 40).run_once()
    today = datetime.now(UTC).date()
    assert sorted(dropped) == sorted(
        f"audit_{kind}_{today - timedelta(days=50):%Y%m%d}" for kind in ("entries", "links")
    )
    page = await chain(api)
    assert page.anchor is not None
    assert (linked(page), page.anchor.seq, problems(page)) == (["middle", "new"], 1, [])
    # The entries of a day go two days before its links, and the chain stays whole.
    assert await AuditPruner(store, 34).run_once() == [f"audit_entries_{today - timedelta(days=35):%Y%m%d}"]
    page = await chain(api)
    assert (linked(page), [link.dropped for link in page.links], problems(page)) == (["new"], [True, False], [])


async def test_the_last_days_cannot_be_dropped(connection: asyncpg.Connection) -> None:
    for table in ("audit_entries", "audit_links"):
        day = datetime.now(UTC).date() - timedelta(days=1)
        with pytest.raises(asyncpg.InvalidParameterValueError, match="the audit of the last 30 days is kept"):
            await connection.fetchval("select mainspring.drop_partition($1, $2)", table, day)


async def old_days(connection: asyncpg.Connection, store: Store) -> None:
    """A linked entry 50 days ago, and one 35 days ago."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for days, queue in ((50, "old"), (35, "middle")):
        low = today - timedelta(days=days)
        for kind in ("entries", "links"):
            await connection.execute(
                f"create table mainspring.audit_{kind}_{low:%Y%m%d} partition of mainspring.audit_{kind}"
                f" for values from ('{low.isoformat()}') to ('{(low + timedelta(days=1)).isoformat()}')"
            )
        for kind, column in (("entries", "at"), ("links", "linked_at")):
            await connection.execute(
                f"alter table mainspring.audit_{kind} alter {column} set default '{low.isoformat()}'"
            )
        await change(connection, queue)
        await AuditLinker(store).run_once()
    for kind, column in (("entries", "at"), ("links", "linked_at")):
        await connection.execute(f"alter table mainspring.audit_{kind} alter {column} set default clock_timestamp()")


async def test_a_database_that_was_restored_elsewhere_goes_on(
    api: httpx.AsyncClient, store: Store, connection: asyncpg.Connection
) -> None:
    """Transactions have smaller numbers there than the position."""
    await change(connection, "before")
    await AuditLinker(store).run_once()
    await connection.execute(
        "update mainspring.audit_position set xid = '4000000000', next_xid = '4000000001', next_since = $1",
        datetime.now(UTC),
    )
    await connection.execute("alter table mainspring.audit_entries alter xid set default '3999999999'::xid8")
    await change(connection, "unlinked")
    await connection.execute("alter table mainspring.audit_entries alter xid set default pg_current_xact_id()")
    await change(connection, "after")
    await AuditLinker(store).run_once()
    await change(connection, "later")
    await AuditLinker(store).run_once()
    page = await chain(api)
    assert (sorted(linked(page)), problems(page)) == (["after", "before", "later", "unlinked"], [])


async def test_partitions_of_the_audit_are_made_ahead(connection: asyncpg.Connection) -> None:
    last = datetime.now(UTC).date() + timedelta(days=partitions.DAYS_AHEAD)
    for kind in ("entries", "links"):
        await connection.execute(f"drop table mainspring.audit_{kind}_{last:%Y%m%d}")
    assert await partitions.ensure_ahead(connection) == [f"audit_{kind}_{last:%Y%m%d}" for kind in ("entries", "links")]


async def test_the_servers_duty_links_what_the_api_has_changed(api: httpx.AsyncClient, assembly: Assembly) -> None:
    linker = next(task for task in assembly.periodic_tasks if isinstance(task, AuditLinker))
    assert linker.interval <= 0.5
    await api.post("/v1/queues/mails:pause")
    await linker.run_once()
    page = await chain(api)
    assert (linked(page), problems(page)) == (["mails"], [])
