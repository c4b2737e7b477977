"""Logs on real processes: followed on the command line, complete after kill -9 of a server, a prefix after that of a
worker."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import defaultdict

import pytest

from mainspring.sdk.client.async_client import AsyncClient
from tests.conftest import TOKEN
from tests.eventually import PATIENCE
from tests.processes.cluster import SLOW, START, Cluster, eventually, free_port

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
APP = "tests.processes.sample_app:app"
COUNTED = "".join(f"line {number}\n" for number in range(40))


def counting(cluster: Cluster) -> str:
    """A command that prints half of COUNTED, and the other half when the file `go` exists."""
    wait = f"[ $i -lt 20 ] || until [ -e {cluster.folder}/go ]; do sleep 0.05; done"
    return f"i=0; while [ $i -lt 40 ]; do {wait}; echo line $i; i=$((i+1)); sleep 0.05; done"


def go(cluster: Cluster) -> None:
    (cluster.folder / "go").touch()


async def text(cluster: Cluster, run_id: str, **params: int) -> str:
    answer = await cluster.http.get(f"/v1/runs/{run_id}/logs", params=params)
    assert answer.status_code == 200, answer.text
    return answer.text


async def has_printed(cluster: Cluster, job_id: str) -> str:
    async def look() -> str:
        run = await cluster.latest_run(job_id)
        return run["run_id"] if run.get("status") == "RUNNING" and await text(cluster, run["run_id"]) else ""

    return await eventually(look, SLOW, "the run has printed something")


async def test_the_command_line_follows_a_running_job_through_a_retry_to_its_end(cluster: Cluster) -> None:
    await cluster.server()
    await cluster.worker()
    wait = f"while [ ! -e {cluster.folder}/go ]; do sleep 0.05; done"
    command = f"echo try $MAINSPRING_ATTEMPT; echo oops >&2; {wait}; echo done; [ $MAINSPRING_ATTEMPT = 2 ]"
    job_id = await cluster.submit(command=command, retry={"base": "50ms", "backoff": "constant"})
    arguments = ["logs", job_id, "-f", "--url", cluster.url, "--token-file", str(cluster.folder / "token")]
    await has_printed(cluster, job_id)
    following = subprocess.Popen(
        [sys.executable, "-m", "mainspring", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert following.stdout is not None and following.stderr is not None
    assert await asyncio.to_thread(following.stdout.readline) == "try 1\n"  # while it runs
    go(cluster)
    async with asyncio.timeout(PATIENCE):
        rest = await asyncio.to_thread(following.stdout.read)
        remarks = await asyncio.to_thread(following.stderr.read)
    assert (following.wait(), rest) == (0, "oops\ndone\ntry 2\noops\ndone\n")
    assert "--- attempt 2 ---" in remarks
    run = await cluster.latest_run(job_id)
    assert run["log_url"] == f"/v1/runs/{run['run_id']}/logs"
    assert await text(cluster, run["run_id"], attempt=1) == "try 1\noops\ndone\n"


@pytest.mark.slow
async def test_a_server_that_stops_ends_at_once_and_a_reader_goes_on_at_its_successor(cluster: Cluster) -> None:
    server = await cluster.server()
    await cluster.worker()
    job_id = await cluster.submit(command=counting(cluster))
    run_id = await has_printed(cluster, job_id)
    texts: defaultdict[int, str] = defaultdict(str)
    begun = asyncio.Event()

    async def follow() -> None:
        async with AsyncClient(cluster.url, TOKEN, patience=START) as client:
            async for event in client.log_events(run_id):
                texts[event.attempt] += event.text
                begun.set()

    following = asyncio.create_task(follow())
    await begun.wait()
    server.send_signal(signal.SIGTERM)
    await asyncio.to_thread(server.wait, SLOW)
    assert "timeout graceful shutdown exceeded" not in cluster.said(server), "it has sent all readers away itself"
    go(cluster)
    await cluster.server()
    await cluster.worker()  # on a slow machine the first one can have ended, because it had no server for too long
    async with asyncio.timeout(PATIENCE):
        await following
    run = await cluster.ended(job_id)
    assert run["status"] == "SUCCESS"
    assert texts[run["attempt_number"]] == COUNTED
    assert COUNTED.startswith(texts[1])  # on a slow machine the worker may have lost its lease meanwhile


async def test_a_log_is_whole_although_its_server_was_killed(cluster: Cluster) -> None:
    server = await cluster.server()
    await cluster.worker()
    job_id = await cluster.submit(command=counting(cluster))
    run_id = await has_printed(cluster, job_id)
    server.kill()
    server.wait()
    go(cluster)
    await cluster.server()
    await cluster.worker()  # as above
    assert (await cluster.ended(job_id))["status"] == "SUCCESS"
    assert await text(cluster, run_id) == COUNTED


async def test_the_log_of_a_killed_worker_is_the_beginning_of_what_it_printed(cluster: Cluster) -> None:
    await cluster.server()
    worker = await cluster.worker()
    job_id = await cluster.submit(command=counting(cluster))
    run_id = await has_printed(cluster, job_id)
    worker.kill()
    worker.wait()
    go(cluster)
    await cluster.worker()
    run = await cluster.ended(job_id)
    assert (run["status"], run["attempt_number"]) == ("SUCCESS", 2)
    first = await text(cluster, run_id, attempt=1)
    assert first and COUNTED.startswith(first) and first != COUNTED
    assert await text(cluster, run_id) == COUNTED


@pytest.mark.slow
async def test_two_servers_with_folders_of_their_own_read_the_same_logs(cluster: Cluster) -> None:
    """Nothing says where logs are stored. Output goes through one server, and is read at the other."""
    here, there = cluster.port, free_port()
    await cluster.server(options=["--data", str(cluster.folder / "here")])
    await cluster.server(there, options=["--data", str(cluster.folder / "there")])
    await cluster.worker()
    job_id = await cluster.submit(command="echo one; echo two; echo three")
    run = await cluster.ended(job_id)
    for port in (here, there):
        cluster.talk_to(port)
        found = cluster.cli("run", "logs", job_id)
        assert (found.returncode, found.stdout) == (0, "one\ntwo\nthree\n"), found.stderr
        for option, lines in (("--tail=1", "three\n"), ("--grep=two", "two")):
            assert lines in cluster.cli("run", "logs", job_id, option).stdout
        waited = cluster.cli("submit", "--command", "echo waited for", "--wait")
        assert (waited.returncode, "waited for" in waited.stdout) == (0, True), waited.stdout + waited.stderr
    assert run["status"] == "SUCCESS"


@pytest.mark.slow
async def test_a_server_whose_folder_is_not_that_of_the_others_says_so_at_its_start(cluster: Cluster) -> None:
    first, second = cluster.folder / "first", cluster.folder / "second"
    await cluster.server(options=["--log-store", str(first)])
    shared = await cluster.server(free_port(), options=["--log-store", str(first)])
    assert "store logs" not in cluster.cli("status").stderr + cluster.said(shared)
    other = await cluster.server(free_port(), options=["--log-store", str(second)])

    async def said() -> bool:
        return "store logs in another place" in cluster.said(other) and str(first) in cluster.said(other)

    await eventually(said, SLOW, "it says so")
    status = cluster.cli("status")
    assert (status.returncode, "store logs in different places" in status.stderr) == (1, True), status.stderr
    assert "--log-store" in status.stderr and str(first) not in status.stderr


async def test_what_python_tasks_print_is_in_their_logs_and_silent_runs_have_none(cluster: Cluster) -> None:
    await cluster.server()
    await cluster.worker(app=APP)
    silent = await cluster.submit(task="hello")
    failing = await cluster.submit(task="prints.and.fails", retry={"max_attempts": 1})
    run = await cluster.ended(failing)
    assert run["status"] == "FAILED"
    assert await text(cluster, run["run_id"]) == "before it failed\n"
    assert await text(cluster, (await cluster.ended(silent))["run_id"]) == ""


async def test_a_log_store_that_cannot_be_used_is_told_at_the_start(cluster: Cluster) -> None:
    (cluster.folder / "logs").write_text("in the way")
    child = cluster._start(
        ["server", "--port", str(cluster.port), "--data", str(cluster.folder), "--log-store", f"{cluster.folder}/logs"],
        {"MAINSPRING_DATABASE_URL": cluster._database_url},
    )
    assert await asyncio.to_thread(child.wait, START) != 0
    assert "log store" in (cluster.folder / "server-0.log").read_text()
