"""`mainspring server --processes N`: one port, several processes, one set of figures."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.processes.cluster import SLOW, Cluster, eventually, process_is_alive

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

COUNT = 2


def children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


async def all_ready(cluster: Cluster) -> bool:
    """Each process says the same; a new connection reaches any of them."""
    for _ in range(8):
        async with httpx.AsyncClient(base_url=cluster.url, timeout=30) as client:
            try:
                answer = await client.get("/readyz")
            except httpx.TransportError:
                return False
            if answer.status_code != 200 or answer.json()["checks"]["processes"] != "ok":
                return False
    return True


async def started(cluster: Cluster) -> subprocess.Popen[bytes]:
    server = await cluster.server(options=["--processes", str(COUNT)])
    await eventually(lambda: all_ready(cluster), SLOW, "all processes are ready")
    return server


async def submit_through_new_connections(cluster: Cluster, number: int) -> None:
    for _ in range(number):
        async with httpx.AsyncClient(base_url=cluster.url, headers=cluster.http.headers, timeout=30) as client:
            answer = await client.post("/v1/jobs", json={"task": "noop"})
            assert answer.status_code == 201, answer.text


async def metric(cluster: Cluster, name: str) -> float:
    async with httpx.AsyncClient(base_url=cluster.url, headers=cluster.http.headers, timeout=30) as client:
        text = (await client.get("/metrics")).text
    found = re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert len(found) == 1, text
    return float(found[0])


@pytest.mark.slow
async def test_their_figures_are_those_of_the_whole_and_a_killed_one_comes_back(cluster: Cluster) -> None:
    server = await started(cluster)
    first = children(server.pid)
    assert len(first) == COUNT
    await submit_through_new_connections(cluster, 20)
    assert {await metric(cluster, "mainspring_jobs_submitted_total") for _ in range(8)} == {20.0}
    assert await metric(cluster, "mainspring_leases_held") == 128

    os.kill(first[0], signal.SIGKILL)

    async def replaced() -> bool:
        return len(children(server.pid)) == COUNT and first[0] not in children(server.pid)

    await eventually(replaced, SLOW, "another process takes its place")
    await eventually(lambda: all_ready(cluster), SLOW, "all processes are ready again")
    assert await metric(cluster, "mainspring_jobs_submitted_total") == 20, "a counter never falls"
    await submit_through_new_connections(cluster, 10)
    assert await metric(cluster, "mainspring_jobs_submitted_total") == 30
    server.terminate()
    assert await asyncio.to_thread(server.wait, 60) == 0
    assert not any(process_is_alive(pid) for pid in first)


@pytest.mark.slow
async def test_a_reload_replaces_them_one_after_another_and_refuses_nothing(cluster: Cluster) -> None:
    server = await started(cluster)
    old = set(children(server.pid))
    server.send_signal(signal.SIGHUP)
    submitted = 0

    async def replaced() -> bool:
        nonlocal submitted
        await submit_through_new_connections(cluster, 5)
        submitted += 5
        now = set(children(server.pid))
        return len(now) == COUNT and not now & old

    await eventually(replaced, SLOW * 2, "all processes are new")
    await eventually(lambda: all_ready(cluster), SLOW, "all processes are ready again")
    assert await metric(cluster, "mainspring_jobs_submitted_total") == submitted
    assert await metric(cluster, "mainspring_leases_held") == 128


@pytest.mark.slow
async def test_they_end_with_a_parent_that_is_killed(cluster: Cluster) -> None:
    server = await started(cluster)
    left = children(server.pid)
    server.kill()

    async def gone() -> bool:
        return not any(process_is_alive(pid) for pid in left)

    await eventually(gone, SLOW, "the processes end with their parent")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "words"),
    [("2", "is in use by"), ("many", "'many' is no number of processes"), ("0", "'0' is no number of")],
)
def test_a_mistake_is_told_once_with_its_exit_code(tmp_path: Path, processes: str, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        options = ["--port", str(other.getsockname()[1]), "--data", str(tmp_path), "--processes", processes]
        options += ["--database-url", "postgresql://127.0.0.1:1/nowhere"]
        done = subprocess.run(
            [sys.executable, "-m", "mainspring", "server", *options], capture_output=True, text=True, timeout=SLOW
        )
    assert done.returncode not in (0, 1), done.stderr
    assert done.stderr.count(words) == 1, done.stderr
    assert "Traceback" not in done.stderr
