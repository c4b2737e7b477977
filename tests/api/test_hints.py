"""Every refusal around create, cancel, resume, run now, replay and update names a way that works: this follows them."""

from __future__ import annotations

import re
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem
from tests.api.test_generations import FUTURE, PAST, finish
from tests.operations.firing import fire_due
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio

BODY: dict[str, Any] = {"job_id": "mine", "task": "noop"}
COMPLETE = "update mainspring.jobs set status = 4, next_fire_at = null, last_fired_for = now()"
_WAY = re.compile(r"(POST|PATCH|DELETE|GET) (/v1/[^\s,;]+)")


class Walk:
    """A user who follows hints."""

    def __init__(self, api: httpx.AsyncClient, schedule: Any) -> None:
        self.api = api
        self.schedule = schedule
        self.worker: HandWorker | None = None
        self.order: Any = None

    async def want(self, wish: str) -> httpx.Response:
        verb, _, rest = wish.partition(" ")
        match verb:
            case "create":
                return await self.api.post("/v1/jobs", json={**BODY, "schedule": self.schedule})
            case "PATCH":
                return await self.api.patch("/v1/jobs/mine", json={"schedule": "@hourly"})
            case "retry":
                return await self.api.post(f"/v1/runs/{rest}:retry")
            case _:
                return await self.api.post(f"/v1/jobs/mine:{verb}")

    async def follow(self, method: str, path: str) -> httpx.Response:
        """Do what a hint says."""
        if (method, path) == ("POST", "/v1/jobs"):
            return await self.want("create")
        if method == "PATCH":
            return await self.want("PATCH")
        if method == "GET":  # wait until it shows the end
            assert self.worker is not None
            await self.worker.report(outcome(self.order))
        return await self.api.request(method, path)


async def scheduled(walk: Walk, connection: asyncpg.Connection) -> None:
    assert (await walk.want("create")).status_code == 201


async def cancelled(walk: Walk, connection: asyncpg.Connection) -> None:
    await scheduled(walk, connection)
    await walk.api.delete("/v1/jobs/mine")


async def completed(walk: Walk, connection: asyncpg.Connection) -> None:
    await scheduled(walk, connection)
    await connection.execute(COMPLETE)


async def running(walk: Walk, connection: asyncpg.Connection) -> None:
    await scheduled(walk, connection)
    walk.worker = HandWorker(walk.api)
    [walk.order] = await walk.worker.claim()


async def stopping(walk: Walk, connection: asyncpg.Connection) -> None:
    await running(walk, connection)
    await walk.api.delete("/v1/jobs/mine")


async def over(walk: Walk, connection: asyncpg.Connection) -> None:
    await scheduled(walk, connection)
    await finish(walk.api)


CASES = [
    (state, schedule, wish)
    for state, schedules, wishes in (
        (scheduled, ("@daily", "manual", FUTURE), ("create",)),
        (cancelled, ("@daily", "manual"), ("PATCH", "runNow", "pause")),
        (cancelled, (FUTURE,), ("PATCH", "runNow", "pause", "resume")),
        (completed, ("@daily", FUTURE), ("pause", "resume")),
        (running, ("now",), ("create", "PATCH", "pause", "resume")),
        (stopping, ("now",), ("create", "PATCH", "pause", "resume")),
        (over, ("now",), ("PATCH", "pause", "resume")),
    )
    for schedule in schedules
    for wish in wishes
]


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: f"{CASES[n][0].__name__}-{CASES[n][2]}-{n}")
async def test_each_way_that_a_hint_names_works(
    api: httpx.AsyncClient, connection: asyncpg.Connection, number: int
) -> None:
    """Each way is tried on a job of its own. It succeeds, or leads on to another one that does: never in a circle."""
    state, schedule, wish = CASES[number]
    walk = Walk(api, schedule)
    await state(walk, connection)
    refused = problem(await walk.want(wish))
    assert (refused["status"], bool(refused.get("hint"))) == (409, True), refused
    ways = _WAY.findall(refused["hint"])
    assert ways, refused["hint"]
    for way in ways:
        await _forget(connection)
        walk = Walk(api, schedule)
        await state(walk, connection)
        await _follow(walk, wish, problem(await walk.want(wish)), way, tried=[])


async def _follow(walk: Walk, wish: str, refused: Any, way: tuple[str, str], tried: list[Any]) -> None:
    """Follow one way until the wish is granted, or until there is a job like the wished one."""
    assert (wish, refused["detail"], way[0]) not in tried, f"in a circle: {tried}"
    tried.append((wish, refused["detail"], way[0]))
    if way[0] == "GET" and walk.order is not None:
        way = ("GET", f"/v1/runs/{walk.order.run_id}")
    answer = await walk.follow(*way)
    if answer.status_code == 409:
        onward = problem(answer)
        for method, path in _WAY.findall(onward["hint"]):
            if method == "GET" or walk.order is None:
                await _follow(walk, "create", onward, (method, path), tried)
                return
        raise AssertionError(f"no way on: {onward}")
    assert answer.is_success, answer.text
    if way[0] == "DELETE" and walk.order is not None:
        assert walk.worker is not None
        await walk.worker.report(outcome(walk.order, "CANCELLED"))
    if (way[0], way[1]) == ("POST", "/v1/jobs"):
        return  # created again: this is what the wish comes to
    if wish == "create" and way[0] == "PATCH":
        return  # changed instead
    if walk.schedule == "now" and wish != "create":
        return
    again = await walk.want(wish)
    assert again.is_success, (wish, way, again.text)


