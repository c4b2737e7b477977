"""Logs of a real server whose chunks are merged: read, followed, resumed, repeated and expired as before."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from mainspring.operations.logs.log_merger import LogMerger
from mainspring.roles.assembly import Assembly
from mainspring.upkeep.partition_maintainer import HistoryPruner
from mainspring.wire.exchange import RunOrder
from mainspring.wire.logs import LogReceipt
from tests.eventually import PATIENCE
from tests.logs.scene import IN_A_FOLDER, Follower, a_run, chunk, ship, text
from tests.logs.sockets import on_a_socket
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.waiting import until

pytestmark = [pytest.mark.anyio, IN_A_FOLDER]

LINES = [f"line {number:03d}, größer als ein Zeichen\n".encode() for number in range(100)]
WHOLE = b"".join(LINES).decode()
LENGTH = len(LINES[0])


@pytest.fixture
def merger(assembly: Assembly) -> LogMerger:
    (found,) = (task for task in assembly.periodic_tasks if isinstance(task, LogMerger))
    return found


def objects_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


async def print_lines(worker: HandWorker, order: RunOrder, first: int, last: int) -> None:
    for number in range(first, last):
        await ship(worker, chunk(order, number * LENGTH, LINES[number]))


async def test_a_log_is_the_same_before_it_is_merged_and_after(
    worker: HandWorker, merger: LogMerger, tmp_path: Path
) -> None:
    order = await a_run(worker)
    await print_lines(worker, order, 0, 70)
    assert await merger.run_once() == 69
    assert await text(worker.api, order.run_id) == "".join(line.decode() for line in LINES[:70])
    await print_lines(worker, order, 70, 100)
    assert await text(worker.api, order.run_id) == WHOLE
    await ship(worker, chunk(order, 100 * LENGTH, b"", end=True))
    assert await merger.run_once() == 30
    assert objects_in(tmp_path / "logs") == [f"{0:015d}-{100 * LENGTH:015d}"]
    assert await text(worker.api, order.run_id) == WHOLE
    await worker.report(outcome(order))
    assert await text(worker.api, order.run_id) == WHOLE
    for offset in (0, 3, LENGTH, 12 * LENGTH + 1, 99 * LENGTH):
        rest = Follower(worker.api, order.run_id, **{"Last-Event-ID": f"1:{offset}"})
        await rest.run()
        assert rest.output.encode() == WHOLE.encode()[offset:]


async def test_a_reader_follows_a_log_that_is_merged_under_its_eyes(
    assembly: Assembly, worker: HandWorker, merger: LogMerger
) -> None:
    async with on_a_socket(assembly) as api:
        order = await a_run(worker)
        await print_lines(worker, order, 0, 10)
        follower = Follower(api, order.run_id)
        reading = asyncio.create_task(follower.run())
        await until(lambda: len(follower.output) == len(WHOLE) // 10)
        for first in range(10, 100, 10):
            await print_lines(worker, order, first, first + 10)
            await merger.run_once()
        await ship(worker, chunk(order, 100 * LENGTH, b"", end=True))
        await merger.run_once()
        await worker.report(outcome(order))
        async with asyncio.timeout(PATIENCE):
            await reading
    assert follower.output == WHOLE


async def test_a_chunk_that_is_sent_again_after_the_merge_is_acknowledged_and_puts_nothing(
    worker: HandWorker, merger: LogMerger, tmp_path: Path
) -> None:
    order = await a_run(worker)
    await print_lines(worker, order, 0, 100)
    await merger.run_once()
    before = objects_in(tmp_path / "logs")
    assert await ship(worker, chunk(order, 0, LINES[0])) == LogReceipt(stored=1)
    assert await ship(worker, chunk(order, 99 * LENGTH, LINES[99])) == LogReceipt(stored=1)
    assert objects_in(tmp_path / "logs") == before
    assert await text(worker.api, order.run_id) == WHOLE


async def test_a_run_that_prints_nothing_or_little_is_nothing_to_the_merger(
    worker: HandWorker, merger: LogMerger, tmp_path: Path
) -> None:
    silent, brief = await a_run(worker), await a_run(worker)
    await ship(worker, chunk(brief, 0, b"hello\n"))
    await ship(worker, chunk(brief, 6, b"", end=True))
    await worker.report(outcome(silent), outcome(brief))
    assert merger.logs == 0
    assert objects_in(tmp_path / "logs") == [f"{0:015d}"]


async def test_merged_logs_expire_too(
    assembly: Assembly, worker: HandWorker, merger: LogMerger, connection: asyncpg.Connection, tmp_path: Path
) -> None:
    order = await a_run(worker)
    await print_lines(worker, order, 0, 70)
    await merger.run_once()
    await print_lines(worker, order, 70, 80)
    await worker.report(outcome(order))
    await connection.execute("delete from mainspring.run_history")
    await connection.execute(
        "update mainspring.run_logs set created_at = created_at - interval '31 d', "
        "updated_at = updated_at - interval '31 d'"
    )
    pruners = [HistoryPruner(assembly.store, 30, assembly.services.logs.stores) for _ in range(2)]
    await asyncio.gather(*(pruner.run_once() for pruner in pruners))
    assert objects_in(tmp_path / "logs") == []
