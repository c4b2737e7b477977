"""Folds what has ended into rollups. One server at a time does so, under an advisory lock.

A round adds what ended since the watermark and before the horizon, and moves the watermark in the same transaction. So
a round that a killed server has not committed is made again, and nothing is counted twice. Before the horizon no
transaction adds anything any more.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import asyncpg
import msgspec

from mainspring.domain.fingerprints import fingerprint, masked
from mainspring.domain.rollups import KEPT, MOST_GROUPS, OTHER_GROUP, SAMPLE_JOBS, Span, floor_to
from mainspring.kernel.clock import Clock
from mainspring.kernel.logs import get_logger
from mainspring.kernel.time_slices import TimeSlices
from mainspring.store import failure_groups, rollups
from mainspring.store.failure_groups import FailureSeen, NewFailures
from mainspring.store.pool import Connection, Store

log = get_logger("rollups")

_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_EMPTY = (_DAY, _HOUR)  # periods that are checked as a whole when the rollups are far behind
_WORTH = timedelta(seconds=1)  # less than this is not worth a round: another server has just made one
_REST, _LONGEST_REST = 2.0, 20.0
_LOAD = 40  # rests so many times as long as it worked
_decode_seen = msgspec.json.Decoder(list[FailureSeen]).decode
_TURN = 5.0  # seconds of rounds in a row, when it has to catch up


class RollupKeeper:
    name = "rollup_keeper"

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.interval = _REST
        self._slice = _HOUR
        self._busy = False  # something ended in the last round, so the next minute is read without a check

    async def run_once(self) -> int:
        """Fold until the horizon, or for a few seconds. Returns how many runs and attempts were read."""
        began, read = self._clock.monotonic(), 0
        while (done := await self._roll_up_less_if_slow()) is not None:
            read += done
            if self._clock.monotonic() - began > _TURN:
                self.interval = _REST  # it is far behind
                return read
        self.interval = min(_LONGEST_REST, max(_REST, _LOAD * (self._clock.monotonic() - began)))
        return read

    async def _roll_up_less_if_slow(self) -> int | None:
        try:
            return await self.roll_up()
        except asyncpg.QueryCanceledError:
            self._slice = _MINUTE  # an hour with tens of millions of runs takes longer than a statement may
            raise

    async def roll_up(self) -> int | None:
        """Make the rollups of one period: at most a minute, or an hour if its minutes are too old to be kept. Return
        None if there is nothing to do, or another server does it."""
        async with self._store.reads.acquire() as connection:
            now, horizon = await rollups.horizon(connection)
            if horizon is None:
                return None
            async with connection.transaction():
                if not await rollups.lock(connection):
                    return None
                start = await rollups.begin_watermark(connection)
                if now < start:
                    return await self._start_again(connection, start, now)
                if horizon - start < _WORTH:
                    return None
                read, end = 0, None if self._busy else await _after_nothing(connection, start, horizon)
                if end is None:
                    length = self._slice if start < now - KEPT[Span.MINUTE] - _HOUR else _MINUTE
                    end = min(floor_to(start, length) + length, horizon)
                    read = await self._add(connection, start, end, now)
                self._busy = read > 0
                if not await rollups.move_watermark(connection, start, end):
                    raise RuntimeError("the watermark of the rollups has moved under the lock")
        return read

    async def _add(self, connection: Connection, start: datetime, end: datetime, now: datetime) -> int:
        minute = floor_to(start, _MINUTE)
        done = await rollups.roll_up(connection, start, end, minute, now)
        seen = [] if done.attempts_text is None else _decode_seen(done.attempts_text)
        if done.failed:
            seen += await failure_groups.failed_runs(connection, start, end)
        if groups := await self._grouped(connection, seen, minute):
            await failure_groups.add(connection, minute, groups)
        if end == floor_to(end, _MINUTE):
            await rollups.close_minute(connection, minute)
        return done.read

    async def _grouped(self, connection: Connection, seen: list[FailureSeen], minute: datetime) -> list[NewFailures]:
        """The failures by fingerprint. When a tenant has too many groups in an hour, the rest is one group."""
        if not seen:
            return []
        known = await failure_groups.known(connection, minute.replace(minute=0))
        sizes: dict[int, int] = {}
        for tenant, name in known:
            sizes[tenant] = sizes.get(tenant, 0) + (name != OTHER_GROUP)
        groups: dict[tuple[int, str, str], NewFailures] = {}
        slices = TimeSlices()
        for failure in seen:
            if slices.over:
                await slices.pause()
            tenant, task, title = failure.tenant_id, failure.task, masked(failure.line)
            name = fingerprint(task, title)
            if (tenant, name) not in known:
                if sizes.get(tenant, 0) >= MOST_GROUPS:
                    task, name, title = "", OTHER_GROUP, "other errors"
                else:
                    known.add((tenant, name))
                    sizes[tenant] = sizes.get(tenant, 0) + 1
            _put(groups, (tenant, name, failure.queue), failure, task, title)
        return list(groups.values())

    async def _start_again(self, connection: Connection, start: datetime, now: datetime) -> int:
        """The clock has been set back: rows are added behind the watermark. The rollups of the day are made again."""
        day = floor_to(now, _DAY)
        await rollups.forget_since(connection, day)
        if not await rollups.move_watermark(connection, start, day):
            raise RuntimeError("the watermark of the rollups has moved under the lock")
        log.warning("the clock has been set back; the rollups of the day are made again", day=str(day.date()))
        return 0


async def _after_nothing(connection: Connection, start: datetime, horizon: datetime) -> datetime | None:
    """The end of the day or hour, if the rollups are far behind and nothing ended in the rest of it."""
    if horizon - start < 2 * _MINUTE or start != floor_to(start, _MINUTE):
        return None
    for length in _EMPTY:
        end = min(floor_to(start, length) + length, floor_to(horizon, _MINUTE))
        if end > start and not await rollups.something_ended(connection, start, end):
            return end
    return None


def _put(
    groups: dict[tuple[int, str, str], NewFailures],
    key: tuple[int, str, str],
    failure: FailureSeen,
    task: str,
    title: str,
) -> None:
    job_ids = set(failure.job_ids)
    group = groups.get(key)
    if group is None:
        tenant, name, queue = key
        groups[key] = NewFailures(
            tenant, name, queue, task, title, failure.count, failure.failed, failure.first_at, failure.last_at,
            failure.sample_run, job_ids,
        )  # fmt: skip
        return
    group.count += failure.count
    group.failed += failure.failed
    group.first_at = min(group.first_at, failure.first_at)
    if failure.last_at > group.last_at:
        group.last_at, group.sample_run = failure.last_at, failure.sample_run
    if len(group.job_ids) < SAMPLE_JOBS:
        group.job_ids |= job_ids
