"""Output in PostgreSQL: compressed, in partitions by day that are dropped, on connections of its own, beside older
output in a folder."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.kernel.ids import uuid7
from mainspring.operations.logs.log_bytes import LogBytes
from mainspring.roles.assembly import Assembly, assemble
from mainspring.roles.log_storage import LogStorage, open_log_storage
from mainspring.store import log_table, partitions
from mainspring.store.log_files import FolderChunk, folder_of, key_of, open_log_files
from mainspring.store.log_table import LogTable, pack
from mainspring.store.pool import LOG_CONNECTIONS, Store
from mainspring.upkeep.partition_maintainer import HistoryPruner
from mainspring.wire.logs import LogReceipt
from tests.conftest import TOKEN
from tests.logs.scene import IN_A_FOLDER, IN_POSTGRESQL, Follower, a_run, ask, chunk, ship, text
from tests.logs.sockets import on_a_socket
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio

FOLDER = folder_of(1, uuid7(), 1, 1)


async def put(store: Store, *chunks: FolderChunk) -> None:
    """Store chunks, whether they count or not."""
    async with store.logs.acquire() as connection:
        for folder, offset, data in chunks:
            key = key_of(folder)
            await connection.execute(
                "insert into mainspring.log_chunks (run_id, first_byte, tenant_id, fence, size, data)"
                " values ($1, $2, $3, $4, $5, $6)",
                key.run_id, offset, key.tenant, key.fence, len(data), pack(data),
            )  # fmt: skip


async def all_of(table: LogTable, start: int, end: int, folder: str = FOLDER) -> bytes:
    position, found = start, b""
    async for data, position in table.read(folder, start, end):
        found += data
        assert position == start + len(found)
    return found


# -- the table


async def test_what_was_put_is_read_from_any_byte(store: Store) -> None:
    table = LogTable(store)
    output = random.Random(1).randbytes(3000) + b"line\n" * 3000
    sizes = [1, 3, 250, 700, 5000, 12_000 - 954]
    at = 0
    for size in sizes:
        await put(store, FolderChunk(FOLDER, at, output[at : at + size]))
        at += size
    for start in (0, 1, 3, 4, 100, 954, 5953, 5954, at - 1, at):
        for end in (start, start + 1, min(start + 4000, at), at):
            assert await all_of(table, start, min(end, at)) == output[start : min(end, at)]


async def test_it_ends_before_the_first_byte_that_is_missing_and_other_logs_are_not_read(store: Store) -> None:
    table = LogTable(store)
    tenant, run_id, _ = FOLDER.split("/")
    await put(store, FolderChunk(FOLDER, 0, b"abc"), FolderChunk(FOLDER, 5, b"fgh"))
    await put(store, FolderChunk(f"{tenant}/{run_id}/1-2", 3, b"of another fence"))
    await put(store, FolderChunk(f"2/{run_id}/1-1", 3, b"of another tenant"))
    assert await all_of(table, 0, 8) == b"abc"
    assert await all_of(table, 3, 8) == b""
    assert await all_of(table, 6, 8) == b"gh"


async def test_a_chunk_that_was_sent_again_or_in_another_size_is_read_once(store: Store) -> None:
    table = LogTable(store)
    for offset, data in ((0, b"abc"), (0, b"abcdef"), (0, b"abc"), (3, b"def"), (6, b"gh"), (3, b"defgh")):
        await put(store, FolderChunk(FOLDER, offset, data))
    for start in range(8):
        assert await all_of(table, start, 8) == b"abcdefgh"[start:]


@pytest.mark.parametrize(
    "run_id", [uuid4(), uuid7(), "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11", "f" * 8 + "-ffff-7fff-8fff-" + "f" * 12]
)
async def test_a_run_id_says_nothing_that_is_needed(store: Store, run_id: object) -> None:
    """Partitions near the time in the id are looked into first."""
    table, folder = LogTable(store), folder_of(1, run_id, 1, 1)
    await put(store, FolderChunk(folder, 0, b"here"))
    assert await all_of(table, 0, 4, folder) == b"here"


async def test_text_is_stored_compressed_and_not_compressed_again(store: Store, connection: asyncpg.Connection) -> None:
    noise = random.Random(1).randbytes(1000)
    chunks = [(0, b"short\n"), (6, b"the same line of text\n" * 10_000), (220_006, noise)]
    await put(store, *(FolderChunk(FOLDER, offset, data) for offset, data in chunks))
    found = await connection.fetch("select size, length(data) from mainspring.log_chunks order by first_byte")
    assert [tuple(row) for row in found][0::2] == [(6, 6), (1000, 1000)]
    assert found[1]["size"] == 220_000 and found[1]["length"] < 5000
    storages = await connection.fetch(
        """select distinct a.attstorage::text from pg_attribute a
           join pg_inherits i on i.inhrelid = a.attrelid and i.inhparent = 'mainspring.log_chunks'::regclass
           where a.attname = 'data'"""
    )
    assert [row[0] for row in storages] == ["e"]


@IN_POSTGRESQL
async def test_the_output_of_many_runs_is_one_statement_on_a_connection_of_its_own(
    assembly: Assembly, worker: HandWorker, connection: asyncpg.Connection
) -> None:
    await worker.api.post("/v1/jobs:batch", json=[{"task": "noop"}] * 200)
    orders = await worker.claim(200)
    await ship(worker, *(chunk(order, 0, b"begun\n") for order in orders))
    asked: list[str] = []

    def note(record: asyncpg.connection.LoggedQuery) -> None:
        asked.append(record.query)

    used = list(assembly.store.connections)
    for each in used:
        each.add_query_logger(note)
    receipt = await ship(worker, *(chunk(order, 6, b"ended\n", end=True) for order in orders))
    for each in used:
        each.remove_query_logger(note)
    assert receipt == LogReceipt(stored=200)
    assert len(asked) == 1
    assert await connection.fetchval("select count(*) from mainspring.log_chunks") == 400


# -- slow, full


@asynccontextmanager
async def all_log_connections(assembly: Assembly) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for _ in range(LOG_CONNECTIONS):
            await stack.enter_async_context(assembly.store.logs.acquire())
        yield


@IN_POSTGRESQL
async def test_output_that_cannot_be_stored_soon_is_a_503_and_reports_go_on(
    assembly: Assembly, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a worker does: it tries for a while, then it marks the log, and reports."""
    monkeypatch.setattr(log_table, "PATIENCE", 0.05)
    order, other = await a_run(worker), await a_run(worker)
    async with all_log_connections(assembly):
        answer = await ask(worker, chunk(order, 0, b"one\n"))
        assert (answer.status_code, answer.json()["code"]) == (503, "log_store_down")
        assert await ship(worker, chunk(order, 0, b"", truncated=True, end=True)) == LogReceipt(stored=1)
        await worker.report(outcome(order), outcome(other))
        assert await a_run(worker)
    assert await text(worker.api, order.run_id) == "\n[mainspring: output truncated at 0]\n"


