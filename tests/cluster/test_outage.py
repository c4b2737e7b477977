"""A long outage of PostgreSQL: running attempts of every kind continue, and are not given to others afterwards."""

from __future__ import annotations

import time

import pytest

from tests.cluster.arena import Arena, Shape
from tests.cluster.history import BUSY, RESCUE, SUCCESS, Injection
from tests.cluster.load import Clients
from tests.cluster.recovery import at_rest
from tests.cluster.rules import judge
from tests.cluster.tasks import shell_command
from tests.cluster.witness import gather, read_ledger
from tests.processes.cluster import eventually

pytestmark = pytest.mark.anyio

OUTAGE = RESCUE + 2.0


@pytest.mark.slow
async def test_an_outage_longer_than_a_workers_lease_costs_no_attempt() -> None:
    async with Arena(Shape(schedulers=1, servers=1, workers=1)) as arena, arena.client() as http:
        clients = Clients(http)
        await clients.submit({"task": "note", "payload": {"seconds": OUTAGE + 3}})
        command = shell_command(str(arena.ledger), int((OUTAGE + 3) * 10))
        await clients.submit({"command": command})
        await clients.submit({"command": command, "delivery": "at_most_once"})

        async def all_run() -> bool:
            return len({line.run for line in read_ledger(arena.ledger)}) == 3

        await eventually(all_run, 90, "the jobs run")
        outage = Injection("PostgreSQL away", f"{OUTAGE:g} s", time.monotonic(), whole=True, cuts=True)
        arena.injections.append(outage)
        await arena.restart_database(OUTAGE)
        outage.end = time.monotonic()
        assert await at_rest(arena, 120)
        history = await gather(arena, clients.calls)
        history.machine = BUSY
    assert [str(violation) for violation in judge(history)] == []
    ends = [event.new for event in history.of("run_history")]
    assert [(end["state"], end["attempt"]) for end in ends] == [(SUCCESS, 1)] * 3
