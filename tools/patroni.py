"""Installs Patroni and etcd, in the versions of patroni.lock, for the interpreter that will run them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from mainspring.bench.patroni.programs import patroni_programs

LOCK = Path(__file__).with_name("patroni.lock")
_STAMP = "patroni.lock"


def main() -> int:
    programs = patroni_programs()
    stamp = programs.folder / _STAMP
    if stamp.exists() and stamp.read_bytes() == LOCK.read_bytes() and programs.installed:
        return 0
    shutil.rmtree(programs.folder, ignore_errors=True)
    programs.folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--python", str(programs.interpreter), "install", "--quiet"]
    pip += ["--disable-pip-version-check", "--no-warn-script-location", "--target", str(programs.folder)]
    said = subprocess.run([*pip, "--require-hashes", "--requirement", str(LOCK)], check=False).returncode
    if said != 0:
        return said
    programs.etcd.chmod(0o755)
    shutil.copyfile(LOCK, stamp)
    programs.require()
    return 0


if __name__ == "__main__":
    sys.exit(main())