@IN_POSTGRESQL
async def test_a_table_that_is_locked_holds_up_neither_reports_nor_claims(
    assembly: Assembly, worker: HandWorker, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_table, "PATIENCE", 0.2)
    order, other = await a_run(worker), await a_run(worker)
    async with connection.transaction():
        await connection.execute("lock table mainspring.log_chunks in access exclusive mode")
        answer = await ask(worker, chunk(order, 0, b"one\n"))
        assert (answer.status_code, answer.json()["code"]) == (503, "log_store_down")
        await worker.report(outcome(order), outcome(other))
        assert (await worker.api.get(f"/v1/runs/{order.run_id}")).json()["status"] == "SUCCESS"
        again = await a_run(worker)
    assert await ship(worker, chunk(again, 0, b"one\n")) == LogReceipt(stored=1)


@IN_POSTGRESQL
async def test_a_day_without_partition_is_a_503_and_nothing_counts(
    assembly: Assembly, worker: HandWorker, connection: asyncpg.Connection
) -> None:
    order = await a_run(worker)
    for row in await connection.fetch(
        "select inhrelid::regclass::text as name from pg_inherits where inhparent = 'mainspring.log_chunks'::regclass"
    ):
        await connection.execute(f"drop table {row['name']}")
    answer = await ask(worker, chunk(order, 0, b"one\n"))
    assert (answer.status_code, answer.json()["code"]) == (503, "log_store_down")
    assert await connection.fetchval("select count(*) from mainspring.run_logs") == 0
    await partitions.ensure_ahead(connection)
    assert await ship(worker, chunk(order, 0, b"one\n")) == LogReceipt(stored=1)
    assert await text(worker.api, order.run_id) == "one\n"


