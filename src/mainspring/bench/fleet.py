"""Fleet: many small workers at a few servers, and jobs offered at a fixed rate. It measures what an exchange costs, how
soon a report is acknowledged, and whether a worker or a run is lost.

`server_us_per_exchange` and `postgres_us_per_exchange` are CPU time of all server processes and of all of PostgreSQL,
divided by the answered exchanges: what submissions cost is in it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Sequence

import asyncpg
import msgspec
import uvloop

from mainspring.bench import fleet_workers
from mainspring.bench.arena import Arena, empty_arena, fresh_postgres
from mainspring.bench.figures import percentile, progress, show
from mainspring.bench.fleet_workers import FleetOrders, FleetReport
from mainspring.bench.worker_processes import WorkerProcesses, worker_processes
from mainspring.kernel.garbage_collection import freeze_garbage_collection
from mainspring.kernel.http_client import HttpConnection, HttpServer
from mainspring.store.workers import WorkerState

_WINDOW = 10.0
_WARM_UP = 5.0
_TURN = 0.02  # seconds between two batches
_REFUSED_PAUSE = 0.2
_PAYLOAD = "x" * 180


class FleetSizes(msgspec.Struct, frozen=True):
    """seconds: how long a run takes. rate: jobs offered a second. window: for how long is measured, after `warm_up`."""

    workers: int = 1000
    slots: int = 10
    seconds: float = 2.0
    rate: float = 2000.0
    servers: int = 1
    window: float = _WINDOW
    warm_up: float = _WARM_UP


def main(sizes: FleetSizes, as_json: bool) -> int:
    show("fleet", uvloop.run(run(sizes)), as_json)
    return 0


async def run(sizes: FleetSizes) -> dict[str, object]:
    with progress() as bar:
        stages = bar.add_task("stages", total=4)
        async with fresh_postgres() as (postgres, folder), empty_arena(postgres, folder) as arena:
            for _ in range(sizes.servers):
                await arena.start_server()
            bar.advance(stages)
            orders = [
                FleetOrders(
                    server.url, arena.token, len(range(place, sizes.workers, sizes.servers)), sizes.slots, sizes.seconds
                )
                for place, server in enumerate(arena.servers)
            ]
            async with worker_processes(fleet_workers.__name__, FleetReport, orders) as workers:
                bar.advance(stages)
                figures = await _drive(arena, workers, sizes)
                bar.advance(stages)
            return figures


async def _drive(arena: Arena, workers: WorkerProcesses[FleetReport], sizes: FleetSizes) -> dict[str, object]:
    offers = Offers([server.url for server in arena.servers], arena.token)
    freeze_garbage_collection()
    offering = asyncio.create_task(offers.run(sizes.rate))
    await asyncio.sleep(sizes.warm_up + sizes.seconds)
    workers.measure()
    accepted, began, cpu = offers.accepted, time.monotonic(), arena.cpu_seconds()
    await asyncio.sleep(sizes.window)
    took, spent = (
        time.monotonic() - began,
        [after - before for after, before in zip(arena.cpu_seconds(), cpu, strict=True)],
    )
    offered = (offers.accepted - accepted) / took
    reports = await workers.end()
    offering.cancel()
    await asyncio.wait([offering])
    offers.close()
    return {
        **_figures(reports, spent),
        "offered_per_s": round(offered),
        **await _stored(arena, offers.accepted),
        "server_mb": round(max(server.peak_mb() or 0.0 for server in arena.servers)),
        "workers": sizes.workers,
        "slots": sizes.slots,
        "servers": sizes.servers,
    }


def _figures(reports: Sequence[FleetReport], spent: Sequence[float]) -> dict[str, object]:
    answers: Counter[str] = Counter()
    for report in reports:
        answers.update(report.answers)
    latencies = [each for report in reports for each in report.report_ms] or [0.0]
    exchanges = max(1, answers.total())
    seconds = max(report.seconds for report in reports)
    return {
        "jobs_per_s": round(sum(report.acknowledged for report in reports) / seconds),
        "report_p50_ms": round(percentile(latencies, 0.5), 1),
        "report_p99_ms": round(percentile(latencies, 0.99), 1),
        "longest_silence_s": round(max(report.longest_silence_s for report in reports), 2),
        "registered_s": round(max(report.registered_s for report in reports), 2),
        "server_us_per_exchange": round(spent[0] / exchanges * 1e6),
        "postgres_us_per_exchange": round(spent[1] / exchanges * 1e6),
        "exchanges_per_s": round(exchanges / seconds),
        "superseded": answers["superseded_by_newer"] + answers["superseded_by_load"],
        "superseded_by_load": answers["superseded_by_load"],
        "answers": dict(answers),
    }


async def _stored(arena: Arena, accepted: int) -> dict[str, object]:
    """Each accepted job is there once: it waits, runs, or has ended."""
    connection = await arena.connect()
    try:
        live, ended, again = await _counts(connection)
        lost = await connection.fetchval(
            "select count(*) from mainspring.workers where state = $1", int(WorkerState.LOST)
        )
    finally:
        await connection.close()
    if live + ended < accepted:
        raise AssertionError(f"{accepted} jobs were acknowledged, {live} are live and {ended} have ended")
    return {"lost_workers": lost, "run_again": again}


async def _counts(connection: asyncpg.Connection) -> tuple[int, int, int]:
    live = await connection.fetchval("select count(*) from mainspring.runs")
    ended, again = await connection.fetchrow(
        "select count(distinct run_id), count(*) - count(*) filter (where attempt = 1) from mainspring.run_history"
    )
    return live, ended, again


class Offers:
    """Jobs in small batches, so many a second, to the servers in turn."""

    def __init__(self, urls: Sequence[str], token: str) -> None:
        self.accepted = 0
        servers = [HttpServer(url) for url in urls]
        self._turns = itertools.cycle([(server, server.post("/v1/jobs:batch", token)) for server in servers])
        self._idle: list[tuple[HttpConnection, bytes]] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def run(self, rate: float) -> None:
        began, sent = time.monotonic(), 0
        try:
            while True:
                count = int((time.monotonic() - began) * rate) - sent
                if count > 0:
                    sent += count
                    task = asyncio.create_task(self._send(count))
                    self._sending.add(task)
                    task.add_done_callback(self._sending.discard)
                await asyncio.sleep(_TURN)
        finally:
            if self._sending:
                await asyncio.wait(self._sending)

    def close(self) -> None:
        for connection, _ in self._idle:
            connection.close()

    async def _send(self, count: int) -> None:
        job = {"task": fleet_workers.TASK, "queue": fleet_workers.QUEUE, "payload": {"text": _PAYLOAD}}
        body = msgspec.json.encode({"jobs": [job] * count})
        status = 0
        while status != 201:
            if self._idle:
                connection, head = self._idle.pop()
            else:
                server, head = next(self._turns)
                connection = await server.connect()
            status, answer = await connection.ask(head, body)
            if connection.usable:
                self._idle.append((connection, head))
            if status == 429:
                await asyncio.sleep(_REFUSED_PAUSE)
            elif status != 201:
                raise AssertionError(f"a batch was answered with {status}: {answer[:200]!r}")
        self.accepted += count
