"""Process tasks in a worker process: children that die with it, and a drain that waits for them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from tests.eventually import PATIENCE

from .exchange_server import ExchangeServer, an_order
from .processes import alive, ended_soon, written

PROGRAM = """
import sys, uvloop
from mainspring.kernel.config import Timing
from mainspring.roles.worker import WorkerOptions, run_worker
from mainspring.worker import worker
worker._FAREWELL = 30.0
quick = Timing(beat=0.4, base_kill=30.0, base_rescue=60.0, cut_off_grace=60.0, kill_grace=0.3, drain_grace=30.0)
options = WorkerOptions(sys.argv[1], "secret", ("default",), 4, None, "isolated_app:app", "info", timing=quick)
sys.exit(uvloop.run(run_worker(options)))
"""
APP = """
import os, time
from mainspring import Context, Mainspring
app = Mainspring()

@app.task(executor="process")
def sleeps(seconds: float, path: str) -> None:
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(seconds)

@app.task(executor="process")
def dies() -> None:
    os._exit(1)

@app.task
async def worker_pid() -> int:
    return os.getpid()

@app.task(executor="process")
def where() -> list[str | None]:
    return [app.client.connection.url, os.environ.get("MAINSPRING_TOKEN")]
"""


@asynccontextmanager
async def a_worker_process(server: ExchangeServer, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    (folder / "isolated_app.py").write_text(APP)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, server.url, cwd=folder, stderr=subprocess.DEVNULL
    )
    try:
        await server.until(lambda: server.requests)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def with_a_process(folder: Path, test: Callable[[ExchangeServer, asyncio.subprocess.Process], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE), ExchangeServer() as server, a_worker_process(server, folder) as process:
            await test(server, process)

    uvloop.run(run())


def test_kill_9_of_the_worker_leaves_no_child(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        runs = [an_order("sleeps", payload={"seconds": 60, "path": f"{tmp_path}/pids"}) for _ in range(2)]
        server.submit(*runs)
        pids = [int(line) for line in await written(tmp_path / "pids", 2)]
        process.kill()
        for pid in pids:
            assert await ended_soon(pid)

    with_a_process(tmp_path, test)


def test_a_run_that_ends_its_process_fails_alone_in_a_worker_that_lives_on(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        other = an_order("sleeps", payload={"seconds": 0.5, "path": f"{tmp_path}/pids"})
        dies, pid = an_order("dies"), an_order("worker_pid")
        server.submit(other)
        await written(tmp_path / "pids")
        server.submit(dies, pid)
        outcome = await server.outcome_of(dies)
        assert (outcome.status, outcome.error) == ("FAILED", "the task's process ended with exit code 1")
        assert outcome.cause is not None
        assert outcome.cause.exit_code == 1
        assert (await server.outcome_of(other)).status == "SUCCESS"
        assert bytes((await server.outcome_of(pid)).result) == str(process.pid).encode()

    with_a_process(tmp_path, test)


def test_a_child_knows_the_server_and_nothing_of_it_is_in_its_environment(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, _: asyncio.subprocess.Process) -> None:
        where = an_order("where")
        server.submit(where)
        outcome = await server.outcome_of(where)
        assert bytes(outcome.result) == f'["{server.url}",null]'.encode(), outcome.error

    with_a_process(tmp_path, test)


def test_term_lets_the_run_finish_and_takes_the_children_along(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        run = an_order("sleeps", payload={"seconds": 0.3, "path": f"{tmp_path}/pids"})
        server.submit(run)
        (pid,) = map(int, await written(tmp_path / "pids"))
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert (await server.outcome_of(run)).status == "SUCCESS"
        assert not alive(pid)

    with_a_process(tmp_path, test)
