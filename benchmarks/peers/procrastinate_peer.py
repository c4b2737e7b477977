"""Procrastinate: batch_defer, asynchronous tasks, LISTEN/NOTIFY, jobs deleted when they succeed.

https://procrastinate.readthedocs.io/en/stable/howto/advanced/batch_defer.html and .../howto/basics/command_line.html
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import procrastinate
from common import Recorder, drive

CONCURRENCY = 100
app = procrastinate.App(connector=procrastinate.PsycopgConnector(min_size=4, max_size=16))
recorder: Recorder | None = None


@app.task(name="note")
async def note(sent: float) -> None:
    assert recorder is not None
    recorder.note(sent)


class Procrastinate:
    async def open(self) -> None:
        await app.open_async()

    async def send_many(self, sent: Sequence[float]) -> None:
        await note.batch_defer_async(*({"sent": each} for each in sent))

    async def send(self, sent: float) -> None:
        await note.defer_async(sent=sent)

    async def send_for(self, due: float) -> None:
        await note.configure(schedule_at=datetime.fromtimestamp(due, UTC)).defer_async(sent=due)

    async def close(self) -> None:
        await app.close_async()


async def setup() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def work() -> None:
    global recorder
    recorder = Recorder()
    async with app.open_async():
        await app.run_worker_async(concurrency=CONCURRENCY, delete_jobs="successful", fetch_job_polling_interval=1.0)


if __name__ == "__main__":
    drive(Procrastinate(), setup=setup, work=work)
