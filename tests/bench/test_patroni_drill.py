"""Failovers between three PostgreSQL with Patroni lose nothing, and fire nothing twice."""

from __future__ import annotations

import pytest

from mainspring.bench.patroni.drill import FAULTS, run
from mainspring.bench.patroni.programs import patroni_programs

pytestmark = [pytest.mark.anyio, pytest.mark.long]


async def test_nothing_acknowledged_is_lost_and_no_fire_is_doubled_or_forgotten() -> None:
    if not patroni_programs().installed:
        pytest.skip("Patroni and etcd are not installed (make patroni)")
    figures = await run(len(FAULTS), per_second=20.0)
    assert figures["rounds"] == len(FAULTS)
    for name in ("acknowledged_lost", "run_twice", "double_fires", "missed_not_recorded"):
        assert figures[name] == 0, figures
    acknowledged, fires = figures["acknowledged"], figures["fires"]
    assert isinstance(acknowledged, int) and isinstance(fires, int) and acknowledged > 0 < fires
