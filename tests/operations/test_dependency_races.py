"""Jobs after jobs: random orders of fires, ends and looks against a small model; races, and crashes in the middle."""

from __future__ import annotations

import asyncio
from datetime import datetime
from itertools import count
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring.operations.dependencies import follow
from mainspring.operations.dependencies.dependency_poller import DependencyPoller
from mainspring.roles.assembly import Assembly
from mainspring.wire.exchange import Outcome
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_dependencies import dependency_poller, due_together, finish, make, state_of, worker_for
from tests.store.rows import until_blocking

pytestmark = pytest.mark.anyio
__all__ = ["dependency_poller"]

NUMBERS = count()
ENDS = ("SUCCESS", "FAILED", "CANCELLED", None)


class Scene(msgspec.Struct, frozen=True):
    """parents: whether each fires at the same time, and how its run ends. order: of all that happens."""

    parents: list[tuple[bool, str | None]]
    rule: str
    fails: bool
    order: list[float]


scenes = st.builds(
    Scene,
    parents=st.lists(st.tuples(st.booleans(), st.sampled_from(ENDS)), min_size=1, max_size=3),
    rule=st.sampled_from(["all_success", "all_done", "one_success", "one_failed"]),
    fails=st.booleans(),
    order=st.lists(st.floats(0, 1), min_size=10, max_size=10),
)


def expected(scene: Scene) -> str:
    """What becomes of the run, from the ends of its parents alone. A run at another time counts only if it succeeds."""
    ends = [end if same or end == "SUCCESS" else None for same, end in scene.parents]
    bad, good, left = any(end in ("FAILED", "CANCELLED") for end in ends), "SUCCESS" in ends, None in ends
    stopped = "FAILED" if scene.fails else "SKIPPED"
    match scene.rule:
        case "all_success":
            return stopped if bad else "WAITING" if left else "QUEUED"
        case "all_done":
            return "WAITING" if left else "QUEUED"
        case "one_success":
            return "QUEUED" if good else "WAITING" if left else stopped
        case _:
            return "QUEUED" if bad else "WAITING" if left else "SKIPPED"


async def fire(api: httpx.AsyncClient, job_id: str) -> None:
    """Let this job fire alone: a change deals with what is due."""
    answer = await api.patch(f"/v1/jobs/{job_id}", json={"description": f"{next(NUMBERS)}"})
    assert answer.status_code == 200, answer.text


async def end(api: httpx.AsyncClient, worker: HandWorker, job_id: str, how: str) -> None:
    if how == "CANCELLED":
        run_id = (await api.get(f"/v1/jobs/{job_id}/runs")).json()[0]["run_id"]
        await api.post(f"/v1/runs/{run_id}:cancel")
    else:
        await finish(worker, how)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scene=scenes)
async def test_what_becomes_of_a_run_depends_on_the_ends_of_its_parents_and_not_on_the_order(
    api: httpx.AsyncClient, connection: asyncpg.Connection, dependency_poller: DependencyPoller, scene: Scene
) -> None:
    number = next(NUMBERS)
    child, names = f"c{number}", [f"p{number}-{place}" for place in range(len(scene.parents))]
    for name, (same, _) in zip(names, scene.parents, strict=True):
        await make(api, name, schedule="@daily" if same else "manual")
    failing = {"on_upstream_failure": "fail"} if scene.fails else {}
    await make(api, child, schedule="@daily", depends_on=names, rule=scene.rule, **failing)
    together = [name for name, (same, _) in zip(names, scene.parents, strict=True) if same]
    moment: datetime = await due_together(connection, child, *together)
    steps: list[tuple[str, str]] = [("fire", child), ("look", ""), ("look", "")]
    for name, (same, how) in zip(names, scene.parents, strict=True):
        steps.append(("fire" if same else "run", name))
        steps += [("end", name)] if how is not None else []
    begun: set[str] = set()
    late: list[tuple[str, str]] = []
    ends = dict(zip(names, (how for _, how in scene.parents), strict=True))
    turns = [step for _, step in sorted(zip(scene.order, steps, strict=False), key=lambda pair: pair[0])]
    for what, name in [*turns, *steps[len(scene.order) :]]:
        if what == "end" and name not in begun:
            late.append((what, name))
            continue
        await act(api, dependency_poller, what, name, ends)
        begun.add(name)
    for what, name in late:
        await act(api, dependency_poller, what, name, ends)
    await dependency_poller.run_once()
    found = (await state_of(api, child))[0]
    assert found == expected(scene), moment
    for name in (child, *names):  # nothing is left for the next example
        await api.delete(f"/v1/jobs/{name}")


