"""Commands leave folders that are hard to remove: too deep for a recursion, closed, or full. All of them are removed,
and what cannot be removed does not change how a run ended. Part of it needs user namespaces (`unshare` of util-linux).
"""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mainspring.worker.execution.work_folders import WorkFolders, remove_tree
from mainspring.worker.processes.accounts import CommandAccounts, command_accounts
from tests.worker.sandboxes import PYTHON

from .test_accounts import ends, output
from .test_outliving import HERE, ROOT, needs_user_namespaces

DEPTH = 2200  # longer than PATH_MAX, and deeper than Python recurses
DIG = f'import os\nfor _ in range({DEPTH}): os.mkdir("d", 0o700); os.chdir("d")'
NOBODY = 65534


@pytest.fixture
def parent() -> Iterator[Path]:
    """Not tmp_path: accounts must be able to enter it, and pytest could not remove what a failed test leaves."""
    made = Path(tempfile.mkdtemp(dir="/tmp"))
    made.chmod(0o755)
    yield made
    remove_tree(made)


def dig(folder: Path, depth: int, mode: int = 0o700) -> None:
    """A folder of this depth, with a file at the bottom. The modes are set from below."""
    descriptors = []
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=inner)
        descriptors.append(inner)
        inner = os.open("d", os.O_RDONLY, dir_fd=inner)
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
    while descriptors:
        os.fchmod(inner, mode)
        os.close(inner)
        inner = descriptors.pop()
    os.close(inner)


def dig_deep(folder: Path) -> None:
    before = Path.cwd()
    os.chdir(folder)
    for _ in range(DEPTH):
        os.mkdir("d", 0o700)
        os.chdir("d")
    os.chdir(before)


def as_nobody(work: Callable[[], None]) -> int:
    """Run it as an ordinary user; the exit code."""
    child = os.fork()
    if child == 0:
        try:
            if ROOT:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            work()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - a copy of the test must not go on
            os.write(2, repr(error).encode())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
def test_a_run_that_leaves_a_deep_folder_ends_as_its_command_ended(parent: Path) -> None:
    accounts = command_accounts(None) if ROOT else CommandAccounts()
    folders = WorkFolders(str(parent), shared=ROOT)
    dig = f"{PYTHON} -c '{DIG}'"
    done, failed = ends(accounts, (f"{dig} && pwd", None), (f"{dig} && exit 3", None), folders=folders)
    assert not Path(output(done)[0]).exists()
    assert failed.error == "exit code 3"
    assert [path.name for path in folders.root.iterdir()] == [".lock"]
    folders.close()
    assert list(parent.iterdir()) == []


@pytest.mark.slow
def test_closed_deep_and_wide_folders_are_removed_by_an_ordinary_user(parent: Path) -> None:
    parent.chmod(0o777)
    kept = parent / "kept"
    kept.mkdir()
    (kept / "file").touch()
    kept.chmod(0o500)

    def leave() -> None:
        folder = parent / "left"
        folder.mkdir()
        for name, mode in (("none", 0), ("read", 0o400), ("write", 0o200), ("search", 0o100), ("seen", 0o500)):
            (folder / name).mkdir()
            dig(folder / name, 30, mode)
            (folder / name).chmod(mode)
        (folder / "wide").mkdir()
        for number in range(2000):
            (folder / "wide" / str(number)).mkdir()
            (folder / "wide" / str(number) / "link").symlink_to(kept)
        (folder / "link").symlink_to(kept)
        (folder / "dangling").symlink_to("nowhere")
        os.mkfifo(folder / "fifo", 0)
        dig_deep(folder)
        folder.chmod(0)
        os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)  # there may be gaps between those of the test
        resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
        remove_tree(folder)

    assert as_nobody(leave) == 0
    assert list(parent.iterdir()) == [kept]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o500
    assert [path.name for path in kept.iterdir()] == ["file"]


@pytest.mark.slow
def test_a_sweep_removes_every_root_that_it_can(parent: Path) -> None:
    for name in ("a", "b"):
        root = parent / f"mainspring-worker-{name}"
        root.mkdir()
        (root / ".lock").touch()
        dig_deep(root)
    WorkFolders(str(parent)).sweep()
    assert list(parent.iterdir()) == []


def test_a_link_in_place_of_a_folder_is_removed_itself(parent: Path) -> None:
    (parent / "kept").mkdir()
    (parent / "kept" / "file").touch()
    (parent / "link").symlink_to("kept")
    remove_tree(parent / "link")
    remove_tree(parent / "missing")
    assert [path.name for path in parent.rglob("*")] == ["kept", "file"]


MOUNTED = """
cd $1 && mkdir -p mainspring-worker-a/1/2/3/mount && touch mainspring-worker-a/.lock mainspring-worker-a/1/file
mount -t tmpfs none mainspring-worker-a/1/2/3/mount && cd mainspring-worker-a && touch 1/2/3/mount/kept || exit 77
"$0" -c "$2" $1; find . -name kept -o -name file -o -name .lock; umount $(find . -name mount); "$0" -c "$2" $1
"""
SWEEP = """
import sys
from mainspring.worker.execution.work_folders import WorkFolders
WorkFolders(sys.argv[1]).sweep()
"""


@needs_user_namespaces
def test_a_mounted_file_system_is_left_alone_and_a_later_sweep_ends_the_work(parent: Path) -> None:
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNTED, sys.executable, str(parent), SWEEP]
    done = subprocess.run(argv, cwd=HERE, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(f"no file system can be mounted here: {done.stderr}")
    left = [Path(line).name for line in done.stdout.splitlines() if line.startswith("./")]
    assert sorted(left) == [".lock", "kept"], done.stderr
    assert (done.stdout + done.stderr).count("cannot be removed") == 1
    assert list(parent.iterdir()) == []
