"""stdout and stderr of a command: both arrive completely, and in the order in which they were written."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.worker.output import two_streams
from mainspring.worker.output.two_streams import TwoStreams

from .sinks import KeptLog
from .test_shell_executor import an_executor, shell, the_ending

WIDE = 65536


@pytest.fixture(autouse=True)
def a_patient_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for a moment does not change what these tests see."""
    monkeypatch.setattr(two_streams, "_MOST_HELD", 3600.0)
    monkeypatch.setattr(two_streams, "_PAUSE", 3600.0)


class Reading:
    def __init__(self) -> None:
        self.chunks: list[tuple[bytes, bool]] = []
        self.streams = TwoStreams(lambda chunk, is_error: self.chunks.append((chunk, is_error)), lambda: None)

    def capacity(self) -> int:
        return fcntl.fcntl(self.streams.writers[0], fcntl.F_GETPIPE_SZ)

    async def write(self, *writes: tuple[int, bytes]) -> None:
        """As a command does: one blocking write after the other, in a thread."""

        def run() -> None:
            for stream, data in writes:
                assert os.write(self.streams.writers[stream], data) == len(data)

        await asyncio.to_thread(run)
        self.streams.read_rest(1 << 30)


@asynccontextmanager
async def reading() -> AsyncIterator[Reading]:
    reading = Reading()
    try:
        yield reading
    finally:
        reading.streams.close()


small_writes = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 4095).map(lambda size: bytes([size % 251]) * size)), max_size=31
)


@settings(max_examples=40, deadline=None)
@given(writes=small_writes)
def test_writes_arrive_one_by_one_in_their_order(writes: list[tuple[int, bytes]]) -> None:
    async def run() -> None:
        async with reading() as read:
            await read.write(*writes)
            assert read.chunks == [(data, stream == 1) for stream, data in writes]

    uvloop.run(run())


def test_a_large_write_arrives_completely_and_makes_the_pipes_wide_until_small_ones_follow() -> None:
    async def run() -> None:
        async with reading() as read:
            data = os.urandom(3_000_000)
            await read.write((0, data))
            assert b"".join(chunk for chunk, _ in read.chunks) == data
            assert read.capacity() == WIDE
            await read.write((1, b"oops"))
            assert (read.chunks[-1], read.capacity()) == ((b"oops", True), 4096)

    uvloop.run(run())


def test_many_writes_to_one_stream_make_the_pipes_wide() -> None:
    async def run() -> None:
        async with reading() as read:
            await read.write(*[(0, b"line\n")] * 1000)
            assert (read.capacity(), sum(len(chunk) for chunk, _ in read.chunks)) == (WIDE, 5000)

    uvloop.run(run())


def test_a_command_that_was_held_up_too_long_gets_wide_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_streams, "_MOST_HELD", 0.0)

    async def run() -> None:
        async with reading() as read:
            await read.write((0, b"a"), (1, b"b"))
            assert read.capacity() == WIDE

    uvloop.run(run())


def test_a_command_that_does_not_wait_for_room_gets_wide_pipes() -> None:
    async def run() -> None:
        async with reading() as read:
            os.set_blocking(read.streams.writers[1], False)
            await read.write((1, b"a"))
            assert read.capacity() == WIDE
            await read.write((0, b"a"))
            assert read.capacity() == WIDE, "the other stream is the same terminal to the command"

    uvloop.run(run())


def test_alternating_lines_of_a_command_are_in_order_in_its_log() -> None:
    async def run() -> None:
        log = KeptLog()
        async with an_executor(log.open) as executor:
            await the_ending(executor, shell("for i in $(seq 1000); do echo $i out; echo $i err >&2; done"))
        lines = [f"{number} {stream}" for number in range(1, 1001) for stream in ("out", "err")]
        assert log.data.decode().splitlines() == lines

    uvloop.run(run())


def test_lines_are_whole_when_the_pipes_are_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        two_streams, "_LINE_WAITS", 3600.0
    )  # a command that stands still would end a line in its middle
    program = (
        'for i in $(seq 60); do printf %5000s; echo; for j in 1 2 3 4 5 6; do printf o; printf "%s\\n" ut; '
        'printf e >&2; printf "%s\\n" rr >&2; done; done'
    )

    async def run() -> None:
        log = KeptLog()
        async with an_executor(log.open) as executor:
            await the_ending(executor, shell(program))
        lines = log.data.decode().splitlines()
        assert sorted(set(lines)) == [" " * 5000, "err", "out"]
        assert (lines.count("out"), lines.count("err")) == (360, 360)

    uvloop.run(run())


def test_the_beginning_of_a_line_does_not_wait_for_its_end() -> None:
    async def run() -> None:
        async with reading() as read:
            os.set_blocking(read.streams.writers[0], False)
            await read.write((0, b"a\n"))
            os.write(read.streams.writers[0], b"50 %")
            await asyncio.sleep(0.3)
            assert read.chunks == [(b"a\n", False), (b"50 %", False)]

    uvloop.run(run())
