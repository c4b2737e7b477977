"""Start and stop hooks in a real worker process: around its runs, and in each child process of process tasks."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import uvloop

from tests.eventually import PATIENCE

from .exchange_server import ExchangeServer, an_order
from .processes import written

PROGRAM = """
import sys, uvloop
from mainspring.kernel.config import Timing
from mainspring.roles.worker import WorkerOptions, run_worker
from mainspring.worker import worker
worker._FAREWELL = 30.0
quick = Timing(beat=0.4, base_kill=30.0, base_rescue=60.0, cut_off_grace=60.0, kill_grace=0.3, drain_grace=30.0)
options = WorkerOptions(sys.argv[1], "secret", ("default",), 1, None, "app_with_hooks:app", "info", timing=quick)
sys.exit(uvloop.run(run_worker(options)))
"""
APP = """
import asyncio, os, pathlib, time
from mainspring import Mainspring
app = Mainspring()
MAIN = pathlib.Path("main_pid")
IN = "worker" if not MAIN.exists() else "child"
MAIN.exists() or MAIN.write_text(str(os.getpid()))
HERE = pathlib.Path.cwd()

def note(word):
    with open(HERE / "told", "a") as file:
        file.write(f"{IN} {word}\\n")

@app.on_worker_start
def open_files():
    note("opens files")

@app.on_worker_stop
def close_files():
    note("closes files")

@app.on_worker_start
async def open_pool():
    app.state.loop = asyncio.get_running_loop()
    app.state.reader = asyncio.create_task(asyncio.sleep(3600))
    note("opens pool")
    HOOK

@app.on_worker_stop
async def close_pool():
    app.state.reader.cancel()
    note("closes pool")

@app.task
async def uses() -> bool:
    await asyncio.sleep(0.2)
    note("runs")
    return asyncio.get_running_loop() is app.state.loop and not app.state.reader.done()

@app.task(executor="process")
async def uses_in_a_child() -> list[bool]:
    left = asyncio.create_task(asyncio.sleep(3600))
    note("runs")
    return [asyncio.get_running_loop() is app.state.loop, not app.state.reader.done()]
"""
STARTED = ["worker opens files", "worker opens pool"]
STOPPED = ["worker closes pool", "worker closes files"]


@asynccontextmanager
async def a_worker(
    folder: Path, hook: str = "pass"
) -> AsyncIterator[tuple[ExchangeServer, asyncio.subprocess.Process]]:
    (folder / "app_with_hooks.py").write_text(APP.replace("HOOK", hook))
    async with asyncio.timeout(PATIENCE), ExchangeServer() as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, server.url, cwd=folder, stderr=subprocess.PIPE
        )
        try:
            yield server, process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def on_a_loop(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    @wraps(test)
    def run(tmp_path: Path) -> None:
        uvloop.run(test(tmp_path))

    return run


def told(folder: Path) -> list[str]:
    return (folder / "told").read_text().splitlines()


@on_a_loop
async def test_they_run_before_the_first_run_and_after_the_last_one(tmp_path: Path) -> None:
    async with a_worker(tmp_path) as (server, process):
        order = an_order("uses")
        server.submit(order)
        await server.until(lambda: server.held_by_workers())
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        outcome = await server.outcome_of(order)
    assert (outcome.status, bytes(outcome.result)) == ("SUCCESS", b"true")
    of_the_worker = [line for line in told(tmp_path) if line.startswith("worker")]
    assert of_the_worker == [*STARTED, "worker runs", *STOPPED]


@on_a_loop
async def test_each_child_process_calls_them_and_keeps_the_loop_of_its_pool(tmp_path: Path) -> None:
    async with a_worker(tmp_path) as (server, process):
        for _ in range(2):  # the second run finds what the first one had
            order = an_order("uses_in_a_child")
            server.submit(order)
            outcome = await server.outcome_of(order)
            assert (outcome.status, bytes(outcome.result)) == ("SUCCESS", b"[true,true]")
        server.ask_to_drain()
        assert await process.wait() == 0
    lines = told(tmp_path)
    assert lines[:2] == STARTED and lines[-2:] == STOPPED
    assert [line for line in lines if line.startswith("child")] == [
        "child opens files", "child opens pool", "child runs", "child runs", "child closes pool", "child closes files",
    ]  # fmt: skip


@on_a_loop
async def test_a_start_hook_that_fails_ends_the_worker_before_it_asks_for_anything(tmp_path: Path) -> None:
    async with a_worker(tmp_path, 'raise ConnectionError("no database at db.internal")') as (server, process):
        _, said = await process.communicate()
        assert process.returncode == 2
        assert server.requests == []
    assert b"the start hook open_pool failed: ConnectionError: no database at db.internal" in said
    assert told(tmp_path) == [*STARTED, *STOPPED]


@on_a_loop
async def test_a_worker_can_be_stopped_while_a_start_hook_waits(tmp_path: Path) -> None:
    async with a_worker(tmp_path, "await asyncio.sleep(3600)") as (server, process):
        while len(await written(tmp_path / "told")) < 2:
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert server.requests == []
    assert told(tmp_path) == [*STARTED, *STOPPED]
