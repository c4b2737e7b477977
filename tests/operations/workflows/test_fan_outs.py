"""Fan-outs: how members are created."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import msgspec
import pytest

from mainspring.operations.signals import FlowNews
from mainspring.operations.workflows.expander import FanoutExpander
from mainspring.operations.workflows.members import MemberRows
from mainspring.store import fanouts
from tests.operations.hand_worker import outcome
from tests.operations.workflows.scene import Scene

pytestmark = pytest.mark.anyio

MEMBERS = """select name, tenant_id, lane_id, state, max_attempts, exclusive, generation, follows, cardinality(feeds),
                    rule, waits_for, job_id, payload::text, spec::text, expires_at
             from mainspring.runs where job_id is null and starts_with(trigger, 'step:') order by run_id"""
PAYLOAD = {"row": {"$item": "id"}, "n": {"$index": True}, "of": {"$total": True}, "by": {"$parameter": "by"}}


def expander_with(scene: Scene, alive: int) -> FanoutExpander:
    own = scene.expander
    made = FanoutExpander(own._store, own._lanes, own._signals, own._graph_indexes, alive)
    own._signals.flows._listeners.clear()  # it creates members only when the test says so
    return made


async def mapped(scene: Scene) -> UUID:
    [run_id] = await fanouts.at_work(scene.connection, fanouts.FIRST, 10)
    return run_id


async def members_of(scene: Scene, step: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The rows of the members of a step, which are then gone."""
    await scene.begin(await scene.create([step], parameters={"by": "me"}))
    await scene.expander.run_once()
    rows = [tuple(row) for row in await scene.connection.fetch(MEMBERS)]
    await scene.connection.execute("delete from mainspring.runs where job_id is null")
    return rows


async def test_members_that_are_created_together_are_as_those_created_one_by_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [{"id": number} for number in range(5)] + [{"no": "id"}]
    for step in (
        {"name": "each", "map": {"over": items}, "payload": PAYLOAD, "timeout": "30s", "retries": 2},
        {"name": "each", "map": {"range": 3}, "payload": {"same": "for all"}, "delivery": "at_most_once"},
        {"name": "each", "map": {"range": [5, 1, -2]}},
    ):
        together = await members_of(scene, step)
        with monkeypatch.context() as patch:
            patch.setattr(MemberRows, "alike", False)
            assert together == await members_of(scene, step)
        assert together


async def test_the_numbers_payloads_and_triggers_of_members_are_their_own(scene: Scene) -> None:
    step = {"name": "each", "map": {"over": [{"id": "a"}, {"id": "b"}, {"no": 1}]}, "payload": PAYLOAD, "retries": 0}
    flow_id = await scene.begin(await scene.create([step], parameters={"by": "me"}))
    await scene.expander.run_once()
    rows = await scene.connection.fetch(
        """select run_id, trigger, payload::text from mainspring.runs
           where job_id is null and starts_with(trigger, 'step:') order by run_id"""
    )
    prefix = await scene.connection.fetchval("select prefix from mainspring.flows")
    assert [row["run_id"].int - prefix.int for row in rows] == [1, 2]
    assert [row["trigger"] for row in rows] == [f"step:{flow_id}:1", f"step:{flow_id}:2"]
    payloads = [msgspec.json.decode(row["payload"]) for row in rows]
    assert payloads == [{"row": row, "n": n, "of": 3, "by": "me"} for n, row in enumerate("ab")]
    failed = await scene.connection.fetchrow("select run_id, reason, payload from mainspring.run_history")
    assert failed["run_id"].int - prefix.int == 3
    assert (failed["reason"], failed["payload"]) == ('there is no value for {"$item":"id"}', None)
    assert sorted(await scene.run_all()) == ["each", "each"]
    assert await scene.ended(flow_id) == ("FAILED", "step each failed")
    await scene.at_rest()


async def test_members_are_created_when_there_is_room_for_a_part_of_them(scene: Scene) -> None:
    """At most 60 are alive, so a part has three. With `max_parallel` there is no waiting for a part."""
    for fields, most, after_two in (({}, 60, 0), ({"max_parallel": 60}, 60, 2)):
        flow_id = await scene.begin(await scene.create([{"name": "each", "map": {"range": 100, **fields}}]))
        expander, run_id = expander_with(scene, 60), await mapped(scene)
        assert await expander.work(run_id) == most + 1  # one for the beginning
        await scene.round(outcome, most=2)
        assert await expander.work(run_id) == after_two
        await scene.round(outcome, most=1)
        assert await expander.work(run_id) == 3 - after_two
        while await expander.work(run_id) or await scene.round(outcome):
            pass
        assert await scene.ended(flow_id) == ("SUCCESS", None)
    await scene.at_rest()


async def test_two_who_expand_at_once_create_each_member_once(scene: Scene) -> None:
    flow_id = await scene.begin(await scene.create([{"name": "each", "map": {"range": 2500}}]))
    others, run_id = [expander_with(scene, 20_000) for _ in range(2)], await mapped(scene)
    await asyncio.gather(*(other.work(run_id) for other in others), *(others[0].work(run_id) for _ in range(3)))
    assert await scene.connection.fetchval("select count(*) from mainspring.runs where job_id is null") == 2500
    assert len(await scene.run_all(most=1000)) == 2500
    assert await scene.ended(flow_id) == ("SUCCESS", None)
    await scene.at_rest()


async def test_the_marks_of_a_join_that_is_far_from_done_are_counted_together_and_the_last_ones_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten reports of one member are one count. When few are left, each is."""
    monkeypatch.setattr("mainspring.operations.workflows.join_counter._FAR", 4)
    monkeypatch.setattr("mainspring.operations.workflows.join_counter._LATER", 3600)  # until the test says so
    flow_id = await scene.begin(await scene.create([{"name": "each", "map": {"range": 100}}]))
    await scene.expander.run_once()
    counter, join_id = scene.join_counter, await scene.connection.fetchval("select join_id from mainspring.fanouts")

    async def report(number: int) -> None:
        orders = await scene.worker.claim(number)
        await scene.worker.report(*map(outcome, orders))
        counter._on_news(FlowNews(marked_joins={join_id}))

    async def marks() -> int:
        if counter._counting is not None:
            await counter._counting
        found: int = await scene.connection.fetchval("select count(*) from mainspring.join_marks")
        return found

    await scene.worker.hello()
    await report(1)
    assert await marks() == 0
    for _ in range(10):
        await report(1)
    assert await marks() == 10
    counter._count_later()
    assert await marks() == 0
    await report(86)
    assert await marks() == 1
    counter._count_later()
    for _ in range(3):
        assert await marks() == 0
        await report(1)
    assert (await marks(), counter._later, counter._far) == (0, set(), {})
    assert await scene.ended(flow_id) == ("SUCCESS", None)
    await scene.at_rest()
