"""Control groups, v2 or v1, where they are available: the kernel enforces the limits of a process tree exactly, counts
its CPU time, and with v2 kills it at once.

    mainspring-OWNER                  all runs of a worker, with what they may use together
    mainspring-OWNER/supervisor-PID   a supervisor and its commands, with the number of processes that each run may have
    mainspring-OWNER/PID              a command of this supervisor that has limits of its own

A supervisor enters its group once, and its commands are born there. Only commands with a limit of their own that the
kernel can enforce or measure get another group: to enter one takes 0.7 ms of the 4 ms that a run of `true` takes. What
is missing or not permitted is skipped silently.
"""

# pathlib would cost the watchdog 10 ms of its start.
# ruff: noqa: PTH102, PTH103, PTH106, PTH110, PTH112, PTH120, PTH123, PTH208

from __future__ import annotations

import os
from typing import Any

from . import threads

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
# What all runs together may use, with its controller and the files that limit it, in v2 and v1.
_ALL = {
    "memory": ("memory", ("memory.max", "memory.limit_in_bytes")),
    "processes": ("pids", ("pids.max",)),
    "cpus": ("cpu", ("cpu.max", "cpu.cfs_quota_us")),
}
_PERIOD = 100_000  # microseconds in which `cpus` are counted
# The kernel refuses a process a little later than the supervisor ends the run, which says why.
_SLACK = 16
_MOST = 0.95  # of the processes that the machine can have
_NEARLY = 0.99

Caps = dict[str, Any]  # memory, processes, cpus: of all runs together; run_processes: of each run. None: no cap.


def open_all(owner: int, caps: Caps) -> set[str]:
    """Make the group of all runs of this worker. Returns what the kernel limits now: memory, processes, cpus."""
    for parent in _parents(owner, caps):
        try:
            os.makedirs(parent, exist_ok=True)
        except OSError:
            continue
        _write(f"{parent}/memory.use_hierarchy", "1")
        if caps["memory"]:
            _write(f"{parent}/memory.max", str(caps["memory"]))
            _write(f"{parent}/memory.limit_in_bytes", str(caps["memory"]))
        if caps["processes"]:
            _write(f"{parent}/pids.max", str(_bound_of_all(caps)))
        if caps["cpus"]:
            quota = int(caps["cpus"] * _PERIOD)
            _write(f"{parent}/cpu.max", f"{quota} {_PERIOD}")
            _write(f"{parent}/cpu.cfs_period_us", str(_PERIOD))
            _write(f"{parent}/cpu.cfs_quota_us", str(quota))
        for controller, _ in _ALL.values():
            _write(f"{parent}/cgroup.subtree_control", f"+{controller}")
    existing = [parent for parent in _parents(owner, caps) if os.path.isdir(parent)]
    return {
        name
        for name, (_, files) in _ALL.items()
        if caps[name] and any(os.path.exists(f"{parent}/{file}") for parent in existing for file in files)
    }


def _bound_of_all(caps: Caps) -> int:
    """A bound that exceeds what all runs together may have by the processes of one run: its neighbours can start more
    until the watchdog has ended the largest run."""
    most: int = caps["processes"]
    return max(most, min(most + (caps["run_processes"] or most), int(_MOST * threads.possible())))


def join(owner: int, supervisor: int, caps: Caps) -> Group | None:
    """Let this process, a supervisor, enter a group of its own below that of all runs. None if there is none."""
    found: list[str] = []
    for parent in _parents(owner, caps):
        group = f"{parent}/supervisor-{supervisor}"
        try:
            os.mkdir(group)
        except OSError:  # there is no such group, or it does not belong to us
            continue
        if caps["run_processes"]:
            _write(f"{group}/pids.max", str(caps["run_processes"] + _SLACK))
        if _write(f"{group}/cgroup.procs", "0"):
            found.append(group)
    return tuple(found) or None


def leave(owner: int, supervisor: int, caps: Caps) -> None:
    """Remove the group of a supervisor that has ended."""
    remove(tuple(f"{parent}/supervisor-{supervisor}" for parent in _parents(owner, caps)))


def bounds_processes(group: Group | None, most: int) -> bool:
    """Whether the kernel lets the group have about this many processes and no more."""
    found = [_number(f"{folder}/pids.max") for folder in group or ()]
    return any(0 < number <= most + _SLACK for number in found)


def oom_kills(group: Group | None) -> int:
    """How many processes of the group the kernel has killed because memory ran out."""
    files = ("memory.events", "memory.oom_control")
    return sum(_count(f"{folder}/{file}", b"oom_kill") for folder in group or () for file in files)


def refused(group: Group | None) -> int:
    """How often the kernel has refused the group another process."""
    return sum(_count(f"{folder}/pids.events", b"max") for folder in group or ())


def usable() -> set[str]:
    """What the kernel can limit here for all runs together: memory, processes, cpus."""
    bases = _bases()
    served = set(_words(f"{bases.get(_UNIFIED, '')}/cgroup.subtree_control"))
    return {
        name
        for name, (controller, _) in _ALL.items()
        if os.access(bases.get(_UNIFIED if controller in served else controller, ""), os.W_OK)
    }


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


def breach(group: Group, limits: dict[str, Any]) -> str | None:
    """The limit that the kernel has enforced so far, of these or of all runs together."""
    if oom_kills(group):
        own = limits.get("memory")
        return "memory" if own and _reached_memory(group, own) else "all-memory"
    return "processes" if refused(group) else None


def _reached_memory(group: Group, limit: int) -> bool:
    """Whether the group has reached its own limit of memory. v2 counts that; v1 tells how near it came."""
    peak = max(_number(f"{folder}/memory.max_usage_in_bytes") for folder in group)
    return peak >= limit * _NEARLY or any(_count(f"{folder}/memory.events", b"oom") for folder in group)


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


def _parents(owner: int, caps: Caps) -> list[str]:
    """The folders of the group of all runs, in each hierarchy that can limit something of it."""
    bases = _bases()
    wanted = {controller for name, (controller, _) in _ALL.items() if caps[name]}
    if caps["run_processes"]:
        wanted.add("pids")
    unified = bases.get(_UNIFIED)
    found = [base for controller, base in bases.items() if controller in wanted]
    if unified is not None and wanted.intersection(_words(f"{unified}/cgroup.controllers")):
        found.append(unified)
    return [f"{base}/mainspring-{owner}" for base in dict.fromkeys(found)]


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


def _words(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.read().split()
    except OSError:
        return []


def _write(path: str, text: str) -> bool:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:  # no such controller, or no permission
        return False
    return True


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
