"""Blocks of output, which say together what words they have: a search finds the same with them and without them."""

from __future__ import annotations

import random
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.log_words import words_in
from mainspring.kernel.clock import SystemClock
from mainspring.kernel.ids import uuid7
from mainspring.operations.logs import log_finder
from mainspring.roles.assembly import Assembly
from mainspring.store import log_blocks, log_search, partitions
from mainspring.upkeep import log_block_maker
from mainspring.upkeep.log_block_maker import LogBlockMaker
from tests.logs.scene import IN_POSTGRESQL
from tests.operations.hand_worker import HandWorker
from tests.operations.tenants import Tenants

from .test_log_finder import found, printed

pytestmark = [pytest.mark.anyio, pytest.mark.own_database, IN_POSTGRESQL]


@pytest.fixture
def maker(assembly: Assembly, monkeypatch: pytest.MonkeyPatch) -> LogBlockMaker:
    """Makes small blocks at once, and searches read them from the beginning."""
    monkeypatch.setattr(log_blocks, "_LATEST_COMMIT", timedelta(0))
    monkeypatch.setattr(log_block_maker, "_CHUNKS", 3)
    monkeypatch.setattr(log_finder, "_FIRST", 1)
    return LogBlockMaker(assembly.store, SystemClock())


async def looked_at(connection: asyncpg.Connection, *words: str) -> int:
    """How many chunks of blocks a search for these words reads."""
    wanted = [zlib.crc32(word.encode()).to_bytes(4, "little")[:3] for word in words]
    times = (datetime(2000, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC))
    return sum(block.chunks for block in await log_blocks.with_words(connection, wanted, times, None))


async def ids(api: httpx.AsyncClient, text: str, **params: Any) -> list[str]:
    return [hit["run_id"] for hit in await found(api, text=text, limit=4, **params)]


async def test_a_search_finds_the_same_with_blocks_and_reads_few_chunks(
    api: httpx.AsyncClient, worker: HandWorker, connection: asyncpg.Connection, maker: LogBlockMaker
) -> None:
    dice, said = random.Random(7), dict[str, list[str]]()
    for number in range(30):
        words = dice.sample([f"word{letter}" for letter in "abcdefghijkl"], 3)
        end = "" if number % 11 == 5 else "\n"  # the words of a chunk that ends within a line are not known
        run_id = await printed(worker, f"{' '.join(words)} only{number}{end}".encode())
        for word in (*words, f"only{number}"):
            said.setdefault(word, []).insert(0, str(run_id))
        if number % 4 == 0:
            await maker.run_once()  # the others are in no block yet
    assert 5 < await connection.fetchval("select count(*) from mainspring.log_blocks where first_byte = 0") <= 10
    for word, run_ids in said.items():
        assert await ids(api, word) == run_ids, word
    first, last = said["only3"][0], said["only20"][0]
    assert await ids(api, "only3 only20") == [] and await ids(api, "nobody") == []
    assert await ids(api, "only3", job=first) == [first]
    assert await ids(api, "only20", task="noop") == [last] and await ids(api, "only20", task="other") == []
    soon = datetime.now(UTC) + timedelta(hours=1)
    assert await ids(api, "only3", since=soon.isoformat()) == []
    assert await ids(api, "only3", since=(soon - timedelta(hours=2)).isoformat()) == [first]
    assert await ids(api, "only3", until=(soon - timedelta(hours=2)).isoformat()) == []
    read = {word: await looked_at(connection, word) for word in ("only3", "nobody")}
    assert 3 <= read["only3"] <= 15 and read["nobody"] <= 12, read  # those of blocks with unknown words
    assert (await looked_at(connection, "worda")) > read["only3"]


async def test_a_block_waits_for_output_that_is_not_committed(
    api: httpx.AsyncClient, worker: HandWorker, connection: asyncpg.Connection, maker: LogBlockMaker
) -> None:
    run_id = await printed(worker, b"early\n")
    async with connection.transaction():
        late = uuid7()
        await connection.execute(
            "insert into mainspring.log_chunks (run_id, first_byte, tenant_id, fence, size, data, words) "
            "values ($1, 0, 1, 1, 5, 'late\n', $2)",
            late, words_in(b"late\n"),
        )  # fmt: skip
        for _ in range(4):
            await printed(worker, b"others\n")
        assert await maker.run_once() == 0
    assert await maker.run_once() == 2
    assert (await looked_at(connection, "late"), await looked_at(connection, "early")) == (3, 3)
    assert await ids(api, "early") == [str(run_id)]


