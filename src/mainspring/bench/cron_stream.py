"""Cron jobs that fire every second, and a check that no fire was lost or happened twice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import asyncpg
import httpx
import msgspec

from mainspring.bench.arena import until

JOBS = 64
_SECOND = timedelta(seconds=1)


class CronStream:
    """`fired`: how many fires were found, runs and recorded misses."""

    def __init__(self, url: str, headers: dict[str, str], jobs: int = JOBS) -> None:
        self._client = httpx.AsyncClient(base_url=url, headers=headers, timeout=30)
        self._jobs = jobs
        self._job_ids: list[str] = []
        self.fired = 0

    async def start(self) -> None:
        body = [{"task": "bench.noop", "schedule": "* * * * * *", "overlap": "allow"}] * self._jobs
        answer = await self._client.post("/v1/jobs:batch", content=msgspec.json.encode(body))
        answer.raise_for_status()
        self._job_ids = answer.json()["job_ids"]

    async def wait_for_fires(self, connection: asyncpg.Connection) -> None:
        """Wait until every job has fired for a second that begins after this call."""
        now = await connection.fetchval("select clock_timestamp()")

        async def all_fired() -> bool:
            return bool(
                await connection.fetchval(
                    "select bool_and(coalesce(last_fired_for > $2, false)) from mainspring.jobs "
                    "where job_id = any ($1)",
                    self._job_ids,
                    now,
                )
            )

        await until(all_fired, "every cron job has fired")

    async def stop(self, connection: asyncpg.Connection) -> None:
        """Pause all jobs, wait until their runs have ended, and check that no fire was lost or happened twice."""
        await self.pause()

        async def all_ended() -> bool:
            return not await connection.fetchval(
                "select exists (select from mainspring.runs where job_id = any ($1))", self._job_ids
            )

        await until(all_ended, "the runs of the cron jobs have ended")
        await check_seconds(connection, self._job_ids)

    async def pause(self) -> None:
        for job_id in self._job_ids:
            (await self._client.post(f"/v1/jobs/{job_id}:pause")).raise_for_status()
        await self._client.aclose()

    async def faults(self, connection: asyncpg.Connection) -> tuple[int, int]:
        """How many fires happened twice, and how many are neither a run nor recorded as missed. All runs have
        ended."""
        found = await _seconds(connection, self._job_ids)
        self.fired = sum(map(len, found.values()))
        doubled = sum(len(moments) - len(set(moments)) for moments in found.values())
        return doubled, sum(_gaps(moments) for moments in found.values())


async def check_seconds(connection: asyncpg.Connection, job_ids: Sequence[str]) -> None:
    """Check that the runs and the recorded misses of each job cover consecutive seconds, each once."""
    for job_id, moments in (await _seconds(connection, job_ids)).items():
        if not moments or len(moments) != len(set(moments)) or _gaps(moments):
            raise AssertionError(f"job {job_id}: a fire was lost or happened twice, out of {len(moments)}")


async def _seconds(connection: asyncpg.Connection, job_ids: Sequence[str]) -> dict[str, list[datetime]]:
    """Of each job, the times of its runs and of its recorded misses."""
    seconds: dict[str, list[datetime]] = {job_id: [] for job_id in job_ids}
    for row in await connection.fetch(
        "select job_id, scheduled_for from mainspring.run_history where job_id = any ($1)", job_ids
    ):
        seconds[row["job_id"]].append(row["scheduled_for"])
    for row in await connection.fetch(
        "select job_id, first_at, count from mainspring.missed_fires where job_id = any ($1)", job_ids
    ):
        seconds[row["job_id"]] += [row["first_at"] + number * _SECOND for number in range(row["count"])]
    return seconds


def _gaps(moments: Sequence[datetime]) -> int:
    """How many seconds are missing between the first and the last. One if there are none at all."""
    if not moments:
        return 1
    return (max(moments) - min(moments)) // _SECOND + 1 - len(set(moments))
