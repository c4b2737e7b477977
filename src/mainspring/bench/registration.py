"""Registers many jobs with schedules through jobs:batch, and says how long that took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import httpx
import msgspec
from rich.progress import Progress, TaskID

from mainspring.bench.arena import Arena, submit_batch

BATCH = 1000
SENDERS = 2
_SLICE = 100_000  # bodies that are prepared at once

Request = Callable[[int], dict[str, object]]


class Registered(msgspec.Struct):
    job_ids: list[str]
    seconds: float

    @property
    def seconds_each(self) -> float:
        return self.seconds / max(1, len(self.job_ids))


async def register(arena: Arena, jobs: int, request: Request, bar: Progress, task: TaskID) -> Registered:
    """Create `jobs` jobs, each with the request that `request` returns for its number. The time in which the requests
    are prepared does not count."""
    job_ids: list[str] = []
    seconds = 0.0
    async with httpx.AsyncClient(headers=arena.headers, timeout=60) as client:
        for first in range(0, jobs, _SLICE):
            numbers = range(first, min(first + _SLICE, jobs))
            bodies = iter([_body(numbers[start : start + BATCH], request) for start in range(0, len(numbers), BATCH)])
            started = time.perf_counter()
            await asyncio.gather(*(_send(arena, client, bodies, job_ids, bar, task) for _ in range(SENDERS)))
            seconds += time.perf_counter() - started
    if len(set(job_ids)) != jobs:
        raise AssertionError(f"{jobs} jobs were sent and {len(set(job_ids))} accepted")
    return Registered(job_ids, seconds)


def later_in_the_week(today: datetime, number: int) -> str:
    """A cron line with a round time on a day that is neither today nor tomorrow. There are 864 of them: people write
    the same few lines over and over."""
    hour, minute = divmod(number * 5 % 1440, 60)
    weekday = (today + timedelta(days=3 + number // 288 % 3)).isoweekday()
    return f"{minute} {hour} * * {weekday % 7}"


def daily_at(moment: datetime) -> str:
    return f"{moment.second} {moment.minute} {moment.hour} * * *"


def second_ahead(seconds: float) -> datetime:
    return (datetime.now(UTC) + timedelta(seconds=seconds + 1)).replace(microsecond=0)


def check_in_time(moment: datetime) -> None:
    if datetime.now(UTC) >= moment:
        raise AssertionError("the chosen second came before all jobs were registered; run the benchmark again")


def _body(numbers: Sequence[int], request: Request) -> bytes:
    return msgspec.json.encode([request(number) for number in numbers])


async def _send(
    arena: Arena, client: httpx.AsyncClient, bodies: Iterator[bytes], job_ids: list[str], bar: Progress, task: TaskID
) -> None:
    for body in bodies:
        taken = await submit_batch(client, arena.server_url, body)
        job_ids.extend(taken)
        bar.advance(task, len(taken))
