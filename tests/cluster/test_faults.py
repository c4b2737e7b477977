"""A short, seeded selection of faults, each group on a new cluster: no violation, and recovery.

`make faults MINUTES=10` runs all of them, at random and in pairs, and checks the documented times. Here the machine can
be busy with other tests, and single processes can stall.
"""

from __future__ import annotations

import os

import pytest

from tests.cluster.arena import Shape
from tests.cluster.drill import drill
from tests.cluster.flow_book import read_flows
from tests.cluster.history import BUSY
from tests.cluster.report import replay_of_test
from tests.sizes import chosen

pytestmark = pytest.mark.anyio

SEED = int(os.environ.get("MAINSPRING_FAULT_SEED", "3"))
SMALL = Shape(schedulers=2, servers=2, workers=2)
RATE = 6.0  # submissions per second; half of what `make faults` sends

SELECTION: dict[str, list[tuple[str, ...]]] = {
    "killed": [("kill-scheduler", "kill-server", "kill-worker"), ("kill-all",)],
    "stopped": [
        ("pause-worker-with-child", "pause-scheduler-1.1", "stop-server-in-patch"),
        ("pause-scheduler-0.9",),
    ],
    "without its database": [("crash-postgres",), ("kill-backends",), ("postgresql-half-open-late",)],
    "failed over": [("failover",), ("failover-old-primary",)],
    "cut off": [("postgresql-drop-the-answer", "server-drop-the-answer"), ("server-one-way", "postgresql-stranded")],
    "told to stop, or the wrong time": [
        ("drain-worker", "drain-server", "drain-scheduler"),
        ("wrong-clock", "server-reset", "stop-server-in-cancel"),
    ],
}


# The others, and all faults at random, are in `make test-long`. `make test` has none.
ALWAYS, SLOW = (), ("killed", "without its database")


@pytest.mark.parametrize("kind", chosen(SELECTION, ALWAYS, SLOW))
async def test_a_cluster_keeps_its_promises_while_it_is(kind: str) -> None:
    replay = replay_of_test(SEED)
    outcome = await drill(SEED, SMALL, SELECTION[kind], replay=lambda _: replay, rate=RATE, machine=BUSY)
    assert not outcome.violations, str(outcome)
    assert len(outcome.history.births) > 50, "there was no load to speak of"
    assert len(read_flows(outcome.history)) > 2, "hardly a workflow ran"
    assert all(injection.recovery is not None for injection in outcome.history.injections), str(outcome)
