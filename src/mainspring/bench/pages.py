"""Pages: how soon a server answers what the pages of the dashboard ask for first, with very many jobs and runs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import uvloop

from mainspring.bench.arena import Arena, empty_arena, fresh_postgres, until
from mainspring.bench.figures import progress, show
from mainspring.bench.generated import add_dead_letters, add_jobs, add_lanes, add_missed_fires, add_runs
from mainspring.store.queries import render

_TEMPLATE = "template"
_TRIES = 3
_FOLDED_WITHIN = 1800.0
_POSTGRES = {"shared_buffers": "256MB", "max_wal_size": "4GB"}
_PAGES = {
    "overview, hour": "/v1/insights/overview?w=1h",
    "overview, day": "/v1/insights/overview?w=24h",
    "overview, month": "/v1/insights/overview?w=30d",
    "overview of a queue": "/v1/insights/overview?w=24h&queue=queue_1",
    "overview of a task": "/v1/insights/overview?w=24h&task=tasks.task_7",
    "overview, coming fires": "/v1/insights/upcoming?limit=100",
    "failures": "/v1/insights/failures",
    "failures of a week": "/v1/insights/failures?since={week_ago}",
    "failures of a task": "/v1/insights/failures?task=tasks.task_7",
    "failures of a job": "/v1/insights/failures?job=job-0000001",
    "jobs": "/v1/jobs?limit=50",
    "jobs, next page": "/v1/jobs?limit=50&cursor={cursor}",
    "jobs, paused": "/v1/jobs?limit=50&status=paused",
    "jobs of a queue": "/v1/jobs?limit=50&queue=queue_1",
    "jobs of an owner": "/v1/jobs?limit=50&owner=team-7",
    "jobs with a label": "/v1/jobs?limit=50&label=team%3Ateam-7",
    "jobs with a label that none has": "/v1/jobs?limit=50&label=team%3Anobody",
    "jobs whose latest run failed": "/v1/jobs?limit=50&latest_run=failed",
    "jobs by text": "/v1/jobs?limit=50&q=Report%201",
    "jobs by a text that none has": "/v1/jobs?limit=50&q=nothing-has-this",
    "job": "/v1/jobs/job-0000001",
    "runs of a job": "/v1/jobs/job-0000001/runs?limit=50",
    "series of a job": "/v1/jobs/job-0000001/series?w=7d",
    "upcoming fires of a job": "/v1/jobs/job-0000001/upcoming",
    "timeline of a job": "/v1/jobs/job-0000001/timeline",
    "missed fires of a job": "/v1/jobs/job-0000001/missed",
    "palette": "/v1/search?q=job-00",
    "palette, by a name": "/v1/search?q=Report",
    "tasks": "/v1/tasks",
    "runs": "/v1/runs?limit=50",
    "runs that failed": "/v1/runs?limit=50&status=failed",
    "runs of a task": "/v1/runs?limit=50&task=tasks.task_7",
    "runs of a queue": "/v1/runs?limit=50&queue=queue_1",
    "runs of a task that has none": "/v1/runs?limit=50&task=tasks.nobody",
    "runs by their error": "/v1/runs?limit=50&error=smtp",
    "runs by an error that none has": "/v1/runs?limit=50&error=nothing-has-this",
    "runs with a label that none has": "/v1/runs?limit=50&label=team%3Anobody",
    "runs of a worker": "/v1/runs?limit=50&worker={worker}",
    "runs of a worker that has none": "/v1/runs?limit=50&worker=01a00000-0000-7000-8000-000000000000",
    "run": "/v1/runs/{run}",
    "timeline of a run": "/v1/runs/{run}/timeline",
    "why a run waits": "/v1/runs/{run}/why",
    "queues": "/v1/queues",
    "workers": "/v1/workers",
    "dead letters": "/v1/dead-letters?limit=50",
    "dead letters by an error that none has": "/v1/dead-letters?limit=50&error=nothing-has-this",
    "missed fires": "/v1/missed-fires?limit=50",
    "missed fires by name": "/v1/missed-fires?limit=50&q=Report%201",
    "missed fires by a name that none has": "/v1/missed-fires?limit=50&q=nothing-has-this",
    "operations": "/v1/operations?limit=50",
    "backfills": "/v1/backfills?limit=50",
    "tokens": "/v1/tokens",
    "sessions": "/v1/sessions",
    "workflows": "/v1/workflows?limit=50",
    "breakers": "/v1/breakers",
    "limits": "/v1/limits",
    "heat map of a week": "/v1/insights/heatmap?range=week",
    "metrics": "/metrics",
}


@dataclass(frozen=True, slots=True)
class PagesSizes:
    jobs: int
    runs: int
    days: float = 7.0


def main(sizes: PagesSizes, as_json: bool) -> int:
    figures = uvloop.run(run(sizes))
    by_page = figures["by_page"]
    assert isinstance(by_page, dict)
    show("pages", figures if as_json else {**figures, "by_page": "in ms:", **by_page}, as_json)
    return 0


async def run(sizes: PagesSizes) -> dict[str, object]:
    with progress() as bar:
        going = bar.add_task("pages", total=len(_PAGES))
        async with fresh_postgres(_POSTGRES) as (postgres, folder), empty_arena(postgres, folder) as arena:
            await arena.start_server()
            began = time.perf_counter()
            await _fill(arena, sizes)
            filled = time.perf_counter() - began
            by_page: dict[str, float] = {}
            async with httpx.AsyncClient(base_url=arena.server_url, headers=arena.headers, timeout=60) as client:
                places = await _places(client)
                for name, path in _PAGES.items():
                    tries = [await _time(client, path.format(**places)) for _ in range(_TRIES)]
                    by_page[name] = round(max(tries), 1)
                    bar.advance(going)
    slowest = max(by_page, key=lambda name: by_page[name])
    return {
        "jobs": sizes.jobs,
        "runs": sizes.runs,
        "fill_s": round(filled, 1),
        "slowest_ms": by_page[slowest],
        "slowest_page": slowest,
        "by_page": by_page,
    }


async def _places(client: httpx.AsyncClient) -> dict[str, str]:
    """What the addresses of the pages name."""
    jobs, runs = [(await _get(client, f"/v1/{kind}?limit=50")).json() for kind in ("jobs", "runs")]
    week_ago = datetime.now(UTC) - timedelta(days=7)
    return {
        "cursor": jobs.get("next") or "",
        "run": runs["runs"][0]["run_id"],
        "worker": runs["runs"][0]["executor_id"],
        "week_ago": week_ago.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


async def _fill(arena: Arena, sizes: PagesSizes) -> None:
    """Jobs like one that was submitted, runs of the last week, and rollups of them."""
    async with httpx.AsyncClient(base_url=arena.server_url, headers=arena.headers) as client:
        request: dict[str, Any] = {
            "job_id": _TEMPLATE, "task": "tasks.template", "schedule": "30 2 * * *", "owner": "team-0",
            "labels": {"team": "team-0"}, "payload": {"month": 6},
        }  # fmt: skip
        (await client.post("/v1/jobs", json=request)).raise_for_status()
    connection = await arena.connect()
    try:
        await connection.execute("set synchronous_commit = off")
        lanes = await add_lanes(connection, tasks=100, queues=10)
        await add_jobs(connection, _TEMPLATE, lanes, sizes.jobs)
        now = datetime.now(UTC)
        start = now - timedelta(days=sizes.days)
        await add_runs(connection, lanes, sizes.runs, start, now, jobs=sizes.jobs)
        await add_dead_letters(connection)
        await add_missed_fires(connection, start)
        await _fold_again(connection, start)
        await connection.execute("analyze")

        async def folded() -> bool:
            behind = "select clock_timestamp() - folded_until < interval '1 minute' from mainspring.rollup_watermark"
            return bool(await connection.fetchval(behind))

        await until(folded, "the rollups are made", within=_FOLDED_WITHIN, every=0.2)
    finally:
        await connection.close()


async def _fold_again(connection: asyncpg.Connection, start: datetime) -> None:
    """The runs were copied behind the watermark."""
    async with connection.transaction():
        await connection.execute(render("select pg_advisory_xact_lock({{lock_key('rollups')}})"))
        await connection.execute("delete from mainspring.rollups")
        await connection.execute("delete from mainspring.failure_groups")
        day = start.replace(hour=0, minute=0, second=0, microsecond=0)
        await connection.execute("update mainspring.rollup_watermark set folded_until = $1", day)


async def _time(client: httpx.AsyncClient, path: str) -> float:
    """Milliseconds until the answer was there."""
    began = time.perf_counter()
    await _get(client, path)
    return (time.perf_counter() - began) * 1000


async def _get(client: httpx.AsyncClient, path: str) -> httpx.Response:
    answer = await client.get(path)
    if answer.status_code not in (200, 503):  # a forecast that is not made yet is an answer too
        raise AssertionError(f"GET {path}: {answer.status_code} {answer.text}")
    return answer
