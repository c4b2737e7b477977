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

from mainspring.worker.processes.command import SpawnOrder, Ward
from mainspring.worker.processes.watchdog_client import HEAD_START, WatchdogLink

from .processes import alive, ended_soon, ended_within, written

# What it is about happens within milliseconds, or not before the sleepers of these tests have slept.
SOON = 30.0

# A worker as the watchdog sees it: it starts a command that hides a process as well as it can (double fork, a session
# of its own, deaf to polite signals), says so, then does what the test tells it, and says that it has: unless that
# costs it its life first.
WORKER = """
import asyncio, os, sys, time
from mainspring.worker.processes.command import SpawnOrder
from mainspring.worker.processes.watchdog_client import WatchdogLink
HIDE = "(setsid sh -c 'trap \\"\\" TERM HUP; echo $$; exec sleep 60' &) ; echo $$; exec sleep 60"
async def main():
    link = WatchdogLink()
    link.start()
    out, into = os.pipe()
    await link.spawn(SpawnOrder(["sh", "-c", HIDE], dict(os.environ), "/"), output=into)
    pids = b""
    while pids.count(b"\\n") < 2:
        pids += os.read(out, 100)
    print(*pids.split() and map(int, pids.split()), link.pid, flush=True)
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
    with a_worker("link.set_deadline(time.monotonic() + 0.1)") as (worker, children, _watchdog):
        assert all_ended_within(children, SOON)
        assert worker.wait(timeout=SOON) == -signal.SIGKILL


def test_a_stopped_worker_is_killed_at_its_deadline() -> None:
    with a_worker("link.set_deadline(time.monotonic() + 0.3)") as (worker, children, _watchdog):
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
async def a_link() -> AsyncIterator[WatchdogLink]:
    link = WatchdogLink()
    link.start()
    try:
        yield link
    finally:
        link.stop()


def with_a_link(test: Callable[[WatchdogLink], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), a_link() as link:
            await test(link)

    uvloop.run(run())


async def sleeper(link: WatchdogLink, command: str = "exec sleep 60") -> Ward:
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        return await link.spawn(SpawnOrder(["sh", "-c", command], dict(os.environ), "/"), output=nothing)
    finally:
        os.close(nothing)


def test_a_deadline_that_is_moved_or_lifted_kills_nobody() -> None:
    async def test(link: WatchdogLink) -> None:
        ward = await sleeper(link)
        soon = time.monotonic() + 2.0
        link.set_deadline(soon)
        link.set_deadline(soon + 60)
        link.set_deadline(soon)
        link.set_deadline(None)
        assert not await ended_soon(ward.pid, 2.0 + HEAD_START + 0.2)
        assert link.pid is not None
        assert alive(link.pid)

    with_a_link(test)


def test_a_stopping_worker_takes_along_what_it_started() -> None:
    async def test(link: WatchdogLink) -> None:
        ward = await sleeper(link)
        link.stop()
        assert ward.gone.is_set()
        assert not alive(ward.pid)

    with_a_link(test)


def test_nothing_is_started_after_the_stop() -> None:
    async def test(link: WatchdogLink) -> None:
        link.stop()
        try:
            await sleeper(link)
        except OSError as error:
            assert "stopped" in str(error)
        else:
            raise AssertionError("it was started")

    with_a_link(test)


def test_a_watchdog_that_died_is_replaced_and_its_wards_are_gone() -> None:
    async def test(link: WatchdogLink) -> None:
        ward = await sleeper(link)
        first = link.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await ward.gone.wait()
        assert ward.exit_code == -signal.SIGKILL
        assert not alive(ward.pid)
        other = await sleeper(link)
        assert link.pid not in (None, first)
        link.stop()
        assert not alive(other.pid)

    with_a_link(test)


def test_a_watchdog_that_no_longer_listens_is_replaced() -> None:
    async def test(link: WatchdogLink) -> None:
        first = link.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        far = time.monotonic() + 3600
        for moves in range(20_000):
            link.set_deadline(far + moves)
            if link.pid != first:
                break
        assert link.pid != first
        assert not alive(first)

    with_a_link(test)


def test_a_killed_keepers_orphans_are_killed_before_their_ward_counts_as_gone(tmp_path: Path) -> None:
    async def test(link: WatchdogLink) -> None:
        ward = await sleeper(link, f"(setsid sleep 60 & echo $! > {tmp_path}/pid); exec sleep 60")
        (hidden,) = map(int, await written(tmp_path / "pid"))
        keeper = int(Path(f"/proc/{ward.pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(keeper, signal.SIGKILL)
        await ward.gone.wait()
        assert not alive(ward.pid)
        assert not alive(hidden)
        other = await sleeper(link)  # the watchdog has not suffered
        assert alive(other.pid)

    with_a_link(test)


def test_a_command_that_its_keeper_did_not_live_to_read_goes_to_another() -> None:
    async def test(link: WatchdogLink) -> None:
        ward = await sleeper(link, "exit 0")
        await ward.gone.wait()
        os.kill(ward._keeper, signal.SIGSTOP)
        starting = asyncio.create_task(sleeper(link))
        await asyncio.sleep(0.05)  # it is in the keeper's socket, and nobody reads it
        os.kill(ward._keeper, signal.SIGKILL)
        assert alive((await starting).pid)

    with_a_link(test)


def test_commands_that_come_as_the_watchdog_dies_are_started_by_the_next() -> None:
    async def test(link: WatchdogLink) -> None:
        for ward in await asyncio.gather(*(sleeper(link, "sleep 0.05") for _ in range(4))):
            await ward.gone.wait()
        assert link.pid is not None
        os.kill(link.pid, signal.SIGKILL)
        wards = await asyncio.gather(*(sleeper(link) for _ in range(4)))
        for ward in wards:
            if not alive(ward.pid):  # a keeper had begun it before it heard of the death, and killed it
                await ward.gone.wait()
                assert ward.exit_code == -signal.SIGKILL
        assert alive((await sleeper(link)).pid)

    with_a_link(test)


def test_no_descriptors_left_means_an_error_and_nothing_left_behind() -> None:
    async def test(link: WatchdogLink) -> None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        before = os.listdir("/proc/self/fd")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.dup(0)
        os.close(lowest)
        for spare in range(2):
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, limits[1]))
            try:
                with pytest.raises(OSError, match="Too many open files"):
                    await link.spawn(SpawnOrder(["true"], dict(os.environ), "/"), output=nothing)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert os.listdir("/proc/self/fd") == before
        os.close(nothing)
        assert alive((await sleeper(link)).pid)

    with_a_link(test)
