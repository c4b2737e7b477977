"""Steps whose service answers later: at a one-time address, once, whatever is killed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from mainspring.kernel.public_url import set_public_url
from mainspring.operations.waits.sweeper import WaitSweeper
from mainspring.store import waits
from mainspring.wire.exchange import Outcome, RunOrder
from tests.api.bookkeeping import problem
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.workflows.scene import Scene, task_of
from tests.operations.workflows.test_crashes import Kills, survives
from tests.operations.workflows.test_sleeps import begin, step, sweep, waits_left

pytestmark = pytest.mark.anyio

URL = "https://jobs.example.com"


@pytest.fixture
def scene(scene: Scene) -> Iterator[Scene]:
    """Servers with a public URL, and a worker that makes calls by hand."""
    scene.worker = HandWorker(scene.api, tasks=("http", "noop"))
    set_public_url(URL)
    yield scene
    set_public_url(None)


def steps(**callback: Any) -> list[dict[str, Any]]:
    call = {"url": "http://127.0.0.1:9/charge", "method": "POST"}
    paid = {"paid": {"$from": "charge", "path": "paid"}}
    return [
        {"name": "charge", "http": call, "callback": callback, "retries": 1},
        {"name": "ship", "task": "noop", "depends_on": ["charge"], "payload": paid},
    ]


async def called(scene: Scene, **callback: Any) -> tuple[UUID, RunOrder]:
    """A workflow run, and its call, which a worker makes now."""
    run_id = await begin(scene, steps(**callback))
    return run_id, await claimed(scene)


async def claimed(scene: Scene) -> RunOrder:
    reply = await scene.worker.exchange(free=10, hello=None if scene.worker.seq else scene.worker.card)
    [order] = reply.runs
    return order


def later(order: RunOrder) -> Outcome:
    """The service has answered 202."""
    return outcome(order, "FAILED", error="the service answers later", retry=False, callback=True)


def path_of(order: RunOrder) -> str:
    assert order.callback is not None and order.callback.startswith(f"{URL}/v1/callbacks/")
    return order.callback.removeprefix(URL)


async def call_back(scene: Scene, order: RunOrder, body: Any = None) -> int:
    """Without a token."""
    answer = await scene.api.post(path_of(order), json=body, headers={"Authorization": ""})
    return answer.status_code


async def due(scene: Scene) -> int:
    return await task_of(scene.assembly, WaitSweeper).run_once()


async def test_the_body_of_the_callback_is_the_result_and_counts_once(scene: Scene) -> None:
    run_id, order = await called(scene, timeout="2d")
    await scene.worker.report(later(order))
    charge = await step(scene, run_id, "charge")
    assert charge["status"] == "WAITING" and charge["reason"].startswith("waiting for a callback, until ")
    assert (await scene.worker.exchange(free=10)).runs == [] and await due(scene) == 0
    why = (await scene.api.get(f"/v1/runs/{charge['run_id']}/why")).json()["why"]
    assert why.startswith("It is waiting for a callback, until ")
    timeline = (await scene.api.get(f"/v1/runs/{charge['run_id']}/timeline")).json()
    assert [entry["state"] for entry in timeline][-1] == "WAITING" and timeline[-1]["reason"] == charge["reason"]
    statuses = await asyncio.gather(*(call_back(scene, order, {"paid": n}) for n in range(3)))
    assert Counter(statuses) == {200: 1, 409: 2}
    assert await due(scene) == 1
    [ship] = (await scene.worker.exchange(free=10)).runs
    assert bytes(ship.payload) == b'{"paid":%d}' % statuses.index(200)
    await scene.worker.report(outcome(ship))
    assert await scene.ended(run_id) == ("SUCCESS", None)
    assert await call_back(scene, order) == 409 and await waits_left(scene) == 0
    assert await scene.connection.fetchval("select count(*) from mainspring.callbacks") == 0


async def test_a_callback_before_the_answer_202_counts(scene: Scene) -> None:
    run_id, order = await called(scene)
    assert await call_back(scene, order, {"paid": 5}) == 200
    assert await call_back(scene, order, {"paid": 6}) == 409
    await scene.worker.report(later(order))
    assert await due(scene) == 1
    [ship] = (await scene.worker.exchange(free=10)).runs
    assert bytes(ship.payload) == b'{"paid":5}'
    assert (await step(scene, run_id, "charge"))["status"] == "SUCCESS"


@pytest.mark.parametrize(
    ("word", "charge", "ship"),
    [("fail", "FAILED", "SKIPPED"), ("skip", "SKIPPED", "SKIPPED"), ("continue", "SUCCESS", "FAILED")],
)
async def test_a_callback_that_does_not_come(scene: Scene, word: str, charge: str, ship: str) -> None:
    """What follows reads a part of the result that a timeout does not have."""
    run_id, order = await called(scene, timeout="1h", on_timeout=word)
    await scene.worker.report(later(order))
    assert await sweep(scene) == 1
    found = await scene.steps(run_id)
    assert (found["charge"][0], found["ship"][0]) == (charge, ship)
    if word == "fail":
        assert found["charge"][1] == "timed out after 1h: a callback did not come"
    assert await call_back(scene, order) == 409


async def test_a_retry_gives_a_new_address_and_the_old_one_is_dead(scene: Scene) -> None:
    _, first = await called(scene)
    await scene.worker.report(outcome(first, "FAILED", error="HTTP 503", retry_after=0))
    await scene.connection.execute("update mainspring.runs set ready_at = now() where state = 1")
    second = await claimed(scene)
    assert first.callback != second.callback and await call_back(scene, first, {"paid": 1}) == 409
    await scene.worker.report(later(second))
    assert await call_back(scene, first) == 409 and await call_back(scene, second, {"paid": 2}) == 200
    assert await due(scene) == 1


async def test_an_answer_other_than_202_is_the_result(scene: Scene) -> None:
    run_id, order = await called(scene)
    assert await call_back(scene, order, {"paid": 1}) == 200
    await scene.worker.report(outcome(order, result=b'{"paid":7}'))
    assert (await step(scene, run_id, "charge"))["status"] == "SUCCESS" and await due(scene) == 0
    await scene.connection.execute("update mainspring.callbacks set at = at - interval '1 hour'")
    async with scene.assembly.store.change() as connection:
        assert await waits.forget(connection, 10) == 1


async def test_a_cancel_ends_the_wait(scene: Scene) -> None:
    run_id, order = await called(scene)
    await scene.worker.report(later(order))
    await scene.control.cancel(scene.caller, run_id)
    await scene.stopper.run_once()
    assert (await scene.steps(run_id))["charge"][0] == "CANCELLED" and await waits_left(scene) == 0
    assert await call_back(scene, order) == 409


async def test_a_kill_after_any_write_loses_no_callback(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id, order = await called(scene)
    kills = Kills(monkeypatch, [(waits, "suspend"), (waits, "keep_callback"), (waits, "close")])
    assert (await scene.worker.ask(outcomes=[later(order)])).status_code >= 500
    assert await call_back(scene, order, {"paid": 1}) >= 500
    assert await call_back(scene, order, {"paid": 1}) == 200
    await scene.worker.report(later(order))
    assert not await survives(task_of(scene.assembly, WaitSweeper).run_once)
    assert await due(scene) == 1 and kills.left == []
    assert (await step(scene, run_id, "charge"))["status"] == "SUCCESS"


async def test_addresses_are_signed_and_bodies_are_bounded(scene: Scene) -> None:
    _, order = await called(scene)
    path = path_of(order)
    for other in ("x", "%00", path[-8:], path.rpartition("/")[2][:-3] + "AAA"):
        assert (await scene.api.post(f"/v1/callbacks/{other}", json={})).status_code == 404
    assert (await scene.api.get(path)).status_code == 405
    for body, status in ((b"{", 422), (b"\xff", 422), (b"[" * 30_000, 422), (b'"' + b"x" * 70_000 + b'"', 413)):
        answer = await scene.api.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == status, answer.text
    assert await call_back(scene, order) == 200


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"http": None, "task": "noop"}, "callback"),
        ({"map": {"range": 3}}, "callback"),
        ({"concurrency": 1}, "callback"),
        ({"delivery": "at_most_once", "retries": None}, "callback"),
        ({"callback": {"timeout": "soon"}}, "callback.timeout"),
        ({"callback": {"on_timeout": "skip"}}, "callback.on_timeout"),
    ],
)
async def test_callbacks_that_make_no_sense_are_refused(scene: Scene, change: dict[str, Any], field: str) -> None:
    [first, _] = steps()
    answer = await scene.api.post("/v1/workflows", json={"steps": [{**first, **change}]})
    assert (answer.status_code, problem(answer)["field"]) == (422, f"steps[0].{field}")


async def test_without_a_public_url_a_callback_is_refused(scene: Scene) -> None:
    set_public_url(None)
    answer = await scene.api.post("/v1/workflows", json={"steps": steps()})
    assert answer.status_code == 422 and "--public-url" in problem(answer)["hint"]
