"""The benchmarks of what must hold for long: the soak and its verdict, and backups of large databases."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.bench import backup, soak
from mainspring.bench.soak import Sample, judged

pytestmark = pytest.mark.anyio

MEGABYTE = 1024 * 1024


def samples(rate: Any = lambda _: 100.0, memory: Any = lambda _: 70.0, live: Any = lambda _: 20.0) -> list[Sample]:
    """An hour, once a minute. Each argument is a function of the minute."""
    found, ended = [], 0.0
    for minute in range(61):
        found.append(
            Sample(
                60.0 * minute, int(ended), {"server-1": memory(minute)}, int(live(minute) * MEGABYTE), int(ended), {}
            )
        )
        ended += 60 * rate(minute)
    return found


def test_a_soak_that_ends_as_it_began_is_flat() -> None:
    figures = judged(samples())
    assert figures["verdict"] == "flat"
    assert figures["first_part_per_s"] == figures["last_part_per_s"] == 100.0
    assert figures["part_s"] == 600
    warm = judged(samples(rate=lambda minute: 50.0 if minute < 5 else 100.0))
    assert warm["verdict"] == "flat"  # the first minutes, in which caches are cold, do not count
    assert judged(samples(rate=lambda minute: 96.0 if minute > 50 else 100.0))["verdict"] == "flat"


@pytest.mark.parametrize(
    "worse, words",
    [
        ({"rate": lambda minute: 100.0 - minute / 4}, "throughput fell by"),
        ({"memory": lambda minute: 70.0 + minute}, "server-1 has grown from"),
        ({"live": lambda minute: 20.0 + minute}, "tables and indexes have grown from"),
    ],
)
def test_a_soak_says_what_has_changed(worse: dict[str, Any], words: str) -> None:
    assert words in str(judged(samples(**worse))["verdict"])


@pytest.mark.long
async def test_a_soak_runs_every_kind_of_job_and_loses_no_fire() -> None:
    figures = await soak.run(0.2)
    assert figures["ended"] and figures["fires"], figures
    assert (figures["double_fires"], figures["missed_not_recorded"], figures["old_partitions_left"]) == (0, 0, 0)
    memory: Any = figures["memory_mb_first_last"]
    assert memory.keys() == {"postgres", "server-1", "server-2", "worker-1"} and min(map(min, memory.values())) > 10


@pytest.mark.long
async def test_a_backup_of_many_rows_is_restored_whole() -> None:
    figures = await backup.run(200, 3000)
    assert (figures["jobs_restored"], figures["runs_restored"]) == (201, 3000)
    assert figures["backup_s"] and figures["verify_s"] and figures["restore_s"]
