"""What runs may use on this worker, whatever their jobs ask for: each of them, and all of them together.

They are for runs with processes of their own: commands and process tasks. Async and thread tasks run in the worker's
process, which nothing here limits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from mainspring.domain.durations import format_duration
from mainspring.domain.sizes import format_size
from mainspring.kernel.logs import get_logger
from mainspring.kernel.machine import memory_bytes, process_ids
from mainspring.wire.exchange import RunOrder
from mainspring.wire.execution import ResourceLimits
from mainspring.worker.about_order import about
from mainspring.worker.processes.watchdog import cgroup

RUN_PROCESSES = 1024
PERCENT = 80  # of the machine, for all runs together
_NO_LIMITS = ResourceLimits()

log = get_logger("worker")


@dataclass(frozen=True, slots=True)
class Caps:
    """None: no cap. memory: bytes. processes: each thread counts as one. run_cpu: CPU seconds. cpus: cores.

    `run_*` are for each run, the others for all runs together."""

    run_memory: int | None = None
    run_processes: int | None = None
    run_cpu: float | None = None
    memory: int | None = None
    processes: int | None = None
    cpus: float | None = None

    def applied(self, asked: ResourceLimits | None) -> ResourceLimits:
        """The limits of a run whose job asks for these: the lower ones count."""
        asked = asked or _NO_LIMITS
        lower = {
            name: cap
            for name, cap in (("memory", self.run_memory), ("processes", self.run_processes), ("cpu", self.run_cpu))
            if cap is not None and (getattr(asked, name) is None or getattr(asked, name) > cap)
        }
        return msgspec.structs.replace(asked, **lower) if lower else asked

    def exceeded_by(self, asked: ResourceLimits | None) -> list[str]:
        """The limits that a job asks for and does not get, in words."""
        if asked is None:
            return []
        given = self.applied(asked)
        return [
            f"{name} {_shown(name, getattr(asked, name))}, and gets {_shown(name, getattr(given, name))}"
            for name in ("memory", "processes", "cpu")
            if getattr(asked, name) is not None and getattr(asked, name) != getattr(given, name)
        ]

    @property
    def counts_in_runs(self) -> bool:
        """A warm child must be told when a run begins: what it used before does not count."""
        return self.run_memory is not None or self.run_cpu is not None

    def between_runs(self) -> Caps:
        """The caps of a warm child that has no run."""
        return replace(self, run_memory=None, run_cpu=None)

    def for_watchdog(self) -> bytes:
        """The line that the watchdog is sent (watchdog/all_runs.py)."""
        numbers = (self.memory, self.processes, self.cpus, self.run_processes)
        return b"caps %s\n" % b" ".join(b"-" if number is None else repr(number).encode() for number in numbers)

    def in_words(self) -> str:
        """The caps in words, for the log of the worker."""
        each = {"processes": self.run_processes, "memory": self.run_memory, "CPU time": self.run_cpu}
        together = {"memory": self.memory, "processes": self.processes, "cores": self.cpus}
        return f"each run: {_listed(each)}; all runs together: {_listed(together)}"


NO_CAPS = Caps()


def log_capped(order: RunOrder, caps: Caps) -> None:
    """Say that a job asks for more than this worker allows. Its run gets what is allowed."""
    for more in caps.exceeded_by(None if order.setup is None else order.setup.limits):
        log.info("a job asks for more than this worker allows", **about(order), asks_for=more)


def log_caps(caps: Caps) -> None:
    """When a worker starts: what runs may use, and what the kernel does not enforce here."""
    log.detail("what runs may use", caps=caps.in_words())
    if caps.cpus is not None and "cpus" not in cgroup.usable():
        log.warning(
            "--max-cpus: this worker cannot make a control group for its runs. They are pinned to as many cores "
            "instead, and a command can undo that."
        )


def default_caps() -> Caps:
    """What keeps a machine alive on which jobs set no limits."""
    return Caps(
        run_processes=RUN_PROCESSES,
        memory=share_of_memory(PERCENT),
        processes=process_ids() * PERCENT // 100,
    )


def share_of_memory(percent: float) -> int:
    """A share of the memory, in whole MiB."""
    return max(1, int(memory_bytes() * percent / 100) >> 20) << 20


def breach_in_words(kind: str, limits: ResourceLimits, caps: Caps) -> str:
    """Which limit a run has exceeded. `kind` is the word of the supervisor. A limit that is the cap of the worker names
    the option."""
    match kind:
        case "all-memory" if caps.memory is not None:
            return (
                f"the runs of this worker together may use {format_size(caps.memory)} of memory (--max-memory); "
                "this one was ended because they used more"
            )
        case "all-processes" if caps.processes is not None:
            return (
                f"the runs of this worker together may have {caps.processes} processes (--max-processes); "
                "this one was ended because they had more, and it had the most"
            )
        case "memory" if limits.memory is not None:
            return f"memory limit of {format_size(limits.memory)} exceeded{_whose('memory', limits, caps)}"
        case "cpu" if limits.cpu is not None:
            return f"CPU limit of {format_duration(limits.cpu)} exceeded{_whose('cpu', limits, caps)}"
        case "processes" if limits.processes is not None:
            return f"limit of {limits.processes} processes exceeded{_whose('processes', limits, caps)}"
        case "disk" if limits.disk is not None:
            return f"disk limit of {format_size(limits.disk)} exceeded"
        case _:
            return f"{kind} limit exceeded"


def _whose(name: str, limits: ResourceLimits, caps: Caps) -> str:
    cap = {"memory": caps.run_memory, "processes": caps.run_processes, "cpu": caps.run_cpu}[name]
    return f", the most that this worker allows (--run-max-{name})" if getattr(limits, name) == cap else ""


def _shown(name: str, value: float) -> str:
    if name == "memory":
        return format_size(int(value))
    return format_duration(value) if name == "cpu" else str(value)


def _listed(caps: dict[str, float | None]) -> str:
    names = {"memory": "memory", "CPU time": "cpu"}
    found = [f"{_shown(names.get(name, ''), value)} {name}" for name, value in caps.items() if value is not None]
    return ", ".join(found) or "no cap"
