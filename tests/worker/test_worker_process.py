"""The worker as a process: what it leaves behind when it is killed, stopped, cut off, or asked to go."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from mainspring.domain.errors import InvalidInput
from mainspring.roles.worker import load_app
from mainspring.worker.worker import EXIT_FENCED

from .exchange_server import ExchangeServer, an_order
from .processes import ended_soon, written

PROGRAM = """
import sys, uvloop
from mainspring.kernel.config import Timing
from mainspring.roles.worker import WorkerOptions, run_worker
quick = Timing(beat=0.4, kill=1.0, rescue=1.6, kill_grace=0.3, drain_grace=2.0)
options = WorkerOptions(sys.argv[1], "secret", ("default",), 4, None, sys.argv[2], "info", quick)
sys.exit(uvloop.run(run_worker(options)))
"""
APP = """
import asyncio, os, time
from mainspring import Mainspring
app = Mainspring()

@app.task
async def sleeps(seconds: float, path: str = "") -> None:
    if path:
        open(path, "w").write(str(os.getpid()))
    await asyncio.sleep(seconds)

@app.task
async def blocks_the_loop(seconds: float) -> None:
    time.sleep(seconds)
"""
HELD = "trap '' TERM; while :; do sleep 0.05; done"


@asynccontextmanager
async def a_worker_process(server: ExchangeServer, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    (folder / "app_under_test.py").write_text(APP)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, server.url, "app_under_test:app", cwd=folder
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
        async with asyncio.timeout(15), ExchangeServer() as server, a_worker_process(server, folder) as process:
            await test(server, process)

    uvloop.run(run())


def test_kill_minus_9_takes_the_shell_runs_along(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        server.submit(an_order("shell", command=f"(echo $$; sh -c 'echo $$') > {tmp_path}/pids; {HELD}"))
        pids = map(int, await written(tmp_path / "pids", 2))
        process.kill()
        for pid in pids:
            assert await ended_soon(pid, 1.0)

    with_a_process(tmp_path, test)


def test_a_stopped_worker_and_its_runs_are_killed_before_others_take_over(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        server.submit(an_order("shell", command=f"echo $$ > {tmp_path}/pid; {HELD}"))
        (pid,) = map(int, await written(tmp_path / "pid"))
        process.send_signal(signal.SIGSTOP)
        assert await ended_soon(pid, 2.5)
        assert await process.wait() == -signal.SIGKILL

    with_a_process(tmp_path, test)


def test_a_task_that_blocks_the_loop_for_too_long_costs_the_worker_its_life(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        server.submit(an_order("blocks_the_loop", payload={"seconds": 30}))
        assert await process.wait() == -signal.SIGKILL

    with_a_process(tmp_path, test)


def test_a_worker_that_is_cut_off_ends_with_its_coroutines(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        server.submit(
            an_order("sleeps", payload={"seconds": 60, "path": f"{tmp_path}/began"}),
            an_order("shell", command=f"echo $$ > {tmp_path}/pid; {HELD}"),
        )
        await written(tmp_path / "began")
        (pid,) = map(int, await written(tmp_path / "pid"))
        server.faults.extend(["hang"] * 10)
        assert await process.wait() == EXIT_FENCED
        assert await ended_soon(pid, 1.0)

    with_a_process(tmp_path, test)


def test_term_drains_and_leaves_with_success(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        order = an_order("sleeps", payload={"seconds": 0.3, "path": f"{tmp_path}/began"})
        server.submit(order)
        await written(tmp_path / "began")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert server.outcomes[order.run_id].status == "SUCCESS"
        assert server.requests[-1].stopped

    with_a_process(tmp_path, test)


def test_a_refused_token_is_retried_slowly_and_the_worker_can_still_be_stopped(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        server.faults.extend(["401"] * 100)
        await server.until(lambda: len(server.faults) < 100)
        before = len(server.requests)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert len(server.requests) - before <= 2

    with_a_process(tmp_path, test)


@pytest.mark.parametrize(
    ("source", "name", "words"),
    [
        ("", "no_colon_here", "not of the form module:attribute"),
        ("", "no_such_module_at_all:app", "cannot import no_such_module_at_all: ModuleNotFoundError"),
        ("import json\n1 / 0", "broken_app:app", "cannot import broken_app: ZeroDivisionError"),
        ("other = 1", "empty_app:app", "empty_app:app is nothing, not a Mainspring application"),
        ("app = 1", "wrong_app:app", "wrong_app:app is a int, not a Mainspring application"),
    ],
)
def test_an_application_that_cannot_be_loaded_is_refused_with_the_reason(
    source: str, name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{name.partition(':')[0]}.py").write_text(textwrap.dedent(source)) if source else None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(InvalidInput, match=words) as caught:
        load_app(name)
    assert caught.value.field == "app"


def test_an_application_is_found_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_folder_of_mine.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert sorted(load_app("a_folder_of_mine:app").tasks) == ["blocks_the_loop", "sleeps"]
    assert os.getcwd() == str(tmp_path)
