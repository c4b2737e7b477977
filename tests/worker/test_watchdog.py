"""The watchdog kills what its worker started when the worker dies, is stopped, or lets its lease pass."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
import uvloop

from mainspring.worker.processes.command import Command, SpawnOrder
from mainspring.worker.processes.watchdog_client import HEAD_START, WatchdogClient
from tests.eventually import PATIENCE

from .processes import alive, ended_soon, ended_within, written

# What it is about happens within milliseconds, or not before the sleepers of these tests have slept.
SOON = 30.0

# A worker as the watchdog sees it: it starts a command that hides a process as well as it can (double fork, a session
# of its own, deaf to polite signals), says so, then does what the test tells it, and says that it has: unless that
# costs it its life first.
WORKER = """
import asyncio, os, sys, time
from mainspring.worker.processes.command import SpawnOrder
from mainspring.worker.processes.watchdog_client import WatchdogClient
HIDE = "(setsid sh -c 'trap \\"\\" TERM HUP; echo $$; exec sleep 60' &) ; echo $$; exec sleep 60"
async def main():
    watchdog = WatchdogClient()
    watchdog.start()
    out, into = os.pipe()
    await watchdog.spawn(SpawnOrder(["sh", "-c", HIDE], dict(os.environ), "/"), output=into)
    pids = b""
    while pids.count(b"\\n") < 2:
        pids += os.read(out, 100)
    print(*pids.split() and map(int, pids.split()), watchdog.pid, flush=True)
    exec(sys.argv[1])
    print("done", flush=True)
    time.sleep(60)
