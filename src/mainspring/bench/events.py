"""Events: batches of 100 are emitted at a rate, and each event starts a run of a job. Measures what is taken, how many
runs are started and ended per second, and how late runs are created after their events. CPU times are those of an
event: of its emission, its start, and its run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import asyncpg
import msgspec
import uvloop
from rich.progress import Progress, TaskID

from mainspring.bench.arena import Arena, fresh_postgres, product
from mainspring.bench.figures import percentile, progress, show
from mainspring.bench.recorded import until_recorded
from mainspring.kernel.garbage_collection import freeze_garbage_collection
from mainspring.kernel.http_client import HttpConnection, HttpServer

EVENTS = 50_000
RATE = 5000
BATCH = 100
SENDERS = 4
_JOB = b'{"job_id":"bench","task":"bench.noop","schedule":{"event":"bench.made"},"retries":0}'
_LAGS = """
    select extract(epoch from h.fired_at - e.at)::float8 * 1000 as lag
    from mainspring.events e
    join mainspring.event_starts s on s.tenant_id = e.tenant_id and s.event_id = e.event_id
    join mainspring.run_history h on h.run_id = s.run_id
"""
_LEFT = """
    select exists (select from mainspring.unmatched_events)
        or exists (select from mainspring.event_starts where due_at is not null)
"""
_SPAN = """
    select extract(epoch from max(h.fired_at) - min(e.at))::float8
    from mainspring.run_history h, (select min(at) as at from mainspring.events) e
"""


def main(events: int | None, rate: int, as_json: bool) -> int:
    show("events", uvloop.run(run(events or EVENTS, rate)), as_json)
    return 0


async def run(events: int, rate: int) -> dict[str, object]:
    with progress() as bar:
        async with fresh_postgres() as (postgres, folder), product(postgres, folder) as arena:
            look = await arena.connect()
            try:
                return await _measure(arena, look, events, rate, bar)
            finally:
                await look.close()


async def _measure(arena: Arena, look: asyncpg.Connection, events: int, rate: int, bar: Progress) -> dict[str, object]:
    server = HttpServer(arena.server_url)
    connections = [await server.connect() for _ in range(SENDERS)]
    try:
        status, answer = await connections[0].ask(server.post("/v1/jobs", arena.token), _JOB)
        if status != 201:
            raise AssertionError(f"the job was answered {status}: {answer[:200]!r}")
        freeze_garbage_collection()
        before = arena.cpu_seconds()
        sending = bar.add_task("emitted", total=events)
        started = time.perf_counter()
        batches = iter(range(0, events, BATCH))
        head = server.post("/v1/events:batch", arena.token)
        await asyncio.gather(*(_send(one, head, batches, events, started, rate, (bar, sending)) for one in connections))
        emitted = time.perf_counter() - started
    finally:
        for connection in connections:
            connection.close()
    recording = bar.add_task("recorded", total=events)
    await _until_started(look, events)
    await until_recorded(look, bar, recording)
    ended = time.perf_counter() - started
    after = arena.cpu_seconds()
    lags = [row[0] for row in await look.fetch(_LAGS)]
    recorded = await look.fetchval("select count(*) from mainspring.run_history")
    if len(lags) != events or recorded != events:
        raise AssertionError(f"{events} events, {len(lags)} of them have a run, {recorded} runs")
    return {
        "events": events,
        "offered_per_s": rate,
        "events_per_s": round(events / emitted),
        "starts_per_s": round(events / await look.fetchval(_SPAN)),
        "runs_per_s": round(events / ended),
        "lag_p50_ms": round(percentile(lags, 0.50)),
        "lag_p99_ms": round(percentile(lags, 0.99)),
        "server_cpu_us": round((after[0] - before[0]) / events * 1e6),
        "postgres_cpu_us": round((after[1] - before[1]) / events * 1e6),
    }


async def _send(
    connection: HttpConnection,
    head: bytes,
    batches: Iterator[int],
    events: int,
    started: float,
    rate: int,
    shown: tuple[Progress, TaskID],
) -> None:
    """Send the batches at their times, or as soon as possible after them."""
    for first in batches:
        await asyncio.sleep(max(0.0, started + first / rate - time.perf_counter()))
        body = _body(range(first, min(first + BATCH, events)))
        status, answer = await connection.ask(head, body)
        if status != 201:
            raise AssertionError(f"a batch was answered {status}: {answer[:200].decode('utf-8', 'replace')}")
        shown[0].advance(shown[1], BATCH)


def _body(numbers: range) -> bytes:
    one = [
        {"name": "bench.made", "key": f"k{number % 1000}", "payload": {"number": number, "text": "x" * 100}}
        for number in numbers
    ]
    return msgspec.json.encode({"events": one})


async def _until_started(look: asyncpg.Connection, events: int) -> None:
    """Wait until every event has started its run."""
    deadline = time.monotonic() + max(60.0, events / 100)
    while await look.fetchval(_LEFT):
        if time.monotonic() > deadline:
            raise AssertionError("events have not started their runs for a long time")
        await asyncio.sleep(0.02)
