"""The history of a test, from four sources: the clients' log, the effect ledger, the database's audit and the
injector's log.

All times are seconds of this machine's monotonic clock, which is the same in every process. The rules check a
`History`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from mainspring.kernel.config import DEFAULT_TIMING, SHORTEST_LEASE, kill_for
from tests.cluster import pace
from tests.cluster.pace import Slow

Row = dict[str, Any]
TTL = 3.0
# Seconds without contact after which a worker of the arena kills its ordinary runs, and after which others take them.
# These workers ask for the shortest lease. Exclusive runs have the usual one.
RESCUE = SHORTEST_LEASE
KILL = kill_for(RESCUE)
EXCLUSIVE_RESCUE = DEFAULT_TIMING.exclusive_rescue
QUEUED, RUNNING, WAITING, HELD, SUCCESS, FAILED, CANCELLED, SKIPPED = 1, 2, 3, 4, 10, 11, 12, 13
SCHEDULED_JOB, PAUSED_JOB, CANCELLED_JOB, COMPLETED_JOB = 1, 2, 3, 4
# Seconds from the time of a commit to when all others see it: PostgreSQL takes the time before it flushes the log.
COMMIT_TAKES = 1.0


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the audit. `seq` is the order of the changes of one row, and of the writes under one lock or lease. Of
    other rows it says nothing: a change may be written before another one, and be seen after it. `began` is when its
    transaction began, `committed` when it ended, where PostgreSQL keeps that."""

    seq: int
    at: float
    wall: datetime
    tx: int
    process: str
    table: str
    op: str
    old: Row
    new: Row
    began: float = 0.0
    committed: float | None = None

    @property
    def visible(self) -> float:
        """When others saw it at the earliest. A process may stand still between its write and its commit."""
        return self.at if self.committed is None else self.committed

    @property
    def row(self) -> Row:
        return self.new or self.old


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the effect ledger: start, tick, fail or end of one attempt."""

    run: str
    attempt: int
    job: str
    what: str
    pid: int
    at: float


@dataclass(slots=True)
class Call:
    """One call of a client. `result` is ok, refused or unknown: a lost response, or a server error."""

    verb: str
    target: str
    body: Row
    began: float
    ended: float = 0.0
    result: str = "unknown"
    status: int = 0
    answer: Row = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    """An outcome that a simulated worker sent, and whether the server accepted it."""

    run: str
    fence: int
    status: str
    began: float
    ended: float
    taken: bool


@dataclass(slots=True)
class Injection:
    """One fault. `whole`: there are no guarantees from begin to end; otherwise others must take over from `begin` on.
    `cuts`: a process lost its database and could report that. `alone`: there was no other fault at the same time."""

    name: str
    target: str
    begin: float
    end: float = 0.0
    whole: bool = False
    cuts: bool = False
    alone: bool = True
    recovery: float | None = None


@dataclass(slots=True)
class Exit:
    """A process that ended. `wanted`: the injector or the arena ended it on purpose."""

    process: str
    role: str
    code: int
    at: float
    ready: bool
    wanted: bool
    asked_at: float | None = None


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The log of one attempt as the API returns it. `counted` is the number of bytes in its row."""

    run: str
    attempt: int
    text: str
    truncated: bool
    counted: int


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    words: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.words}"


@dataclass(frozen=True, slots=True)
class Machine:
    """Tolerances for the machine: seconds that are added to every bound, and seconds for which an ended process can
    still be seen. On a quiet machine the latter is the error of the clocks of the ledger, the database and
    /proc/uptime."""

    late: float = 0.0
    lingering: float = 0.05


# A stall of the whole machine is detected (`stalls`), and how slow it was is measured (`slow`). Tests that do
# not measure it allow for a busy machine.
QUIET = Machine()
BUSY = Machine(late=60.0, lingering=4.0)