@IN_POSTGRESQL
async def test_a_reader_who_is_slow_makes_the_server_read_a_part_at_a_time(
    assembly: Assembly, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = await a_run(worker)
    for offset in range(0, 20_000_000, 1_000_000):
        await ship(worker, chunk(order, offset, b"x" * 1_000_000))
    asked: list[int] = []
    read_part = LogTable._part

    async def counted(self: LogTable, folder: str, start: int, end: int) -> bytes:
        asked.append(start)
        return await read_part(self, folder, start, end)

    monkeypatch.setattr(LogTable, "_part", counted)
    async with on_a_socket(assembly) as api:
        for params in ({"follow": "true"}, {}):
            asked.clear()
            async with api.stream("GET", f"/v1/runs/{order.run_id}/logs", params=params) as answer:
                async for _ in answer.aiter_bytes():
                    break
                with pytest.raises(TimeoutError):
                    await until(lambda: len(asked) > 12, seconds=0.5)
            assert asked


# -- retention


async def aged(connection: asyncpg.Connection, days: int) -> str:
    """Move all output to the partition of an earlier day. Returns its name."""
    day = (datetime.now(UTC) - timedelta(days=days)).date()
    name = f"log_chunks_{day:%Y%m%d}"
    await connection.execute(
        f"""create table mainspring.{name} partition of mainspring.log_chunks
            for values from ('{day} 00:00Z') to ('{day + timedelta(days=1)} 00:00Z')"""
    )
    await connection.execute(
        "update mainspring.log_chunks set stored_at = $1", datetime.now(UTC) - timedelta(days=days)
    )
    await connection.execute(
        "update mainspring.run_logs set created_at = created_at - make_interval(days => $1),"
        " updated_at = updated_at - make_interval(days => $1)",
        days,
    )
    return name


@IN_POSTGRESQL
async def test_a_day_of_output_is_dropped_and_that_of_runs_that_are_still_known_is_kept(
    assembly: Assembly, worker: HandWorker, connection: asyncpg.Connection
) -> None:
    orders = [await a_run(worker) for _ in range(3)]
    for order in orders:
        await ship(worker, chunk(order, 0, b"one\n"), chunk(order, 4, b"two\n" * 200))
    old, living, quiet = orders
    await worker.report(outcome(old), outcome(quiet))
    await connection.execute("delete from mainspring.run_history where run_id = $1", old.run_id)
    dropped = await aged(connection, 31)
    pruner = HistoryPruner(assembly.store, 30, assembly.services.logs.stores)
    assert await pruner.run_once() == [dropped]
    left = await connection.fetch("select run_id, count(*) from mainspring.log_chunks group by run_id")
    assert {tuple(row) for row in left} == {(living.run_id, 2), (quiet.run_id, 2)}
    for order in (living, quiet):
        assert await text(worker.api, order.run_id) == "one\n" + "two\n" * 200
    assert await ship(worker, chunk(living, 804, b"three\n")) == LogReceipt(stored=1)
    assert (await text(worker.api, living.run_id)).endswith("two\nthree\n")
    assert await pruner.run_once() == []


@IN_POSTGRESQL
async def test_output_is_kept_as_long_as_a_rule_of_its_labels_says(
    worker: HandWorker, connection: asyncpg.Connection
) -> None:
    rules = [
        {"labels": {"audit": "yes"}, "keep_logs": "1y"},
        {"labels": {"audit": "yes", "team": "a"}, "keep_logs": "2y"},
        {"labels": {"noisy": "yes"}, "keep_logs": "2d"},
    ]
    url = "/v1/tenant/log-retention"
    put = await worker.api.put(url, json={"rules": rules}, headers={"If-Match": '"0"'})
    assert (put.status_code, put.json()["version"]) == (200, 1), put.text
    wanted: list[tuple[dict[str, Any], int | None]] = [
        ({"labels": {"audit": "yes"}}, 365),
        ({"labels": {"audit": "yes", "team": "a", "noisy": "yes"}}, 730),
        ({"labels": {"audit": "no", "noisy": "yes"}}, 2),
        ({"labels": {"audit": "yes"}, "keep_logs": "3d"}, 3),
        ({"labels": {"team": "a"}}, None),
        ({}, None),
    ]
    orders = [await a_run(worker, **fields) for fields, _ in wanted]
    for order in orders:
        await ship(worker, chunk(order, 0, b"one\n"))
    kept = dict(await connection.fetch(
        "select run_id, round(extract(epoch from keep_until - created_at) / 86400)::int from mainspring.run_logs"
    ))  # fmt: skip
    assert [kept[order.run_id] for order in orders] == [days for _, days in wanted]

    stale = await worker.api.put(url, json={"rules": []}, headers={"If-Match": '"0"'})
    assert stale.status_code == 412
    for bad, field in (
        ([{"labels": {}, "keep_logs": "1y"}], "rules[0].labels"),
        ([{"labels": {"a": "b\n"}, "keep_logs": "1y"}], "rules[0].labels.a"),
        ([{"labels": {"a": "b"}, "keep_logs": "1s"}], "rules[0].keep_logs"),
        ([{"labels": {"a": "b"}, "keep_logs": "1y"}] * 2, "rules[1].labels"),
    ):
        refused = await worker.api.put(url, json={"rules": bad})
        assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text
    assert (await worker.api.get(url)).json()["rules"][2]["keep_logs"] == 2 * 86400
    assert (await worker.api.put(url, json={"rules": []})).json()["version"] == 2


@IN_POSTGRESQL
async def test_output_is_kept_as_long_as_its_job_says_apart_from_the_history(
    assembly: Assembly, worker: HandWorker, connection: asyncpg.Connection
) -> None:
    long, short = await a_run(worker, keep_logs="1y"), await a_run(worker, keep_logs="2d")
    for order in (long, short):
        await ship(worker, chunk(order, 0, b"one\n"), chunk(order, 4, b"two\n"))
    await worker.report(outcome(long), outcome(short))
    pruner = HistoryPruner(assembly.store, 30, assembly.services.logs.stores)
    assert await pruner.run_once() == []
    assert await text(worker.api, short.run_id) == "one\ntwo\n"
    await connection.execute(
        "update mainspring.run_logs set keep_until = keep_until - interval '3 days', "
        "updated_at = updated_at - interval '3 days'"
    )
    await pruner.run_once()
    shown = (await worker.api.get(f"/v1/runs/{short.run_id}")).json()
    assert shown["status"] == "SUCCESS"  # the run is there, and its output is not
    assert await text(worker.api, short.run_id) == ""
    kept = await connection.fetch("select run_id from mainspring.log_chunks")
    assert {row[0] for row in kept} == {long.run_id}
    await connection.execute("delete from mainspring.run_history")
    dropped = await aged(connection, 31)
    assert await pruner.run_once() == [dropped]
    assert (await worker.api.get(f"/v1/runs/{long.run_id}")).status_code == 404
    assert await text(worker.api, long.run_id) == "one\ntwo\n"  # the run is gone, and its output is not
    found = (await worker.api.get(f"/v1/runs/{long.run_id}/logs/search", params={"text": "two"})).json()
    assert [match["text"] for match in found["matches"]] == ["two"]
    narrowed = {"name": "n", "role": "viewer", "queues": ["elsewhere"]}
    token = (await worker.api.post("/v1/tokens", json=narrowed)).json()["token"]
    outside = {"Authorization": f"Bearer {token}"}
    for path in ("logs", "logs/range", "logs/search?text=two"):
        assert (await worker.api.get(f"/v1/runs/{long.run_id}/{path}", headers=outside)).status_code == 404
    followed = await worker.api.get(f"/v1/runs/{long.run_id}/logs", params={"follow": "true"})
    assert (followed.status_code, followed.json()["field"]) == (404, "follow")
    await connection.execute("update mainspring.run_logs set keep_until = keep_until - interval '1 year'")
    await pruner.run_once()
    assert (await worker.api.get(f"/v1/runs/{long.run_id}/logs")).status_code == 404
    assert await connection.fetchval("select count(*) from mainspring.log_chunks") == 0


@IN_POSTGRESQL
async def test_servers_that_drop_a_day_at_the_same_moment_keep_what_is_needed(
    assembly: Assembly, worker: HandWorker, connection: asyncpg.Connection
) -> None:
    order = await a_run(worker)
    await ship(worker, chunk(order, 0, b"one\n"))
    await aged(connection, 31)
    pruners = [HistoryPruner(assembly.store, 30, assembly.services.logs.stores) for _ in range(3)]
    await asyncio.gather(*(pruner.run_once() for pruner in pruners))
    await pruners[0].run_once()
    assert await text(worker.api, order.run_id) == "one\n"


async def test_a_scheduler_leaves_output_to_the_servers(assembly: Assembly, connection: asyncpg.Connection) -> None:
    """It does not know which runs are still needed: only a server deletes what a folder has of them."""
    kept = await aged(connection, 31)
    assert await HistoryPruner(assembly.store, 30).run_once() == []
    assert await connection.fetchval("select to_regclass($1)", f"mainspring.{kept}") is not None


# -- older output in a folder, and a setting that changed


@asynccontextmanager
async def another_server(database_url: str, storage: LogStorage) -> AsyncIterator[tuple[Assembly, httpx.AsyncClient]]:
    made = await assemble(
        database_url, SystemClock(), scheduler=False, log_files=storage.named, old_log_files=storage.old
    )
    transport = httpx.ASGITransport(app=made.app)  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers) as api:
        yield made, api
    await made.close()


