"""FEATURES 1.1: a job with jitter and depends_on. The runs of the same nominal time belong together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.schedules.nominal_times import fire_of
from mainspring.operations.dependencies.dependency_poller import DependencyPoller
from mainspring.roles.assembly import Assembly
from mainspring.store import dependencies
from mainspring.store.jobs import schedule_from_text
from tests.operations.firing import fire_due
from tests.operations.test_calendars import forget_rules
from tests.operations.test_dependencies import finish, make, state_of, worker_for

pytestmark = pytest.mark.anyio

EACH, PARENT, CHILD = {"parent": True, "child": True}, {"parent": True}, {"child": True}
SIDES = pytest.mark.parametrize("sides", [PARENT, CHILD, EACH], ids=["parent", "child", "both"])


class Pair:
    """The jobs a and b, which depends on a. Both have the same nominal time, which has passed, as have their fires. The
    parent has an earlier success, which would count if it did not fire for this time."""

    def __init__(self, api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> None:
        self.api, self._assembly, self._connection = api, assembly, connection
        self.worker = worker_for(api, "a", "b")
        self.time = datetime.now(UTC)

    async def make(self, parent: bool = False, child: bool = False, **more: Any) -> None:
        now = await self._connection.fetchval("select date_trunc('second', clock_timestamp())")
        self.time = now - timedelta(hours=2)
        await make(self.api, "a", schedule=self.schedule(parent) | more)
        await make(self.api, "b", schedule=self.schedule(child) | more, depends_on=["a"])
        await self.api.post("/v1/jobs/a:runNow")
        assert await finish(self.worker) == "a"

    def schedule(self, jitter: bool) -> dict[str, Any]:
        return {"every": "10d", "anchor": self.time.isoformat(), **({"jitter": "1h"} if jitter else {})}

    async def due(self, job_id: str) -> datetime:
        """Let the job be due for the time."""
        text = await self._connection.fetchval("select schedule::text from mainspring.jobs where job_id = $1", job_id)
        fire = fire_of(schedule_from_text(text), self.time)
        assert fire is not None
        await self._connection.execute("update mainspring.jobs set next_fire_at = $1 where job_id = $2", fire, job_id)
        return fire

    async def fire(self, job_id: str) -> None:
        due = await self.due(job_id)
        await fire_due(self._assembly, self._connection)
        run = (await self.api.get(f"/v1/jobs/{job_id}/runs")).json()[0]
        assert datetime.fromisoformat(run["scheduled_for"]) == due


@pytest.fixture
async def pair(api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> Pair:
    return Pair(api, assembly, connection)


@pytest.fixture
def dependency_poller(assembly: Assembly) -> DependencyPoller:
    """It looks only when the test says so."""
    assembly.signals.waits._listeners.clear()
    return next(task for task in assembly.periodic_tasks if isinstance(task, DependencyPoller))


@SIDES
async def test_a_run_waits_for_the_parent_that_has_yet_to_fire_for_its_time(
    pair: Pair, dependency_poller: DependencyPoller, sides: dict[str, bool]
) -> None:
    await pair.make(**sides)
    await pair.fire("b")
    await pair.due("a")
    await dependency_poller.run_once()
    assert await state_of(pair.api, "b") == ("WAITING", "waiting for a")
    await pair.api.post("/v1/jobs/a:runNow")
    assert await finish(pair.worker) == "a"  # another success does not count
    await dependency_poller.run_once()
    assert (await state_of(pair.api, "b"))[0] == "WAITING"
    await pair.fire("a")
    await dependency_poller.run_once()
    assert (await state_of(pair.api, "b"))[0] == "WAITING"
    assert await finish(pair.worker) == "a"
    assert (await state_of(pair.api, "b"))[0] == "QUEUED"


@SIDES
async def test_the_end_of_the_parents_run_for_the_time_decides(
    pair: Pair, dependency_poller: DependencyPoller, sides: dict[str, bool]
) -> None:
    await pair.make(**sides)
    await pair.fire("a")
    assert await finish(pair.worker, "FAILED") == "a"
    await pair.fire("b")
    await dependency_poller.run_once()
    assert await state_of(pair.api, "b") == ("SKIPPED", "upstream failed: a")


@SIDES
async def test_a_missed_fire_of_the_parent_decides(
    pair: Pair, dependency_poller: DependencyPoller, sides: dict[str, bool]
) -> None:
    await pair.make(**sides)
    await pair.due("a")
    await pair.api.post("/v1/jobs/a:pause")
    await pair.fire("b")
    await dependency_poller.run_once()
    assert await state_of(pair.api, "b") == ("SKIPPED", "upstream missed: a")


@SIDES
async def test_of_a_parent_that_does_not_fire_a_success_counts(
    pair: Pair, dependency_poller: DependencyPoller, sides: dict[str, bool]
) -> None:
    await pair.make(**sides)
    await pair.api.post("/v1/jobs/a:pause")  # before its fire
    await pair.fire("b")
    await dependency_poller.run_once()
    assert (await state_of(pair.api, "b"))[0] == "QUEUED"


async def test_calendars_are_loaded_to_find_the_nominal_time(pair: Pair, dependency_poller: DependencyPoller) -> None:
    open_days = {"weekdays": ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]}
    answer = await pair.api.put("/v1/calendars/open", json=open_days)
    assert answer.status_code == 201, answer.text
    await pair.make(parent=True, child=True, calendar="open")
    await pair.fire("b")
    await pair.due("a")
    forget_rules()
    await dependency_poller.run_once()
    assert await state_of(pair.api, "b") == ("WAITING", "waiting for a")


async def test_a_parent_without_this_nominal_time_is_looked_at_as_before(
    pair: Pair, dependency_poller: DependencyPoller
) -> None:
    await pair.make(parent=True)
    later = (pair.time + timedelta(days=1)).isoformat()
    answer = await pair.api.patch("/v1/jobs/a", json={"schedule": {"every": "10d", "anchor": later, "jitter": "1h"}})
    assert answer.status_code == 200, answer.text
    await pair.fire("b")
    await dependency_poller.run_once()
    assert (await state_of(pair.api, "b"))[0] == "QUEUED"


async def test_a_run_is_not_looked_at_again_until_the_next_fire_of_its_parent_changes(
    pair: Pair, dependency_poller: DependencyPoller
) -> None:
    await pair.make(parent=True)
    await pair.fire("b")
    await pair.due("a")
    assert [await dependency_poller.run_once() for _ in range(3)] == [1, 0, 0]
    assert await dependency_poller._pass(dependencies.all_waiting) == 1
    assert await dependency_poller.run_once() == 0
    await pair.api.delete("/v1/jobs/a")
    assert await dependency_poller.run_once() == 1
    assert (await state_of(pair.api, "b"))[0] != "WAITING"


async def test_changes_of_the_schedules_do_not_change_what_a_run_waits_for(
    pair: Pair, dependency_poller: DependencyPoller, connection: asyncpg.Connection
) -> None:
    await pair.make(parent=True, child=True)
    await pair.fire("b")
    await pair.due("a")
    await dependency_poller.run_once()
    assert (await pair.api.patch("/v1/jobs/b", json={"schedule": "@monthly"})).status_code == 200
    await pair.fire("a")
    await dependency_poller.run_once()
    [run] = await connection.fetch("select run_id from mainspring.runs where job_id = 'a'")
    waits = "select parent_run from mainspring.job_waits"
    assert await connection.fetchval(waits) == run["run_id"]
    assert (await pair.api.patch("/v1/jobs/a", json={"schedule": {"jitter": "2s"}})).status_code == 200
    await dependency_poller._pass(dependencies.all_waiting)
    assert await connection.fetchval(waits) == run["run_id"]
    assert await finish(pair.worker, "FAILED") == "a"
    assert await state_of(pair.api, "b") == ("SKIPPED", "upstream failed: a")
