"""The watchdog kills what its worker registered when the worker dies, is stopped, or lets its lease pass."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from mainspring.worker.watchdog_link import HEAD_START, WatchdogLink

from .processes import alive, ended_within

# A worker as the watchdog sees it: it registers a process group and says so, then does what the test tells it.
WORKER = """
import os, subprocess, sys, time
from mainspring.worker.watchdog_link import WatchdogLink
link = WatchdogLink()
link.start()
child = subprocess.Popen(["sleep", "60"], start_new_session=True)
link.guard(child.pid)
exec(sys.argv[1])
print(child.pid, link.pid, flush=True)
time.sleep(60)
"""


@contextmanager
def a_worker(deed: str = "") -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """The worker, its child's process group and its watchdog's pid."""
    worker = subprocess.Popen([sys.executable, "-c", WORKER, deed], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    child, watchdog = map(int, worker.stdout.readline().split())
    try:
        yield worker, child, watchdog
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)


@pytest.fixture
def link() -> Iterator[WatchdogLink]:
    link = WatchdogLink()
    link.start()
    yield link
    link.stop()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield child
    child.kill()
    child.wait()


def test_kill_minus_9_of_the_worker_kills_its_children_and_ends_the_watchdog() -> None:
    with a_worker() as (worker, child, watchdog):
        worker.kill()
        assert ended_within(child, 2.0)
        assert ended_within(watchdog, 2.0)


def test_a_worker_that_dies_before_its_watchdog_has_woken_up_is_heeded_too() -> None:
    with a_worker("print(child.pid, link.pid, flush=True); os.kill(os.getpid(), 9)") as (worker, child, _watchdog):
        worker.wait()
        assert ended_within(child, 2.0)


def test_a_process_that_the_worker_forked_cannot_hide_its_death() -> None:
    with a_worker("if os.fork() == 0: time.sleep(5); os._exit(0)") as (worker, child, _watchdog):
        worker.kill()
        assert ended_within(child, 2.0)


def test_a_deadline_that_passes_kills_children_and_worker() -> None:
    with a_worker("link.set_deadline(time.monotonic() + 0.1)") as (worker, child, _watchdog):
        assert ended_within(child, 3.0)
        assert worker.wait(timeout=3.0) == -signal.SIGKILL


def test_a_stopped_worker_is_killed_at_its_deadline() -> None:
    with a_worker("link.set_deadline(time.monotonic() + 0.3)") as (worker, child, _watchdog):
        worker.send_signal(signal.SIGSTOP)
        assert ended_within(child, 3.0)
        assert worker.wait(timeout=3.0) == -signal.SIGKILL


def test_the_watchdog_does_not_heed_polite_signals() -> None:
    with a_worker() as (worker, child, watchdog):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(watchdog, number)
        worker.kill()
        assert ended_within(child, 2.0)


def test_a_deadline_that_is_moved_or_lifted_kills_nobody(link: WatchdogLink, child: subprocess.Popen[bytes]) -> None:
    link.guard(child.pid)
    soon = time.monotonic() + 0.1
    link.set_deadline(soon)
    link.set_deadline(soon + 60)
    link.set_deadline(soon)
    link.set_deadline(None)
    assert not ended_within(child.pid, 0.1 + HEAD_START + 0.2)
    assert link.pid is not None
    assert alive(link.pid)


def test_a_released_group_is_left_alone(link: WatchdogLink, child: subprocess.Popen[bytes]) -> None:
    link.guard(child.pid)
    link.release(child.pid)
    link.stop()
    assert child.poll() is None


def test_a_stopping_worker_takes_its_registered_groups_along(
    link: WatchdogLink, child: subprocess.Popen[bytes]
) -> None:
    link.guard(child.pid)
    link.stop()
    assert child.wait(timeout=2.0) == -signal.SIGKILL


def test_a_watchdog_that_died_is_replaced_and_told_everything(
    link: WatchdogLink, child: subprocess.Popen[bytes]
) -> None:
    link.guard(child.pid)
    first = link.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert ended_within(first, 2.0)
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    link.guard(other.pid)
    assert link.pid not in (None, first)
    link.stop()
    assert child.wait(timeout=2.0) == other.wait(timeout=2.0) == -signal.SIGKILL


def test_a_watchdog_that_no_longer_listens_is_replaced(link: WatchdogLink) -> None:
    first = link.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    for number in range(2_000_000, 2_020_000):
        link.release(number)
        if link.pid != first:
            break
    assert link.pid != first
    assert not alive(first)