@IN_A_FOLDER
async def test_output_from_before_is_read_and_a_log_may_be_in_both_places(
    worker: HandWorker, database_url: str, tmp_path: Path, connection: asyncpg.Connection
) -> None:
    """The data folder of an earlier version has the folder logs. The server is restarted without naming it."""
    before, during = await a_run(worker), await a_run(worker)
    for number in range(100):
        await ship(worker, chunk(before, 4 * number, b"%03d\n" % number))
    await ship(worker, chunk(during, 0, b"in the folder\n"))
    storage = await open_log_storage(None, tmp_path)
    assert (storage.named, storage.old is not None) == (None, True)
    async with another_server(database_url, storage) as (server, api):
        worker.api = api
        await ship(worker, chunk(during, 14, b"in PostgreSQL\n", end=True))
        await worker.report(outcome(before), outcome(during))
        assert await text(api, before.run_id) == "".join(f"{number:03d}\n" for number in range(100))
        assert await text(api, during.run_id) == "in the folder\nin PostgreSQL\n"
        found = await api.get(f"/v1/runs/{during.run_id}/logs/search", params={"text": "IN"})
        assert [match["text"] for match in found.json()["matches"]] == ["in the folder", "in PostgreSQL"]
        tail = await api.get(f"/v1/runs/{before.run_id}/logs/range", params={"lines": 1})
        assert tail.json()["text"] == "099\n"
        follower = Follower(api, during.run_id)
        await follower.run()
        assert follower.output == "in the folder\nin PostgreSQL\n"
        await connection.execute("delete from mainspring.run_history")
        await connection.execute(
            "update mainspring.run_logs set created_at = created_at - interval '31 d',"
            " updated_at = updated_at - interval '31 d'"
        )
        await HistoryPruner(server.store, 30, server.services.logs.stores).run_once()
        assert not list((tmp_path / "logs").rglob("0*")), "it expires there too"


