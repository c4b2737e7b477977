"""Versions that later ones must live with: which they are, and their source from git."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASELINES = Path(__file__).with_name("baselines.txt")
# The last commit before migrations had stages and routines had files of their own. It was never released, but
# databases that it has made are brought up to date.
BEFORE_STAGES = "0465cc7"


def baselines() -> dict[str, str]:
    """The commit of each version; HEAD stands for the tree as it is here, until the version has a commit."""
    found = {}
    for line in BASELINES.read_text(encoding="utf-8").splitlines():
        if words := line.partition("#")[0].split():
            version, commit = words
            found[version] = commit
    return found


def git(*arguments: str) -> bytes:
    """What git prints; the test is skipped where the clone does not have what is asked for."""
    try:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True, timeout=60).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", b"").decode(errors="replace").strip() or str(error)
        pytest.skip(f"needs git and the whole history, and this is not a full clone: git {arguments[0]}: {why}")


def tree_of(commit: str, folder: Path) -> Path:
    """The folder to import `mainspring` of this commit from."""
    if commit == "HEAD":
        return ROOT / "src"
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit, "src"))) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def imported_from(tree: Path) -> Path:
    """Where a Python process that is given this tree finds the package."""
    shown = subprocess.run(
        [sys.executable, "-c", "import mainspring; print(mainspring.__file__)"],
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return Path(shown.stdout.strip())
