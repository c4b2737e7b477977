"""The sandbox of the machine that runs the tests. Where it cannot be built, tests that need it are skipped."""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache
from pathlib import Path

import pytest

from mainspring.kinds.shell.sandbox.bubblewrap import Bubblewrap, NoSandbox, tried_bubblewrap
from mainspring.worker.execution.work_folders import WorkFolders

_SYSTEM_PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
# A Python that sandboxed commands can run, and what they must be shown for it.
PYTHON = _SYSTEM_PYTHON or str(Path(sys.executable).resolve())
PYTHON_READ = () if _SYSTEM_PYTHON else (Path(sys.base_prefix),)


@cache
def sandbox_here() -> Bubblewrap | NoSandbox:
    folders = WorkFolders()
    try:
        return tried_bubblewrap(os.environ, PYTHON_READ, folders)
    except NoSandbox as reason:
        return reason
    finally:
        folders.close()


needs_sandbox = pytest.mark.skipif(
    isinstance(sandbox_here(), NoSandbox), reason=f"the sandbox cannot be built here: {sandbox_here()}"
)
