"""Changes with If-Match are made only to what has the tag that they name: runs, limits, workers and other objects that
have no version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.operations.workflows.starter import FlowStarter
from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem, rows
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.workflows.scene import task_of

pytestmark = pytest.mark.anyio

RUN_ID = "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11"


class Thing(msgspec.Struct):
    """An object that has a tag, and one change to it. read: where it is shown; `pick` finds it in a list. loser: the
    status of the second of two changes with the same tag."""

    method: str
    change: str
    body: Any
    read: str
    pick: Callable[[Any], Any] = lambda shown: shown
    loser: tuple[int, ...] = (412,)

    async def shown(self, api: httpx.AsyncClient) -> dict[str, Any]:
        answer = await api.get(self.read)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = self.pick(answer.json())
        if "ETag" in answer.headers:
            assert answer.headers["ETag"] == f'"{found["etag"]}"'
        return found

    async def send(self, api: httpx.AsyncClient, tag: str | None) -> httpx.Response:
        headers = {} if tag is None else {"If-Match": tag}
        return await api.request(self.method, self.change, headers=headers, json=self.body)


@pytest.fixture(autouse=True)
def still(assembly: Assembly) -> None:
    """Nothing is begun beside the test."""
    assembly.signals.backfills._listeners.clear()
    assembly.signals.flows._listeners.clear()
    assembly.signals.ready._listeners.remove(task_of(assembly, FlowStarter)._on_ready)


async def submitted(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", **fields})
    assert answer.status_code == 201, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


async def ended(api: httpx.AsyncClient, status: str, **fields: Any) -> str:
    await submitted(api, retries=0, **fields)
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order, status, **({} if status == "SUCCESS" else {"error": "no"})))
    return str(order.run_id)


async def waiting_run(api: httpx.AsyncClient) -> Thing:
    run = await submitted(api)
    return Thing("POST", f"/v1/runs/{run}:cancel", {}, f"/v1/runs/{run}")


async def ended_run(api: httpx.AsyncClient) -> Thing:
    run = await ended(api, "SUCCESS", overlap="allow")
    return Thing("POST", f"/v1/runs/{run}:retry", {}, f"/v1/runs/{run}", loser=(409,))


async def failed_run(api: httpx.AsyncClient) -> Thing:
    run = await ended(api, "FAILED", overlap="allow")
    return Thing("POST", f"/v1/runs/{run}:retry", {"payload": {}}, f"/v1/runs/{run}", loser=(409,))


async def letter_to_replay(api: httpx.AsyncClient) -> Thing:
    path = f"/v1/dead-letters/{await ended(api, 'FAILED')}"
    return Thing("POST", f"{path}:replay", {}, path, loser=(409,))


async def letter_to_discard(api: httpx.AsyncClient) -> Thing:
    path = f"/v1/dead-letters/{await ended(api, 'FAILED')}"
    return Thing("POST", f"{path}:discard", {}, path, loser=(404,))


async def limit(api: httpx.AsyncClient) -> Thing:
    await submitted(api, concurrency=3)
    [found] = (await api.get("/v1/limits")).json()["limits"]
    path = f"/v1/limits/{found['limit_id']}"
    return Thing("PUT", path, {"limit": 5}, path, lambda details: details["limit"])


async def breaker(api: httpx.AsyncClient) -> Thing:
    for _ in range(2):
        await ended(api, "FAILED", circuit_breaker={"failures": 2, "open_for": "1h"})
    [found] = (await api.get("/v1/breakers")).json()["breakers"]
    assert found["state"] == "open"
    path = f"/v1/breakers/{found['breaker_id']}:reset"
    return Thing("POST", path, {}, "/v1/breakers", lambda listed: listed["breakers"][0])


async def worker(api: httpx.AsyncClient) -> Thing:
    made = HandWorker(api)
    await made.hello()
    path = f"/v1/workers/{made.worker_id}"
    return Thing("POST", f"{path}:drain", {}, path)


async def token(api: httpx.AsyncClient) -> Thing:
    made = (await api.post("/v1/tokens", json={"name": "n", "role": "viewer"})).json()
    assert made["etag"] == "valid"
    token_id = made["token_id"]

    def pick(listed: Any) -> Any:
        return next(one for one in listed["tokens"] if one["token_id"] == token_id)

    return Thing("POST", f"/v1/tokens/{token_id}:revoke", {}, "/v1/tokens", pick)


async def operation(api: httpx.AsyncClient) -> Thing:
    job = await submitted(api, schedule="@daily")
    begun = await api.post("/v1/jobs:act", json={"verb": "pause", "ids": [job]})
    path = f"/v1/operations/{begun.json()['id']}"
    return Thing("POST", f"{path}:cancel", {}, path)


async def backfill(api: httpx.AsyncClient, verb: str) -> Thing:
    job = await submitted(api, schedule="@hourly")
    body = {"from": "2025-03-01T00:00:00Z", "to": "2025-03-01T10:00:00Z"}
    made = await api.post(f"/v1/jobs/{job}:backfill", json=body)
    assert made.headers["ETag"] == '"running-1"'
    path = f"/v1/backfills/{made.json()['id']}"
    if verb == "resume":
        assert (await api.post(f"{path}:pause", json={})).headers["ETag"] == '"paused-1"'
    if verb == "change":
        return Thing("PATCH", path, {"concurrency": 7}, path)
    return Thing("POST", f"{path}:{verb}", {}, path)


async def workflow_run(api: httpx.AsyncClient) -> Thing:
    steps = [{"name": "a", "task": "noop"}]
    made = await api.post("/v1/workflows", json={"workflow_id": "w", "steps": steps, "schedule": "manual"})
    assert made.status_code == 201, made.text
    run = (await api.post("/v1/workflows/w:runNow", json={})).json()["run_id"]
    path = f"/v1/workflow-runs/{run}"
    return Thing("POST", f"{path}:cancel", {}, path)


MAKERS: dict[str, Callable[[httpx.AsyncClient], Awaitable[Thing]]] = {
    "a waiting run": waiting_run,
    "an ended run": ended_run,
    "a failed run": failed_run,
    "a dead letter to replay": letter_to_replay,
    "a dead letter to discard": letter_to_discard,
    "a limit": limit,
    "a circuit breaker": breaker,
    "a worker": worker,
    "a token": token,
    "an operation": operation,
    "a backfill to pause": lambda api: backfill(api, "pause"),
    "a backfill to resume": lambda api: backfill(api, "resume"),
    "a backfill to change": lambda api: backfill(api, "change"),
    "a backfill to cancel": lambda api: backfill(api, "cancel"),
    "a workflow run": workflow_run,
}


@pytest.mark.parametrize("kind", MAKERS)
async def test_another_tag_is_refused_and_changes_nothing(
    api: httpx.AsyncClient, connection: asyncpg.Connection, kind: str
) -> None:
    thing = await MAKERS[kind](api)
    before, counted = (await thing.shown(api))["etag"], await rows(connection)
    told = problem(await thing.send(api, '"something-else-9"'))
    assert (told["status"], told["code"], told["field"]) == (412, "version_mismatch", "If-Match")
    assert f'"{before}"' in told["detail"], "it says what it is now"
    assert told["hint"].startswith("read the ")
    wrong = problem(await thing.send(api, '"Not A Tag!"'))
    assert (wrong["status"], wrong["field"]) == (422, "If-Match")
    assert ((await thing.shown(api))["etag"], await rows(connection)) == (before, counted)


@pytest.mark.parametrize("kind", MAKERS)
async def test_of_two_changes_with_the_same_tag_one_is_made(api: httpx.AsyncClient, kind: str) -> None:
    thing = await MAKERS[kind](api)
    tag = f'"{(await thing.shown(api))["etag"]}"'
    answers = await asyncio.gather(thing.send(api, tag), thing.send(api, tag))
    [won] = [answer for answer in answers if answer.is_success]
    [lost] = [answer for answer in answers if not answer.is_success]
    assert problem(lost)["status"] in thing.loser, lost.text
    if "etag" in won.json() and "retry" not in thing.change and "replay" not in thing.change:
        assert won.json()["etag"] != tag.strip('"')


@pytest.mark.parametrize("tag", [None, "*"])
@pytest.mark.parametrize("kind", MAKERS)
async def test_without_a_tag_or_with_any_it_is_changed(api: httpx.AsyncClient, kind: str, tag: str | None) -> None:
    thing = await MAKERS[kind](api)
    answer = await thing.send(api, tag)
    assert answer.is_success, answer.text


async def test_a_run_that_was_claimed_has_another_tag(api: httpx.AsyncClient) -> None:
    thing = await waiting_run(api)
    seen = (await thing.shown(api))["etag"]
    assert seen == "queued-0"
    hand = HandWorker(api)
    [order] = await hand.claim()
    assert (await thing.shown(api))["etag"] == "running-1"
    assert problem(await thing.send(api, f'"{seen}"'))["detail"] == 'the run is at "running-1", not "queued-0"'
    assert (await thing.send(api, '"running-1"')).status_code == 202
    await hand.report(outcome(order, "CANCELLED"))
    assert problem(await thing.send(api, '"running-1"'))["status"] == 412
    assert (await thing.send(api, '"cancelled-1"')).status_code == 202, "a second cancel changes nothing"


@pytest.mark.parametrize("noun", ["jobs", "workflows"])
async def test_a_job_that_changed_is_not_run_now(
    api: httpx.AsyncClient, connection: asyncpg.Connection, noun: str
) -> None:
    body: dict[str, Any] = {"job_id": "j", "task": "noop", "schedule": "@daily"}
    if noun == "workflows":
        body = {"workflow_id": "j", "schedule": "@daily", "steps": [{"name": "a", "task": "noop"}]}
    assert (await api.post(f"/v1/{noun}", json=body)).status_code == 201
    path = f"/v1/{noun}/j"
    seen = {"If-Match": (await api.get(path)).headers["ETag"]}
    assert (await api.patch(path, json={"description": "other"})).status_code == 200
    told = problem(await api.post(f"{path}:runNow", json={}, headers=seen))
    assert (told["status"], told["code"]) == (412, "version_mismatch")
    assert (await rows(connection))["runs"] == 0
    now = {"If-Match": (await api.get(path)).headers["ETag"]}
    assert (await api.post(f"{path}:runNow", json={}, headers=now)).status_code == 202


async def test_a_one_time_job_that_has_fired_is_run_again_by_its_version(api: httpx.AsyncClient) -> None:
    await ended(api, "SUCCESS", job_id="once")
    seen = (await api.get("/v1/jobs/once")).headers["ETag"]
    path = "/v1/jobs/once:runNow"
    assert problem(await api.post(path, json={}, headers={"If-Match": '"7"'}))["status"] == 412
    assert (await api.post(path, json={}, headers={"If-Match": seen})).status_code == 202


async def test_what_does_not_exist_is_not_found_whatever_the_tag(api: httpx.AsyncClient) -> None:
    tag = {"If-Match": '"live"'}
    for path in (
        f"/v1/runs/{RUN_ID}:cancel", f"/v1/runs/{RUN_ID}:retry", f"/v1/dead-letters/{RUN_ID}:replay",
        f"/v1/dead-letters/{RUN_ID}:discard", "/v1/breakers/7:reset", f"/v1/workers/{RUN_ID}:drain",
        f"/v1/tokens/{RUN_ID}:revoke", f"/v1/operations/{RUN_ID}:cancel", f"/v1/backfills/{RUN_ID}:pause",
        f"/v1/workflow-runs/{RUN_ID}:cancel", f"/v1/workflow-runs/{RUN_ID}:rerun",
    ):  # fmt: skip
        assert problem(await api.post(path, json={}, headers=tag))["status"] == 404, path


async def test_a_worker_that_is_gone_is_told_as_a_conflict(api: httpx.AsyncClient) -> None:
    hand = HandWorker(api)
    await hand.hello()
    await hand.exchange(draining=True, stopped=True)
    answer = await api.post(f"/v1/workers/{hand.worker_id}:drain", json={}, headers={"If-Match": '"live"'})
    assert problem(answer)["detail"] == 'the worker is at "stopped", not "live"'


async def test_a_limit_that_is_declared_anew_has_another_tag(api: httpx.AsyncClient) -> None:
    thing = await limit(api)
    seen = (await thing.shown(api))["etag"]
    await submitted(api, concurrency=4)
    assert (await thing.shown(api))["etag"] != seen
    assert problem(await thing.send(api, f'"{seen}"'))["status"] == 412
    assert (await thing.shown(api))["limit"] == 4
