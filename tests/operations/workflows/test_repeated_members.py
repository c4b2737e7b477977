"""A rerun of what failed repeats only those members of a map that did not succeed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

import msgspec
import pytest

from mainspring.store import fanouts, joins, workflows
from mainspring.wire.exchange import Outcome, RunOrder
from tests.operations.hand_worker import outcome
from tests.operations.workflows.scene import Scene
from tests.operations.workflows.test_crashes import Kills, survives

pytestmark = pytest.mark.anyio

PAYLOAD = {"n": {"$index": True}, "of": {"$total": True}, "item": {"$item": ""}}
JOIN = {"name": "join", "depends_on": ["each"], "rule": "all_done", "payload": {"got": {"$from": "each"}}}


def each(**of: Any) -> dict[str, Any]:
    return {"name": "each", "retries": 0, "payload": PAYLOAD, "map": of}


class Work:
    """What the worker was given: payloads of members by index, and of other steps by name. Members fail by index."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.failing: Collection[int] = ()
        self.members: dict[int, Any] = {}
        self.others: dict[str, Any] = {}

    def answer(self, order: RunOrder) -> Outcome:
        payload = msgspec.json.decode(order.payload)
        if order.name != "each":
            self.others[order.name or ""] = payload
            return outcome(order)
        assert payload["n"] not in self.members
        self.members[payload["n"]] = payload
        if payload["n"] in self.failing:
            return outcome(order, "FAILED", error="boom", retry=False)
        return outcome(order, result=payload["n"] * 10)

    async def do(self, failing: Collection[int] = ()) -> list[int]:
        """Let everything run that is ready. Returns the indexes of the members."""
        self.failing, self.members, self.others = failing, {}, {}
        idle = 0
        while idle < 2:
            moved = await self.scene.starter.run_once() + await self.scene.expander.run_once()
            moved += len(await self.scene.run_all(self.answer)) + await self.scene.join_counter.run_once()
            idle = 0 if moved else idle + 1
        return sorted(self.members)


@pytest.fixture
def work(scene: Scene) -> Work:
    return Work(scene)


async def view(scene: Scene, run_id: UUID) -> dict[str, Any]:
    shown: dict[str, Any] = (await scene.api.get(f"/v1/workflow-runs/{run_id}")).json()
    return shown


async def members(scene: Scene, run_id: UUID, more: str = "") -> list[tuple[int, str, int]]:
    path = f"/v1/workflow-runs/{run_id}/steps?name=each&members=true&limit=500{more}"
    steps = (await scene.api.get(path)).json()["steps"]
    return [(step["index"], step["status"], step.get("rerun", 0)) for step in steps]


@pytest.mark.parametrize("of", [{"over": ["a", "b", "c", "d", "e"]}, {"range": [5, 10]}], ids=["list", "range"])
async def test_only_the_failed_members_run_again_with_their_index_and_item(
    scene: Scene, work: Work, of: dict[str, Any]
) -> None:
    items = of.get("over", [5, 6, 7, 8, 9])
    run_id = await scene.begin(await scene.create([each(**of), JOIN]))
    assert await work.do(failing={1, 3}) == [0, 1, 2, 3, 4]
    assert (await view(scene, run_id))["steps"][0]["status"] == "FAILED"
    for failing, wanted, ok in (({3}, [1, 3], 4), ((), [3], 5)):
        await scene.control.rerun(scene.caller, run_id)
        assert await work.do(failing) == wanted
        assert work.members == {index: {"n": index, "of": 5, "item": items[index]} for index in wanted}
        results = [None if index in failing else index * 10 for index in range(5)]
        assert work.others["join"] == {
            "got": {"total": 5, "succeeded": ok, "failed": 5 - ok, "skipped": 0, "results": results}
        }
    shown = await view(scene, run_id)
    assert (shown["status"], shown["steps"][0]["map"]["created"], shown["steps"][0]["map"]["succeeded"]) == (
        "SUCCESS", 5, 5,
    )  # fmt: skip
    assert await members(scene, run_id) == [(index, "SUCCESS", {1: 1, 3: 2}.get(index, 0)) for index in range(5)]
    again = await scene.connection.fetchval(
        "select run_id from mainspring.run_history where job_id is null and name = 'each' order by run_id desc limit 1"
    )
    assert (await scene.api.get(f"/v1/runs/{again}")).json()["index"] == 3
    assert (await scene.api.get("/v1/dead-letters")).json()["dead_letters"] == []
    await scene.at_rest()


async def test_a_few_of_many_members_run_again(scene: Scene, work: Work) -> None:
    """More than results are kept of, in several chunks."""
    run_id = await scene.begin(await scene.create([each(range=2500), JOIN]))
    assert len(await work.do(failing={7, 1500, 2499})) == 2500
    assert work.others["join"]["got"]["failed"] == 3
    await scene.control.rerun(scene.caller, run_id)
    assert await work.do(failing={1500}) == [7, 1500, 2499]
    assert await members(scene, run_id, "&status=failed") == [(1500, "FAILED", 1)]
    await scene.control.rerun(scene.caller, run_id)
    assert await work.do() == [1500]
    got = {"total": 2500, "succeeded": 2500, "failed": 0, "skipped": 0, "results": None}
    assert work.others["join"] == {"got": got}
    assert (await view(scene, run_id))["status"] == "SUCCESS"
    assert await scene.connection.fetchval("select numbers from mainspring.flows") == 2 + 2500 + 2 + 3 + 2 + 1


