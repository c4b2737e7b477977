"""Charges of $10 while workers are killed -9 at random: every account is charged, and none twice.

MAINSPRING_CHARGES=10000 makes more of them.
MAINSPRING_CHARGES_SEED makes other kills, or the same again, as far as that is possible with real processes.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from uuid import uuid4

import asyncpg
import pytest

from mainspring.store.embedded import EmbeddedPostgres
from tests.conftest import drop_database
from tests.processes.charges_app import LEDGER_VARIABLE, SCHEMA
from tests.processes.cluster import Cluster, eventually
from tests.sizes import sizes

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
APP = "tests.processes.charges_app:app"
SEED = int(os.environ.get("MAINSPRING_CHARGES_SEED") or 3)
CENTS = 1000
WORKERS = 3
SLOTS = 8
FEW, MANY = 300, 3_000
CHARGES_PER_KILL = 200  # as long as there are no more kills than MOST_KILLS
MOST_KILLS = 6
LOSSES = 100  # on a slow machine the kills hit the same rescued runs again and again
COUNT = "select count(*) from mainspring.run_history"


def say(text: str) -> None:
    """Print into pytest's captured output, which is shown on a failure."""
    sys.stdout.write(f"{text}\n")


@pytest.fixture
async def ledger(postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[asyncpg.Connection]:
    """The database of the application, separate from Mainspring's."""
    name = f"ledger_{uuid4().hex}"
    admin = await asyncpg.connect(postgres.url("postgres"))
    await admin.execute(f"create database {name}")
    connection = await asyncpg.connect(postgres.url(name))
    await connection.execute(SCHEMA)
    monkeypatch.setenv(LEDGER_VARIABLE, postgres.url(name))
    try:
        yield connection
    finally:
        await connection.close()
        await drop_database(admin, name)
        await admin.close()


@pytest.mark.slow
@pytest.mark.parametrize("charges", sizes("MAINSPRING_CHARGES", FEW, MANY))
async def test_charges_are_made_exactly_once_while_workers_are_killed(
    ledger: asyncpg.Connection, cluster: Cluster, connection: asyncpg.Connection, charges: int
) -> None:
    chance, kills = random.Random(SEED), min(charges // CHARGES_PER_KILL, MOST_KILLS)
    moments = sorted(chance.sample(range(charges * 8 // 10), kills))
    say(f"MAINSPRING_CHARGES_SEED={SEED}: kills after {moments} charges")
    began = time.monotonic()
    await cluster.server()
    workers = [await cluster.worker(app=APP, slots=SLOTS) for _ in range(WORKERS)]
    await submit_charges(cluster, charges)
    await kill_at_random(cluster, ledger, workers, moments, chance)

    async def all_have_succeeded() -> bool:
        """Two kills may hit a run that is alone on its worker the second time. It is a dead letter then, and people
        replay it."""
        assert (await cluster.http.post("/v1/dead-letters:replay", json={"all": True})).is_success
        return bool(await connection.fetchval(f"{COUNT} where state = 10") >= charges)

    await eventually(all_have_succeeded, 600, "every charge has succeeded")
    states = await connection.fetch(
        "select state, count(*) as runs, count(*) filter (where attempt > 1) as again, "
        "array_agg(distinct reason) as why from mainspring.run_history group by state order by state"
    )
    say(f"{time.monotonic() - began:.1f} s, {[tuple(row) for row in states]}")
    assert (states[0]["state"], states[0]["runs"]) == (10, charges), "one SUCCESS for each charge"
    assert [why for row in states[1:] for why in row["why"] if "while it was alone on its worker" not in why] == []
    assert states[0]["again"] > 0, "no run had a second attempt: this shows nothing"

    twice = await ledger.fetch("select account, count(*) from charges group by 1 having count(*) > 1")
    missing = await ledger.fetch(
        "select number from generate_series(1, $1::int) as number except select account from charges", charges
    )
    assert (twice, missing) == ([], [])
    assert await ledger.fetchval("select sum(cents) from charges") == charges * CENTS
    careless = await ledger.fetchval("select count(*) from committed_attempts")
    say(f"{careless - charges} attempts would have charged a second time")
    assert careless > charges, "no attempt came after one that had committed: the guard was not needed"


async def submit_charges(cluster: Cluster, charges: int) -> None:
    jobs = [
        {"task": "charge", "payload": {"account": number, "cents": CENTS}, "retries": 50, "max_losses": LOSSES}
        for number in range(1, charges + 1)
    ]
    assert len(set(await cluster.submit_all(jobs))) == charges


async def kill_at_random(
    cluster: Cluster,
    ledger: asyncpg.Connection,
    workers: list[subprocess.Popen[bytes]],
    moments: list[int],
    chance: random.Random,
) -> None:
    """Kill a worker after each of these numbers of charges, and start another one."""
    for moment in moments:

        async def reached(moment: int = moment) -> bool:
            return bool(await ledger.fetchval("select count(*) from charges") >= moment)

        await eventually(reached, 300, f"{moment} charges are made")
        await asyncio.sleep(chance.uniform(0, 0.1))
        doomed = workers.pop(chance.randrange(len(workers)))
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        workers.append(await cluster.worker(app=APP, slots=SLOTS))
