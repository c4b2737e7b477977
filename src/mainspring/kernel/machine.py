"""How much memory and how many processes the machine has for this process: those of its container or service, if a
control group limits them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_GROUPS = Path("/sys/fs/cgroup")
_SYSTEM = (Path("/proc/sys/kernel/pid_max"), Path("/proc/sys/kernel/threads-max"))
_USUAL_IDS = 32768  # of Linux, where the machine does not tell


def memory_bytes() -> int:
    limits = [*_limits("memory.max"), *_limits("memory.limit_in_bytes", "memory")]
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *limits])


def process_ids() -> int:
    """How many processes and threads can exist at the same time."""
    found = [number for path in _SYSTEM if (number := _number(path)) is not None]
    return min([*(found or [_USUAL_IDS]), *_limits("pids.max"), *_limits("pids.max", "pids")])


def _limits(file: str, controller: str = "") -> Iterator[int]:
    """The limits of the group of this process and of all groups above it. `controller`: of v1."""
    for group in _own_groups(controller):
        number = _number(_GROUPS / controller / group / file)
        if number is not None:
            yield number


def _own_groups(controller: str) -> list[str]:
    """The group of this process, and those above it."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers.split(",") == [controller] or (controller and controller in controllers.split(",")):
            own = PurePosixPath(path.lstrip("/"))
            return [str(own), *(str(above) for above in own.parents)]
    return []


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdigit() else None
