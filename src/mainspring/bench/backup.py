"""Backup: the time to back up, to check and to restore a database with many jobs and ended runs, and their bytes."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvloop

from mainspring.bench.arena import empty_arena, fresh_postgres
from mainspring.bench.figures import progress, show
from mainspring.bench.generated import add_runs
from mainspring.bench.growth import fill
from mainspring.kernel.clock import SYSTEM_CLOCK
from mainspring.roles.backup.base_backup import take_backup
from mainspring.roles.backup.commands import verify
from mainspring.roles.backup.repository import Repository
from mainspring.roles.backup.restore import restore
from mainspring.roles.backup.sealed_files import Keys
from mainspring.store.embedded import EmbeddedPostgres

JOBS, RUNS = 1_000_000, 5_000_000
_DAYS = 7
_POSTGRES = {"max_wal_size": "4GB"}
_MEGABYTE = 1024 * 1024


def main(jobs: int, runs: int, as_json: bool) -> int:
    show("backup", uvloop.run(run(jobs, runs)), as_json)
    return 0


async def run(jobs: int, runs: int) -> dict[str, object]:
    with progress() as bar:
        bar.add_task("filled, backed up, checked, restored", total=None)
        async with fresh_postgres(_POSTGRES) as (postgres, folder):
            async with empty_arena(postgres, folder) as arena:
                await arena.start_server()
                connection = await arena.connect()
                try:
                    await fill(arena, connection, jobs)
                    lanes = await connection.fetchval("select array_agg(lane_id) from mainspring.lanes")
                    now = datetime.now(UTC)
                    await add_runs(connection, lanes, runs, now - timedelta(days=_DAYS), now, jobs=jobs)
                finally:
                    await connection.close()
            figures = await asyncio.to_thread(_measured, postgres, folder)
    return {"jobs": jobs, "runs": runs, **figures}


def _measured(postgres: EmbeddedPostgres, folder: Path) -> dict[str, object]:
    repository = Repository(folder / "backups", Keys())
    repository.prepare()
    began = time.perf_counter()
    with repository.alone():
        backup = take_backup(postgres, repository, SYSTEM_CLOCK)
    seconds = time.perf_counter() - began
    checked = verify(repository, backup)
    restored = restore(repository, backup, folder / "restored")
    return {
        "data_mb": round(backup.size / _MEGABYTE, 1),
        "backup_mb": round(backup.stored / _MEGABYTE, 1),
        "backup_s": round(seconds, 2),
        "verify_s": round(checked.seconds, 2),
        "restore_s": round(restored.seconds, 2),
        "jobs_restored": restored.counted.jobs,
        "runs_restored": restored.counted.ended_runs,
    }