async def _forget(connection: asyncpg.Connection) -> None:
    await connection.execute(
        "truncate mainspring.jobs, mainspring.runs, mainspring.run_history, mainspring.taken_ids, mainspring.past_jobs"
    )


@pytest.mark.parametrize("schedule", ["@daily", FUTURE])
async def test_a_run_of_a_cancelled_job_is_repeated_after_what_the_hint_says(
    api: httpx.AsyncClient, schedule: Any
) -> None:
    walk = Walk(api, schedule)
    await walk.want("create")
    run_id = (await api.post("/v1/jobs/mine:runNow")).json()["run_id"]
    await finish(api, "FAILED")
    await api.delete("/v1/jobs/mine")
    for path in (f"/v1/runs/{run_id}:retry", f"/v1/dead-letters/{run_id}:replay"):
        refused = problem(await api.post(path))
        assert (refused["status"], refused["code"]) == (409, "job_cancelled")
    [way] = _WAY.findall(refused["hint"])
    assert (await walk.follow(*way)).is_success
    assert (await api.post(f"/v1/runs/{run_id}:retry")).json()["generation"] == 1


async def test_a_job_of_ours_that_was_cancelled_is_submitted_anew(api: httpx.AsyncClient) -> None:
    job_id = (await api.post("/v1/jobs", json={"task": "noop", "schedule": FUTURE})).json()["job_id"]
    run_id = (await api.post(f"/v1/jobs/{job_id}:runNow")).json()["run_id"]
    await finish(api, "FAILED")
    await api.delete(f"/v1/jobs/{job_id}")
    refused = problem(await api.post(f"/v1/runs/{run_id}:retry"))
    assert refused["hint"] == "submit a new job with POST /v1/jobs"
    for verb in ("resume", "runNow", "pause"):
        hint = problem(await api.post(f"/v1/jobs/{job_id}:{verb}"))["hint"]
        assert hint == "create it again with POST /v1/jobs"
    assert (await api.post("/v1/jobs", json={"task": "noop", "schedule": FUTURE})).status_code == 201


async def test_a_run_that_was_repeated_names_the_one_to_repeat(api: httpx.AsyncClient) -> None:
    walk = Walk(api, "now")
    await walk.want("create")
    first = await finish(api, "FAILED")
    second = (await api.post(f"/v1/runs/{first.run_id}:retry")).json()["run_id"]
    refused = problem(await api.post(f"/v1/runs/{first.run_id}:retry"))
    assert (refused["code"], second in refused["detail"]) == ("replayed", True)
    alive = problem(await api.post(f"/v1/runs/{second}:retry"))
    assert (alive["code"], alive["hint"]) == ("run_alive", "cancel it first, or wait for its own retries")
    assert (await api.post(f"/v1/runs/{second}:cancel")).is_success
    assert (await api.post(f"/v1/runs/{second}:retry")).status_code == 202


@pytest.mark.parametrize("now", [{"schedule": "now"}, {"schedule_type": "IMMEDIATE", "cron_expression": None}])
async def test_a_paused_job_is_not_changed_to_now_and_runs_when_it_is_resumed_or_run_by_hand(
    api: httpx.AsyncClient, now: dict[str, Any]
) -> None:
    walk = Walk(api, "@daily")
    await walk.want("create")
    await walk.want("pause")
    before = (await api.get("/v1/jobs/mine")).json()
    refused = problem(await api.put("/v1/jobs/mine", json=now))
    assert (refused["status"], refused["code"]) == (409, "wrong_status")
    assert (await api.get("/v1/jobs/mine")).json() == before
    resume, run_now = _WAY.findall(refused["hint"])
    assert (await walk.follow(*run_now)).status_code == 202
    assert (await walk.follow(*resume)).status_code == 200
    changed = (await api.put("/v1/jobs/mine", json=now)).json()
    assert (changed["schedule_type"], changed["next_fire_at"]) == ("FUTURE", changed["updated_at"])


async def test_a_one_time_job_that_is_due_can_be_created_again_when_it_has_ended(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    walk = Walk(api, PAST)
    await walk.want("create")
    refused = problem(await walk.want("PATCH"))
    assert (refused["code"], refused["hint"]) == (
        "already_fired",
        "create it again with POST /v1/jobs when it has ended",
    )
    assert (await walk.want("create")).status_code == 409
    await fire_due(assembly, connection)
    await finish(api)
    assert (await walk.want("create")).status_code == 201
