"""kill -9 of a worker and of a server, with real processes. Each test checks what a user would see."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.processes.cluster import DEAD, SLOW, Cluster, eventually, process_is_alive, processes_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

UNISOLATED = ("--process-isolation", "off")


async def test_a_killed_workers_child_is_gone_before_another_attempt_runs(cluster: Cluster) -> None:
    """The watchdog kills it at once, and the run is given to another worker when nothing of it is left. The times are
    tested in tests/upkeep/test_run_rescuer.py and by `make faults`."""
    await cluster.server()
    doomed = await cluster.worker(*UNISOLATED)  # or the second attempt could not look for the first
    note, seen = cluster.folder / "pids", cluster.folder / "seen"
    look = f"for pid in $(cat {note} 2>/dev/null); do cat /proc/$pid/stat; done >> {seen} 2>/dev/null"
    job_id = await cluster.submit(command=f"{look}; setsid sleep 300 & echo $$ $! >> {note}; sleep 300")

    async def started() -> list[int]:
        return _pids(note, 0)

    children = await eventually(started, SLOW, "the shell job has started")
    await cluster.worker(*UNISOLATED)

    async def gone() -> bool:
        return not any(process_is_alive(pid) for pid in children)

    async def again() -> list[int]:
        return _pids(note, 1)

    os.kill(doomed.pid, signal.SIGKILL)
    await eventually(gone, SLOW, "the killed worker's processes are gone")
    await eventually(again, SLOW, "another attempt runs")
    found = [line.rpartition(")")[2].split()[0] for line in seen.read_text().splitlines()]
    assert set(found) <= set(DEAD), "the second attempt has found a process of the first alive"

    async def shown() -> bool:
        run = await cluster.latest_run(job_id)
        return (run["status"], run["attempt_number"]) == ("RUNNING", 2)

    await eventually(shown, SLOW, "the second attempt is shown as running")


async def test_cancelled_means_that_no_process_of_the_run_is_left(cluster: Cluster) -> None:
    await cluster.server()
    await cluster.worker()
    note = cluster.folder / "pids"
    deaf = cluster.folder / "deaf"
    deaf.write_text(f"trap '' TERM; echo $$ >> {note}; while :; do sleep 0.05; done")
    job_id = await cluster.submit(
        command=f"setsid sh {deaf} & sh {deaf} & (setsid sh {deaf} &) & echo $$ >> {note}; exec yes", kill_grace="300ms"
    )

    async def all_started() -> bool:
        return len(_lines(note)) == 4

    await eventually(all_started, SLOW, "the command and its three children run")
    assert len(processes_of(job_id)) >= 4
    run_id = (await cluster.latest_run(job_id))["run_id"]
    assert (await cluster.http.post(f"/v1/runs/{run_id}:cancel")).status_code == 202
    assert (await cluster.ended(job_id))["status"] == "CANCELLED"
    assert processes_of(job_id) == []


async def test_a_killed_server_runs_no_second_of_a_cron_twice_and_loses_none_unrecorded(cluster: Cluster) -> None:
    server = await cluster.server()
    await cluster.worker()
    note = cluster.folder / "seconds"
    job_id = await cluster.submit(
        command=f'echo "$MAINSPRING_SCHEDULED_FOR/$MAINSPRING_ATTEMPT" >> {note}',
        schedule="* * * * * *",
        overlap="allow",
    )

    async def three_ran() -> bool:
        return len(_lines(note)) >= 3

    await eventually(three_ran, SLOW, "three seconds have run")
    server.send_signal(signal.SIGKILL)
    server.wait()
    await cluster.server()
    await cluster.worker()  # on a slow machine the first one can have ended, because it had no server for too long
    before = len(_lines(note))

    async def three_more() -> bool:
        return len(_lines(note)) >= before + 3

    await eventually(three_more, SLOW, "the cron goes on")
    await cluster.http.post(f"/v1/jobs/{job_id}:pause")

    async def all_ended() -> bool:
        return all(run["end_time"] for run in await cluster.runs(job_id))

    await eventually(all_ended, SLOW, "every run has ended")
    runs = await cluster.runs(job_id)
    missed = (await cluster.http.get(f"/v1/jobs/{job_id}/missed")).json()
    moments = sorted(datetime.fromisoformat(run["scheduled_for"]) for run in runs)
    assert len(moments) == len(set(moments)), "a fire time has two runs"
    ran = _lines(note)
    # On a slow machine the worker can be declared lost and a run be retried, which is another attempt.
    assert len(ran) == len(set(ran)), "a second ran twice"
    for gap in missed:
        first, last = datetime.fromisoformat(gap["first"]), datetime.fromisoformat(gap["last"])
        covered = [first + timedelta(seconds=n) for n in range(int((last - first).total_seconds()) + 1)]
        assert len(covered) == gap["count"]
        moments += covered
    moments.sort()
    expected = [moments[0] + timedelta(seconds=n) for n in range(len(moments))]
    assert moments == expected, "a second is neither run nor recorded as missed"


async def test_a_worker_that_is_told_to_stop_finishes_what_runs_and_hands_back_the_rest(cluster: Cluster) -> None:
    await cluster.server()
    worker = await cluster.worker(app="tests.processes.sample_app:app", slots=1)
    go = cluster.folder / "go"
    first = await cluster.submit(command=f"until [ -e {go} ]; do sleep 0.05; done")

    async def running() -> bool:
        return (await cluster.latest_run(first)).get("status") == "RUNNING"

    await eventually(running, SLOW, "the first job runs")
    waiting = [await cluster.submit(task="doze", payload={"seconds": 0}) for _ in range(5)]
    worker.send_signal(signal.SIGTERM)

    async def drains() -> bool:
        return "draining" in cluster.said(worker)

    await eventually(drains, SLOW, "the worker drains")
    go.touch()
    assert (await cluster.ended(first))["status"] == "SUCCESS"
    assert await asyncio.to_thread(worker.wait, SLOW) == 0
    for job_id in waiting:
        run = await cluster.latest_run(job_id)
        assert (run["status"], run["attempt_number"]) == ("QUEUED", 0), run
    await cluster.worker(app="tests.processes.sample_app:app")
    for job_id in waiting:
        assert (await cluster.ended(job_id))["status"] == "SUCCESS"


def _lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def _pids(file: Path, line: int) -> list[int]:
    """The pids of the nth attempt, when its line is complete."""
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [int(word) for word in lines[line].split()] if len(lines) > line and lines[line].endswith("\n") else []
