"""The worker as a process: what it leaves behind when it is killed, stopped, cut off, or asked to go."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import uvloop

from mainspring.domain.errors import InvalidInput
from mainspring.roles.worker import load_app
from mainspring.worker.lease_enforcer import EXIT_FENCED
from mainspring.worker.processes.watchdog_client import HEAD_START
from tests.eventually import PATIENCE

from .exchange_server import ExchangeServer, an_order
from .processes import alive, ended_soon, written

PROGRAM = """
import sys
from mainspring.kernel.config import Timing
from mainspring.roles.worker import WorkerOptions, serve_worker
from mainspring.worker import worker
from mainspring.worker.processes import watchdog_client
kill, watchdog_client.HEAD_START, worker._FAREWELL = float(sys.argv[3]), float(sys.argv[4]), 30.0
quick = Timing(beat=2.0, base_kill=kill, base_rescue=kill + 20.0, cut_off_grace=60.0, kill_grace=0.3, drain_grace=30.0)
options = WorkerOptions(sys.argv[1], "secret", ("default",), 4, None, sys.argv[2], "info", timing=quick)
sys.exit(serve_worker(options))
"""
APP = """
import asyncio, os, sys, time
from mainspring import Mainspring
app = Mainspring()

@app.task
async def sleeps(seconds: float, path: str = "") -> None:
    if path:
        open(path, "w").write(str(os.getpid()))
    await asyncio.sleep(seconds)

@app.task
def sleeps_in_a_thread(seconds: float, path: str) -> None:
    open(path, "w").write(str(os.getpid()))
    time.sleep(seconds)

@app.task
async def blocks_the_loop(seconds: float) -> None:
    time.sleep(seconds)

async def leaves() -> None:
    sys.exit(5)

def forked(path: str) -> str:
    if os.fork():
        return "parent"
    open(path, "w").write(str(os.getpid()))
    return "child"

@app.task
def forks_in_a_thread(path: str) -> str:
    return forked(path)

@app.task
async def forks_on_the_loop(path: str) -> str:
    return forked(path)

@app.task
async def has_a_part_that_leaves() -> None:
    await asyncio.gather(asyncio.sleep(60), leaves())
