"""Work stealing on real processes: runs that a busy worker has not started are started by an idle one, and only there.

tests/operations/test_recall.py and tests/worker/test_told_by_the_server.py test how the worker gives them back: on
request, or by itself after half a second.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.processes.cluster import SLOW, Cluster, eventually, free_port, worker_process

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

# Many quick runs, so that the worker prefetches, then runs that block its slots. The run that takes the last slot makes
# the other worker idle. Each process counts for itself, so that the runs are quick on the other worker.
TASKS = """
import asyncio, os
from mainspring import Mainspring

app = Mainspring()
started = 0

def mark(text):
    file = os.open("marks", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{text}\\n".encode())
    os.close(file)

async def until(name):
    while not os.path.exists(name):
        await asyncio.sleep(0.01)

@app.task
async def step(number: int, quick: int, slots: int) -> None:
    global started
    mark(f"{number}:{os.getpid()}")
    started += 1
    if started == quick + slots:
        open("idle", "w").close()
    if started > quick:
        await until("gate")

@app.task
async def plug() -> None:
    mark(f"plug:{os.getpid()}")
    await until("idle")
"""
QUICK, HELD, SLOTS = 580, 20, 2


class Workers:
    """A worker that becomes busy, and one that is full until the first one is."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.place = cluster.folder / "app"
        self.place.mkdir()
        (self.place / "tasks.py").write_text(TASKS)

    async def start(self, servers_of_the_other: str | None = None) -> None:
        start = self.cluster.worker
        self.busy = await start("--name", "busy", app="tasks:app", slots=SLOTS, folder=self.place)
        self.other = await start(
            "--name", "other", "--label", "plugged=yes", app="tasks:app", slots=4, folder=self.place,
            servers=servers_of_the_other,
        )  # fmt: skip

    async def play(self) -> None:
        """Run everything. Each run starts once. Those for which the busy worker has no slot start on the other one."""
        await self.cluster.submit_all([{"task": "plug", "required_labels": {"plugged": "yes"}}] * 4)
        await eventually(lambda: self._started("plug", 4), SLOW, "the other worker is full")
        payloads = [{"number": number, "quick": QUICK, "slots": SLOTS} for number in range(QUICK + HELD)]
        await self.cluster.submit_all([{"task": "step", "payload": payload} for payload in payloads])
        await eventually(lambda: self._started("", QUICK + HELD + 4), SLOW, "every run has started")
        (self.place / "gate").touch()
        marks = [line.split(":") for line in self._marks()]
        steps = [(number, int(pid)) for number, pid in marks if number != "plug"]
        assert set(Counter(number for number, _ in steps).values()) == {1}, "a run was started twice"
        by_process = Counter(pid for _, pid in steps)
        busy, other = (worker_process(worker.pid) for worker in (self.busy, self.other))
        assert by_process == {busy: QUICK + SLOTS, other: HELD - SLOTS}
        await eventually(self._all_succeeded_at_first, SLOW, "every run has succeeded, with its first attempt")

    async def _all_succeeded_at_first(self) -> bool:
        answer = await self.cluster.http.get("/v1/runs", params={"task": "step", "limit": QUICK + HELD})
        runs = answer.json()["runs"]
        assert len(runs) == QUICK + HELD
        return {(run["status"], run["attempt_number"]) for run in runs} == {("SUCCESS", 1)}

    def _marks(self) -> list[str]:
        file = self.place / "marks"
        return file.read_text().splitlines() if file.exists() else []

    async def _started(self, name: str, count: int) -> bool:
        return sum(line.startswith(name) for line in self._marks()) == count


async def test_runs_that_a_busy_worker_holds_unstarted_move_to_one_that_becomes_idle(cluster: Cluster) -> None:
    await cluster.server()
    workers = Workers(cluster)
    await workers.start()
    await workers.play()


async def test_they_move_to_an_idle_worker_at_another_server_too(cluster: Cluster) -> None:
    other = free_port()
    await cluster.server()
    await cluster.server(other)
    workers = Workers(cluster)
    await workers.start(f"http://127.0.0.1:{other}")
    await workers.play()
