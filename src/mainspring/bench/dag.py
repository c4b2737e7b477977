"""Workflows: a chain of no-op steps, layers with full edges between them, a fan-out with a join, and many small
workflows at once. The rate of the fan-out is compared with that of the same number of plain jobs, up to 100,000."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import httpx
import msgspec
import uvloop
from rich.progress import Progress

from mainspring.bench.arena import Arena, fresh_postgres, product
from mainspring.bench.figures import percentile, progress, show
from mainspring.bench.throughput import drive

NOOP = "bench.noop"
_PLAIN_JOBS = 100_000
_LONGEST = 3600.0  # seconds


class Sizes(msgspec.Struct, frozen=True):
    members: int = 1_000_000
    chain: int = 1000
    layers: int = 100
    workflows: int = 1000


def main(sizes: Sizes, as_json: bool) -> int:
    show("dag", uvloop.run(run(sizes)), as_json)
    return 0


async def run(sizes: Sizes) -> dict[str, object]:
    with progress() as bar:
        stages = bar.add_task("workflows", total=4)
        async with fresh_postgres() as (postgres, folder), product(postgres, folder) as arena:
            chain = await _chain(arena, sizes.chain)
            bar.advance(stages)
            layers = await _run(arena, _layers(sizes.layers))
            bar.advance(stages)
            small = await _small(arena, sizes.workflows)
            bar.advance(stages)
        async with fresh_postgres() as (postgres, folder), product(postgres, folder) as arena:
            fanout, memory = await _fanout(arena, sizes.members)
            bar.advance(stages)
        plain = await _plain(min(sizes.members, _PLAIN_JOBS), bar)
    rate = sizes.members / fanout
    return {
        "chain": sizes.chain,
        "chain_step_p50_ms": round(percentile(chain, 0.5) * 1000, 2),
        "chain_step_p99_ms": round(percentile(chain, 0.99) * 1000, 2),
        "layers": f"{sizes.layers} x {sizes.layers}",
        "layers_s": round(layers, 2),
        "workflows": sizes.workflows,
        "workflows_s": round(small, 2),
        "members": sizes.members,
        "fanout_per_s": round(rate),
        "plain_per_s": round(plain),
        "fanout_ratio": round(rate / plain, 3),
        "fanout_rss_mb": memory,
    }


def _layers(size: int) -> list[dict[str, Any]]:
    names = [[f"{layer}.{place}" for place in range(size)] for layer in range(size)]
    return [
        {"name": name, "task": NOOP, **({"depends_on": names[layer - 1]} if layer else {})}
        for layer, row in enumerate(names)
        for name in row
    ]


async def _chain(arena: Arena, length: int) -> list[float]:
    """The seconds between the end of each step and the start of the next one."""
    steps: list[dict[str, Any]] = [
        {"name": str(place), "task": NOOP, **({"depends_on": [str(place - 1)]} if place else {})}
        for place in range(length)
    ]
    await _run(arena, steps)
    connection = await arena.connect()
    try:
        rows = await connection.fetch(
            """select extract(epoch from n.started_at - h.started_at)::float8 - h.ran_ms / 1000 as gap
               from mainspring.run_history h
               join mainspring.run_history n on n.name = (h.name::int + 1)::text
               where h.name ~ '^[0-9]+$' and n.name ~ '^[0-9]+$'"""
        )
    finally:
        await connection.close()
    if len(rows) != length - 1:
        raise AssertionError(f"{len(rows) + 1} of {length} steps have run")
    return sorted(max(row["gap"], 0.0) for row in rows)


async def _small(arena: Arena, count: int) -> float:
    """Seconds for many workflow runs of three steps each."""
    steps: list[dict[str, Any]] = [
        {"name": "first", "task": NOOP},
        {"name": "second", "task": NOOP, "depends_on": ["first"]},
        {"name": "third", "task": NOOP, "depends_on": ["second"]},
    ]
    return await _run(arena, steps, times=count)


async def _fanout(arena: Arena, members: int) -> tuple[float, float | None]:
    """Seconds, and by how many megabytes the most memory of the server has grown after a small one."""
    warm: list[dict[str, Any]] = [{"name": "warm", "task": NOOP, "map": {"range": min(members, 5000)}}]
    await _run(arena, warm)
    server = arena.servers[0]
    before = server.peak_mb()
    steps: list[dict[str, Any]] = [
        {"name": "each", "task": NOOP, "map": {"range": members}},
        {"name": "join", "task": NOOP, "depends_on": ["each"], "payload": {"counts": {"$from": "each"}}},
    ]
    seconds = await _run(arena, steps)
    after = server.peak_mb()
    connection = await arena.connect()
    try:
        text = await connection.fetchval("select payload::text from mainspring.run_history where name = 'join'")
    finally:
        await connection.close()
    counts = msgspec.json.decode(text)["counts"]
    if (counts["total"], counts["succeeded"]) != (members, members):
        raise AssertionError(f"the join counted {counts}")
    return seconds, None if before is None or after is None else round(after - before, 1)


async def _plain(jobs: int, bar: Progress) -> float:
    async with fresh_postgres() as (postgres, folder), product(postgres, folder) as arena:
        return jobs / await drive(arena, jobs, bar)


async def _run(arena: Arena, steps: list[dict[str, Any]], times: int = 1) -> float:
    """Seconds from the request until the workflow runs have ended with SUCCESS."""
    async with httpx.AsyncClient(base_url=arena.server_url, headers=arena.headers, timeout=120) as client:
        answer = await client.post("/v1/workflows", json={"steps": steps, "overlap": "allow"})
        answer.raise_for_status()
        workflow_id = answer.json()["workflow_id"]
        started = time.perf_counter()
        limit = asyncio.Semaphore(8)

        async def fire() -> str:
            async with limit:
                reply = await client.post(f"/v1/workflows/{workflow_id}:runNow", json={})
                reply.raise_for_status()
                run_id: str = reply.json()["run_id"]
                return run_id

        runs = await asyncio.gather(*(fire() for _ in range(times)))
        connection = await arena.connect()
        try:
            async with asyncio.timeout(_LONGEST):
                await _until_ended(connection, runs)
        finally:
            await connection.close()
        return time.perf_counter() - started


async def _until_ended(connection: asyncpg.Connection, runs: list[str]) -> None:
    while True:
        rows = await connection.fetch(
            "select state, reason from mainspring.run_history where run_id = any ($1::uuid[])", runs
        )
        bad = [row["reason"] for row in rows if row["state"] != 10]
        if bad:
            raise AssertionError(f"a workflow run did not succeed: {bad[0]}")
        if len(rows) == len(runs):
            return
        await asyncio.sleep(0.02)
