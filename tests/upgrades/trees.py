"""The versions with which later ones must be compatible, and their sources from git."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tools import old_server

ROOT = Path(__file__).resolve().parents[2]
BASELINES = Path(__file__).with_name("baselines.txt")


def baselines() -> dict[str, str]:
    """The commit of each version. HEAD means the current tree, until the version has a commit."""
    found = {}
    for line in BASELINES.read_text(encoding="utf-8").splitlines():
        if words := line.partition("#")[0].split():
            version, commit = words
            found[version] = commit
    return found


def git(*arguments: str) -> bytes:
    """The output of git. The test is skipped if the clone does not have the commit."""
    try:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True, timeout=60).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", b"").decode(errors="replace").strip() or str(error)
        pytest.skip(f"needs git and the whole history, and this is not a full clone: git {arguments[0]}: {why}")


def tree_of(commit: str, folder: Path) -> Path:
    """The folder from which `mainspring` of this commit is imported."""
    if commit == "HEAD":
        return ROOT / "src"
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit, "src"))) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def python_path(tree: Path) -> str:
    """What processes of this tree have as PYTHONPATH: the tree, and the packages that this version no longer needs."""
    if tree == ROOT / "src":
        return str(tree)
    if not old_server.installed():
        pytest.fail("servers of 0.2.0 need packages that are not installed: make old-server")
    return os.pathsep.join((str(tree), str(old_server.FOLDER)))


def imported_from(tree: Path) -> Path:
    """The path of the package in a Python process with this tree."""
    shown = subprocess.run(
        [sys.executable, "-c", "import mainspring; print(mainspring.__file__)"],
        env={**os.environ, "PYTHONPATH": python_path(tree)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return Path(shown.stdout.strip())
