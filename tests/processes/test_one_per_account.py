"""A limit of 1 per account, 50 slots and many runs, while workers are killed -9: no two attempts are ever at work on
one account. What the attempts wrote down themselves proves it.

MAINSPRING_POSTS=10000 makes more of them.
MAINSPRING_POSTS_SEED makes other kills, or the same again, as far as that is possible with real processes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import asyncpg
import pytest

from tests.processes.accounts_app import LEDGER_VARIABLE
from tests.processes.cluster import Cluster, eventually, process_state, worker_process
from tests.sizes import sizes

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
APP = "tests.processes.accounts_app:app"
SEED = int(os.environ.get("MAINSPRING_POSTS_SEED") or 3)
FEW, MANY = 600, 2_500
POSTS_PER_ACCOUNT = 8
WORKERS = 2
SLOTS = 25
POSTS_PER_KILL = 300  # as long as there are no more kills than MOST_KILLS
MOST_KILLS = 4
LOSSES = 100  # on a slow machine the kills hit the same rescued runs again and again
ALL_ENDED = "all runs have ended"
ONE_PER_ACCOUNT = {"key": "payload.account", "limit": 1}


class Ledger:
    """What the attempts wrote, and when which process was killed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.killed: dict[int, float] = {}

    def lines(self) -> list[tuple[int, str, int, int, str, float]]:
        if not self._file.exists():
            return []
        return [tuple(json.loads(line)) for line in self._file.read_text().splitlines()]

    def at_work(self, pid: int) -> bool:
        """Whether an attempt of this process has begun and is not over."""
        mine = [(run, attempt, what) for _, run, attempt, where, what, _ in self.lines() if where == pid]
        over = {(run, attempt) for run, attempt, what in mine if what == "end"}
        return any((run, attempt) not in over for run, attempt, _ in mine)

    def overlaps(self) -> list[str]:
        """Attempts that began before another one on the same account was over. An attempt without an end was at work
        until its process was killed."""
        over: dict[tuple[str, int], float] = {}
        begun: dict[tuple[str, int], tuple[int, float, int]] = {}
        for account, run, attempt, pid, what, at in self.lines():
            if what == "start":
                assert (run, attempt) not in begun, f"attempt {attempt} of {run} began twice"
                begun[run, attempt] = (account, at, pid)
            else:
                over[run, attempt] = at
        by_account: dict[int, list[tuple[float, float, str]]] = defaultdict(list)
        for key, (account, at, pid) in begun.items():
            end = over.get(key, self.killed.get(pid, at))
            by_account[account].append((at, end, f"attempt {key[1]} of {key[0]}"))
        return [
            f"account {account}: {later} began {end - start:.3f} s before {earlier} was over"
            for account, work in by_account.items()
            for (_, end, earlier), (start, _, later) in pairwise(sorted(work))
            if start < end
        ]


@pytest.mark.parametrize("posts", sizes("MAINSPRING_POSTS", FEW, MANY))
async def test_no_two_runs_are_at_work_on_one_account_while_workers_are_killed(
    cluster: Cluster, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, posts: int
) -> None:
    chance, began = random.Random(SEED), time.monotonic()
    moments = sorted(chance.sample(range(posts * 8 // 10), min(posts // POSTS_PER_KILL, MOST_KILLS)))
    say(f"MAINSPRING_POSTS_SEED={SEED}: kills after {moments} runs")
    monkeypatch.setenv(LEDGER_VARIABLE, str(cluster.folder / "ledger"))
    ledger = Ledger(cluster.folder / "ledger")
    await cluster.server()
    workers = [await cluster.worker(app=APP, slots=SLOTS) for _ in range(WORKERS)]
    accounts = [chance.randrange(posts // POSTS_PER_ACCOUNT) for _ in range(posts)]
    post = {"task": "post", "concurrency": ONE_PER_ACCOUNT, "max_losses": LOSSES}
    await cluster.submit_all([post | {"payload": {"account": account}} for account in accounts])
    await Killer(cluster, connection, workers, ledger, chance).kill(moments, posts)

    async def all_ended() -> bool:
        return await ended(connection) >= posts

    await eventually(all_ended, 600, "every run has ended")
    states = await connection.fetch(
        "select state, count(*) as runs, sum(losses)::int as losses from mainspring.run_history group by state"
    )
    say(f"{time.monotonic() - began:.1f} s, {[tuple(row) for row in states]}")
    assert [(row["state"], row["runs"]) for row in states] == [(10, posts)], "every run is a SUCCESS"
    assert states[0]["losses"] > 0, "nothing was at work when a worker was killed: this shows nothing"
    assert ledger.overlaps() == []
    assert await connection.fetchval("select sum(in_use)::int from mainspring.limit_keys") == 0


@dataclass
class Killer:
    cluster: Cluster
    connection: asyncpg.Connection
    workers: list[subprocess.Popen[bytes]]
    ledger: Ledger
    chance: random.Random

    async def kill(self, moments: list[int], posts: int) -> None:
        """Kill the process that runs the tasks of a worker while it is at work, and start another worker, after each of
        these numbers of ended runs, or until all have ended."""
        for moment in moments:

            async def reached(moment: int = moment) -> bool:
                return await ended(self.connection) >= moment

            async def caught() -> subprocess.Popen[bytes] | str | None:
                for worker in self.chance.sample(self.workers, len(self.workers)):
                    if await stopped_at_work(worker_process(worker.pid), self.ledger):
                        return worker
                return ALL_ENDED if await ended(self.connection) >= posts else None

            await eventually(reached, 300, f"{moment} runs have ended")
            doomed = await eventually(caught, 300, "a run is at work in a worker, or all have ended")
            if isinstance(doomed, str):
                return
            self.workers.remove(doomed)
            pid = worker_process(doomed.pid)
            self.ledger.killed[pid] = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            self.workers.append(await self.cluster.worker(app=APP, slots=SLOTS))


async def stopped_at_work(pid: int, ledger: Ledger) -> bool:
    """Stop the process if an attempt is at work in it. On a fast machine most moments are between two attempts."""
    os.kill(pid, signal.SIGSTOP)
    while process_state(pid) != "T":
        await asyncio.sleep(0)
    if ledger.at_work(pid):
        return True
    os.kill(pid, signal.SIGCONT)
    return False


async def ended(connection: asyncpg.Connection) -> int:
    return int(await connection.fetchval("select count(*) from mainspring.run_history"))


def say(text: str) -> None:
    """Print into pytest's captured output, which is shown on a failure."""
    sys.stdout.write(f"{text}\n")