async def test_members_that_were_skipped_or_not_created_run_again(scene: Scene, work: Work) -> None:
    run_id = await scene.begin(await scene.create([each(range=9, max_parallel=2, max_failures=0)]))
    ran = await work.do(failing={2})
    done = [index for index in ran if index != 2]
    await scene.control.rerun(scene.caller, run_id)
    assert await work.do() == [index for index in range(9) if index not in done]
    assert (await view(scene, run_id))["steps"][0]["map"]["succeeded"] == 9


async def test_what_is_left_of_a_cancelled_map_runs_again(scene: Scene, work: Work) -> None:
    run_id = await scene.begin(await scene.create([each(range=6, max_parallel=3)]))
    await scene.expander.run_once()
    first, second, _ = await scene.worker.claim(3)
    await scene.worker.report(work.answer(first))
    await scene.control.cancel(scene.caller, run_id)
    work.failing = range(9)
    await scene.worker.report(work.answer(second))
    third = await scene.connection.fetchval("select run_id from mainspring.runs where state = 2")
    assert third is not None
    await scene.worker.report(Outcome(third, 1, "CANCELLED"))
    await scene.join_counter.run_once()
    await scene.stopper.run_once()
    await scene.control.rerun(scene.caller, run_id)
    assert await work.do() == [1, 2, 3, 4, 5]
    assert (await view(scene, run_id))["status"] == "SUCCESS"


@pytest.mark.parametrize("way", ["named", "parent", "other list", "unknown ends"])
async def test_all_members_run_again_when(scene: Scene, work: Work, way: str) -> None:
    first = {"name": "first", "retries": 0}
    steps = [first, {**each(range=3), "depends_on": ["first"]}]
    await scene.create(steps, workflow_id="flow")
    run_id = await scene.begin("flow")
    assert await work.do(failing={1}) == [0, 1, 2]
    options: dict[str, str] = {}
    if way == "other list":
        changed = [first, {**each(range=4), "depends_on": ["first"]}]
        body = {"steps": [{"task": "noop", **step} for step in changed]}
        assert (await scene.api.patch("/v1/workflows/flow", json=body)).status_code == 200
        options = {"definition": "current"}
    if way == "unknown ends":
        await scene.connection.execute(
            "delete from mainspring.step_ends where state = 11 and reason not like '%members%'"
        )
    from_step = {"named": "each", "parent": "first"}.get(way)
    await scene.control.rerun(scene.caller, run_id, from_step, **options)
    assert await work.do() == list(range(4 if way == "other list" else 3))
    assert (await view(scene, run_id))["status"] == "SUCCESS"


async def test_a_mended_payload_is_that_of_the_members_that_run_again(scene: Scene, work: Work) -> None:
    await scene.create([each(range=3)], workflow_id="flow")
    run_id = await scene.begin("flow")
    await work.do(failing={1})
    step = {**each(range=3), "task": "noop", "payload": {**PAYLOAD, "mended": True}}
    assert (await scene.api.patch("/v1/workflows/flow", json={"steps": [step]})).status_code == 200
    await scene.control.rerun(scene.caller, run_id, definition="current")
    assert await work.do() == [1]
    assert work.members[1]["mended"] is True


async def test_a_kill_after_any_write_repeats_no_member_twice(
    scene: Scene, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await scene.begin(await scene.create([each(over=list(range(150))), JOIN]))
    await work.do(failing=range(0, 150, 2))
    await scene.control.rerun(scene.caller, run_id)
    await scene.starter.run_once()
    kills = Kills(
        monkeypatch,
        [(workflows, "take_numbers"), (joins, "insert"), (fanouts, "insert_items"), (fanouts, "begin"),
         (workflows, "create_members"), (fanouts, "advance"), (joins, "mark"), (joins, "count_marks"),
         (fanouts, "close")],
    )  # fmt: skip
    work.members = {}
    work.failing = ()
    pending: list[Outcome] = []
    rounds = 0
    while await scene.connection.fetchval("select count(*) from mainspring.runs") or pending:
        rounds += 1
        assert rounds < 100
        for act in (scene.expander.run_once, scene.join_counter.run_once):
            await survives(act)
        if not pending:
            pending = [work.answer(order) for order in (await scene.worker.exchange(free=40)).runs]
        if pending and (await scene.worker.ask(outcomes=pending)).status_code == 200:
            pending = []
    assert kills.left == []
    assert sorted(work.members) == list(range(0, 150, 2))
    assert work.others["join"]["got"]["succeeded"] == 150
