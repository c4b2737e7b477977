"""Commands that hide what they use: memory that nobody has mapped, CPU time of children that nobody waits for, files
that nobody sees.

It needs Linux. Each attack is tried twice: with the limits of the order, which the kernel enforces where control groups
can be made, and with limits that are set later, which only the supervisor measures. Some attacks need more and say so.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring.wire.execution import ResourceLimits, RunSetup
from mainspring.worker.processes.watchdog_client import WatchdogClient
from tests.worker.sandboxes import PYTHON, needs_sandbox
from tests.worker.test_command import Run, start, with_a_watchdog
from tests.worker.test_shell_executor import ran, result, shell

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of process trees need Linux")

MEMORY = 48_000_000
HELD = "\ntime.sleep(60)"
KERNEL, GAUGE = "as the kernel counts", "as the supervisor counts"
both = pytest.mark.parametrize("by", [KERNEL, GAUGE])

PRELUDE = """
import ctypes, mmap, os, signal, time
libc = ctypes.CDLL(None)
MB = 1 << 20
def fill(descriptor, megabytes):
    for _ in range(megabytes):
        os.write(descriptor, bytes(MB))
"""
MEMFD = "fill(os.memfd_create('x'), 80)"
MAPPED_MEMFD = """
descriptor = os.memfd_create('x')
fill(descriptor, 80)
kept = mmap.mmap(descriptor, 80 * MB)
os.close(descriptor)
"""
FORGOTTEN_PAGES = """
kept = mmap.mmap(-1, 80 * MB)
for _ in range(80):
    kept.write(bytes(MB))
    kept.madvise(mmap.MADV_DONTNEED)
"""
SHM = """
name = f'/dev/shm/mainspring-{os.getpid()}'
descriptor = os.open(name, os.O_CREAT | os.O_RDWR)
os.unlink(name)
fill(descriptor, 80)
"""
SYSV = """
libc.shmat.restype = ctypes.c_void_p
segment = libc.shmget(0, ctypes.c_size_t(80 * MB), 0o1600)
at = libc.shmat(segment, None, 0)
ctypes.memset(at, 1, 80 * MB)
libc.shmdt(ctypes.c_void_p(at))
"""


def program(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", PRELUDE + text]


async def limited(watchdog: WatchdogClient, argv: list[str], by: str, folder: str = "/", **limits: Any) -> Run:
    """Start a command with limits."""
    given = ResourceLimits(**limits)
    run = await start(watchdog, argv, cwd=folder, limits=given if by == KERNEL else None)
    if by == GAUGE:
        run.command.limit(given, folder)
    return run


def breach(argv: list[str], by: str, folder: str = "/", **limits: Any) -> str | None:
    """The limit that the command has exceeded when it has ended."""
    found: list[str | None] = []

    async def test(watchdog: WatchdogClient) -> None:
        run = await limited(watchdog, argv, by, folder, **limits)
        await run.gone()
        found.append(run.command.breach)

    with_a_watchdog(test)
    return found[0]


# -- memory


@pytest.fixture
def no_segments_left() -> Iterator[None]:
    """A segment outlives its run outside the sandbox."""
    before = segments()
    yield
    for segment in segments() - before:
        ctypes.CDLL(None).shmctl(segment, 0, None)


def segments() -> set[int]:
    lines = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    return {int(fields[1]) for fields in lines if int(fields[3]) == 80 << 20}


@both
@pytest.mark.parametrize("hide", [MEMFD, SHM, SYSV], ids=["memfd", "/dev/shm", "System V"])
@pytest.mark.usefixtures("no_segments_left")
def test_memory_that_is_not_mapped_counts(hide: str, by: str) -> None:
    assert breach(program(hide + HELD), by, memory=MEMORY) == "memory limit of 48MB exceeded"


@both
@pytest.mark.parametrize("hide", [MAPPED_MEMFD, FORGOTTEN_PAGES], ids=["closed", "dropped from the page table"])
def test_memory_that_is_mapped_and_not_touched_counts(hide: str, by: str) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root: only root sees the size of what others have mapped (docs/isolation.md)")
    assert breach(program(hide + HELD), by, memory=MEMORY) == "memory limit of 48MB exceeded"


@both
def test_a_tmpfs_of_its_own_counts(by: str) -> None:
    mount = "mount -t tmpfs none /mnt"
    probe = ["unshare", "-Urm", "sh", "-c", mount]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("needs user namespaces")
    hide = f"{mount} && head -c 80000000 /dev/zero > /mnt/x && exec sleep 60"
    assert breach(["unshare", "-Urm", "sh", "-c", hide], by, memory=MEMORY) == "memory limit of 48MB exceeded"


@both
def test_shared_memory_counts_once(by: str) -> None:
    """Four processes have it open, and map it."""
    shares = """
