"""What access control costs: throughput with narrowed tokens and quotas, in turn with neither of them. Each round has a
fresh PostgreSQL for either. The ratio is the median of the ratios of the rounds, because machines differ by the minute.

The client and the worker have tokens that are narrowed to the queue and the task. The tenant has every quota, high
enough to hold nothing. The audit records changes in both cases, as always; here they are the quotas and the tokens.
"""

from __future__ import annotations

import os
from statistics import median

import httpx
import uvloop
from rich.progress import Progress

from mainspring.bench.arena import Arena, empty_arena, fresh_postgres
from mainspring.bench.figures import progress, show
from mainspring.bench.throughput import drive

JOBS = 50_000
_NARROWED = {"queues": ["default"], "tasks": ["bench.noop"], "addresses": ["127.0.0.0/8"]}
QUOTAS = {
    "stored_jobs": 1_000_000, "submissions_per_second": 1_000_000, "runs_per_minute": 60_000_000,
    "queued_runs": 10_000_000, "concurrent_runs": 1_000_000, "payload_bytes": 1_000_000,
    "log_bytes_per_day": 1 << 40, "tokens": 1000, "history_days": 7,
}  # fmt: skip


def main(jobs: int | None, rounds: int, as_json: bool) -> int:
    figures = uvloop.run(run(jobs or JOBS, rounds))
    show("guarded", figures, as_json)
    return 0


async def run(jobs: int, rounds: int) -> dict[str, object]:
    plain: list[float] = []
    guarded: list[float] = []
    with progress() as bar:
        for number in range(rounds):
            order = ((plain, False), (guarded, True))  # each begins every other round
            for found, is_guarded in order if number % 2 == 0 else reversed(order):
                found.append(jobs / await _seconds(jobs, bar, guarded=is_guarded))
    ratios = [one / other for one, other in zip(guarded, plain, strict=True)]
    return {
        "jobs": jobs,
        "rounds": rounds,
        "jobs_per_s": round(median(plain)),
        "jobs_per_s_guarded": round(median(guarded)),
        "ratio": round(median(ratios), 3),
        "lowest_ratio": round(min(ratios), 3),
        "highest_ratio": round(max(ratios), 3),
    }


async def _seconds(jobs: int, bar: Progress, *, guarded: bool) -> float:
    async with fresh_postgres() as (postgres, folder), empty_arena(postgres, folder) as arena:
        server = await arena.start_server()
        token_file = None
        if guarded:
            token_file = folder / "worker-token"
            await _guard(arena)
            token_file.touch(mode=0o600)
            token_file.write_text(await _token(arena, "worker"))
        await arena.start_worker(server.url, token_file=token_file)
        if guarded:
            arena.token = await _token(arena, "submitter")
        return await drive(arena, jobs, bar)


async def _guard(arena: Arena) -> None:
    async with httpx.AsyncClient(headers=arena.headers, timeout=60) as client:
        answer = await client.put(f"{arena.server_url}/v1/tenants/default/quotas", json=QUOTAS)
        answer.raise_for_status()


async def _token(arena: Arena, role: str) -> str:
    body = {"name": f"bench-{role}-{os.getpid()}", "role": role, **_NARROWED}
    async with httpx.AsyncClient(headers=arena.headers, timeout=60) as client:
        answer = await client.post(f"{arena.server_url}/v1/tokens", json=body)
        answer.raise_for_status()
        token: str = answer.json()["token"]
        return token
