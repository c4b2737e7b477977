"""A drill: runs a cluster under load, injects faults alone or in pairs, waits for rest, and checks the rules."""

from __future__ import annotations

import asyncio
import pickle
import random
import shutil
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.arena import Arena, Shape
from tests.cluster.faults import FAULTS
from tests.cluster.history import FAILED, QUIET, SUCCESS, History, Machine, Violation
from tests.cluster.injector import Injector
from tests.cluster.load import Clients, Load
from tests.cluster.pace import PaceWatch
from tests.cluster.recovery import at_rest
from tests.cluster.report import report
from tests.cluster.rules import judge
from tests.cluster.stalls import StallWatch
from tests.cluster.witness import gather

KEPT = Path("/tmp/mainspring-faults")
_REST = 120.0


@dataclass
class Outcome:
    """The result of a drill."""

    seed: int
    history: History
    violations: list[Violation]
    replay: str
    kept: Path | None = None

    def __str__(self) -> str:
        """The report as a table. Recovery times of two faults together are in a separate column."""
        lines = [f"{'fault':<44} {'times':>5} {'p50 s':>7} {'max s':>7} {'with another':>13}"]
        for name in sorted({injection.name for injection in self.history.injections}):
            taken = [injection for injection in self.history.injections if injection.name == name]
            alone = [injection.recovery for injection in taken if injection.alone]
            beside = [injection.recovery for injection in taken if not injection.alone]
            lines.append(f"{name:<44} {len(taken):>5} {_median(alone):>7} {_longest(alone):>7} {_longest(beside):>13}")
        lines += ["", self._counts(), report(self.history, self.violations, self.replay)]
        if self.kept is not None:
            lines.append(f"seed {self.seed}; what the processes said, and the whole history, is in {self.kept}")
        return "\n".join(lines)

    def _counts(self) -> str:
        history = self.history
        calls = Counter(call.result for call in history.calls)
        ends = Counter(event.new["state"] for event in history.of("run_history") if event.op == "I")
        missed = sum(event.new["count"] for event in history.of("missed_fires"))
        return (
            f"calls: {calls['ok']} ok, {calls['refused']} refused, {calls['unknown']} unknown; "
            f"runs: {len(history.births)} born, {ends[SUCCESS]} succeeded, {ends[FAILED]} failed; "
            f"fires missed: {missed}; ledger lines: {len(history.lines)}; audit: {len(history.events)} events; "
            f"the machine stood still for {sum(over - begin for begin, over in history.stalls):.1f} s "
            f"and took {history.slowness:.1f} times as long as a quiet one"
        )


def _median(seconds: list[float | None]) -> str:
    known = [value for value in seconds if value is not None]
    return f"{statistics.median(known):.2f}" if known else "-"


def _longest(seconds: list[float | None]) -> str:
    if None in seconds:
        return "never"
    return f"{max(value for value in seconds if value is not None):.2f}" if seconds else "-"


async def drill(
    seed: int,
    shape: Shape,
    faults: Iterable[Sequence[str]],
    *,
    replay: Callable[[int], str],
    rate: float = 12.0,
    machine: Machine = QUIET,
) -> Outcome:
    """Inject the faults on a new cluster, each group at the same time, and check the rules. `replay` returns the
    command that repeats so many groups of faults."""
    with StallWatch() as watch:
        return await _drilled(seed, shape, faults, rate, machine, watch, replay)


async def _drilled(
    seed: int,
    shape: Shape,
    faults: Iterable[Sequence[str]],
    rate: float,
    machine: Machine,
    watch: StallWatch,
    replay: Callable[[int], str],
) -> Outcome:
    chance, groups = random.Random(seed), 0
    async with Arena(shape) as arena, arena.client() as http, PaceWatch(arena.folder / "pace") as pace:
        clients = Clients(http)
        load = Load(clients, arena.ledger, seed, rate, arena.set_limit)
        injector = Injector(arena, clients, chance)
        await load.start()
        for group in faults:
            groups += 1
            await asyncio.sleep(chance.uniform(0.3, 1.5))
            injector.alone = len(group) == 1
            await asyncio.gather(*(FAULTS[name](injector) for name in group))
        await arena.all_ready()
        await load.stop()
        rested = await at_rest(arena, _REST, pace)
        history = await gather(arena, clients.calls)
        history.stalls, history.slow, history.machine = list(watch.windows), pace.slow(), machine
        violations = judge(history)
        if not rested and not violations:
            violations.append(Violation("L5", "the cluster did not come to rest"))
        kept = _keep(arena, seed, history) if violations else None
    return Outcome(seed, history, violations, replay(groups), kept)


def _keep(arena: Arena, seed: int, history: History) -> Path:
    """Copy the logs and the history for a later analysis, because the folder of the arena is removed."""
    folder = KEPT / str(seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in [*arena.folder.glob("*.log"), arena.ledger, arena.postgres.log_file]:
        if file.exists():
            shutil.copy(file, folder)
    (folder / "history.pickle").write_bytes(pickle.dumps(history))
    return folder
