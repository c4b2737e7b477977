"""Submit: clients post jobs one by one over open connections. Measures jobs per second and response times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import count

import msgspec
import uvloop
from rich.progress import Progress, TaskID

from mainspring.bench.arena import Arena, fresh_postgres, product
from mainspring.bench.ceiling import measure_one_by_one
from mainspring.bench.figures import percentile, progress, show
from mainspring.bench.recorded import check_one_run_each, until_recorded
from mainspring.bench.throughput import payload
from mainspring.kernel.garbage_collection import freeze_garbage_collection
from mainspring.kernel.http_client import HttpConnection, HttpServer
from mainspring.wire.jobs import JobCreated

CLIENTS = 16
SECONDS = 10.0
CEILING_JOBS = 10_000

_decode = msgspec.json.Decoder(JobCreated).decode


def main(jobs: int | None, as_json: bool) -> int:
    show("submit one by one", uvloop.run(run(jobs)), as_json)
    return 0


async def run(jobs: int | None, *, ceiling_jobs: int = CEILING_JOBS) -> dict[str, object]:
    """Submit `jobs` jobs, or as many as possible in ten seconds."""
    with progress() as bar:
        async with fresh_postgres() as (postgres, folder):
            stage = bar.add_task("plain-SQL ceiling", total=1)
            payloads = [payload(number) for number in range(ceiling_jobs)]
            ceiling = await measure_one_by_one(postgres, payloads, CLIENTS)
            bar.advance(stage)
            async with product(postgres, folder) as arena:
                answers = await drive(arena, jobs, bar)
    milliseconds = [answer.seconds * 1000 for answer in answers.taken]
    rate = len(milliseconds) / answers.elapsed
    return {
        "jobs": len(milliseconds),
        "clients": CLIENTS,
        "seconds": round(answers.elapsed, 3),
        "per_s": round(rate),
        "p50_ms": round(percentile(milliseconds, 0.50), 2),
        "p95_ms": round(percentile(milliseconds, 0.95), 2),
        "p99_ms": round(percentile(milliseconds, 0.99), 2),
        "max_ms": round(max(milliseconds), 2),
        "ceiling_per_s": round(ceiling),
        "ratio": round(rate / ceiling, 3),
    }


class SubmitAnswer(msgspec.Struct):
    job_id: str
    seconds: float


class Answers(msgspec.Struct):
    taken: list[SubmitAnswer]
    elapsed: float = 0.0


async def drive(arena: Arena, jobs: int | None, bar: Progress) -> Answers:
    """Submit from all clients, wait, and check that every accepted job has exactly one ended run."""
    answers = Answers([])
    sending = bar.add_task("submitted", total=jobs)
    server = HttpServer(arena.server_url)
    head = server.post("/v1/jobs", arena.token)
    connections = [await server.connect() for _ in range(CLIENTS)]
    showing = asyncio.create_task(_show(answers, bar, sending))
    freeze_garbage_collection()
    started = time.perf_counter()
    numbers = _numbers(jobs, started + SECONDS)
    try:
        await asyncio.gather(*(_client(connection, head, numbers, answers) for connection in connections))
        answers.elapsed = time.perf_counter() - started
    finally:
        showing.cancel()
        for connection in connections:
            connection.close()
    bar.update(sending, completed=len(answers.taken), total=len(answers.taken))
    recording = bar.add_task("recorded", total=len(answers.taken))
    look = await arena.connect()
    try:
        await until_recorded(look, bar, recording)
        await check_one_run_each(look, [answer.job_id for answer in answers.taken], jobs or len(answers.taken))
    finally:
        await look.close()
    return answers


def _numbers(jobs: int | None, end: float) -> Iterator[int]:
    if jobs is not None:
        yield from range(jobs)
        return
    for number in count():
        if time.perf_counter() >= end:
            return
        yield number


async def _client(connection: HttpConnection, head: bytes, numbers: Iterator[int], answers: Answers) -> None:
    for number in numbers:
        body = f'{{"task":"bench.noop","payload":{payload(number)}}}'.encode()
        sent = time.perf_counter()
        status, answer = await connection.ask(head, body)
        seconds = time.perf_counter() - sent
        if status != 201:
            raise AssertionError(f"job {number} was answered {status}: {answer[:200].decode('utf-8', 'replace')}")
        answers.taken.append(SubmitAnswer(_decode(answer).job_id, seconds))


async def _show(answers: Answers, bar: Progress, task: TaskID) -> None:
    while True:
        await asyncio.sleep(0.5)
        bar.update(task, completed=len(answers.taken))
