"""A command is gone when the last of its processes is, whatever they did to escape; limits end it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from mainspring.wire.execution import ResourceLimits
from mainspring.worker.processes.command import Command, SpawnOrder
from mainspring.worker.processes.watchdog import cgroup
from mainspring.worker.processes.watchdog_client import WatchdogClient
from tests.eventually import PATIENCE

from .processes import alive, ended_soon, written

WATCHDOG_FOLDER = Path(cgroup.__file__).parents[1]
HOLD = "trap '' TERM; while :; do sleep 0.05; done"


class Run:
    """A command and its output."""

    def __init__(self, command: Command, output: int) -> None:
        self.command = command
        self._output = output

    async def gone(self) -> str:
        """All that it printed, once nothing of it is left."""
        await self.command.gone.wait()
        said = bytearray()
        while chunk := os.read(self._output, 1 << 16):
            said += chunk
        os.close(self._output)
        return said.decode()


async def start(watchdog: WatchdogClient, command: str | list[str], channel: int | None = None, **fields: Any) -> Run:
    argv = ["sh", "-c", command] if isinstance(command, str) else command
    order = SpawnOrder(argv, fields.pop("env", {"PATH": "/usr/bin:/bin"}), fields.pop("cwd", "/"), **fields)
    output, writer = os.pipe()
    try:
        return Run(await watchdog.spawn(order, output=writer, channel=channel), output)
    finally:
        os.close(writer)


def with_a_watchdog(test: Callable[[WatchdogClient], Awaitable[None]]) -> None:
    async def run() -> None:
        watchdog = WatchdogClient()
        watchdog.start()
        try:
            async with asyncio.timeout(PATIENCE):
                await test(watchdog)
        finally:
            watchdog.stop()

    uvloop.run(run())


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_the_exit_code_and_the_usage_are_told() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        run = await start(watchdog, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 7")
        await run.gone()
        assert run.command.exit_code == 7
        assert run.command.usage is not None
        assert 0.001 < run.command.usage.cpu_seconds < 10
        assert run.command.usage.peak_bytes > 100_000

    with_a_watchdog(test)


def test_a_command_has_a_session_of_its_own_and_no_descriptor_but_its_four() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            held = await start(watchdog, "exec sleep 60")  # what a supervisor holds for one is not seen by another
            looks = "echo hi >&3; ps -o pid=,sid=,pgid= -p $$; exec ls /proc/self/fd"
            run = await start(watchdog, looks, channel=theirs.fileno())
            said = await run.gone()
            assert ours.recv(100) == b"hi\n"
            held.command.kill()
            await held.gone()
        assert set(said.split()[:3]) == {str(run.command.pid)}
        assert said.split()[3:] == ["0", "1", "2", "3", "4"]  # the last is the folder that ls reads

    with_a_watchdog(test)


def test_without_a_channel_descriptor_three_is_closed() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        run = await start(watchdog, "(: >&3) 2>/dev/null && echo open || echo closed; wc -c")
        assert (await run.gone()).split() == ["closed", "0"]

    with_a_watchdog(test)


_OF_THE_C_LIBRARY = 1 << 31 | 1 << 32  # signals 32 and 33: nobody but it can set them


def test_signals_are_as_after_a_login() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        run = await start(watchdog, ["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"])
        blocked, ignored = (int(word, 16) for word in (await run.gone()).split()[1::2])
        assert (blocked, ignored & ~_OF_THE_C_LIBRARY) == (0, 0)

    with_a_watchdog(test)


def test_a_large_environment_arrives_whole() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        env = {"PATH": os.environ["PATH"]} | {f"V{number}": "x" * 100_000 for number in range(6)}
        run = await start(watchdog, "echo ${#V0} ${#V5}", env=env)
        assert (await run.gone()) == "100000 100000\n"

    with_a_watchdog(test)


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["no-such-program"], 127, "mainspring: no-such-program: No such file or directory"),
        (["/etc/passwd"], 126, "mainspring: /etc/passwd: Permission denied"),
    ],
)
def test_what_cannot_be_executed_says_so_as_a_shell_does(argv: list[str], code: int, words: str) -> None:
    async def test(watchdog: WatchdogClient) -> None:
        run = await start(watchdog, argv)
        assert await run.gone() == f"{words}\n"
        assert run.command.exit_code == code

    with_a_watchdog(test)


def test_a_supervisor_serves_one_command_after_the_other() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        supervisors = set()
        for _ in range(5):
            run = await start(watchdog, "exec sleep 60")
            supervisors.add(parent_of(run.command.pid))
            run.command.kill()
            await run.gone()
        assert len(supervisors) == 1

    with_a_watchdog(test)


def test_many_at_once_all_run() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        runs = await asyncio.gather(*(start(watchdog, f"echo {number}") for number in range(100)))
        assert [int(await run.gone()) for run in runs] == list(range(100))

    with_a_watchdog(test)


# -- getting away

# Each starts a process that notes its pid in the file $0 and would live on; $1 is what that process does.
GETAWAYS = {
    "a child in the background": 'sh -c "$1" $0 &',
    "a session of its own": 'setsid sh -c "$1" $0 &',
    "a double fork": '(sh -c "$1" $0 &) &',
    "a daemon in every way": '(setsid sh -c "($1) <&- >&- 2>&- & exit" $0 &) &',
}


@pytest.mark.parametrize("getaway", GETAWAYS)
def test_what_a_command_leaves_behind_is_gone_with_it(getaway: str, tmp_path: Path) -> None:
    async def test(watchdog: WatchdogClient) -> None:
        note = tmp_path / "pid"
        waits = "while [ ! -s $0 ]; do sleep 0.01; done"
        stays = f"sh -c 'echo $PPID' > $0; {HOLD}"
        run = await start(watchdog, ["sh", "-c", f"{GETAWAYS[getaway]} {waits}", str(note), stays])
        await run.gone()
        assert run.command.exit_code == 0
        assert not alive(int(note.read_text()))

    with_a_watchdog(test)


def test_term_reaches_every_process_and_leaves_it_its_time(tmp_path: Path) -> None:
    async def test(watchdog: WatchdogClient) -> None:
        saves = "trap 'echo saved >> $1; exit' TERM; echo $$ >> $0; while :; do sleep 0.02; done"
        command = """
          setsid sh -c "$2" $0 $1 & (sh -c "$2" $0 $1 &) ; echo $$ >> $0; exec sleep 60
        """
        pids, saved = tmp_path / "pids", tmp_path / "saved"
        run = await start(watchdog, ["sh", "-c", command, str(pids), str(saved), saves])
        await written(pids, 3)
        run.command.terminate()
        await run.gone()
        assert run.command.exit_code == -signal.SIGTERM
        assert saved.read_text() == "saved\nsaved\n"

    with_a_watchdog(test)


def test_a_tree_that_multiplies_is_killed_whole(tmp_path: Path) -> None:
    """Eighty and more, each starting others all the time, half of them in new sessions."""
    breeder = """
