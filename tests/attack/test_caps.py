"""A run whose job sets no limits cannot use up the machine: the caps of the worker end it, and the others go on.

Needs Linux. Each attack is tried with the control groups of this machine, where there are some, without them, and as an
ordinary user. The last two need root, to hide the groups and to become somebody else. Every bomb is bounded: it has at
most 1,500 processes or 700 MB, and ends itself after 20 s.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from mainspring.kinds.shell.sandbox.bubblewrap import Bubblewrap
from mainspring.wire.execution import ResourceLimits
from mainspring.worker.processes.caps import Caps
from mainspring.worker.processes.command import SpawnOrder
from mainspring.worker.processes.watchdog import cgroup, namespaces
from mainspring.worker.processes.watchdog_client import WatchdogClient
from tests.eventually import PATIENCE
from tests.worker.sandboxes import PYTHON, sandbox_here
from tests.worker.test_command import WATCHDOG_FOLDER, Run

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="caps need Linux"), pytest.mark.slow]

NOBODY = 64321  # an account that nothing else uses
GROUPS, BARE, USER = "with control groups", "without control groups", "as an ordinary user"
PLAIN, ISOLATED, SANDBOX = "plain", "isolated", "sandbox"
# Hides the control groups of this machine from the watchdog, or makes it a process of another user.
STARTED = {
    BARE: 'exec unshare --mount sh -c \'umount -R -l /sys/fs/cgroup; exec "$@"\' sh {python} "$@"',
    USER: 'exec setpriv --reuid {user} --regid {user} --clear-groups {system} "$@"',
}
BOMB = """
import os, signal, time
end, born = time.monotonic() + 20, 0
while time.monotonic() < end:
    try:
        if born < 1500 and os.fork() == 0:
            signal.alarm(20)
            signal.pause()
        born += 1
    except OSError:
        pass
"""
THREADS = """
import threading, time
end, born = time.monotonic() + 20, 0
while time.monotonic() < end:
    try:
        if born < 1500:
            threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
        born += 1
    except RuntimeError:
        pass
