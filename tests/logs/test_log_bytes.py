"""A log is read from any mix of chunks and merged objects. An object that was removed is found in a merged one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from mainspring.operations.logs.log_bytes import LogBytes, cover
from mainspring.store.log_files import LogFiles, Stored
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio

FOLDER = "1/a-run/1-1"
MIB = 1024 * 1024


class Counting(LogFiles):
    """Counts the calls, and how many run at the same time."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), "memory")
        self.asked: list[str] = []
        self.under_way = self.most = 0

    async def get(self, folder: str, offset: int) -> bytes | None:
        self.asked.append(f"get {offset}")
        return await super().get(folder, offset)

    async def objects(self, folder: str) -> list[Stored]:
        self.asked.append("list")
        return await super().objects(folder)

    async def read(self, folder: str, stored: Stored, start: int, stop: int) -> bytes | None:
        self.asked.append(f"read {start}")
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return await super().read(folder, stored, start, stop)
        finally:
            self.under_way -= 1


async def read(files: LogFiles, start: int, end: int) -> bytes:
    position, found = start, []
    async for piece in LogBytes(files).read(FOLDER, start, end):
        assert piece.end > position
        position = piece.end
        found.append(piece.data)
    return b"".join(found)


objects_of_a_log = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 40), st.booleans()).map(lambda parts: Stored(*parts)), max_size=12
)


@given(objects_of_a_log, st.integers(0, 70), st.integers(0, 70))
def test_any_mix_of_objects_gives_the_bytes_up_to_the_first_that_none_holds(
    objects: Sequence[Stored], start: int, end: int
) -> None:
    output = bytes(range(128))
    latest = {stored.name: stored for stored in objects}  # a chunk that is sent again is the same object
    held = {byte for stored in latest.values() for byte in range(stored.offset, stored.end)}
    reached = next((byte for byte in range(start, end) if byte not in held), max(start, end))

    async def play() -> bytes:
        files = LogFiles.in_memory()
        for stored in latest.values():
            data = output[stored.offset : stored.end]
            await (files.put_merged if stored.merged else files.put)(FOLDER, stored.offset, data)
        return await read(files, start, end)

    expected = output[start:reached]
    if reached < end:
        expected += f"\n[mainspring: {end - reached} bytes of output are missing from the log store]\n".encode()
    assert asyncio.run(play()) == expected


@given(objects_of_a_log, st.integers(0, 70), st.integers(0, 70))
def test_no_object_is_read_in_vain(objects: Sequence[Stored], start: int, end: int) -> None:
    spans = cover(sorted(set(objects)), start, end)
    position = start
    for index, span in enumerate(spans):
        assert span.start == position
        assert span.stored.offset <= span.start < span.stop <= span.stored.end
        if index >= 2:
            assert span.stored.offset > spans[index - 2].stop, "otherwise the one before was not needed"
        position = span.stop


async def test_a_log_of_one_chunk_is_one_read_and_so_is_what_came_last() -> None:
    files = Counting()
    await files.put(FOLDER, 0, b"all of it\n")
    assert await read(files, 0, 10) == b"all of it\n"
    assert files.asked == ["get 0"]
    await files.put(FOLDER, 10, b"more\n")
    files.asked.clear()
    assert await read(files, 10, 15) == b"more\n"
    assert files.asked == ["get 10"]


async def test_many_chunks_are_listed_once_and_read_ahead() -> None:
    files = Counting()
    for number in range(200):
        await files.put(FOLDER, number * 4, b"%03d\n" % number)
    assert (await read(files, 0, 800)).split() == [b"%03d" % number for number in range(200)]
    assert files.asked.count("list") == 1
    assert sum(asked.startswith("read") for asked in files.asked) == 198
    assert files.most == 16


async def test_a_large_object_is_read_a_part_at_a_time_and_not_far_ahead_of_a_slow_reader() -> None:
    files = Counting()
    data = bytes(range(256)) * 4 * 4096
    await files.put_merged(FOLDER, 0, data)
    await files.put_merged(FOLDER, len(data), data)
    reading = LogBytes(files).read(FOLDER, 0, 2 * len(data))
    first = await anext(reading)
    assert len(first.data) == MIB
    await until(lambda: files.under_way == 0)
    assert files.asked == ["get 0", "list", "read 0", f"read {MIB}"]
    rest = [piece.data async for piece in reading]
    assert first.data + b"".join(rest) == data + data
    assert len(rest) == 7


async def test_a_reader_who_leaves_leaves_no_reads_behind() -> None:
    files = Counting()
    for number in range(50):
        await files.put(FOLDER, number, b"x")
    before = asyncio.all_tasks()
    reading = LogBytes(files).read(FOLDER, 0, 50)
    for _ in range(5):
        await anext(reading)
    assert asyncio.all_tasks() > before
    await reading.aclose()  # type: ignore[attr-defined]
    assert asyncio.all_tasks() == before
    assert files.under_way == 0