@dataclass(eq=False)
class History:
    events: list[Event]
    lines: list[Line]
    calls: list[Call] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    injections: list[Injection] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)
    logs: list[StoredLog] = field(default_factory=list)
    stalls: list[tuple[float, float]] = field(default_factory=list)  # periods in which the machine stalled
    slow: list[Slow] = field(default_factory=list)  # periods in which it was slow, in order
    live_runs: list[Row] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    counts: list[Row] = field(default_factory=list)  # the lines of limits, with `owners`: the runs that own a slot
    offset: float = 0.0
    at_rest: bool = True
    machine: Machine = QUIET

    def of(self, table: str) -> list[Event]:
        return self._by_table[table]

    @cached_property
    def _by_table(self) -> dict[str, list[Event]]:
        return _grouped(self.events, lambda event: event.table)

    @cached_property
    def by_tx(self) -> dict[int, list[Event]]:
        return _grouped(self.events, lambda event: event.tx)

    @cached_property
    def runs(self) -> dict[str, list[Event]]:
        """The events of each run in `runs` and `run_history`."""
        lives = [event for event in self.events if event.table in ("runs", "run_history")]
        return _grouped(lives, lambda event: str(event.row["run_id"]))

    @cached_property
    def jobs(self) -> dict[str, list[Event]]:
        return _grouped(self.of("jobs"), lambda event: str(event.row["job_id"]))

    @cached_property
    def births(self) -> list[Event]:
        """The first row of every run. A run that is skipped at once is created in the history."""
        skips = [event for event in self.of("run_history") if event.op == "I" and event.new["state"] == SKIPPED]
        live = [event for event in self.of("runs") if event.op == "I"]
        known = {event.new["run_id"] for event in live if event.new["state"] == WAITING}
        return live + [event for event in skips if event.new["run_id"] not in known]

    @cached_property
    def nodes(self) -> dict[str, str]:
        """process label -> node"""
        return {event.process: event.new["node_id"] for event in self.of("nodes")}

    @cached_property
    def workers(self) -> dict[str, list[str]]:
        """process label -> its incarnations"""
        found: dict[str, list[str]] = defaultdict(list)
        for event in self.of("workers"):
            if event.op == "I":
                found[event.new["name"]].append(event.new["worker_id"])
        return found

    @cached_property
    def extents(self) -> dict[tuple[str, int], tuple[float, float]]:
        """(run, attempt) -> the times of its first and last line in the ledger"""
        found: dict[tuple[str, int], tuple[float, float]] = {}
        for line in self.lines:
            first, last = found.get((line.run, line.attempt), (line.at, line.at))
            found[line.run, line.attempt] = (min(first, line.at), max(last, line.at))
        return found

    def moment(self, text: str) -> float:
        """A timestamp of the audit as monotonic seconds."""
        return datetime.fromisoformat(text).timestamp() + self.offset

    def deadline(self, start: float, grace: float) -> float:
        """When something that starts at `start` and may take `grace` must be done, extended by the faults meanwhile."""
        end = pace.after(self.slow, start, grace)
        for begin, over in self._excuses:
            if begin <= end and over >= start:
                end = max(end, pace.after(self.slow, over, grace))
        return end + self.machine.late

    def after(self, start: float, grace: float) -> float:
        """When so many seconds have passed for the processes, whatever the faults."""
        return pace.after(self.slow, start, grace) + self.machine.late

    @property
    def slowness(self) -> float:
        """How many times as long everything took as on a quiet machine, on average."""
        if not self.slow:
            return 1.0
        return pace.mean_factor(self.slow, self.events[0].at, max(self.events[-1].at, self.slow[-1].end))

    def lingering(self, at: float) -> float:
        """For how long a process that has ended by then can still be seen."""
        return self.machine.lingering + pace.longest_step(self.slow, at - 1.0, at + 1.0)

    def seen_by_all(self, event: Event) -> float:
        """When nobody could overlook the change any more."""
        return self.after(event.visible, COMMIT_TAKES)

    @cached_property
    def _excuses(self) -> list[tuple[float, float]]:
        return sorted([*_windows(self.injections), *self.stalls])


def _windows(injections: list[Injection]) -> Iterator[tuple[float, float]]:
    for injection in injections:
        end = injection.end or injection.begin
        if injection.whole:
            yield injection.begin, end
        else:
            yield injection.begin, injection.begin
            yield end, end


def _grouped(events: list[Event], key: Any) -> dict[Any, list[Event]]:
    groups: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        groups[key(event)].append(event)
    return groups
