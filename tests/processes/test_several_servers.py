"""Workers with several servers, on real processes: the server in use is killed, and no run is affected."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mainspring.roles.worker import servers_in_order
from tests.processes.cluster import SLOW, Cluster, eventually, free_port

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

TASKS = """
import asyncio, os
from mainspring import Mainspring

app = Mainspring()

def mark(text):
    file = os.open("marks", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{text}\\n".encode())
    os.close(file)

@app.task
async def step(name: str, seconds: float) -> None:
    mark(name)
    await asyncio.sleep(seconds)

@app.task
async def lasts(name: str) -> None:
    mark(name)
    while not os.path.exists("go"):
        await asyncio.sleep(0.02)

@app.task
async def parent() -> str:
    return (await step.submit_async(name="child", seconds=0)).job_id
"""

# A worker that checks its preferred server after one second instead of half a minute.
WORKER_PROGRAM = """
import argparse, sys
from pathlib import Path
from mainspring.kernel.config import Timing
from mainspring.roles.worker import WorkerOptions, serve_worker

parser = argparse.ArgumentParser()
parser.add_argument("role")
for name in ("--server", "--token-file", "--slots", "--app"):
    parser.add_argument(name)
given = parser.parse_args()
timing = Timing(preferred_server_check=1.0, preferred_server_check_longest=2.0)
token = Path(given.token_file).read_text()
options = WorkerOptions(given.server, token, None, int(given.slots), None, given.app, "info", timing=timing)
sys.exit(serve_worker(options))
"""


@pytest.fixture
def place(cluster: Cluster) -> Path:
    folder = cluster.folder / "app"
    folder.mkdir()
    (folder / "tasks.py").write_text(TASKS)
    return folder


def marks(place: Path) -> list[str]:
    file = place / "marks"
    return file.read_text().split() if file.exists() else []


class Pair:
    """Two servers, and a worker that knows both and uses the first."""

    def __init__(self, cluster: Cluster, place: Path) -> None:
        self.cluster = cluster
        self.place = place

    async def start(self) -> None:
        cluster, other = self.cluster, free_port()
        self.first = await cluster.server()
        addresses = f"{cluster.url},http://127.0.0.1:{other}"
        self.worker = await cluster.worker(app="tasks:app", slots=4, folder=self.place, servers=addresses)
        await cluster.server(other)
        cluster.talk_to(other)

    async def until(self, count: int) -> None:
        async def enough() -> bool:
            return len(marks(self.place)) >= count

        await eventually(enough, SLOW, f"{count} runs have started")

    async def has_moved(self) -> bool:
        return "going to another server" in self.cluster.said(self.worker)

    async def submit(self, count: int, **payload: Any) -> list[str]:
        jobs = [{"task": "step", "payload": {"name": f"r{number}", **payload}} for number in range(count)]
        return await self.cluster.submit_all(jobs)

    async def all_ran_once_on_one_worker(self, job_ids: list[str]) -> None:
        runs = [await self.cluster.ended(job_id, within=SLOW) for job_id in job_ids]
        assert {(run["status"], run["attempt_number"]) for run in runs} == {("SUCCESS", 1)}
        assert set(Counter(marks(self.place)).values()) == {1}, "none was started twice"
        [worker] = (await self.cluster.http.get("/v1/workers")).json()["workers"]
        assert {run["executor_id"] for run in runs} == {worker["worker_id"]}, "it is the same incarnation"
        assert worker["state"] == "LIVE"
        assert self.worker.poll() is None


@pytest.mark.slow
async def test_a_killed_servers_worker_goes_on_at_the_other_and_no_run_is_lost_or_doubled(
    cluster: Cluster, place: Path
) -> None:
    pair = Pair(cluster, place)
    await pair.start()
    job_ids = await pair.submit(100, seconds=0.05)
    lasting = await cluster.submit(task="step", payload={"name": "lasting", "seconds": 6})
    await pair.until(20)
    pair.first.send_signal(signal.SIGKILL)
    pair.first.wait()
    await pair.all_ran_once_on_one_worker([*job_ids, lasting])
    await eventually(pair.has_moved, SLOW, "the worker has gone to the other server")
    # What a task submits goes to the other server too.
    parent = await cluster.ended(await cluster.submit(task="parent"))
    assert parent["status"] == "SUCCESS", parent["error_message"]
    assert (await cluster.ended(parent["result"]))["status"] == "SUCCESS"


@pytest.mark.slow
async def test_a_worker_comes_back_to_the_server_it_prefers_when_that_one_is_there_again(
    cluster: Cluster, place: Path
) -> None:
    (place / "preferring_worker.py").write_text(WORKER_PROGRAM)
    ports = [cluster.port, free_port()]
    urls = {f"http://127.0.0.1:{port}": port for port in ports}
    servers = {port: await cluster.server(port) for port in ports}
    worker = await cluster.worker(
        app="tasks:app", folder=place, servers=",".join(urls), program=str(place / "preferring_worker.py")
    )
    preferred, second = servers_in_order(",".join(urls), None, worker.pid).split(",")
    home, other = urls[preferred], urls[second]
    cluster.talk_to(other)

    def returns() -> int:
        """How often the worker has switched to the preferred server. On a slow machine it can also switch because the
        other one was late."""
        lines = cluster.said(worker).splitlines()
        return sum("going " in line and f'"server": "{preferred}"' in line for line in lines)

    lasting = await cluster.submit(task="lasts", payload={"name": "lasting"})
    await eventually(lambda: _has(place, "lasting"), SLOW, "it has begun")
    servers[home].send_signal(signal.SIGKILL)
    servers[home].wait()
    away = await cluster.ended(await cluster.submit(task="step", payload={"name": "away", "seconds": 0}))
    assert away["status"] == "SUCCESS"
    before = returns()  # 0, unless the machine was so slow that the worker has switched before
    await cluster.server(home)

    async def returned() -> bool:
        assert worker.poll() is None, cluster.said(worker)
        return returns() > before

    await eventually(returned, SLOW, "the worker goes back")
    cluster.talk_to(home)
    back = await cluster.ended(await cluster.submit(task="step", payload={"name": "back", "seconds": 0}))
    servers[other].send_signal(signal.SIGKILL)  # the worker no longer uses it
    servers[other].wait()
    (place / "go").touch()
    lasted = await cluster.ended(lasting)
    assert {(run["status"], run["attempt_number"]) for run in (away, back, lasted)} == {("SUCCESS", 1)}
    assert len({run["executor_id"] for run in (away, back, lasted)}) == 1, "it is the same incarnation"
    assert sorted(marks(place)) == ["away", "back", "lasting"], "none was started twice"


async def _has(place: Path, mark: str) -> bool:
    return mark in marks(place)
