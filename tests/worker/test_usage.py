"""What the processes of an attempt use: by sample while they run, and in all at the end."""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise
from pathlib import Path

import uvloop

from mainspring.wire.execution import RunSetup
from mainspring.wire.usage import MOST_SAMPLES
from mainspring.worker.exchange.progress import ProgressReports
from mainspring.worker.execution.attempt import Attempt, Stop, key_of
from mainspring.worker.execution.attempt_usage import AttemptUsage
from mainspring.worker.processes.watchdog_client import WatchdogClient
from tests.operations.waiting import until

from .a_process_executor import an_attempt, an_executor
from .exchange_server import an_order
from .test_command import start, with_a_watchdog
from .test_shell_executor import an_executor as a_shell_executor
from .test_shell_executor import shell
from .test_shell_executor import stop as stop_shell

MB = 1_000_000
# Takes 60 MB and at least 0.2 CPU seconds, and waits. The kernel shows CPU time in hundredths, each part rounded down.
HUNGRY = (
    "import sys, time; held = bytearray(60_000_000)\n"
    "while time.process_time() < 0.2: pass\n"
    "open(sys.argv[1], 'w').close(); time.sleep(600)"
)


class Looks:
    """Counts the looks, at the ages at which they are asked for."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


# -- samples


def test_a_short_attempt_is_not_looked_at_and_a_long_one_more_and_more_rarely() -> None:
    looks = Looks()
    usage = AttemptUsage(looks)
    ages = []
    for tick in range(4 * 3600):
        before = looks.count
        usage.ask(tick / 4)
        if looks.count > before:
            ages.append(tick / 4)
    assert ages[:3] == [1.0, 3.0, 5.0]
    assert 100 < len(ages) < 200  # in an hour
    assert 30 <= max(later - earlier for earlier, later in pairwise(ages)) < 31


def test_samples_are_thinned_out() -> None:
    usage = AttemptUsage(Looks())
    for number in range(1000):
        usage.ask(number * 40.0)
        usage.sampled(float(number), number * MB)
    final = usage.final()
    assert final is not None
    assert (final.cpu_s, final.rss_peak, final.rss) == (999.0, 999 * MB, None)
    assert 20 < len(final.samples) <= MOST_SAMPLES
    assert final.samples[0] == (0.0, 0.0, 0)
    assert final.samples == sorted(final.samples)


def test_only_what_has_changed_is_told() -> None:
    usage = AttemptUsage(Looks(), spent_before=10.0)
    assert (usage.has_news(), usage.now(), usage.final()) == (False, None, None)
    usage.sampled(10.5, 100 * MB)
    assert (usage.has_news(), usage.has_news()) == (True, False)
    usage.sampled(10.51, 101 * MB)
    assert not usage.has_news()
    usage.sampled(10.6, 101 * MB)
    assert usage.has_news()
    usage.sampled(10.6, 50 * MB)
    assert usage.has_news()
    now = usage.now()
    assert now is not None and (now.cpu_s, now.rss_peak, now.rss) == (0.6, 101 * MB, 50 * MB)
    usage.ended(12.0, 80 * MB)
    final = usage.final()
    assert final is not None and (final.cpu_s, final.rss_peak) == (2.0, 101 * MB)


def test_it_goes_along_with_the_next_exchange() -> None:
    book = ProgressReports()
    order = an_order()
    attempt = Attempt(order, key_of(order), 0.0, started=10.0)
    attempt.usage = AttemptUsage(Looks())
    book.sample([attempt], 20.0, report=True)
    assert book.take(20.0) == []
    attempt.usage.sampled(0.5, 3 * MB)
    book.sample([attempt], 20.25, report=True)
    assert (book.due(), book.waiting) == (float("inf"), True)  # no exchange is sent for it
    [word] = book.take(20.25)
    assert word.usage is not None and (word.usage.cpu_s, word.usage.rss) == (0.5, 3 * MB)
    assert (word.fraction, word.message, word.number) == (None, None, 1)
    book.put_back([attempt])
    assert [word.number for word in book.take(30.0)] == [2]
    attempt.usage.sampled(5.0, 3 * MB)
    book.sample([attempt], 30.25, report=False)
    assert book.take(40.0) == []


# -- real processes


def test_a_look_at_a_command_counts_all_its_processes(tmp_path: Path) -> None:
    async def test(watchdog: WatchdogClient) -> None:
        ready = [tmp_path / "one", tmp_path / "two"]
        (tmp_path / "hungry.py").write_text(HUNGRY)
        python = f"{sys.executable} {tmp_path / 'hungry.py'}"
        run = await start(watchdog, f"{python} {ready[0]} & {python} {ready[1]}")
        heard: list[tuple[float, int]] = []
        run.command.on_sample = lambda cpu, resident: heard.append((cpu, resident))
        await until(lambda: all(path.exists() for path in ready))
        run.command.sample()
        await until(lambda: bool(heard))
        cpu, resident = heard[0]
        assert cpu >= 0.3
        assert 120 * MB < resident < 400 * MB
        await run.command.kill_and_wait()
        assert run.command.usage is not None
        assert run.command.usage.cpu_seconds >= cpu - 0.05
        assert run.command.usage.peak_bytes >= resident
        run.command.sample()  # of a command that is gone: nothing happens

    with_a_watchdog(test)


def test_a_shell_run_ends_with_what_it_has_used(tmp_path: Path) -> None:
    async def run() -> None:
        (tmp_path / "hungry.py").write_text(HUNGRY)
        async with a_shell_executor() as executor:
            order = shell([sys.executable, str(tmp_path / "hungry.py"), str(tmp_path / "ready")])
            attempt = Attempt(order, key_of(order), 0.0)
            running = asyncio.create_task(executor.execute(attempt))
            await until(lambda: (tmp_path / "ready").exists())
            assert attempt.usage is not None
            attempt.usage.ask(1.5)
            await until(lambda: attempt.usage is not None and attempt.usage.now() is not None)
            stop_shell(attempt, Stop.CANCEL)
            assert (await running).status == "CANCELLED"
            final = attempt.usage.final()
            assert final is not None
            assert final.cpu_s >= 0.15
            assert 60 * MB < final.rss_peak < 300 * MB
            [(age, cpu, resident)] = final.samples
            assert (age, cpu >= 0.15, resident > 60 * MB) == (1.5, True, True)
            attempt.usage.ask(100.0)  # it is gone

    uvloop.run(run())


def test_runs_of_one_warm_child_are_counted_each_on_its_own() -> None:
    async def run() -> None:
        async with an_executor(1) as executor:
            peaks, spent = [], []
            for task, payload in (("takes", {"size": 200 * MB}), ("pid", {}), ("takes", {"size": 200 * MB})):
                attempt = an_attempt(task, payload)
                assert (await executor.execute(attempt)).status == "SUCCESS"
                assert attempt.usage is not None
                final = attempt.usage.final()
                assert final is not None
                peaks.append(final.rss_peak)
                spent.append(final.cpu_s)
            assert executor.size == 1
            assert peaks[0] > 200 * MB and peaks[2] > 200 * MB
            assert peaks[1] < 150 * MB
            assert all(seconds < 60 for seconds in spent)

    uvloop.run(run())


def test_a_process_run_that_is_killed_has_what_its_child_has_used(tmp_path: Path) -> None:
    async def run() -> None:
        async with an_executor(1) as executor:
            attempt, running = executor.begin("spins", {"path": str(tmp_path / "ready")}, setup=RunSetup())
            await until(lambda: (tmp_path / "ready").exists())
            assert attempt.kill is not None
            attempt.kill()
            assert (await running).status == "FAILED"
            assert attempt.usage is not None
            final = attempt.usage.final()
            assert final is not None and final.rss_peak > MB

    uvloop.run(run())
