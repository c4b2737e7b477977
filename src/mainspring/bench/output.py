"""Output, stored in PostgreSQL and in a folder: a shell run prints 100 MB through the worker and the server, and the
log is read back. Then many runs print one line each."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from uuid import UUID

import asyncpg
import httpx
import uvloop
from rich.progress import Progress

from mainspring.bench.arena import Arena, BenchServer, BenchWorker, empty_arena, fresh_postgres
from mainspring.bench.figures import progress, show
from mainspring.bench.recorded import until_ended
from mainspring.bench.throughput import drive
from mainspring.kernel.config import DEFAULT_LOG_BYTES

MEGABYTES = 100
ROUNDS = 3
LINES = 10_000  # runs that print one line each
WAYS = ("postgresql", "folder")
_LINE = "0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789"


def main(megabytes: int | None, as_json: bool) -> int:
    show("output", uvloop.run(run(megabytes or MEGABYTES)), as_json)
    return 0


async def run(megabytes: int, rounds: int = ROUNDS, lines: int = LINES) -> dict[str, object]:
    """The figures of both ways. The rounds with lines alternate between them, because a machine has good and bad
    minutes."""
    figures: dict[str, object] = {"mb": megabytes}
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    with progress() as bar:
        for way in WAYS:
            figures |= {f"{way}_{name}": value for name, value in (await _much(way, megabytes, rounds, bar)).items()}
        for number in range(rounds):
            for way in WAYS[:: 1 if number % 2 else -1]:
                rates[way].append(await _lines(way, lines, bar))
    figures |= {f"{way}_lines_per_s": round(median(rates[way])) for way in WAYS}
    postgresql, folder = (median(rates[way]) for way in WAYS)
    return {**figures, "lines_ratio": round(postgresql / folder, 3)}


def _variables(way: str, folder: Path, megabytes: int = MEGABYTES) -> dict[str, str]:
    if way == "folder":
        return {"MAINSPRING_LOG_STORE": str(folder / "logs")}
    return {"MAINSPRING_LOG_PER_RUN": f"{2 * megabytes}MB"}


async def _lines(way: str, runs: int, bar: Progress) -> float:
    """How many runs per second print one line."""
    async with (
        fresh_postgres() as (postgres, folder),
        empty_arena(postgres, folder, _variables(way, folder)) as arena,
    ):
        server = await arena.start_server()
        await arena.start_worker(server.url)
        seconds = await drive(arena, runs, bar, "bench.line")
        await _check_lines(arena, runs)
    return runs / seconds


async def _check_lines(arena: Arena, runs: int) -> None:
    connection = await arena.connect()
    try:
        found = await connection.fetchval(
            "select count(*) from mainspring.run_logs where bytes > 10 and ended and not truncated"
        )
        if found != runs:
            raise AssertionError(f"{found} of {runs} lines were stored")
    finally:
        await connection.close()


async def _much(way: str, megabytes: int, rounds: int, bar: Progress) -> dict[str, object]:
    """The median of the rounds, and the peak memory of worker and server."""
    size = megabytes * 1_000_000
    rates: list[float] = []
    stage = bar.add_task(f"runs that print much ({way})", total=rounds + 1)
    async with (
        fresh_postgres() as (postgres, folder),
        empty_arena(postgres, folder, _variables(way, folder, megabytes)) as arena,
    ):
        server = await arena.start_server()
        worker = await arena.start_worker(server.url)
        connection = await arena.connect()
        async with httpx.AsyncClient(headers=arena.headers, base_url=server.url, timeout=60) as client:
            idle = _peaks(worker, server)
            for _ in range(rounds):
                run_id, seconds = await _print(client, connection, size, {"output": size})
                await _check(client, run_id, size)
                rates.append(megabytes / seconds)
                bar.advance(stage)
            peaks = _peaks(worker, server)
            run_id, capped = await _print(client, connection, size, None)
            await _check(client, run_id, min(size, DEFAULT_LOG_BYTES))
            bar.advance(stage)
        await connection.close()
    return {
        "mb_per_s": round(median(rates), 1),
        "slowest_mb_per_s": round(min(rates), 1),
        "capped_mb_per_s": round(megabytes / capped, 1),
        "worker_rss_mb": peaks[0],
        "server_rss_mb": peaks[1],
        "worker_idle_rss_mb": idle[0],
        "server_idle_rss_mb": idle[1],
    }


async def _print(
    client: httpx.AsyncClient, connection: asyncpg.Connection, size: int, limits: dict[str, int] | None
) -> tuple[UUID, float]:
    """Run the command. Returns the run's id and the seconds from its start to its end, with a complete log."""
    body: dict[str, object] = {"command": f"yes '{_LINE}' | head -c {size}", "retry": {"max_attempts": 1}}
    if limits is not None:
        body["limits"] = limits
    answer = await client.post("/v1/jobs", json=body)
    answer.raise_for_status()
    run_id = UUID(answer.json()["job_id"])
    await until_ended(connection, [run_id])
    ran: float = await connection.fetchval("select ran_ms from mainspring.run_history where run_id = $1", run_id)
    return run_id, ran / 1000


async def _check(client: httpx.AsyncClient, run_id: UUID, size: int) -> None:
    """Check that the log equals the output, up to its expected size."""
    line = f"{_LINE}\n".encode()
    expected = (line * (size // len(line) + 1))[:size]
    position, rest = 0, b""
    async with client.stream("GET", f"/v1/runs/{run_id}/logs") as answer:
        answer.raise_for_status()
        async for data in answer.aiter_bytes():
            kept = data[: size - position]
            if kept != expected[position : position + len(kept)]:
                raise AssertionError(f"the log differs from the output in the {len(kept)} bytes after {position}")
            position += len(kept)
            rest += data[len(kept) :]
    if position != size or (rest and b"truncated" not in rest):
        raise AssertionError(f"the log should have {size} bytes, but has {position}, followed by {rest[:100]!r}")


def _peaks(worker: BenchWorker, server: BenchServer) -> tuple[float | None, float | None]:
    worker_mb, server_mb = worker.peak_mb(), server.peak_mb()
    return (
        None if worker_mb is None else round(worker_mb, 1),
        None if server_mb is None else round(server_mb, 1),
    )
