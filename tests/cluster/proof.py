"""`make proof MINUTES=n`: the load with every feature, every fault alone and in pairs, and all rules; and what is kept
of it.

    python -m tests.cluster.proof run --minutes 60     inject faults, judge, and keep the history with the verdict
    python -m tests.cluster.proof judge [FILE]         judge a kept history again
    python -m tests.cluster.proof pages                write the numbers and the mutants into docs/guarantees.md

A history that fails is not kept in the repository. It is shrunk, and the command that judges it is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

import msgspec

from mainspring.kernel.version import VERSION
from tests.cluster import kept
from tests.cluster.arena import Shape
from tests.cluster.drill import KEPT, drill
from tests.cluster.faults import FAULTS
from tests.cluster.history import History, Violation
from tests.cluster.ledger import FOLDER, HISTORY, LEDGER, VERDICT, Verdict, proofs
from tests.cluster.pages import write_pages
from tests.cluster.report import report
from tests.cluster.rules import judge
from tests.cluster.shrink import shrunk
from tests.processes import forked

JUDGE = "python -m tests.cluster.proof judge"
FULL, SMALL = Shape(), Shape(schedulers=2, servers=2, workers=2)
_MOST_SHRUNK = 3


def every_fault(seed: int, minutes: float) -> Iterator[tuple[str, ...]]:
    """Every fault alone, then pairs in random order, until the time is up."""
    chance, began = random.Random(seed), time.monotonic()
    alone: list[tuple[str, ...]] = [(name,) for name in FAULTS]
    pairs: list[tuple[str, ...]] = list(combinations(FAULTS, 2))
    chance.shuffle(alone)
    chance.shuffle(pairs)
    for group in _mixed(alone, pairs):
        if time.monotonic() > began + 60 * minutes:
            return
        _say(f"{time.monotonic() - began:6.0f} s  {' and '.join(group)}")
        yield group


def _mixed(alone: Sequence[tuple[str, ...]], pairs: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Two alone and then a pair, so that a short proof has both; then pairs."""
    rest = iter(pairs)
    for number, group in enumerate(alone):
        yield group
        if number % 2:
            yield next(rest)
    yield from rest


def verdict_of(history: History, violations: Sequence[Violation], seed: int, minutes: float) -> Verdict:
    injections = history.injections
    fired = [event for event in history.births if str(event.new.get("trigger", "")).startswith("schedule")]
    return Verdict(
        at=datetime.now(UTC).replace(microsecond=0), version=VERSION, seed=seed, minutes=round(minutes, 1),
        faults=len(injections), in_pairs=sum(not injection.alone for injection in injections),
        kinds=len({injection.name for injection in injections}),
        calls=len(history.calls), runs=len(history.births),
        fires=len(fired) + sum(event.new["count"] for event in history.of("missed_fires")),
        slowness=round(history.slowness, 1),
        events=len(history.events), violations=[str(violation) for violation in violations],
    )  # fmt: skip


def run(minutes: float, seed: int, rate: float, *, keep: bool = True, shape: Shape = FULL) -> int:
    _say(f"seed {seed}")
    forked.ENABLED = False
    began = time.monotonic()
    small = " --small" if shape == SMALL else ""
    replay = f"python -m tests.cluster.proof run --forget --seed {seed} --minutes {minutes:g} --rate {rate:g}{small}"
    outcome = asyncio.run(drill(seed, shape, every_fault(seed, minutes), replay=lambda _: replay, rate=rate))
    _say(f"\n{outcome}")
    verdict = verdict_of(outcome.history, outcome.violations, seed, (time.monotonic() - began) / 60)
    if outcome.violations:
        _shrink(outcome.history, outcome.violations, seed)
    if keep:
        _keep(outcome.history, verdict)
    return int(bool(outcome.violations))


def _keep(history: History, verdict: Verdict) -> None:
    """The ledger gets a line of every proof, also of one that failed. The history is that of the newest clean one."""
    FOLDER.mkdir(exist_ok=True)
    ledger = [*proofs(), verdict]
    LEDGER.write_bytes(msgspec.json.format(msgspec.json.encode(ledger)) + b"\n")
    if not verdict.violations:
        size = kept.write(history, HISTORY)
        if size > kept.MOST_BYTES:
            HISTORY.unlink()
            _say(f"the history has {size} bytes, and at most {kept.MOST_BYTES} are kept: run a shorter proof")
            return
        VERDICT.write_bytes(msgspec.json.format(msgspec.json.encode(verdict)) + b"\n")
        _say(f"kept {size} bytes in {HISTORY}; judge it again: {JUDGE}")
    write_pages()


def _shrink(history: History, violations: Sequence[Violation], seed: int) -> None:
    folder = KEPT / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for number, violation in enumerate(violations[:_MOST_SHRUNK]):
        small = shrunk(history, violation)
        file = folder / f"shrunk-{number}.json.xz"
        kept.write(small, file)
        _say(
            f"{violation.rule}: {len(history.events)} events shrunk to {len(small.events)}; judge them: {JUDGE} {file}"
        )


def judge_again(file: Path) -> int:
    history = kept.read(file)
    violations = judge(history)
    counted = Counter(injection.name for injection in history.injections)
    _say(f"{len(history.events)} events, {len(history.calls)} calls, {len(history.lines)} effects")
    _say(f"{counted.total()} faults of {len(counted)} kinds")
    _say(report(history, violations, f"{JUDGE} {file}"))
    return int(bool(violations))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.proof", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run")
    running.add_argument("--minutes", type=float, default=10.0)
    running.add_argument("--seed", type=int, default=0)
    running.add_argument("--rate", type=float, default=12.0, help="submissions a second")
    running.add_argument("--small", action="store_true", help="two processes of each role: others use the machine")
    running.add_argument("--forget", action="store_true", help="keep nothing")
    verbs.add_parser("judge").add_argument("file", type=Path, nargs="?", default=HISTORY)
    verbs.add_parser("pages")
    given = parser.parse_args()
    if given.verb == "judge":
        return judge_again(given.file)
    if given.verb == "pages":
        write_pages()
        return 0
    seed = given.seed or random.SystemRandom().randrange(1, 1_000_000)
    return run(given.minutes, seed, given.rate, keep=not given.forget, shape=SMALL if given.small else FULL)


if __name__ == "__main__":
    sys.exit(main())