@IN_POSTGRESQL
async def test_output_in_postgresql_is_read_after_a_folder_was_named(
    worker: HandWorker, database_url: str, tmp_path: Path
) -> None:
    order = await a_run(worker)
    await ship(worker, chunk(order, 0, b"in PostgreSQL\n"))
    storage = await open_log_storage(str(tmp_path / "named"), tmp_path / "data")
    async with another_server(database_url, storage) as (_, api):
        worker.api = api
        await ship(worker, chunk(order, 14, b"in the folder\n", end=True))
        await worker.report(outcome(order))
        assert await text(api, order.run_id) == "in PostgreSQL\nin the folder\n"


async def test_the_older_folder_is_only_used_if_it_has_something(tmp_path: Path) -> None:
    assert await open_log_storage(None, tmp_path) == LogStorage()
    (tmp_path / "logs").mkdir()
    assert await open_log_storage(None, tmp_path) == LogStorage()
    await open_log_files(tmp_path / "logs").put(FOLDER, 0, b"x")
    assert (await open_log_storage(None, tmp_path)).old is not None
    named = await open_log_storage(str(tmp_path / "logs"), tmp_path)
    assert (named.named is not None, named.old) == (True, None), "it was named, so it is used as before"


async def test_bytes_that_no_store_has_are_told(store: Store, tmp_path: Path) -> None:
    files, table = open_log_files(tmp_path), LogTable(store)
    await files.put(FOLDER, 0, b"abc")
    await put(store, FolderChunk(FOLDER, 3, b"def"))
    await files.put(FOLDER, 6, b"ghi")
    for stores in ((files, table), (table, files)):
        found = [piece.data async for piece in LogBytes(*stores).read(FOLDER, 0, 12)]
        assert b"".join(found) == b"abcdefghi\n[mainspring: 3 bytes of output are missing from the log store]\n"
