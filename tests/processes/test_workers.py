"""Workers on real processes: labels, queue weights, task concurrency, drain, reload, progress."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.cluster import SLOW, START, Cluster, eventually, process_is_alive

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

# A Crowd counts, inside the worker, how many runs are in it at a time. It releases them when there were `wanted`.
TASKS = """
import asyncio
from mainspring import Context, Mainspring

app = Mainspring()

class Crowd:
    def __init__(self, wanted):
        self.wanted, self.now, self.most = wanted, 0, 0

    async def visit(self):
        self.now += 1
        self.most = max(self.most, self.now)
        while self.most < self.wanted:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        self.now -= 1
        return self.most

two, three = Crowd(2), Crowd(3)
lights = [0]

@app.task
async def answer() -> str:
    return "old"

@app.task
async def doze(seconds: float) -> None:
    await asyncio.sleep(seconds)

@app.task
async def light() -> int:
    lights[0] += 1
    await asyncio.sleep(0.3)
    at_once = lights[0]
    await asyncio.sleep(0.1)
    lights[0] -= 1
    return at_once

@app.task(worker_concurrency=2)
async def narrow() -> int:
    return await two.visit()

@app.task
async def wide() -> int:
    return await three.visit()

@app.task
async def pages(ctx: Context) -> None:
    for page in range(1, 10001):
        ctx.progress(page / 10000, f"page {page}")
        await asyncio.sleep(0.01)
