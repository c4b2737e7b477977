"""Blocks of chunks of output, which say together what words they have: how they are made, and which of them a search
reads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from mainspring.domain.log_blocks import split
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("log_blocks")
_LATEST_COMMIT = timedelta(seconds=1)


class BlockSpan(NamedTuple):
    """Chunks that were stored from `start` on and before `end` are in blocks."""

    start: datetime
    end: datetime


class Block(msgspec.Struct, frozen=True):
    stored_from: datetime
    stored_to: datetime
    chunks: int


class ChunkWords(msgspec.Struct, frozen=True):
    """The words of a chunk; None if it may contain any."""

    stored_at: datetime
    run_id: UUID
    words: bytes | None


class NewBlock(NamedTuple):
    """`words`: see BlockWords.rows. `unknown`: some chunk may contain any word."""

    stored_from: datetime
    stored_to: datetime
    first_run: UUID
    chunks: int
    unknown: bool
    words: list[bytes]


class _Writers(msgspec.Struct, frozen=True):
    since: datetime | None
    hidden: bool


class _Amount(msgspec.Struct, frozen=True):
    chunks: int
    words: int


_writers_since = RowQuery(_Writers, _SQL["log_writers_since"])
_amount = RowQuery(_Amount, _SQL["chunks_between"])
_words = RowQuery(ChunkWords, _SQL["words_between"])
_blocks = RowQuery(Block, _SQL["blocks_with_words"])


async def horizon(connection: Connection) -> tuple[datetime, datetime | None]:
    """The time, and one before which no output is added any more, if that can be known. A later statement sees
    everything before it."""
    now: datetime = await connection.fetchval("select (select clock_timestamp())")
    [writers] = await _writers_since.fetch(connection)
    if writers.hidden:
        return now, None
    latest = now - _LATEST_COMMIT
    return now, latest if writers.since is None else min(latest, writers.since)


async def lock(connection: Connection) -> bool:
    """Whether this transaction may make blocks. No other transaction may until it ends."""
    locked: bool = await connection.fetchval(_SQL["log_blocks_lock"])
    return locked


async def span(connection: Connection) -> BlockSpan | None:
    """None if there are no blocks."""
    start, end = await connection.fetchrow(_SQL["log_blocks_span"])
    return None if start is None else BlockSpan(start, end)


async def first_day(connection: Connection) -> datetime | None:
    """The beginning of the first day of which there can be blocks."""
    day: datetime | None = await connection.fetchval(_SQL["first_indexed_day"])
    return day


async def amount(connection: Connection, start: datetime, end: datetime) -> tuple[int, int]:
    """How many chunks were stored in this time, and how many words they have."""
    [found] = await _amount.fetch(connection, start, end)
    return found.chunks, found.words


async def words_between(connection: Connection, start: datetime, end: datetime) -> list[ChunkWords]:
    return await _words.fetch(connection, start, end)


async def add(connection: Connection, block: NewBlock) -> int:
    """Return how many rows were added."""
    done: str = await connection.execute(_SQL["add_block"], *block)
    return int(done.split()[-1])


async def forget_since(connection: Connection, moment: datetime) -> None:
    await connection.execute(_SQL["forget_blocks_since"], moment)


async def with_words(
    connection: Connection, words: Sequence[bytes], times: tuple[datetime, datetime], before: UUID | None
) -> list[Block]:
    """The blocks that may have a chunk with all of these words."""
    rows = [split(word) for word in words]
    return await _blocks.fetch(
        connection, [first for first, _ in rows], [rest for _, rest in rows], *times, before
    )  # fmt: skip


async def something_stored(connection: Connection, start: datetime, end: datetime) -> bool:
    found: bool = await connection.fetchval(_SQL["stored_before"], start, end)
    return found
