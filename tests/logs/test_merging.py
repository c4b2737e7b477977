"""Small chunks are merged into larger objects. Every byte stays readable during crashes, merges and reads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from mainspring.domain.errors import Unavailable
from mainspring.kernel.clock import ManualClock, SystemClock
from mainspring.operations.logs.log_bytes import LogBytes
from mainspring.operations.logs.log_merger import QUIET, LogMerger, MergeRule
from mainspring.store.log_files import LogFiles, Stored, open_log_files
from tests.logs.test_log_bytes import FOLDER, Counting, read
from tests.store.s3_peer import BUCKET, s3_peer

pytestmark = pytest.mark.anyio

TINY = MergeRule(small=12, largest=30, many=4, few=2)
LINE = 50
T = TypeVar("T")


def output_of(size: int) -> bytes:
    return random.Random(7).randbytes(size)


async def put_chunks(files: LogFiles, output: bytes, sizes: Iterable[int]) -> list[Stored]:
    made, offset = [], 0
    for size in sizes:
        await files.put(FOLDER, offset, output[offset : offset + size])
        made.append(Stored(offset, size))
        offset += size
    return made


def merger(files: LogFiles, rule: MergeRule | None = None) -> LogMerger:
    return LogMerger(files, SystemClock(), rule or MergeRule())


# -- one merger


async def test_an_hour_of_lines_is_one_object_when_it_ends() -> None:
    files, output = LogFiles.in_memory(), output_of(3600 * LINE)
    await put_chunks(files, output, [LINE] * 3600)
    assert await merger(files).merge(FOLDER, len(output), ended=True) == 3599
    assert await files.objects(FOLDER) == [Stored(0, len(output), merged=True)]
    assert await read(files, 0, len(output)) == output
    assert await merger(files).merge(FOLDER, len(output), ended=True) == 0


@pytest.mark.slow
async def test_a_log_that_grows_never_has_many_objects_and_moves_each_byte_a_few_times() -> None:
    files, output = Counting(), output_of(3600 * LINE)
    keeps_small = merger(files)
    most = moved = 0
    for offset in range(0, len(output), LINE):
        await files.put(FOLDER, offset, output[offset : offset + LINE])
        keeps_small.arrived(FOLDER, offset, [LINE], ended=False)
        before = set(await files.objects(FOLDER))
        if await keeps_small.run_once():
            moved += sum(stored.size for stored in set(await files.objects(FOLDER)) - before)
        most = max(most, len(before))
    assert most <= 64 + 6
    assert moved <= 6 * len(output)
    keeps_small.arrived(FOLDER, len(output), [0], ended=True)
    await keeps_small.run_once()
    assert await files.objects(FOLDER) == [Stored(0, len(output), merged=True)]
    assert await read(files, 0, len(output)) == output
    assert keeps_small.logs == 0


async def test_large_chunks_stay_as_they_are_and_merged_objects_have_a_largest_size() -> None:
    files, output = LogFiles.in_memory(), output_of(200)
    await put_chunks(files, output, [12, 20, *[5] * 10, 40, *[6] * 13])
    await merger(files, TINY).merge(FOLDER, 200, ended=True)
    assert [(stored.size, stored.merged) for stored in await files.objects(FOLDER)] == [
        (12, False), (20, False), (30, True), (20, True), (40, False), (30, True), (30, True), (18, True),
    ]  # fmt: skip
    assert await read(files, 0, 200) == output


async def test_what_does_not_count_is_neither_merged_nor_removed() -> None:
    files, output = LogFiles.in_memory(), output_of(60)
    await put_chunks(files, output, [5] * 12)
    await merger(files, TINY).merge(FOLDER, 20, ended=True)
    assert await files.objects(FOLDER) == [Stored(0, 20, merged=True), *(Stored(at, 5) for at in range(20, 60, 5))]


async def test_what_lies_within_a_chunk_stays_and_what_lies_within_a_merged_object_goes() -> None:
    """A chunk can be put again, and a merged object cannot."""
    files, output = LogFiles.in_memory(), output_of(60)
    await put_chunks(files, output, [20, *[5] * 8])
    for offset in (3, 22):
        await files.put(FOLDER, offset, output[offset : offset + 2])
    await merger(files, TINY).merge(FOLDER, 60, ended=True)
    assert await files.objects(FOLDER) == [
        Stored(0, 20), Stored(3, 2), Stored(20, 30, merged=True), Stored(50, 10, merged=True)
    ]  # fmt: skip


async def test_a_log_that_has_lost_a_chunk_is_left_as_it_is() -> None:
    files, output = LogFiles.in_memory(), output_of(60)
    made = await put_chunks(files, output, [5] * 12)
    await files.remove(FOLDER, made[6:7])
    before = await files.objects(FOLDER)
    assert await merger(files, TINY).merge(FOLDER, 60, ended=True) == 0
    assert await files.objects(FOLDER) == before


async def test_a_chunk_that_comes_late_overwrites_nothing_and_goes_with_the_next_merge() -> None:
    files, output = LogFiles.in_memory(), output_of(80)
    await put_chunks(files, output, [5] * 8)
    keeps_small = merger(files, TINY)
    await keeps_small.merge(FOLDER, 40, ended=False)
    for offset in (0, 15):
        await files.put(FOLDER, offset, output[offset : offset + 5])
    assert await read(files, 0, 40) == output[:40]
    for offset in range(40, 80, 5):
        await files.put(FOLDER, offset, output[offset : offset + 5])
    await keeps_small.merge(FOLDER, 80, ended=True)
    assert all(stored.merged for stored in await files.objects(FOLDER))
    assert await read(files, 0, 80) == output


async def test_a_merged_object_that_was_cut_short_does_not_count(tmp_path: Path) -> None:
    """A disk that did not flush although it reported so."""
    files, output = open_log_files(tmp_path), output_of(20)
    await put_chunks(files, output, [5] * 4)
    (tmp_path / FOLDER / Stored(0, 20, merged=True).name).write_bytes(b"")
    assert await read(files, 0, 20) == output


# -- several at once


class Play:
    """Lets one call at a time through to the log store, in a random order."""

    def __init__(self, chance: random.Random, output: bytes) -> None:
        self._chance = chance
        self.output = output
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self.at_work = 0

    async def turn(self, party: str) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append((party, waiting))
        await waiting

    async def run(self, *parties: Coroutine[Any, Any, Any]) -> list[Any]:
        tasks = [asyncio.create_task(party) for party in parties]
        while not all(task.done() for task in tasks):
            while self.at_work:
                await asyncio.sleep(0)
            for _ in range(20):  # everything that follows, until the next calls
                await asyncio.sleep(0)
            self._waiting = [(party, waiting) for party, waiting in self._waiting if not waiting.done()]
            if not self._waiting:
                continue
            party, chosen = self._waiting.pop(self._chance.randrange(len(self._waiting)))
            if party == "merger" and self._chance.random() < 0.03:
                chosen.set_exception(Unavailable("the process died here"))
            else:
                self.at_work += 1
                chosen.set_result(None)
        return await asyncio.gather(*tasks)


class InTurns(LogFiles):
    """The same objects for all participants. Every call waits for its turn."""

    def __init__(self, objects: MemoryStore, play: Play, party: str) -> None:
        super().__init__(objects, "memory")
        self._play = play
        self._party = party

    async def _in_turn(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            await self._play.turn(self._party)
        except BaseException:
            call.close()
            raise
        try:
            return await call
        finally:
            self._play.at_work -= 1

    async def put(self, folder: str, offset: int, data: bytes) -> None:
        await self._in_turn(super().put(folder, offset, data))

    async def put_merged(self, folder: str, offset: int, data: bytes) -> Stored:
        assert data == self._play.output[offset : offset + len(data)], "two objects have different values for a byte"
        return await self._in_turn(super().put_merged(folder, offset, data))

    async def objects(self, folder: str) -> list[Stored]:
        return await self._in_turn(super().objects(folder))

    async def get(self, folder: str, offset: int) -> bytes | None:
        return await self._in_turn(super().get(folder, offset))

    async def read(self, folder: str, stored: Stored, start: int, stop: int) -> bytes | None:
        if not stored.merged:
            return await super().read(folder, stored, start, stop)
        return await self._in_turn(super().read(folder, stored, start, stop))

    async def remove(self, folder: str, objects: Iterable[Stored]) -> None:
        for stored in objects:  # one by one, because a crash can happen between any two
            await self._in_turn(super().remove(folder, [stored]))


@pytest.mark.slow
@settings(max_examples=60, phases=[Phase.reuse, Phase.generate])  # shrinking a seed is useless
@given(st.lists(st.integers(1, 15), min_size=3, max_size=14), st.integers(0, 2**32))
def test_readers_find_every_byte_that_counts_while_two_servers_merge_and_crash_and_chunks_come_late(
    sizes: list[int], seed: int
) -> None:
    output = output_of(sum(sizes))
    offsets = [sum(sizes[:index]) for index in range(len(sizes))]
    chance, objects = random.Random(seed), MemoryStore()
    play = Play(chance, output)
    already = chance.randrange(len(sizes))
    counted = offsets[already]

    async def writes() -> None:
        nonlocal counted
        files = InTurns(objects, play, "writer")
        for offset, size in list(zip(offsets, sizes, strict=True))[already:]:
            await files.put(FOLDER, offset, output[offset : offset + size])
            counted = offset + size

    async def repeats() -> None:
        files = InTurns(objects, play, "late writer")
        for index in chance.choices(range(len(sizes)), k=3):
            await files.put(FOLDER, offsets[index], output[offsets[index] : offsets[index] + sizes[index]])

    async def merges() -> None:
        for _ in range(3):
            ended = counted == len(output)
            with suppress(Unavailable):
                await merger(InTurns(objects, play, "merger"), TINY).merge(FOLDER, counted, ended=ended)

    async def reads() -> None:
        files = InTurns(objects, play, "reader")
        for _ in range(3):
            start, end = chance.randint(0, counted), counted
            assert await read(files, start, end) == output[start:end]

    async def everything() -> None:
        files = LogFiles(objects, "memory")
        await put_chunks(files, output, sizes[:already])
        await play.run(writes(), merges(), merges(), repeats(), reads(), reads())
        assert await read(files, 0, len(output)) == output
        await merger(files, TINY).merge(FOLDER, len(output), ended=True)
        assert await read(files, 0, len(output)) == output

    asyncio.run(everything())


# -- the state of a server


@pytest.fixture
async def counting() -> AsyncIterator[Counting]:
    yield Counting()


async def arrive(keeps_small: LogMerger, files: LogFiles, sizes: Sequence[int], *, ended: bool = False) -> None:
    output, offset = output_of(sum(sizes)), 0
    for size in sizes:
        await files.put(FOLDER, offset, output[offset : offset + size])
        keeps_small.arrived(FOLDER, offset, [size], ended=False)
        offset += size
    if ended:
        keeps_small.arrived(FOLDER, offset, [0], ended=True)


@pytest.mark.parametrize("sizes", [[10], [10] * 8, [300_000] * 20])
async def test_a_log_of_one_chunk_or_a_few_or_large_ones_costs_nothing(counting: Counting, sizes: list[int]) -> None:
    keeps_small = merger(counting)
    await arrive(keeps_small, counting, sizes, ended=True)
    assert keeps_small.logs == 0
    assert await keeps_small.run_once() == 0
    assert counting.asked == []


async def test_a_log_that_came_by_two_servers_is_merged_where_it_ended(counting: Counting) -> None:
    one, other = merger(counting), merger(counting)
    for number in range(20):
        await counting.put(FOLDER, number, b"x")
        (one, other)[number % 2].arrived(FOLDER, number, [1], ended=False)
    one.arrived(FOLDER, 20, [0], ended=True)
    assert (await one.run_once(), await other.run_once()) == (19, 0)
    assert await counting.objects(FOLDER) == [Stored(0, 20, merged=True)]


async def test_a_log_that_lost_its_worker_is_merged_when_it_has_been_quiet(counting: Counting) -> None:
    clock = ManualClock(datetime(2026, 11, 15, tzinfo=UTC))
    keeps_small = LogMerger(counting, clock)
    await arrive(keeps_small, counting, [1] * 20)
    keeps_small.arrived("1/other/1-1", 0, [1], ended=False)
    clock.advance(QUIET - 1)
    assert (await keeps_small.run_once(), keeps_small.logs) == (0, 2)
    clock.advance(QUIET / 10)
    assert (await keeps_small.run_once(), keeps_small.logs) == (19, 0)


async def test_a_log_store_that_is_away_is_tried_again(tmp_path: Path) -> None:
    files = open_log_files(tmp_path / "logs")
    keeps_small = merger(files)
    await arrive(keeps_small, files, [1] * 20, ended=True)
    (tmp_path / "logs").rename(tmp_path / "away")
    (tmp_path / "logs").write_text("a file where the folder should be")
    with pytest.raises(Unavailable):
        await keeps_small.run_once()
    (tmp_path / "logs").unlink()
    (tmp_path / "away").rename(tmp_path / "logs")
    assert await keeps_small.run_once() == 19
    assert keeps_small.logs == 0


async def test_two_servers_that_merge_at_once_in_a_folder_agree(tmp_path: Path) -> None:
    files, output = [open_log_files(tmp_path) for _ in range(3)], output_of(400 * LINE)
    await put_chunks(files[0], output, [LINE] * 400)
    reading = [read(files[2], start, len(output)) for start in (0, LINE, 3, 199 * LINE)]
    merging = [merger(one).merge(FOLDER, len(output), ended=True) for one in files[:2]]
    found = await asyncio.gather(*merging, *reading)
    assert found[2:] == [output, output[LINE:], output[3:], output[199 * LINE :]]
    assert await files[0].objects(FOLDER) == [Stored(0, len(output), merged=True)]


async def test_s3_merges_and_reads_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_peer() as (url, objects):
        for name, value in (("ENDPOINT_URL", url), ("ALLOW_HTTP", "true"), ("REGION", "eu-central-1")):
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
        files, output = open_log_files(f"s3://{BUCKET}/logs"), output_of(100 * LINE)
        await put_chunks(files, output, [LINE] * 100)
        assert len(objects) == 100
        await merger(files).merge(FOLDER, len(output), ended=True)
        assert list(objects) == [f"logs/{FOLDER}/000000000000000-000000000005000"]
        assert await read(files, 0, len(output)) == output
        assert await read(files, 1234, 4321) == output[1234:4321]
        assert [piece async for piece in LogBytes(files).read(FOLDER, 10, 10)] == []
