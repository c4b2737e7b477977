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
import stat
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring.wire.execution import ResourceLimits, RunSetup
from mainspring.worker.processes.watchdog.disk_use import DiskMeter
from mainspring.worker.processes.watchdog_client import WatchdogClient
from tests.worker.sandboxes import PYTHON, needs_sandbox
from tests.worker.test_command import Run, start, with_a_watchdog
from tests.worker.test_shell_executor import ran, result, shell

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="limits of process trees need Linux"),
    pytest.mark.slow,
]

MEMORY = 48_000_000
HELD = "\ntime.sleep(60)"
BRIEFLY = "time.sleep(3)"
KERNEL, GAUGE = "as the kernel counts", "as the supervisor counts"
both = pytest.mark.parametrize("by", [KERNEL, GAUGE])

PRELUDE = """
import ctypes, mmap, os, signal, threading, time
libc = ctypes.CDLL(None)
MB = 1 << 20
def exit_thread():
    libc.syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)
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


def needs_user_namespaces() -> None:
    probe = ["unshare", "-Urm", "mount", "-t", "tmpfs", "none", "/mnt"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("needs user namespaces")


@both
def test_a_tmpfs_of_its_own_counts(by: str) -> None:
    needs_user_namespaces()
    hide = "mount -t tmpfs none /mnt && head -c 80000000 /dev/zero > /mnt/x && exec sleep 60"
    assert breach(["unshare", "-Urm", "sh", "-c", hide], by, memory=MEMORY) == "memory limit of 48MB exceeded"


MOUNTS = {
    "at a name with a space": "mkdir 'a b'; mount -t tmpfs none 'a b'; head -c 80000000 /dev/zero > 'a b/x'",
    "below another mount": "mount -t tmpfs none .; head -c 80000000 /dev/zero > $PWD/x; mount --bind /usr $PWD",
    "without a size": "mount -t tmpfs -o size=0 none .; head -c 80000000 /dev/zero > $PWD/x",
    "ramfs": "mount -t ramfs none .; head -c 80000000 /dev/zero > $PWD/x",
}


@pytest.mark.parametrize("hide", MOUNTS)
def test_a_tmpfs_that_is_hard_to_find_counts(hide: str, tmp_path: Path) -> None:
    needs_user_namespaces()
    command = ["unshare", "-Urm", "sh", "-ec", f"{MOUNTS[hide]}; exec sleep 3"]
    assert breach(command, GAUGE, str(tmp_path), memory=MEMORY) == "memory limit of 48MB exceeded"


def test_a_tmpfs_for_every_page_counts(tmp_path: Path) -> None:
    needs_user_namespaces()
    many = f"""
for n in range(520):
    os.mkdir(str(n))
    libc.mount(b'none', str(n).encode(), b'tmpfs', 0, b'size=4k')
{BRIEFLY}
"""
    assert breach(["unshare", "-Urm", *program(many)], GAUGE, str(tmp_path), memory=MEMORY) is not None


THREADS = {
    "the first thread has ended": f"""
def hold():
    kept = b'x' * (80 * MB)
    {BRIEFLY}
threading.Thread(target=hold).start()
exit_thread()
""",
    "open files of a thread": f"""
def hold():
    libc.unshare(0x400)
    fill(os.memfd_create('x'), 80)
    {BRIEFLY}
threading.Thread(target=hold).start()
""",
}


@pytest.mark.parametrize("hide", THREADS)
def test_memory_of_every_thread_counts(hide: str) -> None:
    assert breach(program(THREADS[hide]), GAUGE, memory=MEMORY) == "memory limit of 48MB exceeded"


def test_threads_count_as_processes() -> None:
    many = f"for _ in range(5): threading.Thread(target=lambda: {BRIEFLY}).start()"
    assert breach(program(many), GAUGE, processes=5) == "limit of 5 processes exceeded"
    assert breach(program(many.replace(BRIEFLY, "time.sleep(0.6)")), GAUGE, processes=6) is None


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


DELETED = """
def delete(close):
    for n in range(3):
        descriptor = os.open('x', os.O_CREAT | os.O_RDWR)
        os.posix_fallocate(descriptor, 0, 500000)
        libc.mmap(None, ctypes.c_size_t(LENGTH), 1, 1, descriptor, ctypes.c_long(0))
        os.unlink('x')
        if close: os.close(descriptor)
"""
HIDDEN_FILES = {
    "mapped": f"delete(True); {BRIEFLY}",
    "open in a process without its first thread": f"""
def hold():
    delete(False)
    {BRIEFLY}
threading.Thread(target=hold).start()
exit_thread()
""",
    "open in a thread": f"""
def hold():
    libc.unshare(0x400)
    delete(False)
    {BRIEFLY}
threading.Thread(target=hold).start()
""",
}


@pytest.mark.parametrize("hide", HIDDEN_FILES)
def test_deleted_files_count(hide: str, tmp_path: Path) -> None:
    """Without root, only the mapped part of a file is known that is mapped and not open (docs/isolation.md)."""
    length = 4096 if os.getuid() == 0 or hide != "mapped" else 500000
    text = DELETED.replace("LENGTH", str(length)) + HIDDEN_FILES[hide]
    assert breach(program(text), GAUGE, str(tmp_path), disk=1_000_000) == "disk limit of 1MB exceeded"


def as_an_ordinary_user(test: Callable[[Path], None]) -> None:
    """Run it in another process, in a folder of its own. Root needs no permissions to look into a folder."""
    pid = os.fork()
    if pid == 0:
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            with tempfile.TemporaryDirectory(dir="/tmp") as folder:
                test(Path(folder))
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the copy of the test process must not go on
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_counting_changes_no_permissions_outside_the_folder() -> None:
    """A command swaps a folder that it has closed with a link."""

    def test(folder: Path) -> None:
        outside, inside = folder / "outside", folder / "inside"
        outside.mkdir(mode=0o750), inside.mkdir()
        (inside / "a").mkdir(mode=0)
        (inside / "b").symlink_to(outside)
        one, other = (os.fsencode(inside / name) for name in "ab")
        swapping = threading.Event()

        def swap() -> None:
            libc = ctypes.CDLL(None)
            while not swapping.is_set():
                libc.renameat2(-100, one, -100, other, 2)

        swapper = threading.Thread(target=swap)
        swapper.start()
        meter = DiskMeter(str(inside), 1 << 30)
        for now in range(1000):
            meter.exceeded([], now * 2.0)
            if stat.S_IMODE(outside.stat().st_mode) != 0o750:
                break
        swapping.set()
        swapper.join()
        for name in "ab":
            if not (inside / name).is_symlink():
                (inside / name).chmod(0o700)
        assert stat.S_IMODE(outside.stat().st_mode) == 0o750

    as_an_ordinary_user(test)


def test_a_working_folder_without_permissions_is_counted() -> None:
    def test(folder: Path) -> None:
        inside = folder / "inside"
        inside.mkdir()
        (inside / "x").write_bytes(bytes(100_000))
        inside.chmod(0)
        try:
            assert DiskMeter(str(inside), 50_000).exceeded([], 1.0)
            assert stat.S_IMODE(inside.stat().st_mode) == 0
        finally:
            inside.chmod(0o700)

    as_an_ordinary_user(test)


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
