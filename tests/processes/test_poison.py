"""A task that ends its worker's process, beside innocent neighbours, with real processes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.processes.cluster import SLOW, Cluster, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

NEIGHBOURS = 10
# The neighbours of the first attempt have all started when the poison acts. Later attempts end at once.
APP = """
import asyncio, os, signal, sys, threading, time
from pathlib import Path
from mainspring import Context, Mainspring

{before}
app = Mainspring()
here = Path(__file__).parent

def started(ctx):
    # In a child, too, a task finds the environment and the folder of the worker.
    assert (os.environ["OF_THE_WORKER"], Path.cwd()) == ("yes", here)
    (here / f"started-{{ctx.run_id}}-{{ctx.attempt}}").touch()

def others(ctx):
    return len(list(here.glob(f"started-*-{{ctx.attempt}}"))) >= {neighbours}

@app.task
async def neighbour(ctx: Context) -> int:
    started(ctx)
    while ctx.attempt == 1:
        await asyncio.sleep(0.05)
    return ctx.attempt

@app.task
def thread_neighbour(ctx: Context) -> int:
    started(ctx)
    while ctx.attempt == 1:
        time.sleep(0.05)
    return ctx.attempt

@app.task
async def poison(ctx: Context) -> None:
    while ctx.attempt == 1 and not others(ctx):
        await asyncio.sleep(0.05)
    os._exit(9)

@app.task
def thread_poison(ctx: Context) -> None:
    while ctx.attempt == 1 and not others(ctx):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
"""
ONLY_IN_THE_WORKER = 'assert "mainspring.worker.executors.process.warm" not in sys.orig_argv'


@pytest.fixture(autouse=True)
def variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_WORKER", "yes")


async def poisoned(cluster: Cluster, folder: Path, kind: str, poison: dict[str, Any]) -> dict[str, dict[str, Any]]:
    jobs = [{"job_id": "poison", "task": f"{kind}poison", **poison}]
    jobs += [{"job_id": f"n{number}", "task": f"{kind}neighbour"} for number in range(NEIGHBOURS)]
    return (await together(cluster, jobs, app="poison_app:app", folder=folder))[0]


async def together(
    cluster: Cluster, jobs: list[dict[str, Any]], *options: str, **fields: Any
) -> tuple[dict[str, dict[str, Any]], int]:
    """Run the poison beside its neighbours. A worker that ends is replaced, as a service manager does. Return the ended
    runs, by job, and how many workers have ended."""
    await cluster.server()
    workers: list[subprocess.Popen[bytes]] = []

    async def a_worker() -> None:
        workers.append(await cluster.worker(*options, slots=NEIGHBOURS + 5, **fields))

    await a_worker()
    names = await cluster.submit_all(jobs)

    async def all_ended() -> bool:
        if workers[-1].poll() is not None:
            await a_worker()
        runs = [await cluster.latest_run(name) for name in names]
        return all(run.get("end_time") for run in runs)

    await eventually(all_ended, 4 * SLOW, "every run has ended")
    return {name: await cluster.latest_run(name) for name in names}, len(workers) - 1


def check_neighbours(runs: dict[str, dict[str, Any]]) -> None:
    found = {name: (run["status"], run["losses"], run["result"]) for name, run in runs.items() if name != "poison"}
    assert found == dict.fromkeys(found, ("SUCCESS", 1, 2))
    assert len(found) == NEIGHBOURS


@pytest.mark.parametrize("kind", ["", "thread_"], ids=["async", "thread"])
async def test_a_lost_run_has_a_process_of_its_own_and_ends_only_that(
    cluster: Cluster, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "poison_app.py").write_text(APP.format(before="", neighbours=NEIGHBOURS))
    runs = await poisoned(cluster, tmp_path, kind, {"retry": {"max_attempts": 2, "base": "100ms"}})
    check_neighbours(runs)
    end = runs["poison"]
    assert (end["status"], end["losses"], end["attempt_number"], end["max_attempts"]) == ("FAILED", 1, 3, 3)
    assert end["reason"] == "failed 2 times, no tries left"
    assert end["error_message"].startswith("the task's process ended with")


@pytest.mark.parametrize("kind", ["", "thread_"], ids=["async", "thread"])
async def test_where_no_child_can_load_the_application_a_lost_run_runs_without_neighbours(
    cluster: Cluster, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "poison_app.py").write_text(APP.format(before=ONLY_IN_THE_WORKER, neighbours=NEIGHBOURS))
    runs = await poisoned(cluster, tmp_path, kind, {"max_losses": 1, "retry": {"max_attempts": 1}})
    check_neighbours(runs)
    end = runs["poison"]
    assert (end["status"], end["losses"]) == ("FAILED", 2)
    assert end["reason"].startswith("lost 2 times, max_losses is 1")


# A plain command of the worker's own user finds the worker: it is the parent of the watchdog, which is that of the
# supervisor. The neighbours of the first attempt have all started then.
KILLER = """
parent() {{ cut -d ' ' -f 4 /proc/$1/stat; }}
until [ $MAINSPRING_ATTEMPT -gt 1 ] || [ $(ls {0} | wc -l) -ge {1} ]; do sleep 0.05; done
kill -9 $(parent $(parent $PPID)); sleep 60
"""
WAITS = "touch {0}/$MAINSPRING_RUN_ID; until [ $MAINSPRING_ATTEMPT -gt 1 ]; do sleep 0.05; done"


async def test_a_command_that_kills_its_worker_again_while_it_is_alone_is_a_dead_letter(
    cluster: Cluster, tmp_path: Path
) -> None:
    began = tmp_path / "began"
    began.mkdir()
    jobs: list[dict[str, Any]] = [{"job_id": "poison", "command": KILLER.format(began, NEIGHBOURS), "max_losses": 50}]
    jobs += [{"job_id": f"n{number}", "command": WAITS.format(began)} for number in range(NEIGHBOURS)]
    runs, dead_workers = await together(cluster, jobs, "--process-isolation", "off")
    found = {name: (run["status"], run["losses"]) for name, run in runs.items() if name != "poison"}
    assert found == dict.fromkeys(found, ("SUCCESS", 1))
    end = runs["poison"]
    assert (end["status"], end["losses"], dead_workers) == ("FAILED", 2, 2)
    assert end["reason"].startswith("lost 2 times, the last time while it was alone on its worker (killed by SIGKILL)")