async def act(
    api: httpx.AsyncClient, dependency_poller: DependencyPoller, what: str, name: str, ends: dict[str, str | None]
) -> None:
    match what:
        case "fire":
            await fire(api, name)
        case "run":
            await api.post(f"/v1/jobs/{name}:runNow")
        case "look":
            await dependency_poller.run_once()
        case _:
            how = ends[name]
            assert how is not None
            await end(api, worker_for(api, name), name, how)


async def test_a_fire_an_end_and_a_look_at_once_leave_nobody_waiting(
    api: httpx.AsyncClient, connection: asyncpg.Connection, dependency_poller: DependencyPoller
) -> None:
    await make(api, "a", schedule="@daily", overlap="allow")
    await make(api, "b", schedule="@daily", overlap="allow")
    await make(api, "c", schedule="@daily", overlap="allow", depends_on=["a", "b"])
    workers = [worker_for(api, "a"), worker_for(api, "b")]
    for _ in range(6):
        await due_together(connection, "a", "b", "c")
        await fire(api, "a")
        await fire(api, "b")
        await asyncio.gather(
            fire(api, "c"),
            finish(workers[0]),
            dependency_poller.run_once(),
            finish(workers[1]),
            dependency_poller.run_once(),
        )
        await dependency_poller.run_once()
        assert (await state_of(api, "c"))[0] == "QUEUED"
    assert await connection.fetchval("select count(*) from mainspring.runs where job_id = 'c'") == 6


async def test_a_crash_while_a_parent_is_reported_neither_loses_nor_repeats_its_dependant(
    api: httpx.AsyncClient,
    assembly: Assembly,
    connection: asyncpg.Connection,
    dependency_poller: DependencyPoller,
    monkeypatch: Any,
) -> None:
    await make(api, "a")
    await make(api, "b", depends_on=["a"])
    await make(api, "c", depends_on=["b"])
    await dependency_poller.run_once()
    worker = worker_for(api, "a")
    [order] = await worker.claim()

    async def crash(*_: Any) -> None:
        raise asyncpg.ConnectionDoesNotExistError("the server is gone")

    for place in ("settle_waiting", "_satisfy"):
        with monkeypatch.context() as patch:
            patch.setattr(follow, place, crash)
            answer = await worker.ask(outcomes=[outcome(order)])
            assert answer.status_code >= 500
        assert (await state_of(api, "a"))[0] in ("QUEUED", "RUNNING")
        assert (await state_of(api, "b"))[0] == "WAITING"
    await worker.report(outcome(order))
    await worker.report(outcome(order))  # a repeat changes nothing
    assert (await state_of(api, "b"))[0] == "QUEUED"
    assert (await state_of(api, "c"))[0] == "WAITING"
    assert await connection.fetchval("select count(*) from mainspring.job_waits") == 1


async def test_a_parent_that_is_claimed_while_its_child_is_stored_is_followed(
    api: httpx.AsyncClient, connection: asyncpg.Connection, database_url: str, assembly: Assembly
) -> None:
    """The submission of the child waits for the row of the parent's run, which a claim has locked."""
    await make(api, "parent", task="a", schedule="manual")
    run_id = (await api.post("/v1/jobs/parent:runNow")).json()["run_id"]
    worker = worker_for(api, "a")
    await worker.hello()
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await other.execute(
                """update mainspring.runs set state = 2, attempt = 1, fence = 1, worker_id = $1,
                   claimed_at = clock_timestamp()""",
                worker.worker_id,
            )
            storing = asyncio.create_task(make(api, "child", task="b", schedule={"after": ["parent"]}))
            await until_blocking(connection, other.get_server_pid())
        await storing
    finally:
        await other.close()
    await worker.report(Outcome(UUID(run_id), 1, "SUCCESS"))
    due = "select next_fire_at <= clock_timestamp() from mainspring.jobs where job_id = 'child'"
    assert await connection.fetchval(due) is True