asyncio.run(main())
"""


@contextmanager
def a_worker(deed: str = "pass") -> Iterator[tuple[subprocess.Popen[str], list[int], int]]:
    """The worker, the processes it started and its watchdog's pid."""
    worker = subprocess.Popen([sys.executable, "-c", WORKER, deed], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    *children, watchdog = map(int, worker.stdout.readline().split())
    worker.stdout.readline()
    try:
        yield worker, children, watchdog
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def all_ended_within(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    return all(ended_within(pid, max(0.0, deadline - time.monotonic())) for pid in pids)


def test_kill_minus_9_of_the_worker_kills_all_it_started_and_ends_the_watchdog() -> None:
    with a_worker() as (worker, children, watchdog):
        worker.kill()
        assert all_ended_within(children, SOON)
        assert ended_within(watchdog, SOON)


def test_a_process_that_the_worker_forked_cannot_hide_its_death() -> None:
    with a_worker("if os.fork() == 0: time.sleep(45); os._exit(0)") as (worker, children, _watchdog):
        worker.kill()
        assert all_ended_within(children, SOON)


def test_a_deadline_that_passes_kills_all_and_the_worker() -> None:
    with a_worker("watchdog.set_deadline(time.monotonic() + 0.1)") as (worker, children, _watchdog):
        assert all_ended_within(children, SOON)
        assert worker.wait(timeout=SOON) == -signal.SIGKILL


def test_a_stopped_worker_is_killed_at_its_deadline() -> None:
    with a_worker("watchdog.set_deadline(time.monotonic() + 0.3)") as (worker, children, _watchdog):
        worker.send_signal(signal.SIGSTOP)
        assert all_ended_within(children, SOON)
        assert worker.wait(timeout=SOON) == -signal.SIGKILL


def test_the_watchdog_does_not_heed_polite_signals() -> None:
    with a_worker() as (worker, children, watchdog):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(watchdog, number)
        worker.kill()
        assert all_ended_within(children, SOON)


def test_kill_minus_9_of_the_watchdog_ends_what_it_kept() -> None:
    with a_worker() as (_worker, children, watchdog):
        os.kill(watchdog, signal.SIGKILL)
        assert all_ended_within(children, SOON)


def test_worker_and_watchdog_killed_together_leave_nothing_behind() -> None:
    with a_worker() as (worker, children, watchdog):
        os.kill(watchdog, signal.SIGKILL)
        worker.kill()
        assert all_ended_within(children, SOON)


# -- the worker's end of it


@asynccontextmanager
async def a_watchdog() -> AsyncIterator[WatchdogClient]:
    watchdog = WatchdogClient()
    watchdog.start()
    try:
        yield watchdog
    finally:
        watchdog.stop()


def with_a_watchdog(test: Callable[[WatchdogClient], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE), a_watchdog() as watchdog:
            await test(watchdog)

    uvloop.run(run())


async def sleeper(watchdog: WatchdogClient, command: str = "exec sleep 60") -> Command:
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        return await watchdog.spawn(SpawnOrder(["sh", "-c", command], dict(os.environ), "/"), output=nothing)
    finally:
        os.close(nothing)


def test_a_deadline_that_is_moved_or_lifted_kills_nobody() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        command = await sleeper(watchdog)
        soon = time.monotonic() + 2.0
        watchdog.set_deadline(soon)
        watchdog.set_deadline(soon + 60)
        watchdog.set_deadline(soon)
        watchdog.set_deadline(None)
        assert not await ended_soon(command.pid, 2.0 + HEAD_START + 0.2)
        assert watchdog.pid is not None
        assert alive(watchdog.pid)

    with_a_watchdog(test)


def test_a_stopping_worker_takes_along_what_it_started() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        command = await sleeper(watchdog)
        watchdog.stop()
        assert command.gone.is_set()
        assert not alive(command.pid)

    with_a_watchdog(test)


def test_nothing_is_started_after_the_stop() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        watchdog.stop()
        try:
            await sleeper(watchdog)
        except OSError as error:
            assert "stopped" in str(error)
        else:
            raise AssertionError("it was started")

    with_a_watchdog(test)


def test_a_watchdog_that_died_is_replaced_and_its_commands_are_gone() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        command = await sleeper(watchdog)
        first = watchdog.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await command.gone.wait()
        assert command.exit_code == -signal.SIGKILL
        assert not alive(command.pid)
        other = await sleeper(watchdog)
        assert watchdog.pid not in (None, first)
        watchdog.stop()
        assert not alive(other.pid)

    with_a_watchdog(test)


def test_a_watchdog_that_no_longer_listens_is_replaced() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        first = watchdog.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        far = time.monotonic() + 3600
        for moves in range(20_000):
            watchdog.set_deadline(far + moves)
            if watchdog.pid != first:
                break
        assert watchdog.pid != first
        assert not alive(first)

    with_a_watchdog(test)


def test_orphans_of_a_killed_supervisor_are_killed_before_their_command_counts_as_gone(tmp_path: Path) -> None:
    async def test(watchdog: WatchdogClient) -> None:
        command = await sleeper(watchdog, f"(setsid sleep 60 & echo $! > {tmp_path}/pid); exec sleep 60")
        (hidden,) = map(int, await written(tmp_path / "pid"))
        supervisor = int(Path(f"/proc/{command.pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(supervisor, signal.SIGKILL)
        await command.gone.wait()
        assert not alive(command.pid)
        assert not alive(hidden)
        other = await sleeper(watchdog)  # the watchdog has not suffered
        assert alive(other.pid)

    with_a_watchdog(test)


def test_a_command_that_its_supervisor_did_not_live_to_read_goes_to_another() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        command = await sleeper(watchdog, "exit 0")
        await command.gone.wait()
        os.kill(command.supervisor, signal.SIGSTOP)
        starting = asyncio.create_task(sleeper(watchdog))
        for _ in range(10):  # it is in the supervisor's socket, and nobody reads it
            await asyncio.sleep(0)
        os.kill(command.supervisor, signal.SIGKILL)
        assert alive((await starting).pid)

    with_a_watchdog(test)


def test_commands_that_come_as_the_watchdog_dies_are_started_by_the_next() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        for command in await asyncio.gather(*(sleeper(watchdog, "sleep 0.05") for _ in range(4))):
            await command.gone.wait()
        assert watchdog.pid is not None
        os.kill(watchdog.pid, signal.SIGKILL)
        commands = await asyncio.gather(*(sleeper(watchdog) for _ in range(4)))
        for command in commands:
            if not alive(command.pid):  # a supervisor had begun it before it heard of the death, and killed it
                await command.gone.wait()
                assert command.exit_code == -signal.SIGKILL
        assert alive((await sleeper(watchdog)).pid)

    with_a_watchdog(test)


def test_no_descriptors_left_means_an_error_and_nothing_left_behind() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        before = os.listdir("/proc/self/fd")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.dup(0)
        os.close(lowest)
        for spare in range(2):
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, limits[1]))
            try:
                with pytest.raises(OSError, match="Too many open files"):
                    await watchdog.spawn(SpawnOrder(["true"], dict(os.environ), "/"), output=nothing)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert os.listdir("/proc/self/fd") == before
        os.close(nothing)
        assert alive((await sleeper(watchdog)).pid)

    with_a_watchdog(test)
