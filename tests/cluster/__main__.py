"""The long fault test: `python -m tests.cluster --minutes 10 [--seed N]`. It injects all faults in random order,
sometimes two at a time, into a full cluster under load, and prints a report. The exit code tells whether every rule
held. If one did not, the report has the history around each violation, and the command that repeats the same faults."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial

from tests.cluster.arena import Shape
from tests.cluster.drill import Outcome, drill
from tests.cluster.faults import FAULTS
from tests.cluster.report import replay_of_drill
from tests.processes import forked

_TWO_AT_A_TIME = 0.3


def composed(seed: int, minutes: float, groups: int | None, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Groups of faults until the time is up, or so many: all faults in random order, then again in another order."""
    chance = random.Random(seed)
    began, left = time.monotonic(), groups
    while True:
        bag = list(names)
        chance.shuffle(bag)
        while bag:
            count = 2 if len(bag) > 1 and chance.random() < _TWO_AT_A_TIME else 1
            group, bag = tuple(bag[:count]), bag[count:]
            over = time.monotonic() >= began + 60 * minutes if left is None else left == 0
            if over:
                return
            left = None if left is None else left - 1
            say(f"{time.monotonic() - began:6.0f} s  {' and '.join(group)}")
            yield group


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("MAINSPRING_FAULT_SEED", "0")))
    parser.add_argument("--rate", type=float, default=12.0, help="submissions a second")
    parser.add_argument("--groups", type=int, help="how many groups of faults, however long they take")
    parser.add_argument("--only", help="faults to choose from, with commas between")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    seed = given.seed or random.SystemRandom().randrange(1, 1_000_000)
    names = given.only.split(",") if given.only else list(FAULTS)
    unknown = sorted(set(names) - FAULTS.keys())
    if unknown:
        say(f"no such fault: {', '.join(unknown)}; there are {', '.join(FAULTS)}")
        return 2
    say(f"MAINSPRING_FAULT_SEED={seed}")
    forked.ENABLED = False  # the times that are measured are those of a user
    faults = composed(seed, given.minutes, given.groups, names)
    only = names if given.only else None
    replay = partial(replay_of_drill, seed, given.rate, only)
    outcome: Outcome = asyncio.run(drill(seed, Shape(), faults, replay=replay, rate=given.rate))
    say(f"\n{outcome}")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
