"""Processes of an earlier version work with current ones, in both directions, on the current or a newer schema.

While the first baseline is the latest version, it runs against itself.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from mainspring.store.migrate import Migration, known_migrations, migrate, read_migration
from tests.conftest import TOKEN
from tests.processes.cluster import SLOW, START, Cluster, eventually, free_port
from tests.upgrades.trees import baselines, imported_from, python_path, tree_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

# One more column in every table that old code reads with `*` or writes, like most migrations.
ADDITION = "\n".join(
    f"alter table mainspring.{table} add column of_tomorrow int default 1;"
    for table in (
        "runs",
        "jobs",
        "run_history",
        "attempts",
        "dead_letters",
        "workers",
        "lanes",
        "tokens",
        "submissions",
    )
)
EVERY_SECOND = {"job_id": "often", "command": "true", "schedule": {"every": 1}}
TROUBLE = ('"level": "error"', "cached statement plan")


def later(header: str) -> list[Migration]:
    version = known_migrations()[-1].version + 1
    return [*known_migrations(), read_migration(version, "tomorrow", header + ADDITION)]


@pytest.fixture(scope="module", params=sorted(baselines()))
def old(request: pytest.FixtureRequest) -> Iterator[str]:
    """The PYTHONPATH of an earlier version."""
    folder = Path(tempfile.mkdtemp(prefix="ms-tree-", dir="/tmp"))
    tree = tree_of(baselines()[request.param], folder)
    assert imported_from(tree).is_relative_to(tree)
    yield python_path(tree)
    shutil.rmtree(folder)


@pytest.fixture
async def cluster(database_url: str) -> AsyncIterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="ms-cluster-", dir="/tmp"))
    started = Cluster(database_url, TOKEN, folder)
    try:
        yield started
    finally:
        await started.close()
        shutil.rmtree(folder, ignore_errors=True)


async def ran(cluster: Cluster) -> None:
    """Run a job from HTTP and one from SQL."""
    connection = await asyncpg.connect(cluster._database_url)
    in_sql = await connection.fetchval("""select mainspring.submit('{"command": "echo sql"}')""")
    await connection.close()
    over_http = await cluster.submit(command="echo http")
    assert [(await cluster.ended(job_id))["status"] for job_id in (over_http, in_sql)] == ["SUCCESS", "SUCCESS"]


async def fires(cluster: Cluster) -> None:
    """Wait until the job that runs every second has a new run."""
    before = len(await cluster.runs("often"))

    async def look() -> bool:
        return sum(run["status"] == "SUCCESS" for run in await cluster.runs("often")) > before

    await eventually(look, SLOW, "the scheduler has fired")


@pytest.mark.slow
async def test_old_servers_and_workers_work_with_new_ones_while_the_schema_goes_on(
    cluster: Cluster, old: str, database_url: str
) -> None:
    """An upgrade in steps: an old server, a migration, a new server, and then new workers."""
    server = await cluster.server(tree=old)
    await cluster.worker()
    await cluster.submit(**EVERY_SECOND)
    await ran(cluster)  # old server, new worker
    await fires(cluster)
    await migrate(database_url, known=later("-- stage: pre\n"))
    await ran(cluster)
    await fires(cluster)
    assert [line for line in cluster.said(server).splitlines() if any(word in line for word in TROUBLE)] == []
    for child in cluster._children:
        child.kill()
        child.wait()
    cluster.talk_to(free_port())
    await cluster.server()
    await cluster.worker(tree=old)
    await ran(cluster)  # new server, old worker
    await fires(cluster)


@pytest.mark.slow
async def test_old_code_starts_on_a_newer_schema_that_does_not_break_it(
    cluster: Cluster, old: str, database_url: str
) -> None:
    await migrate(database_url, known=later("-- stage: post\n"))
    await cluster.server(tree=old)
    await cluster.worker(tree=old)
    await ran(cluster)


async def test_old_code_does_not_start_on_a_schema_that_breaks_it_and_says_so(
    cluster: Cluster, old: str, database_url: str
) -> None:
    await migrate(database_url, known=later("-- stage: post\n-- breaking\n"))
    await refuses(cluster, old, database_url, known_migrations()[-1].version + 1)


async def refuses(cluster: Cluster, old: str, database_url: str, version: int) -> None:
    child = cluster._start(
        ["server", "--port", str(cluster.port), "--data", str(cluster.folder)],
        {"MAINSPRING_DATABASE_URL": database_url, "PYTHONPATH": old},
    )
    assert child.wait(START) != 0
    said = cluster.said(child)
    assert "start a newer Mainspring" in said
    assert f"migration {version}" in said
    assert "Traceback" not in said
