"""The death of a worker, with real servers: its runs go on elsewhere, and never beside what it left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from mainspring.store.workers import WorkerState
from tests.processes.cluster import DEAD, SLOW, Cluster, eventually, process_is_alive, worker_process
from tests.worker.a_launched_worker import below, children_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

TASKS = """
import asyncio, os, subprocess, sys
from pathlib import Path
from mainspring import Context, Mainspring
app = Mainspring()
HERE = Path(__file__).parent
DAEMON = "import os; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); "
DAEMON += "open(os.sys.argv[1], 'a').write(f'{os.getpid()} '); os.execv('/bin/sleep', ['sleep', '300'])"

@app.task
async def leaves_processes(ctx: Context) -> None:
    for pid in (HERE / "pids").read_text().split() if (HERE / "pids").exists() else []:
        try:
            (HERE / "seen").open("a").write(Path(f"/proc/{pid}/stat").read_text() + "\\n")
        except (FileNotFoundError, ProcessLookupError):
            pass
    child = subprocess.Popen(["/bin/sleep", "300"], env={}, start_new_session=True)
    subprocess.run([sys.executable, "-I", "-S", "-c", DAEMON, str(HERE / "pids")], env={})
    (HERE / "pids").open("a").write(f"{child.pid} {os.getpid()} ")
    (HERE / f"attempt-{ctx.attempt}").touch()
    await asyncio.sleep(300)

@app.task
async def exits() -> None:
    path = HERE / "exited"
    if not path.exists():
        path.touch()
        os._exit(7)
"""


@pytest.fixture
def place(cluster: Cluster) -> Path:
    (cluster.folder / "tasks.py").write_text(TASKS)
    return cluster.folder


async def ask(database_url: str, query: str) -> list[Any]:
    connection = await asyncpg.connect(database_url)
    try:
        return [row[0] for row in await connection.fetch(query)]
    finally:
        await connection.close()


async def noticed(database_url: str) -> list[int]:
    """The states of the workers whose death notice was taken."""
    return await ask(database_url, "select state from mainspring.workers where notice_at is not null")


async def begun(place: Path, attempt: int) -> bool:
    return (place / f"attempt-{attempt}").exists()


@pytest.mark.parametrize("victim", ["launcher", "worker"])
async def test_the_next_attempt_comes_at_once_and_finds_nothing_of_the_one_before(
    victim: str, cluster: Cluster, place: Path, database_url: str
) -> None:
    await cluster.server()
    doomed = await cluster.worker(app="tasks:app", folder=place)
    job_id = await cluster.submit(task="leaves_processes")
    await eventually(lambda: begun(place, 1), SLOW, "the first attempt has begun")
    worker = worker_process(doomed.pid)

    async def three() -> list[int]:
        pids = [int(pid) for pid in (place / "pids").read_text().split()]
        return pids if len(pids) == 3 else []

    pids = await eventually(three, SLOW, "the daemon has written its pid too")
    assert all(process_is_alive(pid) for pid in pids)
    await cluster.worker(app="tasks:app", folder=place)
    os.kill(doomed.pid if victim == "launcher" else worker, signal.SIGKILL)
    await eventually(lambda: begun(place, 2), SLOW, "the second attempt has begun")
    assert not any(process_is_alive(pid) for pid in pids)
    seen = (place / "seen").read_text().splitlines() if (place / "seen").exists() else []
    assert {line.rpartition(")")[2].split()[0] for line in seen if line} <= set(DEAD)

    async def second() -> bool:
        return bool((await cluster.latest_run(job_id))["attempt_number"] == 2)

    await eventually(second, SLOW, "the server has heard of the start")
    assert await noticed(database_url) == [WorkerState.LOST]


async def test_a_task_that_ends_its_worker_runs_again_on_the_next(cluster: Cluster, place: Path) -> None:
    await cluster.server()
    worker = await cluster.worker(app="tasks:app", folder=place)
    job_id = await cluster.submit(task="exits")
    await cluster.worker(app="tasks:app", folder=place)

    async def ended() -> bool:
        return worker.poll() is not None or (await cluster.latest_run(job_id)).get("status") == "SUCCESS"

    await eventually(ended, SLOW, "the task ran")
    run = await cluster.ended(job_id)
    assert (run["status"], run["attempt_number"]) == ("SUCCESS", 2)


async def test_a_worker_that_dies_while_its_only_server_is_down_is_known_when_that_is_back(
    cluster: Cluster, place: Path, database_url: str
) -> None:
    server = await cluster.server()
    doomed = await cluster.worker(app="tasks:app", folder=place)
    await cluster.submit(task="leaves_processes")
    await eventually(lambda: begun(place, 1), SLOW, "the first attempt has begun")
    (parent_watchdog,) = children_of(doomed.pid)
    server.kill()
    server.wait()
    doomed.kill()
    doomed.wait()

    async def alone() -> bool:
        return not below(parent_watchdog)

    await eventually(alone, SLOW, "everything below the parent watchdog is gone")
    assert process_is_alive(parent_watchdog)
    await cluster.server()

    async def told() -> bool:
        return not process_is_alive(parent_watchdog)

    await eventually(told, SLOW, "it has told the server")
    assert await noticed(database_url) == [WorkerState.LOST]
    await cluster.worker(app="tasks:app", folder=place)
    await eventually(lambda: begun(place, 2), SLOW, "the second attempt has begun")


async def test_a_worker_that_stops_in_order_is_stopped_and_its_notice_changes_nothing(
    cluster: Cluster, database_url: str
) -> None:
    await cluster.server()
    worker = await cluster.worker()
    (parent_watchdog,) = children_of(worker.pid)

    async def registered() -> bool:
        return bool(await ask(database_url, "select 1 from mainspring.workers where rescue_after > 7"))

    await eventually(registered, SLOW, "the server has answered: the second hello asks for a lease")
    worker.terminate()
    assert worker.wait(SLOW) == 0

    async def told() -> bool:
        return not process_is_alive(parent_watchdog)

    await eventually(told, SLOW, "it has told the server")
    assert await noticed(database_url) == [WorkerState.STOPPED]
