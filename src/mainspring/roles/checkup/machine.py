"""This machine: room on the disk, open files, the sandbox."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from mainspring.kinds.shell.sandbox.bubblewrap import NoSandbox, find_bubblewrap
from mainspring.roles.checkup.findings import Finding, error, ok, warning

_MEGABYTE = 1024 * 1024
_FEW_FILES = 4096


def check_machine(data: Path | None) -> Iterator[Finding]:
    yield _disk(data or Path.cwd())
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 0 <= files < _FEW_FILES:
        yield warning(
            "open files", f"at most {files}: a server has few connections", "raise the limit: ulimit -n 65536"
        )
    else:
        yield ok("open files", "unlimited" if files < 0 else f"at most {files}")
    try:
        find_bubblewrap(os.environ)
    except NoSandbox as missing:
        yield warning("sandbox", f"{missing}: workers here run no sandboxed commands", missing.hint)
    else:
        yield ok("sandbox", "bubblewrap is installed")


def _disk(folder: Path) -> Finding:
    there = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    usage = shutil.disk_usage(there)
    free = f"{usage.free // _MEGABYTE:,} MB of {usage.total // _MEGABYTE:,} MB are free at {there}"
    if usage.free < 500 * _MEGABYTE:
        return error("disk", free, "make room: PostgreSQL stops when the disk is full")
    if usage.free < usage.total // 10 and usage.free < 10_000 * _MEGABYTE:
        return warning("disk", free, "make room, or keep less history and fewer logs")
    return ok("disk", free)
