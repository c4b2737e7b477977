"""Cancels and reruns of workflow runs with If-Match."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring.wire.exchange import Outcome, RunOrder
from tests.api.bookkeeping import problem
from tests.operations.hand_worker import outcome
from tests.operations.workflows.scene import Scene

pytestmark = pytest.mark.anyio

STEPS: list[dict[str, Any]] = [{"name": "a"}, {"name": "b", "depends_on": ["a"]}]


def failed(order: RunOrder) -> Outcome:
    return outcome(order, "FAILED", error="no", retry=False)


async def tag_of(scene: Scene, path: str) -> str:
    answer = await scene.api.get(path)
    assert answer.headers["ETag"] == f'"{answer.json()["etag"]}"'
    tag: str = answer.json()["etag"]
    return tag


async def test_of_two_reruns_of_what_was_seen_one_begins(scene: Scene) -> None:
    path = f"/v1/workflow-runs/{await scene.begin(await scene.create(STEPS))}"
    assert await tag_of(scene, path) == "live-0"
    await scene.run_all(failed)
    assert await tag_of(scene, path) == "ended-0"
    seen = {"If-Match": '"ended-0"'}
    answers = await asyncio.gather(*(scene.api.post(f"{path}:rerun", json={}, headers=seen) for _ in range(2)))
    [begun] = [answer for answer in answers if answer.is_success]
    [refused] = [answer for answer in answers if not answer.is_success]
    assert (begun.headers["ETag"], problem(refused)["status"]) == ('"live-1"', 412)
    assert (await scene.api.get(path)).json()["reruns"] == 1


async def test_a_rerun_that_was_not_seen_is_not_cancelled_nor_repeated(scene: Scene) -> None:
    path = f"/v1/workflow-runs/{await scene.begin(await scene.create(STEPS))}"
    await scene.run_all(failed)
    assert (await scene.api.post(f"{path}:rerun", json={})).status_code == 202
    refused = await scene.api.post(f"{path}:cancel", json={}, headers={"If-Match": '"live-0"'})
    assert problem(refused)["detail"] == 'the workflow run is at "live-1", not "live-0"'
    assert await tag_of(scene, path) == "live-1"
    cancelled = await scene.api.post(f"{path}:cancel", json={}, headers={"If-Match": '"live-1"'})
    assert (cancelled.status_code, cancelled.headers["ETag"]) == (202, '"ended-1"')
    refused = await scene.api.post(f"{path}:rerun", json={}, headers={"If-Match": '"ended-0"'})
    assert problem(refused)["status"] == 412