"""
APP = "tasks:app"


@pytest.fixture
def place(cluster: Cluster) -> Path:
    """A folder with an application."""
    folder = cluster.folder / "app"
    folder.mkdir()
    write(folder, TASKS)
    return folder


def write(folder: Path, text: str) -> None:
    """Write a file atomically, because the reloader watches it."""
    draft = folder / "tasks.draft"
    draft.write_text(text)
    draft.replace(folder / "tasks.py")


async def until_ended(child: subprocess.Popen[bytes], within: float = SLOW) -> int:
    async def ended() -> bool:
        return child.poll() is not None

    await eventually(ended, within, "the process ends")
    return child.returncode


async def most_at_once(cluster: Cluster, job_ids: list[str]) -> int:
    """The largest number that these runs return. Recorded times are not precise enough: they are the times at which the
    server gave out the run and received its end, which are off on a slow machine."""
    runs = [await cluster.ended(job_id) for job_id in job_ids]
    assert {run["status"] for run in runs} == {"SUCCESS"}
    return max(run["result"] for run in runs)


async def test_a_job_runs_only_where_the_labels_are(cluster: Cluster, place: Path) -> None:
    await cluster.server()
    await cluster.worker("--label", "zone=us", app=APP, folder=place)
    wanting = await cluster.submit(task="answer", required_labels={"gpu": "a100", "zone": "eu"})
    await cluster.ended(await cluster.submit(task="answer", required_labels={"zone": "us"}))
    assert (await cluster.latest_run(wanting))["status"] == "QUEUED"
    await cluster.worker("--label", "gpu=a100", "--label", "zone=eu", "--name", "european", app=APP, folder=place)
    run = await cluster.ended(wanting)
    shown = cluster.cli("workers", "--full-ids")
    assert shown.returncode == 0, shown.stderr
    [line] = [line for line in shown.stdout.splitlines() if "european" in line]
    assert "gpu=a100" in line and "zone=eu" in line and run["executor_id"] in line


async def test_light_work_does_not_wait_behind_heavy_work(cluster: Cluster, place: Path) -> None:
    await cluster.server()
    await cluster.worker("--queues", "heavy=1,light=3", app=APP, slots=4, folder=place)
    heavy = [await cluster.submit(task="doze", payload={"seconds": 600}, queue="heavy") for _ in range(8)]

    async def three_run() -> bool:
        states = [(await cluster.latest_run(job_id))["status"] for job_id in heavy]
        return states.count("RUNNING") == 3

    await eventually(three_run, SLOW, "heavy work has all slots but one")
    light = [await cluster.submit(task="answer", queue="light") for _ in range(5)]
    for job_id in light:
        assert (await cluster.ended(job_id))["status"] == "SUCCESS"
    assert await three_run()


async def test_light_work_alone_gets_every_slot(cluster: Cluster, place: Path) -> None:
    await cluster.server()
    await cluster.worker("--queues", "heavy=1,light=3", app=APP, slots=4, folder=place)

    async def four_at_once() -> bool:
        await cluster.ended(
            await cluster.submit(task="answer", queue="light")
        )  # so that the worker knows that light runs are quick
        made = await cluster.submit_all([{"task": "light", "queue": "light"}] * 4)
        return await most_at_once(cluster, made) == 4

    await eventually(four_at_once, SLOW, "four light runs at once")


async def test_a_task_with_a_limit_never_runs_more_often_at_a_time(cluster: Cluster, place: Path) -> None:
    await cluster.server()
    await cluster.worker(app=APP, slots=8, folder=place)
    narrow = await cluster.submit_all([{"task": "narrow"}] * 8)
    others = await cluster.submit_all([{"task": "wide"}] * 6)
    assert await most_at_once(cluster, narrow) == 2
    assert await most_at_once(cluster, others) > 2


@pytest.mark.slow
async def test_a_worker_drained_from_the_command_line_finishes_and_exits_with_0(cluster: Cluster, place: Path) -> None:
    await cluster.server()
    worker = await cluster.worker("--name", "leaving", app=APP, folder=place)
    job_id = await cluster.submit(task="doze", payload={"seconds": 5})

    async def running() -> bool:
        return bool((await cluster.latest_run(job_id))["status"] == "RUNNING")

    await eventually(running, SLOW, "the job runs")
    told = cluster.cli("drain", "leaving")
    assert (told.returncode, told.stderr) == (0, "")
    assert "DRAINING" in told.stdout
    assert await until_ended(worker) == 0
    run = await cluster.ended(job_id)
    assert (run["status"], run["attempt_number"]) == ("SUCCESS", 1)
    again = cluster.cli("drain", "leaving")
    assert again.returncode == 4 and "STOPPED" in again.stderr
    assert cluster.cli("drain", "nobody").returncode == 3


@pytest.mark.slow
async def test_progress_is_seen_while_the_run_goes_on(cluster: Cluster, place: Path) -> None:
    await cluster.server()
    await cluster.worker(app=APP, folder=place)
    job_id = await cluster.submit(task="pages")
    seen: list[float] = []

    async def has_moved() -> bool:
        progress = (await cluster.latest_run(job_id)).get("progress")
        if progress is not None and progress["fraction"] not in seen:
            assert progress["message"] == f"page {round(progress['fraction'] * 10000)}"
            seen.append(progress["fraction"])
        return len(seen) >= 6

    await eventually(has_moved, SLOW, "a new share every half second")
    assert seen == sorted(seen)
    await cluster.http.delete(f"/v1/jobs/{job_id}")


@pytest.mark.slow
async def test_reload_starts_the_worker_anew_when_a_file_changes_and_survives_a_broken_one(
    cluster: Cluster, place: Path
) -> None:
    await cluster.server()
    worker = await cluster.worker("--reload", app=APP, folder=place)

    async def says(words: str) -> None:
        async def said() -> bool:
            return words in cluster.said(worker)

        await eventually(said, SLOW, f"it says {words!r}; it said {cluster.said(worker)}")

    assert (await cluster.ended(await cluster.submit(task="answer")))["result"] == "old"
    write(place, "import nonsense_that_is_not_there\n")
    await says("reloading: tasks.py")
    await says("waiting for a file change")
    job_id = await cluster.submit(task="answer")
    write(place, TASKS.replace('"old"', '"new"'))
    assert (await cluster.ended(job_id))["result"] == "new"
    assert worker.poll() is None
    worker.terminate()
    assert await until_ended(worker) == 0


@pytest.mark.slow
async def test_reload_ends_with_its_worker_when_that_is_drained_and_takes_it_along_when_killed(
    cluster: Cluster, place: Path
) -> None:
    await cluster.server()
    drained = await cluster.worker("--reload", "--name", "one", app=APP, folder=place)
    assert cluster.cli("drain", "one").returncode == 0
    assert await until_ended(drained) == 0
    killed = await cluster.worker("--reload", "--name", "two", app=APP, folder=place)
    children = [int(pid) for pid in Path(f"/proc/{killed.pid}/task/{killed.pid}/children").read_text().split()]
    assert children
    os.kill(killed.pid, 9)

    async def gone() -> bool:
        return not any(process_is_alive(pid) for pid in children)

    await eventually(gone, SLOW, "the worker has ended with the process that watched over it")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--queues", "heavy=0"], "heavy has the weight"),
        (["--queues", "a=1,b=1,c=1", "--slots", "2"], "3 queues share 2 slot(s)"),
        (["--queues", "a,a"], "named twice"),
        (["--label", "gpu"], "is not NAME=VALUE"),
        (["--label", "gpu=a", "--label", "gpu=b"], "given twice"),
        (["--reload"], "--reload needs an application"),
    ],
)
def test_a_mistake_in_the_options_is_said_before_anything_starts(
    options: list[str], words: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("x")
    said = subprocess.run(
        [sys.executable, "-m", "mainspring", "worker", "--token-file", str(token), *options],
        capture_output=True, text=True, timeout=START, check=False,
    )  # fmt: skip
    assert said.returncode == 2
    assert words in said.stderr and "hint:" in said.stderr
