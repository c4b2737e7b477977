"""PgQueuer: batches of 1,000 in both directions, uvloop, a pool for the driver.

https://pgqueuer.readthedocs.io/en/latest/benchmark/
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

import asyncpg
import uvloop
from common import CLIENTS, Recorder, drive
from pgqueuer import AsyncpgPoolDriver, Job, PgQueuer, Queries

DEQUEUED = 1000


class PgQueuerPeer:
    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(min_size=CLIENTS, max_size=CLIENTS)
        self._queries = Queries(AsyncpgPoolDriver(self._pool))

    async def send_many(self, sent: Sequence[float]) -> None:
        await self._queries.enqueue(["note"] * len(sent), [str(each).encode() for each in sent], [0] * len(sent))

    async def send(self, sent: float) -> None:
        await self._queries.enqueue("note", str(sent).encode())

    async def send_for(self, due: float) -> None:
        await self._queries.enqueue("note", str(due).encode(), execute_after=timedelta(seconds=due - time.time()))

    async def close(self) -> None:
        await self._pool.close()


async def setup() -> None:
    connection = await asyncpg.connect()
    await Queries.from_asyncpg_connection(connection).install()
    await connection.close()


async def work() -> None:
    recorder = Recorder()
    pool = await asyncpg.create_pool(min_size=2, max_size=10)
    queuer = PgQueuer.from_asyncpg_pool(pool)

    @queuer.entrypoint("note")
    async def note(job: Job) -> None:
        assert job.payload is not None
        recorder.note(float(job.payload))

    await queuer.run(batch_size=DEQUEUED, dequeue_timeout=timedelta(seconds=1))


if __name__ == "__main__":
    uvloop.install()
    drive(PgQueuerPeer(), setup=setup, work=work)
