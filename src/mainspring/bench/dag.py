"""Workflows: the check of a large graph, a chain of no-op steps, layers with full edges between them, many small
workflows at once, and a fan-out with a join. The rate of the fan-out is compared with that of up to 100,000 plain jobs.
With many members these run before and after it, because the machine may have other work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import asyncpg
import httpx
import msgspec
import uvloop
from rich.progress import Progress, TaskID

from mainspring.bench.arena import Arena, fresh_postgres, product
from mainspring.bench.figures import percentile, progress, show
from mainspring.bench.throughput import drive
from mainspring.domain.transitions import StoredState

NOOP = "bench.noop"
_PLAIN_JOBS = 100_000
_MANY = 10_000  # members
_REQUESTS = 16  # that are on their way at once
_LONGEST = 3600.0  # seconds


class DagSizes(msgspec.Struct, frozen=True):
    members: int = 1_000_000
    chain: int = 1000
    layers: int = 100
    workflows: int = 1000
    checked: int = 100_000


def main(sizes: DagSizes, as_json: bool) -> int:
    show("dag", uvloop.run(run(sizes)), as_json)
    return 0


async def run(sizes: DagSizes) -> dict[str, object]:
    jobs = min(sizes.members, _PLAIN_JOBS)
    with progress() as bar:
        stages = bar.add_task("workflows", total=7)
        async with fresh_postgres() as (postgres, folder), product(postgres, folder) as arena:
            check = await _check(arena, sizes.checked)
            bar.advance(stages)
            chain = await _chain(arena, sizes.chain)
            bar.advance(stages)
            layers = await _run(arena, [_layers(sizes.layers)])
            bar.advance(stages)
            small = await _small(arena, sizes.workflows)
            bar.advance(stages)
        plain = [await _plain(jobs, bar)]
        bar.advance(stages)
        async with fresh_postgres() as (postgres, folder), product(postgres, folder) as arena:
            fanout, peak, growth = await _fanout(arena, sizes.members, bar)
        bar.advance(stages)
        if sizes.members > _MANY:
            plain.append(await _plain(jobs, bar))
    rate, plain_rate = sizes.members / fanout, sum(plain) / len(plain)
    return {
        "checked": sizes.checked,
        "check_s": round(check, 2),
        "chain": sizes.chain,
        "chain_step_p50_ms": round(percentile(chain, 0.5) * 1000, 2),
        "chain_step_p99_ms": round(percentile(chain, 0.99) * 1000, 2),
        "layers": f"{sizes.layers} x {sizes.layers}",
        "layers_s": round(layers, 2),
        "small_workflows": sizes.workflows,
        "small_workflows_s": round(small, 2),
        "members": sizes.members,
        "fanout_per_s": round(rate),
        "plain_per_s": round(plain_rate),
        "fanout_ratio": round(rate / plain_rate, 3),
        "fanout_rss_mb": peak,
        "fanout_rss_growth_mb": growth,
    }


def _steps_in_a_row(count: int) -> list[dict[str, Any]]:
    return [
        {"name": str(place), "task": NOOP, **({"depends_on": [str(place - 1)]} if place else {})}
        for place in range(count)
    ]


def _layers(size: int) -> list[dict[str, Any]]:
    names = [[f"{layer}.{place}" for place in range(size)] for layer in range(size)]
    return [
        {"name": name, "task": NOOP, **({"depends_on": names[layer - 1]} if layer else {})}
        for layer, row in enumerate(names)
        for name in row
    ]


async def _check(arena: Arena, steps: int) -> float:
    """Seconds until the server has checked a chain of so many steps, without storing it."""
    body = msgspec.json.encode({"steps": _steps_in_a_row(steps)})
    async with _client(arena) as client:
        started = time.perf_counter()
        answer = await client.post("/v1/workflows:validate", content=body)
        answer.raise_for_status()
        return time.perf_counter() - started


async def _chain(arena: Arena, length: int) -> list[float]:
    """The seconds between the end of each step and the start of the next one."""
    await _run(arena, [_steps_in_a_row(length)])
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
    """Seconds for one run of each of many workflows of three steps."""
    steps: list[dict[str, Any]] = [
        {"name": "first", "task": NOOP},
        {"name": "second", "task": NOOP, "depends_on": ["first"]},
        {"name": "third", "task": NOOP, "depends_on": ["second"]},
    ]
    return await _run(arena, [steps] * count)


async def _fanout(arena: Arena, members: int, bar: Progress) -> tuple[float, float | None, float | None]:
    """Seconds, the most memory of the server, and by how much that has grown after a small one, in megabytes."""
    warm: list[dict[str, Any]] = [{"name": "warm", "task": NOOP, "map": {"range": min(members, 5000)}}]
    await _run(arena, [warm])
    server = arena.servers[0]
    before = server.peak_mb()
    steps: list[dict[str, Any]] = [
        {"name": "each", "task": NOOP, "map": {"range": members}},
        {"name": "join", "task": NOOP, "depends_on": ["each"], "payload": {"counts": {"$from": "each"}}},
    ]
    counting = bar.add_task("members", total=members)
    watching = asyncio.create_task(_watch(arena, members, bar, counting))
    try:
        seconds = await _run(arena, [steps])
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    bar.update(counting, completed=members)
    after = server.peak_mb()
    connection = await arena.connect()
    try:
        text = await connection.fetchval("select payload::text from mainspring.run_history where name = 'join'")
    finally:
        await connection.close()
    counts = msgspec.json.decode(text)["counts"]
    if (counts["total"], counts["succeeded"]) != (members, members):
        raise AssertionError(f"the join counted {counts}")
    if before is None or after is None:
        return seconds, None, None
    return seconds, round(after, 1), round(after - before, 1)


async def _watch(arena: Arena, members: int, bar: Progress, task: TaskID) -> None:
    """Show how many members have ended."""
    connection = await arena.connect()
    try:
        while True:
            counted = await connection.fetchval(
                "select max(j.ok) from mainspring.fanouts f join mainspring.joins j using (join_id) where f.total = $1",
                members,
            )
            bar.update(task, completed=counted or 0)
            await asyncio.sleep(1)
    finally:
        await connection.close()


async def _plain(jobs: int, bar: Progress) -> float:
    """Plain jobs per second."""
    async with fresh_postgres() as (postgres, folder), product(postgres, folder) as arena:
        return jobs / await drive(arena, jobs, bar)


def _client(arena: Arena) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=arena.server_url, headers=arena.headers, timeout=300)


async def _run(arena: Arena, workflows: Iterable[list[dict[str, Any]]]) -> float:
    """Store workflows with these steps. Seconds from the requests to run each of them until all have succeeded."""
    async with _client(arena) as client:
        limit = asyncio.Semaphore(_REQUESTS)

        async def ask(path: str, body: dict[str, Any], field: str) -> str:
            async with limit:
                answer = await client.post(path, json=body)
                answer.raise_for_status()
                found: str = answer.json()[field]
                return found

        stored = await asyncio.gather(*(ask("/v1/workflows", {"steps": one}, "workflow_id") for one in workflows))
        started = time.perf_counter()
        runs = await asyncio.gather(*(ask(f"/v1/workflows/{one}:runNow", {}, "run_id") for one in stored))
        connection = await arena.connect()
        try:
            async with asyncio.timeout(_LONGEST):
                await _until_ended(connection, runs)
        finally:
            await connection.close()
        return time.perf_counter() - started


async def _until_ended(connection: asyncpg.Connection, runs: list[str]) -> None:
    """Look less often the longer it lasts: the looks take time as well."""
    pause = 0.02
    while True:
        rows = await connection.fetch(
            "select state, reason from mainspring.run_history where run_id = any ($1::uuid[])", runs
        )
        bad = [row["reason"] for row in rows if row["state"] != StoredState.SUCCESS]
        if bad:
            raise AssertionError(f"a workflow run did not succeed: {bad[0]}")
        if len(rows) == len(runs):
            return
        await asyncio.sleep(pause)
        pause = min(pause * 1.02, 0.2)