import os, sys, time
depth = 0
while depth < 3:
    if not any(os.fork() == 0 for _ in range(4)):
        break
    depth += 1
    if os.getpid() % 2: os.setsid()
with open(sys.argv[1], "a") as file: file.write(f"{os.getpid()}\\n")
while True:
    if os.fork() == 0: os._exit(0)
    time.sleep(0.03)
"""

    async def test(watchdog: WatchdogClient) -> None:
        note = tmp_path / "pids"
        run = await start(watchdog, [sys.executable, "-S", "-c", breeder, str(note)])
        await written(note, 80)
        run.command.kill()
        await run.command.gone.wait()
        pids = set(map(int, note.read_text().split()))
        assert not any(map(alive, pids))

    with_a_watchdog(test)


def test_a_command_that_stops_its_supervisor_does_not_escape(tmp_path: Path) -> None:
    async def test(watchdog: WatchdogClient) -> None:
        run = await start(watchdog, f"kill -STOP $PPID; echo > {tmp_path}/done; {HOLD}")
        await written(tmp_path / "done")
        run.command.kill()
        await run.command.gone.wait()
        assert not alive(run.command.pid)

    with_a_watchdog(test)


def test_a_supervisor_that_is_given_up_ends_with_its_command_also_if_it_is_stopped(tmp_path: Path) -> None:
    async def test(watchdog: WatchdogClient) -> None:
        run = await start(watchdog, f"kill -STOP $PPID; echo > {tmp_path}/done; {HOLD}")
        await written(tmp_path / "done")
        supervisor = run.command.supervisor
        run.command.close()
        assert await ended_soon(run.command.pid)
        assert await ended_soon(supervisor)
        assert (await (await start(watchdog, "echo next")).gone()) == "next\n"

    with_a_watchdog(test)


def test_a_command_tells_its_pid_itself_if_its_supervisor_cannot(tmp_path: Path) -> None:
    """The supervisor stops between the fork and its own line."""
    script = f"""
import os, signal, socket, sys
sys.path.append({str(WATCHDOG_FOLDER)!r})
from watchdog import child
ours, theirs = socket.socketpair()
order = {{"argv": ["true"], "env": {{"PATH": "/usr/bin:/bin"}}, "cwd": "/", "inputs": [b"x"], "account": None,
    "limits": dict.fromkeys(("memory", "cpu", "processes", "files", "disk"))}}
