"""Tests the rules for max_runs, backfills and calendars: each guard is removed in turn, and the rules must find that.
The same scenes without a mutant must have no violations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.operations.backfills.backfill_worker import BackfillWorker
from mainspring.operations.calendars import recompute
from mainspring.operations.calendars.recompute import Recomputer
from mainspring.roles.assembly import Assembly
from mainspring.scheduler import firer
from tests.cluster.history import BUSY
from tests.cluster.limit_stage import LimitStage
from tests.cluster.rules import judge
from tests.cluster.test_limit_mutants import replace
from tests.operations.firing import fire_due

pytestmark = pytest.mark.anyio

Mutant = Callable[[pytest.MonkeyPatch], None]
Scene = Callable[["Stage"], Awaitable[None]]


class Stage(LimitStage):
    @property
    def backfill_worker(self) -> BackfillWorker:
        return next(task for task in self.assembly.periodic_tasks if isinstance(task, BackfillWorker))

    async def recur(self, **schedule: Any) -> None:
        body = {"task": "noop", "job_id": "target", "overlap": "allow", "misfire": {"policy": "all"}}
        call = await self.clients.submit({**body, "schedule": {"cron": "* * * * * *", **schedule}})
        assert call.result == "ok", call

    async def make_late(self, seconds: int = 5) -> None:
        """The scheduler has done nothing for so long."""
        query = (
            "update mainspring.jobs set next_fire_at = date_trunc('second', clock_timestamp()) - $1 * interval '1 s'"
        )
        await self.connection.execute(query, seconds)

    async def fire(self) -> None:
        await fire_due(self.assembly, self.connection)

    async def backfill(self, begin: int, end: int, concurrency: int = 3) -> str:
        """Make up for the fires between so many seconds ago."""
        now = datetime.now(UTC)
        times = {"from": now - timedelta(seconds=begin), "to": now - timedelta(seconds=end)}
        body = {name: moment.isoformat() for name, moment in times.items()} | {"concurrency": concurrency}
        call = await self.clients.call("backfill", "POST", "/v1/jobs/target:backfill", body)
        assert call.result == "ok", call
        return f"/v1/backfills/{call.answer['id']}"

    async def steer_backfill(self, path: str, verb: str) -> None:
        assert (await self.api.post(f"{path}:{verb}")).status_code == 200

    async def fill(self, rounds: int = 20) -> None:
        """Run what backfills create."""
        for _ in range(rounds):
            created = await self.backfill_worker.run_once()
            orders = await self.claim(free=20)
            await self.end(*orders)
            if not created and not orders:
                break


# -- guards, and how they are removed


def without_counting_down(patch: pytest.MonkeyPatch) -> None:
    """A fire does not take from the runs that are left."""
    for query in ("fire_recurring", "fire_free"):
        replace(
            patch, "fire", query, "runs_left = j.runs_left - (d.last_run - d.first_run + 1)", "runs_left = j.runs_left"
        )


def without_runs_left(patch: pytest.MonkeyPatch) -> None:
    """A fire makes all runs that are due."""
    patch.setattr(firer, "limited", lambda plan, _: plan)
    for query in ("fire_recurring", "fire_free"):
        replace(patch, "fire", query, "and (j.runs_left is null or j.runs_left > d.last_run - d.first_run)", "")


def without_the_cursor(patch: pytest.MonkeyPatch) -> None:
    """A step creates runs, and does not move on in its slice."""
    replace(patch, "backfills", "advance_backfill", "slice_done = $15", "slice_done = 0 * $15::int")


def with_a_cursor_that_leaps(patch: pytest.MonkeyPatch) -> None:
    """The rest of a slice is left out."""
    replace(patch, "backfills", "advance_backfill", "fire_cursor = $14", "fire_cursor = greatest($14, b.slice_end)")
    replace(patch, "backfills", "advance_backfill", "slice = case when $17 then b.slice end", "slice = null")
    replace(patch, "backfills", "advance_backfill", "case when $17 then b.slice_exists end", "null")


def without_its_live_runs(patch: pytest.MonkeyPatch) -> None:
    """A step does not know of the runs of earlier ones."""
    replace(patch, "backfills", "advance_backfill", "live = $16", "live = ($16::uuid[])[1:0]")


def without_runs_that_exist(patch: pytest.MonkeyPatch) -> None:
    """A slice does not say which of its fires have a run."""
    replace(patch, "backfills", "existing_fires", "r.tenant_id = $1", "false and r.tenant_id = $1")
    replace(patch, "backfills", "existing_fires", "h.job_id = $2", "false and h.job_id = $2")


def without_the_scheduler(patch: pytest.MonkeyPatch) -> None:
    """A slice is taken before the scheduler has dealt with the range."""
    replace(patch, "backfills", "job_is_past", "(j.next_fire_at is null or j.next_fire_at >= b.to_at)", "true")


def without_dropping_slices(patch: pytest.MonkeyPatch) -> None:
    """A backfill goes on with a slice from before another one of the job."""
    replace(patch, "backfills", "drop_slices", "b.slice is not null", "false")


def without_what_is_due(patch: pytest.MonkeyPatch) -> None:
    """A recomputation moves jobs on that are due."""
    patch.setattr(recompute, "_is_due", lambda _: False)
    guard = "and coalesce(j.next_fire_at, j.paused_from, 'infinity') > (select clock_timestamp())"
    replace(patch, "calendars", "write_recomputed", guard, "")


# -- what happens


async def a_late_job_with_max_runs(stage: Stage) -> None:
    await stage.recur(max_runs=3)
    await stage.make_late()
    await stage.fire()
    await stage.fill()


async def a_backfill(stage: Stage) -> None:
    await stage.recur()
    await stage.backfill(20, 10)
    for _ in range(3):
        await stage.backfill_worker.run_once()
    await stage.fill()


async def a_backfill_of_fires_that_have_run(stage: Stage) -> None:
    await stage.recur()
    await stage.make_late()
    await stage.fire()
    await stage.fill()
    await stage.backfill(10, 2)
    await stage.fill()


async def a_backfill_of_fires_that_are_due(stage: Stage) -> None:
    await stage.recur()
    await stage.make_late()
    await stage.backfill(10, 1)
    await stage.fill()
    await stage.fire()
    await stage.fill()


async def two_backfills_of_a_range(stage: Stage) -> None:
    await stage.recur()
    first = await stage.backfill(20, 10)
    await stage.steer_backfill(first, "pause")
    await stage.backfill(20, 10)
    await stage.fill(1)
    await stage.steer_backfill(first, "resume")
    await stage.fill()


async def a_calendar_changes_when_a_job_is_due(stage: Stage) -> None:
    path = "/v1/calendars/some"
    await stage.api.put(path, json={"dates": ["2099-01-01"]})
    await stage.recur(calendar="some")
    await stage.make_late()
    await stage.api.put(path, json={"dates": ["2099-01-02"]})
    await Recomputer(stage.assembly.store, stage.assembly.lanes).calendar(1, "some")
    await stage.fire()
    await stage.fill()


SCENES: dict[Mutant, tuple[Scene, str]] = {
    without_counting_down: (a_late_job_with_max_runs, "S1"),
    without_runs_left: (a_late_job_with_max_runs, "S1"),
    without_the_cursor: (a_backfill, "S1"),
    with_a_cursor_that_leaps: (a_backfill, "S1"),
    without_its_live_runs: (a_backfill, "S10"),
    without_runs_that_exist: (a_backfill_of_fires_that_have_run, "S1"),
    without_the_scheduler: (a_backfill_of_fires_that_are_due, "S1"),
    without_dropping_slices: (two_backfills_of_a_range, "S1"),
    without_what_is_due: (a_calendar_changes_when_a_job_is_due, "L2"),
}


@pytest.fixture
async def stage(api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> Stage:
    made = Stage(api, assembly, connection)
    await made.open()
    # All connections are those of one node.
    await connection.execute("alter table cluster_audit.events alter column process set default 'node'")
    assembly.signals.backfills._listeners.clear()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SCENES, ids=lambda mutant: mutant.__name__)
async def test_the_checker_finds_a_schedule(mutant: Mutant, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    scene, rule = SCENES[mutant]
    await scene(stage)
    found = judge(await stage.history())
    assert rule in {violation.rule for violation in found}, [str(violation) for violation in found]


@pytest.mark.parametrize("scene", {scene: None for scene, _ in SCENES.values()}, ids=lambda scene: scene.__name__)
async def test_the_checker_finds_nothing_when(scene: Scene, stage: Stage) -> None:
    await scene(stage)
    history = await stage.history()
    history.machine = BUSY
    assert [str(violation) for violation in judge(history)] == []
