"""Process tasks: no-op jobs that run in child interpreters, from submission over HTTP until all are recorded."""

from __future__ import annotations

from typing import Any

import uvloop

from mainspring.bench.arena import fresh_postgres, product
from mainspring.bench.figures import progress, show
from mainspring.bench.throughput import drive
from mainspring.sdk.app.app import Mainspring

JOBS = 20_000
NOOP = "bench.process_noop"

# A separate application, because the workers of the other benchmarks need no child interpreters.
app = Mainspring()


@app.task(NOOP, executor="process")
def noop(**_payload: Any) -> None:
    """Does nothing, in a child process."""


def main(jobs: int | None, as_json: bool) -> int:
    show("process", uvloop.run(run(jobs or JOBS)), as_json)
    return 0


async def run(jobs: int) -> dict[str, object]:
    with progress() as bar:
        async with fresh_postgres() as (postgres, folder), product(postgres, folder, f"{__name__}:app") as arena:
            seconds = await drive(arena, jobs, bar, NOOP)
    return {"jobs": jobs, "seconds": round(seconds, 3), "jobs_per_s": round(jobs / seconds)}
