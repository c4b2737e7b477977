"""Steps that wait for a person: who may decide, once, and what becomes of the step."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

import httpx
import pytest

from mainspring.operations.waits.sweeper import WaitSweeper
from mainspring.store import joins, waits
from tests.operations.hand_worker import outcome
from tests.operations.workflows.scene import Scene, task_of
from tests.operations.workflows.test_crashes import Killed, Kills
from tests.operations.workflows.test_sleeps import begin, step, sweep, waits_left

pytestmark = pytest.mark.anyio

GATE: dict[str, Any] = {
    "approval": "release",
    "by": ["role:operator"],
    "fields": {"version": {"type": "string"}, "share": {"type": "integer", "required": False, "options": [10, 50]}},
    "details": {"of": {"$parameter": "what"}},
}


def steps(**more: Any) -> list[dict[str, Any]]:
    return [
        {"name": "gate", "wait": {**GATE, **more}},
        {
            "name": "ship",
            "task": "noop",
            "depends_on": ["gate"],
            "payload": {"version": {"$from": "gate", "path": "fields.version"}},
        },
    ]


async def gate(scene: Scene, **more: Any) -> tuple[UUID, str]:
    """A workflow run that waits for the approval, and the run of the step."""
    run_id = await begin(scene, steps(**more), parameters={"what": "shop 1.4"})
    return run_id, (await step(scene, run_id, "gate"))["run_id"]


async def client_of(scene: Scene, role: str, **more: Any) -> httpx.AsyncClient:
    body = {"name": f"{role}-token", "role": role, **more}
    answer = await scene.api.post("/v1/tokens", json=body)
    assert answer.status_code == 201, answer.text
    headers = {"Authorization": f"Bearer {answer.json()['token']}"}
    return httpx.AsyncClient(transport=scene.api._transport, base_url=scene.api.base_url, headers=headers)


async def test_an_approval_gives_its_fields_to_what_follows(scene: Scene) -> None:
    run_id, waiting = await gate(scene)
    [one] = (await scene.api.get("/v1/approvals")).json()["approvals"]
    assert (one["run_id"], one["approval"], one["step"], one["may_decide"]) == (waiting, "release", "gate", True)
    assert one["details"] == {"of": "shop 1.4"} and one["workflow_run_id"] == str(run_id)
    shown = await step(scene, run_id, "gate")
    assert (shown["status"], shown["reason"]) == ("WAITING", "waiting for the approval 'release' by role:operator")
    path = f"/v1/approvals/{waiting}:approve"
    for fields, where in (
        ({}, "fields.version"), ({"version": 3}, "fields.version"), ({"verison": "1"}, "fields.verison"),
        ({"version": "1", "share": 20}, "fields.share"),
    ):  # fmt: skip
        refused = await scene.api.post(path, json={"fields": fields})
        assert (refused.status_code, refused.json()["field"]) == (422, where)
    operator = await client_of(scene, "operator")
    done = await operator.post(path, json={"fields": {"version": "1.4.2"}, "reason": "tested"})
    assert done.status_code == 200, done.text
    assert done.json()["result"] == {
        "approval": "release", "by": "operator-token", "reason": "tested", "fields": {"version": "1.4.2"},
    }  # fmt: skip
    [order] = await scene.round(outcome)
    assert bytes(order.payload) == b'{"version":"1.4.2"}'
    assert await scene.ended(run_id) == ("SUCCESS", None)
    again = await operator.post(path, json={"fields": {"version": "2"}})
    assert (again.status_code, again.json()["code"]) == (409, "run_ended")
    entry = (await scene.api.get("/v1/audit", params={"operation": "approvals.approve"})).json()["entries"][0]
    assert (entry["by"], entry["id"], entry["after"]["reason"]) == ("operator-token", waiting, "tested")
    assert (await scene.api.get("/v1/approvals")).json()["approvals"] == []
    await scene.at_rest()


async def test_a_rejection_fails_the_step_and_says_who_and_why(scene: Scene) -> None:
    run_id, waiting = await gate(scene)
    done = await scene.api.post(f"/v1/approvals/{waiting}:reject", json={"reason": "not on a Friday"})
    assert done.json()["status"] == "FAILED"
    await scene.join_counter.run_once()
    found = await scene.steps(run_id)
    assert found["gate"][0] == "FAILED" and str(found["gate"][1]).endswith(": not on a Friday")
    assert found["ship"] == ("SKIPPED", "upstream failed: gate")
    assert await scene.connection.fetchval("select count(*) from mainspring.dead_letters where name = 'gate'") == 0
    await scene.at_rest()


async def test_only_those_who_are_named_decide(scene: Scene) -> None:
    run_id, waiting = await gate(scene, by=["token:release", "role:submitter"])
    operator, viewer = await client_of(scene, "operator"), await client_of(scene, "viewer")
    named = await client_of(scene, "operator", name="release")
    narrowed = await client_of(scene, "operator", name="release", queues=["elsewhere"])
    body = {"fields": {"version": "1"}}
    path = f"/v1/approvals/{waiting}:approve"
    refused = await operator.post(path, json=body)
    assert (refused.status_code, refused.json()["code"]) == (403, "not_for_you")
    assert (await viewer.post(path, json=body)).json()["code"] == "role_not_allowed"
    assert (await narrowed.post(path, json=body)).status_code == 404
    assert (await narrowed.get("/v1/approvals")).json()["approvals"] == []
    assert (await operator.get("/v1/approvals")).json()["approvals"] == []
    [seen] = (await operator.get("/v1/approvals", params={"everybody": "true"})).json()["approvals"]
    assert not seen["may_decide"]
    assert await waits_left(scene) == 1
    assert (await named.post(path, json=body)).status_code == 200
    assert await scene.run_all() == ["ship"]
    nobody = await scene.api.post(f"/v1/approvals/{run_id}:approve", json={})
    assert (nobody.status_code, nobody.json()["code"]) == (409, "run_ended")


@pytest.mark.parametrize(
    ("word", "state", "following"),
    [("fail", "FAILED", "SKIPPED"), ("skip", "SKIPPED", "SKIPPED"), ("continue", "SUCCESS", "FAILED")],
)
async def test_a_timeout_does_what_the_step_says(scene: Scene, word: str, state: str, following: str) -> None:
    run_id, _ = await gate(scene, timeout="2d", on_timeout=word)
    assert await sweep(scene) == 1
    await scene.join_counter.run_once()
    found = await scene.steps(run_id)
    assert (found["gate"][0], found["ship"][0]) == (state, following)  # there are no fields to refer to
    if state != "SUCCESS":
        assert str(found["gate"][1]).startswith("timed out after 2d: the approval 'release'")
    await scene.at_rest()


async def test_of_two_decisions_a_timeout_and_a_cancel_one_counts(scene: Scene) -> None:
    run_id = await begin(scene, [{"name": f"gate-{n}", "wait": {"approval": "go", "timeout": "1d"}} for n in range(20)])
    listed = (await scene.api.get("/v1/approvals", params={"limit": 100})).json()["approvals"]
    await scene.connection.execute("update mainspring.waits set wake_at = clock_timestamp()")
    sweeper = WaitSweeper(scene.assembly.store, scene.assembly.signals)
    decisions = [
        scene.api.post(f"/v1/approvals/{one['run_id']}:{verb}", json={})
        for one in listed
        for verb in ("approve", "reject")
    ]
    cancel = scene.control.cancel(scene.caller, run_id)  # refused if it comes last
    answers = await asyncio.gather(*decisions, sweeper.run_once(), cancel, return_exceptions=True)
    codes = Counter(one.status_code for one in answers[: len(decisions)] if isinstance(one, httpx.Response))
    assert set(codes) <= {200, 409}
    await scene.join_counter.run_once()
    ended = await scene.connection.fetch(
        "select name, state, reason from mainspring.run_history where name like 'gate-%'"
    )
    assert len(ended) == 20 == len({row["name"] for row in ended}) and await waits_left(scene) == 0
    decided = [row for row in ended if row["state"] == 10 or str(row["reason"]).startswith("rejected by")]
    assert len(decided) == codes[200]
    assert await scene.ended(run_id) is not None
    await scene.at_rest()


async def test_a_decision_that_is_killed_has_decided_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id, waiting = await gate(scene)
    kills = Kills(monkeypatch, [(joins, "succeed"), (waits, "close"), (joins, "count")])
    from mainspring.wire.approvals import Approve

    approvals = scene.assembly.services.approvals
    while kills.left:
        with pytest.raises(Killed):
            await approvals.approve(scene.caller, UUID(waiting), Approve({"version": "1"}))
        assert await waits_left(scene) == 1 and (await step(scene, run_id, "gate"))["status"] == "WAITING"
    await approvals.approve(scene.caller, UUID(waiting), Approve({"version": "1"}))
    assert await task_of(scene.assembly, WaitSweeper).run_once() == 0
    assert await scene.run_all() == ["ship"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "wait"),
        ({"approval": "go", "by": []}, "wait.by"),
        ({"approval": "go", "by": ["anna"]}, "wait.by[0]"),
        ({"approval": "go", "by": ["role:boss"]}, "wait.by[0]"),
        ({"approval": "go", "on_timeout": "skip"}, "wait.on_timeout"),
        ({"approval": "go", "timeout": "1d", "on_timeout": "wait"}, "wait.on_timeout"),
        ({"approval": "go", "timeout": "late"}, "wait.timeout"),
        ({"approval": "go", "fields": {"a b": {}}}, "wait.fields.a b"),
        ({"approval": "go", "fields": {"a": {"type": "date"}}}, "wait.fields.a.type"),
        ({"approval": "go", "fields": {"a": {"type": "integer", "options": ["x"]}}}, "wait.fields.a.options"),
        ({"approval": "go", "details": {"$parameter": "none"}}, "wait.details"),
    ],
)
async def test_what_is_wrong_with_an_approval_is_said(
    api: httpx.AsyncClient, given: dict[str, Any], field: str
) -> None:
    answer = await api.post("/v1/workflows:validate", json={"steps": [{"name": "gate", "wait": given}]})
    assert (answer.status_code, answer.json()["field"]) == (422, f"steps[0].{field}"), answer.text
