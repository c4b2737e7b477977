"""Makes blocks of the chunks of output, behind the writes. One server at a time does so, under an advisory lock.

A block has all chunks of a time, and says what words they have (domain/log_blocks.py). It is made when they are many,
or their day is over. Before the horizon no transaction adds any more. Those after the last block are searched one by
one. A block that a killed server has not committed is made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from mainspring.domain.log_blocks import BlockWords
from mainspring.kernel.clock import Clock
from mainspring.kernel.logs import get_logger
from mainspring.kernel.time_slices import TimeSlices
from mainspring.store import log_blocks
from mainspring.store.log_blocks import ChunkWords, NewBlock
from mainspring.store.pool import Connection, Store

log = get_logger("log_blocks")

_CHUNKS, _WORDS = 1000, 150_000  # a block has so many chunks, or so many words
_MOST_READ = 2  # blocks, at once
_MOST_KNOWN = 50_000  # chunks that were stored at the same time: of more, the words are not read
_LEAST = timedelta(milliseconds=1)
_DAY = timedelta(days=1)
_TURN = 5.0  # seconds of blocks in a row, when it has to catch up


class LogBlockMaker:
    name = "log_block_maker"
    interval = 5.0

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._length = _DAY  # of the time of the last blocks

    async def run_once(self) -> int:
        """Make blocks until the horizon, or for a few seconds. Returns how many were made."""
        began, made = self._clock.monotonic(), 0
        while done := await self.make():
            made += done
            if self._clock.monotonic() - began > _TURN:
                break
        return made

    async def make(self) -> int:
        """Make the blocks of a time. Return how many: none if there are too few chunks, or another server has made
        them. They are computed outside of the transaction, which a busy machine would not end in time."""
        async with self._store.reads.acquire() as connection:
            async with connection.transaction():
                if not await log_blocks.lock(connection):
                    return 0
                now, horizon = await log_blocks.horizon(connection)
                begin = await _start(connection, now)
            if horizon is None or begin is None:
                return 0
            blocks = await self._next_blocks(connection, begin, horizon)
            if not blocks:
                return 0
            async with connection.transaction():
                if not await log_blocks.lock(connection) or await _start(connection, now) != begin:
                    return 0
                for block in blocks:
                    if await log_blocks.add(connection, block) != len(block.words):
                        raise RuntimeError("a block of output was not added as a whole")
        return len(blocks)

    async def _next_blocks(self, connection: Connection, start: datetime, horizon: datetime) -> list[NewBlock]:
        while start < horizon:
            midnight = _day_of(start) + _DAY
            blocks = await self._blocks(connection, start, min(horizon, midnight), whole=midnight <= horizon)
            if blocks or midnight > horizon:
                return blocks
            start = midnight
        return []

    async def _blocks(self, connection: Connection, start: datetime, end: datetime, *, whole: bool) -> list[NewBlock]:
        """The blocks from `start` on, at most until `end`. `whole`: however few chunks there are."""
        until, too_early, too_late = min(end, start + self._length), start, None
        while True:
            chunks, words = await log_blocks.amount(connection, start, until)
            enough = chunks >= _CHUNKS or words >= _WORDS
            if chunks > _MOST_READ * _CHUNKS or words > _MOST_READ * _WORDS:
                too_late = until
            elif enough or until == end:
                break
            else:
                too_early = until
            if too_late is None:
                until = min(end, start + 4 * (until - start))
            elif too_late - too_early > _LEAST:
                until = too_early + (too_late - too_early) / 2
            elif until == too_late:
                break
            else:
                until = too_late
        self._length = max(_LEAST, until - start)
        if not chunks or not (enough or whole):
            return []
        if chunks > _MOST_KNOWN:
            return [NewBlock(start, until, UUID(int=0), chunks, unknown=True, words=BlockWords().rows())]
        return await _divided(await log_blocks.words_between(connection, start, until), until, whole=whole)


async def _start(connection: Connection, now: datetime) -> datetime | None:
    """Where the next block begins."""
    span = await log_blocks.span(connection)
    if span is None:
        return await log_blocks.first_day(connection)
    if now < span.end:
        log.warning("the clock has been set back; the blocks of output of the day are made again")
        await log_blocks.forget_since(connection, _day_of(now))
        span = await log_blocks.span(connection)
        return await log_blocks.first_day(connection) if span is None else span.end
    return span.end


async def _divided(chunks: Sequence[ChunkWords], until: datetime, *, whole: bool) -> list[NewBlock]:
    """Blocks of these chunks, which are in the order of their times. The last ones are left for later, unless they are
    many or the `whole` time is wanted."""
    blocks, first, slices = list[NewBlock](), 0, TimeSlices()
    words, unknown, seen = BlockWords(), False, 0
    for place, chunk in enumerate(chunks):
        full = place - first >= _CHUNKS or seen >= _WORDS
        if full and chunk.stored_at > chunks[place - 1].stored_at:
            blocks.append(_block(chunks[first:place], chunk.stored_at, words, unknown=unknown))
            first, words, unknown, seen = place, BlockWords(), False, 0
        if chunk.words is None:
            unknown = True
        else:
            words.add(chunk.words)
            seen += len(chunk.words) // 3
        if slices.over:
            await slices.pause()
    if whole or not blocks or len(chunks) - first >= _CHUNKS or seen >= _WORDS:
        blocks.append(_block(chunks[first:], until, words, unknown=unknown))
    return blocks


def _block(chunks: Sequence[ChunkWords], until: datetime, words: BlockWords, *, unknown: bool) -> NewBlock:
    first_run = min(chunk.run_id for chunk in chunks)
    return NewBlock(chunks[0].stored_at, until, first_run, len(chunks), unknown, words.rows())


def _day_of(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