async def test_one_server_makes_blocks_and_a_killed_one_leaves_nothing(
    assembly: Assembly, worker: HandWorker, connection: asyncpg.Connection, maker: LogBlockMaker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for number in range(4):
        await printed(worker, f"word{number}\n".encode())
    async with connection.transaction():
        assert await log_blocks.lock(connection)  # type: ignore[arg-type]
        assert await maker.run_once() == 0
    add = log_blocks.add

    async def dying(*arguments: Any) -> int:
        await add(*arguments)
        raise SystemError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(log_blocks, "add", dying)
        with pytest.raises(SystemError):
            await maker.run_once()
    count = "select count(*) from mainspring.log_blocks"
    assert await connection.fetchval(count) == 0
    assert await maker.run_once() == 1
    assert await LogBlockMaker(assembly.store, SystemClock()).run_once() == 0
    assert await connection.fetchval(count) == 256


async def test_output_of_before_the_first_block_is_found(
    api: httpx.AsyncClient, worker: HandWorker, connection: asyncpg.Connection, maker: LogBlockMaker
) -> None:
    """As after an upgrade: chunks of earlier days have no blocks."""
    old = [await printed(worker, f"needle old{number}\n".encode()) for number in range(3)]
    await maker.run_once()
    await connection.execute("delete from mainspring.log_blocks")
    new = [await printed(worker, f"needle new{number}\n".encode()) for number in range(3)]
    odd = "ffffffff-ffff-4fff-8fff-ffffffffffff"  # an id that a client chose
    for table in ("log_chunks", "run_logs", "run_history"):
        await connection.execute(f"update mainspring.{table} set run_id = $1 where run_id = $2", odd, old[0])
    start = await connection.fetchval("select min(stored_at) from mainspring.log_chunks where run_id = $1", new[0])
    await connection.execute(
        "insert into mainspring.log_blocks select n, $1::timestamptz, $1::timestamptz + interval '1 microsecond', $2, "
        "0, false, '' from generate_series(0, 255) n", start - timedelta(microseconds=2), new[0],
    )  # fmt: skip
    everything = [odd, *(str(run_id) for run_id in (*reversed(new), *reversed(old[1:])))]
    assert await maker.run_once() == 1
    assert await ids(api, "needle") == everything
    assert await ids(api, "old0") == [odd] and await ids(api, "old1") == [str(old[1])]
    assert await ids(api, "new1") == [str(new[1])]


async def test_a_clock_that_was_set_back_makes_the_blocks_of_the_day_again(
    api: httpx.AsyncClient, worker: HandWorker, connection: asyncpg.Connection, maker: LogBlockMaker
) -> None:
    run_ids = [await printed(worker, f"word{number}\n".encode()) for number in range(3)]
    await maker.run_once()
    await connection.execute("update mainspring.log_blocks set stored_to = stored_to + interval '1 second', words = ''")
    await maker.run_once()
    assert await ids(api, "word1") == [str(run_ids[1])]
    assert await looked_at(connection, "word1") == 3


async def test_days_go_with_their_blocks_and_what_is_common_is_read_run_by_run(
    api: httpx.AsyncClient, worker: HandWorker, connection: asyncpg.Connection, maker: LogBlockMaker,
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    run_ids = [str(await printed(worker, f"common word{number}\n".encode())) for number in range(9)]
    assert await maker.run_once() > 0
    [other] = await tenants.add("apart")
    for text in ("common", "word0"):
        assert await ids(other, text) == []
    monkeypatch.setattr(log_search, "_MOST_AT_ONCE", 5)
    assert await ids(api, "common") == run_ids[::-1] and await ids(api, "word0") == run_ids[:1]
    day = datetime.now(UTC).date() - timedelta(days=1)
    dropped = await partitions.drop_older(connection, 0, tables=partitions.LOGS)  # type: ignore[arg-type]
    assert dropped == [f"log_chunks_{day:%Y%m%d}", f"log_blocks_{day:%Y%m%d}"]
