"""Control groups, v2 or v1, where they are available: the kernel enforces the limits of a process tree exactly, counts
its CPU time, and with v2 kills it at once.

Only trees with a limit that the kernel can enforce or measure get a group: to enter one takes 0.7 ms of the 4 ms that a
run of `true` takes, and a tree can be watched and killed without one. What is missing or not permitted is skipped
silently.
"""

# pathlib would cost the watchdog 10 ms of its start.
# ruff: noqa: PTH103, PTH106, PTH110, PTH112, PTH120, PTH123, PTH208

from __future__ import annotations

import os
from typing import Any

Group = tuple[str, ...]  # the folders of one group: one with v2, one for each controller with v1

_UNIFIED = "unified"
# The limits, with their file in a group of v2, and their controller and files in v1. The kernel only counts CPU time.
_V2_FILES = {"memory": "memory.max", "processes": "pids.max", "cpu": "cpu.stat"}
_V1_CONTROLLERS = {"memory": "memory", "processes": "pids", "cpu": "cpuacct"}
_V1_FILES = {
    "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),  # the second counts swapped memory too
    "processes": ("pids.max",),
    "cpu": (),
}
_PEAKS = ("memory.peak", "memory.max_usage_in_bytes")


def create(owner: int, limits: dict[str, Any], supervisor: int) -> Group | None:
    """A new group with these limits, or None. `supervisor` is its pid outside of all namespaces."""
    wanted = {name: limits[name] for name in _V2_FILES if limits.get(name)}
    if not wanted:
        return None
    bases = _bases()
    found: list[str] = []
    if (group := _make(bases.get(_UNIFIED), owner, supervisor)) is not None:
        found.append(group)
        ours = os.path.dirname(group)
        for controller in ("+memory", "+pids"):
            _write(f"{ours}/cgroup.subtree_control", controller)
        served = [name for name in wanted if os.path.exists(f"{group}/{_V2_FILES[name]}")]
        for name in served:
            if name != "cpu":
                _write(f"{group}/{_V2_FILES[name]}", str(wanted.pop(name)))
        if "memory" in served:
            _write(f"{group}/memory.swap.max", "0")
            _write(f"{group}/memory.oom.group", "1")
    for name, value in wanted.items():
        if (group := _make(bases.get(_V1_CONTROLLERS[name]), owner, supervisor)) is not None:
            found.append(group)
            for file in _V1_FILES[name]:
                _write(f"{group}/{file}", str(value))
    return tuple(found) or None


def enter(group: Group) -> None:
    for folder in group:
        _write(f"{folder}/cgroup.procs", "0")


def kill(group: Group) -> None:
    for folder in group:
        _write(f"{folder}/cgroup.kill", "1")


def breach(group: Group) -> str | None:
    """The limit that the kernel has enforced so far."""
    for folder in group:
        if _count(f"{folder}/memory.events", b"oom_kill") or _count(f"{folder}/memory.oom_control", b"oom_kill"):
            return "memory"
        if _count(f"{folder}/pids.events", b"max"):
            return "processes"
    return None


def peak_bytes(group: Group) -> int:
    """The most memory that the group has used. 0 if nothing counts it."""
    return max(_number(f"{folder}/{name}") for folder in group for name in _PEAKS)


def cpu_seconds(group: Group) -> float:
    """What all processes that ever were in the group have used. 0 if nothing counts it."""
    used = 0.0
    for folder in group:
        used = max(used, _count(f"{folder}/cpu.stat", b"usage_usec") / 1e6)
        used = max(used, _number(f"{folder}/cpuacct.usage") / 1e9)
    return used


def remove(group: Group) -> None:
    for folder in group:
        try:
            os.rmdir(folder)
        except OSError:  # not empty: another process is in it
            continue


def remove_all(owner: int) -> None:
    """Remove the groups of this worker, and of other workers that are gone."""
    for parent in set(_bases().values()):
        try:
            names = os.listdir(parent)
        except OSError:
            continue
        for name in names:
            prefix, _, pid = name.partition("-")
            if prefix == "mainspring" and pid.isdigit() and (int(pid) == owner or not _lives(int(pid))):
                for folder, _, _ in os.walk(f"{parent}/{name}", topdown=False):
                    remove((folder,))


def _make(base: str | None, owner: int, supervisor: int) -> str | None:
    if base is None:
        return None
    group = f"{base}/mainspring-{owner}/{supervisor}"
    try:
        os.makedirs(group, exist_ok=True)
    except OSError:
        return None
    return group


_found_bases: dict[str, str] = {}


def _bases() -> dict[str, str]:
    """The folders below which groups are made, by controller of v1, and `unified` for v2. Read once."""
    if not _found_bases:
        paths = _own_paths()
        for controllers, root, mount in _mounts():
            for controller in controllers & paths.keys():
                own = _visible(paths[controller], root, mount)
                if own is not None and controller not in _found_bases:
                    _found_bases[controller] = _delegating(own, mount) if controller == _UNIFIED else own
    return _found_bases


def _own_paths() -> dict[str, str]:
    """The group of this process in each hierarchy."""
    found: dict[str, str] = {}
    try:
        with open("/proc/self/cgroup") as file:
            for line in file:
                _, controllers, path = line.rstrip("\n").split(":", 2)
                found.update(dict.fromkeys(controllers.split(",") if controllers else (_UNIFIED,), path))
    except (OSError, ValueError):
        pass
    return found


def _mounts() -> list[tuple[set[str], str, str]]:
    """The mounted hierarchies: controllers, the group at the root of the mount, and the mount point."""
    found: list[tuple[set[str], str, str]] = []
    try:
        with open("/proc/self/mountinfo") as file:
            for line in file:
                before, _, after = line.partition(" - ")
                kind, _, options = after.split(None, 2)
                if kind in ("cgroup", "cgroup2"):
                    _, _, _, root, mount, *_ = before.split()
                    found.append(({_UNIFIED} if kind == "cgroup2" else set(options.strip().split(",")), root, mount))
    except (OSError, ValueError):
        pass
    return found


def _visible(path: str, root: str, mount: str) -> str | None:
    """The folder of this group. None if it belongs to another cgroup namespace."""
    prefix = root.rstrip("/")
    if prefix and path != prefix and not path.startswith(f"{prefix}/"):
        return None
    own = mount + path[len(prefix) :].rstrip("/")
    return own if os.path.isdir(own) else None


def _delegating(own: str, mount: str) -> str:
    """A group that contains processes, as `own` does, cannot delegate controllers. Its parent may."""
    above = os.path.dirname(own)
    if own == mount:
        return own
    try:
        with open(f"{above}/cgroup.subtree_control") as file:
            delegates = {"memory", "pids"} <= set(file.read().split()) and os.access(above, os.W_OK)
    except OSError:
        delegates = False
    return above if delegates else own


def _count(path: str, name: bytes) -> int:
    try:
        with open(path, "rb") as file:
            return sum(int(line.split()[1]) for line in file if line.split()[0] == name)
    except (OSError, IndexError):
        return 0


def _number(path: str) -> int:
    try:
        with open(path, "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:  # no such controller, or no permission
        return


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