"""
HOG = "import time; kept = [b'x' * (10 << 20) for _ in range(70)]; time.sleep(20)"
# It forks for as long as the others are at work, and says so at the end.
NEIGHBOUR = "while [ ! -e {0}/over ]; do (exit 0) || exit 9; sleep {1}; done; echo fine"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every account may use."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture(params=[GROUPS, BARE, USER])
def machine(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the watchdog is started."""
    if request.param == GROUPS:
        if not cgroup.usable() >= {"memory", "processes"}:
            pytest.skip("control groups cannot be made here")
        return GROUPS
    system = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if os.geteuid() != 0 or (request.param == USER and (system is None or not readable_by_all(WATCHDOG_FOLDER))):
        pytest.skip("needs root, and for another user a Python and a source folder that everybody may read")
    program = folder / "python"
    words = STARTED[request.param].format(python=sys.executable, system=system, user=NOBODY)
    program.write_text(f"#!/bin/sh\n{words}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return str(request.param)


def readable_by_all(folder: Path) -> bool:
    return all(each.stat().st_mode & 0o005 == 0o005 for each in (folder, *folder.parents))


@pytest.fixture(params=[PLAIN, ISOLATED, SANDBOX])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == SANDBOX and not isinstance(sandbox_here(), Bubblewrap):
        pytest.skip(f"the sandbox cannot be built here: {sandbox_here()}")
    if request.param != PLAIN and namespaces.why_not() is not None:
        pytest.skip("no pid namespace can be had here")
    return str(request.param)


class Machine:
    """Starts commands under one watchdog."""

    def __init__(self, watchdog: WatchdogClient, caps: Caps, folder: Path) -> None:
        self._watchdog = watchdog
        self._caps = caps
        self._folder = folder

    async def start(self, argv: list[str], kind: str = PLAIN, **fields: Any) -> Run:
        environ = {"PATH": "/usr/bin:/bin"}
        order = SpawnOrder(argv, environ, str(self._folder))
        if kind == SANDBOX:
            found = sandbox_here()
            assert isinstance(found, Bubblewrap)
            order = msgspec.structs.replace(
                found.confine(argv, self._folder, environ, {}), own_root=False
            )  # all share it
        output, writer = os.pipe()
        try:
            order = msgspec.structs.replace(order, isolated=kind != PLAIN, caps=self._caps, **fields)
            return Run(await self._watchdog.spawn(order, output=writer), output)
        finally:
            os.close(writer)

    async def attacked(self, program: str, kind: str = PLAIN, *, pause: float = 0.02, **fields: Any) -> Run:
        """Run this beside a neighbour that goes on. It pauses longer where its CPU time is capped too, because the
        attack may last long on a busy machine."""
        inside = "/sandbox" if kind == SANDBOX else str(self._folder)
        neighbour = await self.start(["sh", "-c", NEIGHBOUR.format(inside, pause)], kind)
        run = await self.start([PYTHON, "-S", "-c", program], kind, **fields)
        await run.gone()
        (self._folder / "over").touch()
        assert (await neighbour.gone(), neighbour.command.exit_code) == ("fine\n", 0)
        return run


@asynccontextmanager
async def a_machine(caps: Caps, folder: Path) -> AsyncIterator[Machine]:
    watchdog = WatchdogClient(caps=caps)
    watchdog.start()
    try:
        async with asyncio.timeout(PATIENCE):
            yield Machine(watchdog, caps, folder)
    finally:
        watchdog.stop()


def on_a_machine(caps: Caps, folder: Path, test: Callable[[Machine], Awaitable[None]]) -> None:
    async def run() -> None:
        async with a_machine(caps, folder) as machine:
            await test(machine)

    uvloop.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("bomb", [BOMB, THREADS], ids=["processes", "threads"])
@pytest.mark.usefixtures("machine")
def test_a_run_that_multiplies_is_ended_and_its_neighbour_goes_on(kind: str, bomb: str, folder: Path) -> None:
    async def test(machine: Machine) -> None:
        run = await machine.attacked(bomb, kind)
        assert run.command.breach == (
            "limit of 150 processes exceeded, the most that this worker allows (--run-max-processes)"
        )

    on_a_machine(Caps(run_processes=150, processes=20_000), folder, test)


@pytest.mark.usefixtures("machine")
def test_if_all_runs_together_have_too_many_processes_the_largest_is_ended(kind: str, folder: Path) -> None:
    async def test(machine: Machine) -> None:
        run = await machine.attacked(BOMB, kind)
        assert run.command.breach is not None
        assert run.command.breach.startswith(
            "the runs of this worker together may have 150 processes (--max-processes)"
        )

    on_a_machine(Caps(run_processes=1000, processes=150), folder, test)


@pytest.mark.usefixtures("machine")
def test_if_all_runs_together_use_too_much_memory_the_largest_is_ended(kind: str, folder: Path) -> None:
    async def test(machine: Machine) -> None:
        run = await machine.attacked(HOG, kind)
        assert run.command.breach is not None
        assert run.command.breach.startswith("the runs of this worker together may use 300MiB of memory (--max-memory)")

    on_a_machine(Caps(memory=300 << 20), folder, test)


@pytest.mark.usefixtures("machine")
def test_a_cap_for_each_run_counts_where_the_job_asks_for_more_or_for_nothing(folder: Path) -> None:
    async def test(machine: Machine) -> None:
        for limits in (None, ResourceLimits(memory=4 << 30)):
            run = await machine.attacked(HOG, pause=1, limits=limits)
            # It may be told that there is no more (RLIMIT_DATA), and fail with its own error.
            said = "memory limit of 200MiB exceeded, the most that this worker allows (--run-max-memory)"
            assert (run.command.breach, run.command.exit_code) in ((said, -9), (None, 1))
        run = await machine.attacked("while True: pass", pause=1)
        assert run.command.breach == "CPU limit of 500ms exceeded, the most that this worker allows (--run-max-cpu)"
        run = await machine.attacked("while True: pass", pause=1, limits=ResourceLimits(cpu=0.2))
        assert run.command.breach == "CPU limit of 200ms exceeded"

    on_a_machine(Caps(run_memory=200 << 20, run_cpu=0.5), folder, test)


def test_the_kernel_refuses_a_process_soon_after_the_cap(machine: str, folder: Path) -> None:
    """So that what multiplies quickly has no more at the next look."""
    shown = "ulimit -u; for c in pids ''; do p=$(sed -n \"s/^[0-9]*:$c://p\" /proc/self/cgroup); "
    shown += "cat /sys/fs/cgroup/$c$p/pids.max 2>/dev/null; done; true"
    found: list[str] = []

    async def test(machine: Machine) -> None:
        run = await machine.start(["bash", "-c", shown], ISOLATED)
        found.extend((await run.gone()).split())

    if namespaces.why_not() is not None:
        pytest.skip("no pid namespace can be had here")
    on_a_machine(Caps(run_processes=150), folder, test)
    if machine == BARE:  # the account of root's commands shares a number with those of other runs
        assert int(found[0]) >= 1000
    else:
        assert "166" in (found[:1] if machine == USER else found[1:])


def test_cores_are_limited_by_a_group_or_commands_are_pinned(machine: str, folder: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")

    async def test(the_machine: Machine) -> None:
        run = await the_machine.start(["sh", "-c", "nproc; cat /proc/self/cgroup"])
        cores, *groups = (await run.gone()).splitlines()
        if machine == GROUPS and "cpus" in cgroup.usable():
            owner = f"mainspring-{os.getpid()}"
            assert int(cores) >= 2
            assert any("cpu" in group.split(":")[1].split(",") and owner in group for group in groups if group)
        else:
            assert cores == "1"

    on_a_machine(Caps(cpus=0.8), folder, test)


def test_commands_are_the_first_that_the_kernel_kills_when_memory_runs_out(folder: Path) -> None:
    async def test(machine: Machine) -> None:
        run = await machine.start(["cat", "/proc/self/oom_score_adj"])
        assert await run.gone() == "500\n"

    on_a_machine(Caps(), folder, test)


def test_the_groups_of_a_worker_are_gone_with_it(folder: Path) -> None:
    caps = Caps(run_processes=150, memory=1 << 30, processes=1000)

    async def test(machine: Machine) -> None:
        runs = [await machine.start(["true"]) for _ in range(3)]
        for run in runs:
            await run.gone()

    on_a_machine(caps, folder, test)
    left = cgroup._parents(os.getpid(), {"memory": 1, "processes": 1, "cpus": None, "run_processes": 1})
    assert [group for group in left if Path(group).exists()] == []


@pytest.mark.usefixtures("machine")
def test_a_run_that_goes_on_after_the_kernel_has_refused_it_processes_is_ended(folder: Path) -> None:
    async def test(machine: Machine) -> None:
        run = await machine.attacked(BOMB, limits=ResourceLimits(processes=40))
        assert run.command.breach == "limit of 40 processes exceeded"

    on_a_machine(Caps(run_processes=150), folder, test)
