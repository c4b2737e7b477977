"""A command in a pid namespace of its own behaves like any other: exit codes, signals, limits, descriptors."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from mainspring.wire.execution import ResourceLimits
from mainspring.worker.processes.watchdog.namespaces import why_not
from mainspring.worker.processes.watchdog_client import WatchdogClient

from .processes import ended_soon, written
from .test_command import EATER, HOLD, Run, start, with_a_watchdog

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no pid namespace can be had here: {why_not()}")


FILLS = f"""
head -c {{0}}000000 /dev/zero > /dev/shm/x || exit 1
{sys.executable} -S -c 'import time; kept = b"x" * 40000000; time.sleep(60)'
"""


async def isolated(watchdog: WatchdogClient, command: str | list[str], **fields: Any) -> Run:
    return await start(watchdog, command, isolated=True, **fields)


def test_exit_codes_and_signals_are_told_as_they_are() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        for command, code in (("exit 7", 7), ("kill -KILL $$", -signal.SIGKILL), ("kill -TERM $$", -signal.SIGTERM)):
            run = await isolated(watchdog, command)
            await run.gone()
            assert run.command.exit_code == code
        assert run.command.usage is not None
        assert run.command.usage.peak_bytes > 100_000

    with_a_watchdog(test)


def test_it_sees_its_own_processes_and_has_a_session_and_no_descriptor_of_its_supervisor() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        other = await isolated(watchdog, "exec sleep 60")
        run = await isolated(
            watchdog, "ps -o pid=,sid=,pgid= -p $$; ls /proc/self/fd; ps -A -o comm= | grep -c sleep; true"
        )
        said = (await run.gone()).split()
        assert set(said[:3]) == {str(run.command.pid)}
        assert said[3:7] == ["0", "1", "2", "3"]  # the last is the folder that ls reads
        assert said[7:] == ["0"]
        other.command.kill()
        await other.gone()

    with_a_watchdog(test)


def test_term_reaches_every_process_and_kill_those_that_ignore_it(tmp_path: Path) -> None:
    async def test(watchdog: WatchdogClient) -> None:
        saves = "trap 'echo saved >> $1; exit' TERM; echo $$ >> $0; while :; do sleep 0.02; done"
        stays = "trap '' TERM; echo $$ >> $0; while :; do sleep 0.02; done"
        command = 'setsid sh -c "$2" $0 $1 & (sh -c "$2" $0 $1 &) ; setsid sh -c "$3" $0 & echo $$ >> $0; exec sleep 60'
        pids, saved = tmp_path / "pids", tmp_path / "saved"
        run = await isolated(watchdog, ["sh", "-c", command, str(pids), str(saved), saves, stays])
        await written(pids, 4)
        run.command.terminate()
        await run.command.exited.wait()
        assert run.command.exit_code == -signal.SIGTERM
        await written(saved, 2)
        assert not run.command.gone.is_set()
        await run.command.kill_and_wait()

    with_a_watchdog(test)


def test_a_supervisor_serves_one_command_after_the_other_and_shared_memory_is_not_passed_on() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        keeps = "ls -A /dev/shm; ipcs -m | grep -c 0x; echo $0 > /dev/shm/$0; ipcmk -M 4096 > /dev/null"
        first = await isolated(watchdog, ["sh", "-c", keeps, "first"])
        said = [await first.gone()]
        second = await isolated(watchdog, ["sh", "-c", keeps, "second"], limits=ResourceLimits(memory=64 << 20))
        said.append(await second.gone())
        assert said == ["0\n", "0\n"]
        assert second.command.supervisor == first.command.supervisor
        for megabytes in (90, 45):  # more than it has room for; and closed files, which count with the processes
            run = await isolated(watchdog, FILLS.format(megabytes), limits=ResourceLimits(memory=64 << 20))
            full = "No space left" in await run.gone()
            assert run.command.breach == "memory limit of 64MiB exceeded" or (full and megabytes == 90)

    with_a_watchdog(test)


def test_limits_hold_for_all_its_processes() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        eaters = [sys.executable, "-S", "-c", EATER, "3", "48"]
        run = await isolated(watchdog, eaters, limits=ResourceLimits(memory=128_000_000))
        await run.gone()
        assert run.command.breach == "memory limit of 128MB exceeded"
        run = await isolated(
            watchdog, "while :; do setsid sleep 60 & sleep 0.01; done", limits=ResourceLimits(processes=9)
        )
        await run.gone()
        assert run.command.breach == "limit of 9 processes exceeded"

    with_a_watchdog(test)


@pytest.mark.parametrize("victim", ["the supervisor", "the watchdog"])
def test_everything_dies_with(victim: str) -> None:
    """The kernel sees to it. The supervisor counts as ended when nothing is left in its namespace."""

    async def test(watchdog: WatchdogClient) -> None:
        run = await isolated(watchdog, f"(setsid sh -c 'echo on; {HOLD}' &); {HOLD}")
        pid = run.command.supervisor if victim == "the supervisor" else watchdog.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await run.command.gone.wait()
        assert await ended_soon(run.command.supervisor)
        assert await run.gone() in ("", "on\n"), "no process holds its output open"

    with_a_watchdog(test)
