"""Installs what servers of 0.2.0 need and this version does not, in the versions of old_server.lock.

The packages have a folder of their own in the environment. Only processes of tests/upgrades have it on their path.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).with_name("old_server.lock")
FOLDER = Path(sys.prefix) / "old-server"
_STAMP = FOLDER / LOCK.name


def installed() -> bool:
    return _STAMP.exists() and _STAMP.read_bytes() == LOCK.read_bytes()


def main() -> int:
    if installed():
        return 0
    shutil.rmtree(FOLDER, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(FOLDER)]
    said = subprocess.run([*pip, "--require-hashes", "--requirement", str(LOCK)], check=False).returncode
    if said != 0:
        return said
    shutil.copyfile(LOCK, _STAMP)
    return 0


if __name__ == "__main__":
    sys.exit(main())