pid = os.fork()
if pid == 0:
    child.become(order, 1, 2, None, theirs.fileno(), None, os.getppid())
assert os.waitpid(pid, 0)[1] == 0
assert ours.recv(100) == b"started %d\\n" % pid
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_cancelling_the_spawn_leaves_nothing_behind(tmp_path: Path) -> None:
    async def test(watchdog: WatchdogClient) -> None:
        starting = asyncio.create_task(start(watchdog, f"echo $$ > {tmp_path}/pid; {HOLD}"))
        await asyncio.sleep(0)
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        watchdog.stop()
        noted = (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""
        assert not noted or not alive(int(noted))

    with_a_watchdog(test)


# -- limits

EATER = """
import os, sys, time
children, megabytes = map(int, sys.argv[1:])
for _ in range(children):
    if os.fork() == 0:
        break
eaten = b"x" * (megabytes << 20)
time.sleep(60)
"""


async def breach_of(watchdog: WatchdogClient, command: str | list[str], **limits: Any) -> Run:
    run = await start(watchdog, command, limits=ResourceLimits(**limits))
    await run.command.gone.wait()
    return run


def test_all_processes_together_are_held_to_the_memory_limit() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        eaters = [sys.executable, "-S", "-c", EATER, "3", "48"]
        run = await breach_of(watchdog, eaters, memory=128_000_000)
        assert run.command.breach == "memory limit of 128MB exceeded"
        assert run.command.exit_code == -signal.SIGKILL
        assert run.command.usage is not None
        assert run.command.usage.peak_bytes > 127_000_000  # the kernel allows no more than the limit

    with_a_watchdog(test)


def test_memory_that_processes_share_counts_once() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        shares = EATER.replace("for _", 'eaten = b"x" * (60 << 20)\nfor _').replace("sleep(60)", "sleep(0.8)")
        run = await start(
            watchdog, [sys.executable, "-S", "-c", shares, "3", "0"], limits=ResourceLimits(memory=128_000_000)
        )
        await run.gone()
        assert (run.command.breach, run.command.exit_code) == (None, 0)

    with_a_watchdog(test)


def test_a_process_cannot_allocate_more_than_the_memory_limit() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        run = await start(
            watchdog, [sys.executable, "-c", "bytearray(1 << 30)"], limits=ResourceLimits(memory=256 << 20)
        )
        assert "MemoryError" in await run.gone()
        assert run.command.exit_code == 1

    with_a_watchdog(test)


def test_cpu_seconds_of_all_processes_count(tmp_path: Path) -> None:
    async def test(watchdog: WatchdogClient) -> None:
        run = await breach_of(watchdog, "for i in 1 2 3; do (while :; do :; done) & done; wait", cpu=0.5)
        assert run.command.breach == "CPU limit of 500ms exceeded"

    with_a_watchdog(test)


def test_too_many_processes_end_the_run() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        run = await breach_of(watchdog, "while :; do setsid sleep 60 & sleep 0.01; done", processes=10)
        assert run.command.breach == "limit of 10 processes exceeded"

    with_a_watchdog(test)


def test_open_files_are_limited_and_cores_are_off() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        run = await start(watchdog, "ulimit -n; ulimit -c", limits=ResourceLimits(files=64))
        assert await run.gone() == "64\n0\n"

    with_a_watchdog(test)


def test_limits_can_be_set_and_lifted_while_it_runs() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        run = await start(watchdog, "while :; do :; done")
        run.command.limit(ResourceLimits(cpu=30.0))
        run.command.limit(None)
        run.command.limit(ResourceLimits(cpu=0.3))
        await run.command.gone.wait()
        assert run.command.breach == "CPU limit of 300ms exceeded"

    with_a_watchdog(test)


def own_group() -> Path | None:
    """Where our groups go, if cgroup v2 can be used here."""
    base = cgroup._bases().get("unified")
    return Path(base, f"mainspring-{os.getpid()}") if base is not None and os.access(base, os.W_OK) else None


@pytest.mark.skipif(own_group() is None, reason="cgroup v2 cannot be used here")
def test_a_limited_tree_is_a_control_group_that_is_removed_with_it() -> None:
    async def test(watchdog: WatchdogClient) -> None:
        folder = own_group()
        assert folder is not None
        run = await start(watchdog, ["cat", "/proc/self/cgroup"], limits=ResourceLimits(processes=20))
        group = next(line for line in (await run.gone()).splitlines() if line.startswith("0::"))
        assert group.split("/")[-2] == folder.name
        assert not list(folder.glob("*/"))
        watchdog.stop()
        assert not folder.exists()

    with_a_watchdog(test)