"""
LONG = 30.0  # a lease that does not lapse, however slow the machine
# For tests of the lease: it does not lapse because one of the processes stood still for two seconds. Nobody would take
# the runs over before TAKEN after the last acknowledgement.
KILL = 6.0
TAKEN = KILL + 20.0 - 0.5
UNHURRIED = 20.0  # the head start of a worker that ends by itself, however slow the machine, before its watchdog acts
HELD = "trap '' TERM; while :; do sleep 0.05; done"


@asynccontextmanager
async def a_worker_process(
    server: ExchangeServer, folder: Path, kill: float, head_start: float
) -> AsyncIterator[asyncio.subprocess.Process]:
    (folder / "app_under_test.py").write_text(APP)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, server.url, "app_under_test:app", str(kill), str(head_start)),
        cwd=folder,
        stderr=subprocess.PIPE,
    )
    try:
        await server.until(lambda: server.requests)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def said_by(process: asyncio.subprocess.Process) -> str:
    """The log of a process that has ended, or is about to."""
    assert process.stderr is not None
    return (await process.stderr.read()).decode()


def with_a_process(
    folder: Path,
    test: Callable[[ExchangeServer, asyncio.subprocess.Process], Awaitable[None]],
    *,
    kill: float = LONG,
    head_start: float = HEAD_START,
) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(PATIENCE),
            ExchangeServer() as server,
            a_worker_process(server, folder, kill, head_start) as process,
        ):
            await test(server, process)

    uvloop.run(run())


def test_kill_minus_9_takes_the_shell_runs_along(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        server.submit(an_order("shell", command=f"(echo $$; sh -c 'echo $$') > {tmp_path}/pids; {HELD}"))
        pids = map(int, await written(tmp_path / "pids", 2))
        process.kill()
        for pid in pids:
            assert await ended_soon(pid, LONG / 2), "at once, not when the lease ends"

    with_a_process(tmp_path, test)


@pytest.mark.slow
def test_a_stopped_worker_and_its_runs_are_killed_before_others_take_over(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        server.submit(an_order("shell", command=f"echo $$ > {tmp_path}/pid; {HELD}"))
        (pid,) = map(int, await written(tmp_path / "pid"))
        process.send_signal(signal.SIGSTOP)
        assert await ended_soon(pid)
        assert time.monotonic() - server.acknowledged < TAKEN
        assert await process.wait() == -signal.SIGKILL

    with_a_process(tmp_path, test, kill=KILL)


def test_a_part_of_a_task_that_exits_ends_its_run_and_not_the_worker(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        other, leaving = an_order("sleeps", payload={"seconds": 0.5}), an_order("has_a_part_that_leaves")
        server.submit(other, leaving)
        await server.until(lambda: len(server.outcomes) == 2)
        assert (server.outcomes[leaving.run_id].error or "").startswith("SystemExit: 5")
        assert server.outcomes[other.run_id].status == "SUCCESS"
        assert len(server.incarnations) == 1
        process.terminate()
        assert await process.wait() == 0

    with_a_process(tmp_path, test)


@pytest.mark.parametrize("task", ["forks_in_a_thread", "forks_on_the_loop"])
def test_a_forked_process_that_comes_back_from_its_task_is_no_second_worker(task: str, tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        order = an_order(task, payload={"path": f"{tmp_path}/pid"})
        following = [an_order("sleeps", payload={"seconds": 0, "path": f"{tmp_path}/{place}"}) for place in range(3)]
        server.submit(order, *following)
        (forked,) = map(int, await written(tmp_path / "pid"))
        assert await ended_soon(forked)
        await server.until(lambda: len(server.outcomes) == 4)
        assert server.outcomes[order.run_id].result == msgspec.Raw(b'"parent"')
        assert {(tmp_path / str(place)).read_text() for place in range(3)} == {str(process.pid)}
        process.terminate()
        assert await process.wait() == 0

    with_a_process(tmp_path, test)


@pytest.mark.slow
def test_a_task_that_blocks_the_loop_for_too_long_costs_the_worker_its_life(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        server.submit(an_order("blocks_the_loop", payload={"seconds": 60}))
        assert await process.wait() == -signal.SIGKILL

    with_a_process(tmp_path, test, kill=KILL)


@pytest.mark.slow
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
        assert await ended_soon(pid)

    with_a_process(tmp_path, test, kill=KILL, head_start=UNHURRIED)


@pytest.mark.slow
def test_an_exclusive_run_that_cannot_be_ended_alone_takes_the_process_along(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        thread = {"seconds": 60, "path": f"{tmp_path}/began"}
        server.submit(
            an_order("sleeps_in_a_thread", payload=thread, exclusive=True),
            an_order("shell", command=f"echo $$ > {tmp_path}/pid; {HELD}"),
        )
        await written(tmp_path / "began")
        (pid,) = map(int, await written(tmp_path / "pid"))
        server.begin_outage("store_down")
        assert await process.wait() == EXIT_FENCED
        assert time.monotonic() - server.acknowledged < TAKEN
        assert await ended_soon(pid)

    with_a_process(tmp_path, test, kill=KILL, head_start=UNHURRIED)


@pytest.mark.slow
def test_a_worker_that_is_stopped_while_the_database_is_away_is_killed_with_its_runs(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        server.submit(an_order("shell", command=f"echo $$ > {tmp_path}/pid; {HELD}"))
        (pid,) = map(int, await written(tmp_path / "pid"))
        server.begin_outage("store_down")
        await server.until(lambda: time.monotonic() > server.acknowledged + KILL + HEAD_START + 0.3)
        assert alive(pid), "not even the watchdog has killed it"
        process.send_signal(signal.SIGSTOP)
        assert await ended_soon(pid)
        assert await process.wait() == -signal.SIGKILL

    with_a_process(tmp_path, test, kill=KILL)


@pytest.mark.slow
def test_an_exclusive_coroutine_is_cancelled_alone_and_the_outage_is_told_in_three_lines(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        ordinary = an_order("sleeps", payload={"seconds": KILL + 1.0})
        exclusive = an_order("sleeps", payload={"seconds": 60}, exclusive=True)
        server.submit(ordinary, exclusive)
        await server.until(lambda: server.held_by_workers() == 2)
        server.begin_outage("store_down")
        await server.until(lambda: server.requests[-1].outcomes)
        server.end_outage()
        outcome = await server.outcome_of(exclusive)
        assert (outcome.status, outcome.error) == ("FAILED", "stopped: cut off from the database")
        assert (await server.outcome_of(ordinary)).status == "SUCCESS"
        process.send_signal(signal.SIGTERM)
        said = await said_by(process)
        assert said.count("the server says that the database is away") == 1
        assert said.count("database away: stopping exclusive runs") == 1
        assert said.count("the database is back") == 1
        assert "no answer from the server" not in said

    with_a_process(tmp_path, test, kill=KILL, head_start=UNHURRIED)


def test_term_drains_and_leaves_with_success(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, process: asyncio.subprocess.Process) -> None:
        order = an_order("sleeps", payload={"seconds": 0.3, "path": f"{tmp_path}/began"})
        server.submit(order)
        await written(tmp_path / "began")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert (await server.outcome_of(order)).status == "SUCCESS"
        await server.until(lambda: server.requests[-1].stopped)

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
        ("other = 1", "empty_app:app", "the module empty_app has no .app."),
        ("app = 1", "wrong_app:app", "wrong_app:app is of type int, not a Mainspring application"),
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
    assert load_app("a_folder_of_mine:app").tasks.keys() >= {"blocks_the_loop", "sleeps", "sleeps_in_a_thread"}
    assert os.getcwd() == str(tmp_path)
