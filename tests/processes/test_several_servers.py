"""Workers that know several servers, on real processes: the one in use dies, and nobody notices."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.processes.cluster import SLOW, Cluster, eventually, free_port

pytestmark = pytest.mark.anyio

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
async def parent() -> str:
    return (await step.submit_async(name="child", seconds=0)).job_id
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
    """Two servers, and a worker that knows both and is at the first."""

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