descriptor = os.memfd_create('x')
fill(descriptor, 20)
kept = mmap.mmap(descriptor, 20 * MB)
os.fork(), os.fork()
sum(kept[::4096])
time.sleep(0.8)
"""
    assert breach(program(shares), by, memory=2 * MEMORY) is None


# -- CPU time

BURNS = """
def burn(seconds):
    if os.fork() == 0:
        while time.process_time() < seconds: pass
        os._exit(0)
"""


@both
@pytest.mark.parametrize("seconds", [0.4, 0.02], ids=["long", "short"])
def test_children_that_are_not_waited_for_count(seconds: float, by: str) -> None:
    """The kernel does not add their time to their parent's."""
    hides = f"signal.signal(signal.SIGCHLD, signal.SIG_IGN){BURNS}\nwhile True: burn({seconds}); time.sleep({seconds})"
    assert breach(program(hides), by, cpu=0.7) == "CPU limit of 700ms exceeded"


@both
def test_children_that_are_waited_for_count_once(by: str) -> None:
    waits = f"{BURNS}\nfor _ in range(20): burn(0.02); os.wait()"
    assert breach(program(waits), by, cpu=1.5) is None


# -- disk


FILES = {
    "many files": "for n in range(40): open(f'{n}', 'wb').write(bytes(65536))",
    "deleted files": """
for n in range(3):
    descriptor = os.open('x', os.O_CREAT | os.O_RDWR)
    os.unlink('x')
    os.write(descriptor, bytes(500000))
""",
    "empty files": "for n in range(1100): open(f'{n}', 'wb').close()",
    "a closed folder": """
os.mkdir('d')
for n in range(40): open(f'd/{n}', 'wb').write(bytes(65536))
os.chmod('d', 0)
""",
    "nested folders": "for n in range(230): os.mkdir('d' * 200); os.chdir('d' * 200)",
}


@pytest.mark.parametrize("hide", FILES)
def test_the_disk_space_of_a_run_is_limited(hide: str, tmp_path: Path) -> None:
    found = breach(program(FILES[hide] + HELD), KERNEL, str(tmp_path), disk=1_000_000)
    shutil.rmtree(tmp_path, ignore_errors=True)
    assert found == "disk limit of 1MB exceeded"


def test_a_hard_link_takes_no_space_and_one_file_cannot_exceed_the_limit(tmp_path: Path) -> None:
    async def test(watchdog: WatchdogClient) -> None:
        links = "\nopen('x', 'wb').write(bytes(600000))\nfor n in range(5): os.link('x', f'{n}')\ntime.sleep(1.6)"
        large = "head -c 3000000 /dev/zero > large; stat -c %s large"
        one, other = tmp_path / "one", tmp_path / "other"
        one.mkdir(), other.mkdir()
        linked, cut = await asyncio.gather(
            limited(watchdog, program(links), KERNEL, str(one), disk=1_000_000),
            limited(watchdog, ["sh", "-c", large], KERNEL, str(other), disk=1_000_000),
        )
        assert (await linked.gone(), linked.command.breach) == ("", None)
        assert (await cut.gone()).splitlines()[-1] == "1000000"

    with_a_watchdog(test)


@needs_sandbox
def test_the_limits_hold_in_the_sandbox() -> None:
    """Its /dev/shm is the working folder."""

    def failure(text: str, **limits: Any) -> str | None:
        command = [PYTHON, "-S", "-c", PRELUDE + text + HELD]
        return ran(shell(command, setup=RunSetup(sandbox="bubblewrap", limits=ResourceLimits(**limits))))[0].error

    assert failure(MEMFD, memory=MEMORY) == "memory limit of 48MB exceeded"
    assert failure(FILES["many files"].replace("f'", "f'/dev/shm/"), disk=1_000_000) == "disk limit of 1MB exceeded"


# -- output


@pytest.mark.parametrize("code", [0, 1])
def test_the_result_and_the_error_quote_no_more_output_than_the_limit(code: int) -> None:
    setup = RunSetup(limits=ResourceLimits(output=10))
    ending, _ = ran(shell(f"head -c 5000 /dev/zero | tr '\\0' x; exit {code}", setup=setup))
    if code == 0:
        assert result(ending) == {"exit_code": 0, "output": "x" * 10, "output_bytes": 5000}
    else:
        assert ending.error == "exit code 1: " + "x" * 10
    ending, _ = ran(shell("echo x", setup=RunSetup(limits=ResourceLimits(output=0))))
    assert result(ending)["output"] == ""
