"""Working folders are private, and disappear: with their attempt, with their worker, or with the next one's start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import uvloop

from mainspring.worker.execution.work_folders import WorkFolders

# Makes a folder, says where, and waits to be ended.
OTHER_WORKER = """
import sys
from mainspring.worker.execution.work_folders import WorkFolders
folders = WorkFolders(sys.argv[1])
print(folders.make(), flush=True)
sys.stdin.read()
"""


def test_folders_are_fresh_and_for_us_alone(tmp_path: Path) -> None:
    folders = WorkFolders(str(tmp_path))
    first, second = folders.make(), folders.make()
    assert first != second
    assert first.parent.stat().st_mode & 0o777 == first.stat().st_mode & 0o777 == 0o700
    assert not list(first.iterdir())
    folders.close()
    assert not list(tmp_path.iterdir())


def test_removing_one_does_not_follow_links(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o500)
    folders = WorkFolders(str(tmp_path))
    folder = folders.make()
    (folder / "link").symlink_to(precious)
    (folder / "inner").mkdir(mode=0o000)
    uvloop.run(folders.remove(folder))
    assert not folder.exists()
    assert precious.stat().st_mode & 0o777 == 0o500


def test_a_root_that_was_tidied_away_is_made_again(tmp_path: Path) -> None:
    folders = WorkFolders(str(tmp_path))
    first = folders.make()
    first.rmdir()
    (folders.root / ".lock").unlink()
    folders.root.rmdir()
    assert folders.make().is_dir()


def other_worker(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    worker = subprocess.Popen(
        [sys.executable, "-c", OTHER_WORKER, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    return worker, Path(worker.stdout.readline().strip())


def test_a_worker_that_leaves_takes_its_folders_along(tmp_path: Path) -> None:
    worker, folder = other_worker(tmp_path)
    assert folder.is_dir()
    worker.communicate()
    assert not folder.parent.exists()


def test_a_killed_workers_folders_are_swept_and_a_living_ones_are_not(tmp_path: Path) -> None:
    killed, left = other_worker(tmp_path)
    living, held = other_worker(tmp_path)
    strangers = tmp_path / "mainspring-worker-strange"
    strangers.mkdir()
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert left.is_dir()
    WorkFolders(str(tmp_path)).sweep()
    assert not left.parent.exists()
    assert held.is_dir()
    assert strangers.is_dir()
    living.communicate()
