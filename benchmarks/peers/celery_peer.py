"""Celery with Redis: a worker with threads, prefetch of 100, no results, messages not compressed.

https://docs.celeryq.dev/en/stable/userguide/optimizing.html
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime

from celery import Celery
from common import Recorder, drive

app = Celery("peer", broker=os.environ.get("REDIS_URL"))
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=10,
    broker_connection_retry_on_startup=True,
    broker_pool_limit=32,
    task_acks_late=False,
    worker_hijack_root_logger=False,
)
recorder: Recorder | None = None


@app.task(name="note")
def note(sent: float) -> None:
    assert recorder is not None
    recorder.note(sent)


class CeleryPeer:
    """Celery is synchronous: sixteen clients are sixteen threads."""

    async def open(self) -> None:
        self._pool = app.producer_pool.acquire(block=True)

    async def send_many(self, sent: Sequence[float]) -> None:
        def send() -> None:
            for each in sent:
                note.apply_async((each,), producer=self._pool)

        await asyncio.to_thread(send)

    async def send(self, sent: float) -> None:
        await asyncio.to_thread(note.apply_async, (sent,))

    async def send_for(self, due: float) -> None:
        await asyncio.to_thread(note.apply_async, (due,), eta=datetime.fromtimestamp(due, UTC))

    async def close(self) -> None:
        self._pool.release()


async def setup() -> None: ...


async def work() -> None:
    global recorder
    recorder = Recorder()
    arguments = ["worker", "--pool=threads", "--concurrency=10", "--without-gossip", "--without-mingle",
                 "--without-heartbeat", "--loglevel=warning"]  # fmt: skip
    await asyncio.to_thread(app.worker_main, arguments)


if __name__ == "__main__":
    drive(CeleryPeer(), setup=setup, work=work)
