"""A box treats workflows like a server: the same definitions and the same failures, and the answers are compared."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import httpx
import msgspec
import pytest

import mainspring.testing
from mainspring import AsyncClient, Context, GiveUp, Mainspring, MainspringError
from mainspring.operations.workflows.expander import FanoutExpander
from mainspring.roles.assembly import Assembly
from mainspring.sdk.app.ensure_schedules import ensure_schedules
from mainspring.wire.exchange import Outcome, RunOrder
from tests.conftest import TOKEN
from tests.operations.hand_worker import outcome
from tests.operations.workflows.conftest import scene as scene
from tests.operations.workflows.scene import Scene, task_of

pytestmark = pytest.mark.anyio
OF_THE_MOMENT = ("run_id", "created_at", "updated_at", "start_time", "end_time", "duration", "scheduled_for", "trigger",
                 "attempt_number", "max_attempts", "next_fire_at")  # fmt: skip


@pytest.fixture
async def server(assembly: Assembly) -> AsyncIterator[AsyncClient]:
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    async with AsyncClient("http://127.0.0.1:8700", TOKEN, transport=transport, patience=0) as client:
        yield client


def plain(answer: Any) -> Any:
    """The value without what differs from run to run."""
    found = msgspec.json.decode(msgspec.json.encode(answer))
    if isinstance(found, dict):
        return {name: plain(value) for name, value in found.items() if name not in OF_THE_MOMENT}
    return [plain(value) for value in found] if isinstance(found, list) else found


def application() -> Mainspring:
    app = Mainspring("parity")

    @app.task(retries=0)
    def noop(ctx: Context, **_: Any) -> dict[str, Any]:
        if ctx.name in app.state.failing:
            raise GiveUp("boom")
        return {"rows": [1, 2]}

    return app


def step(name: str, *after: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "task": "noop", "retries": 0, **({"depends_on": list(after)} if after else {}), **fields}


GRAPH = [
    step("a"),
    step("b", "a", payload={"rows": {"$from": "a", "path": "rows"}, "region": {"$parameter": "region"}}),
    step("c", "a"),
    step("d", "b", "c"),
    step("done", "b", "c", rule="all_done"),
    step("any", "b", "c", rule="one_success", payload={"region": {"$parameter": "region"}}),
    step("alarm", "b", "c", rule="one_failed"),
    step("after-alarm", "alarm"),
    step("strict", "d", on_upstream_failure="fail"),
    step("missing", "a", payload={"x": {"$from": "a", "path": "nothing"}}),
]


@pytest.mark.parametrize("start", [None, "any", "d"])
@pytest.mark.parametrize("failing", [("b",), ("a",), ("alarm", "c")], ids="-".join)
async def test_the_same_failures_end_alike(
    scene: Scene, server: AsyncClient, failing: tuple[str, ...], start: str | None
) -> None:
    """Also when parts run again, from a step however its parents have ended."""
    body = {"workflow_id": "graph", "parameters": {"region": "eu"}, "steps": GRAPH}

    def answer(order: RunOrder) -> Outcome:
        if order.name in app.state.failing:
            return outcome(order, "FAILED", error="GiveUp: boom", retry=False)
        return msgspec.structs.replace(outcome(order), result=msgspec.Raw(b'{"rows":[1,2]}'))

    app = application()
    app.state.failing = failing
    await server.create_workflow(body)
    run_id = str(await scene.begin("graph"))
    await scene.run_all(answer)
    async with mainspring.testing.run(app) as box:
        await box.async_client.create_workflow(body)
        handle = await box.async_client.run_workflow("graph")
        ours, theirs = await handle.wait(), await server.workflow_run(run_id)
        for mine, other in zip(ours.steps, theirs.steps, strict=True):
            assert plain(mine) == plain(other)
        assert plain(ours) == plain(theirs)

        app.state.failing = ()
        await handle.rerun(start)
        await server.rerun_workflow(run_id, start)
        await scene.starter.run_once()
        await scene.folder.run_once()
        await scene.run_all(answer)
        ours, theirs = await handle.wait(), await server.workflow_run(run_id)
        for mine, other in zip(ours.steps, theirs.steps, strict=True):
            assert plain(mine) == plain(other)
        if start is not None:  # several steps have failed: either may name another one
            ours.reason = theirs.reason = None
        assert plain(ours) == plain(theirs)
        faces = ((box.async_client, handle.run_id), (server, run_id))
        for wrong in ("a", "nothing"):
            said = [await refused(face, one, wrong) for face, one in faces]
            assert said[0] == said[1]


async def refused(client: AsyncClient, run_id: str, start: str) -> tuple[Any, ...] | None:
    """How a rerun from a step is refused. Where it begins, a second one is refused because it has not ended."""
    try:
        await client.rerun_workflow(run_id, start)
        await client.rerun_workflow(run_id, start)
    except MainspringError as error:
        return error.code, error.field, error.hint
    return None


MAPPED = [
    step("a"),
    step("m", "a", map={"over": {"$from": "a", "path": "rows"}}, payload={"row": {"$item": ""}, "n": {"$index": True}}),
    step("r", map={"range": [10, 20], "max_failures": 0, "max_parallel": 3}),
    step("none", map={"over": []}),
    step("not-a-list", "a", map={"over": {"$from": "a"}}),
    step("given", map={"over": {"$parameter": "rows"}}, payload={"row": {"$item": "id"}}),
    step("no-list", map={"over": {"$parameter": "region"}}),
    step("end", "m", payload={"all": {"$from": "m"}}),
    step("count", "r", rule="all_done", payload={"all": {"$from": "r"}}),
    step("alarm", "m", rule="one_failed", payload={"failed": {"$from": "m", "path": "failed"}}),
]


@pytest.mark.parametrize("failing", [(), ("m", "r")], ids=str)
async def test_mapped_steps_end_alike(scene: Scene, server: AsyncClient, failing: tuple[str, ...]) -> None:
    body = {"workflow_id": "mapped", "steps": MAPPED, "parameters": {"rows": [{"id": 7}, {"id": 8}], "region": "eu"}}
    payloads: list[Any] = []

    def answer(order: RunOrder) -> Outcome:
        payloads.append((order.name, msgspec.json.decode(order.payload or b"null")))
        if order.name in failing:
            return outcome(order, "FAILED", error="GiveUp: boom", retry=False)
        return msgspec.structs.replace(outcome(order), result=msgspec.Raw(b'{"rows":[1,2]}'))

    await server.create_workflow(body)
    run_id = str(await scene.begin("mapped"))
    expander = task_of(scene.assembly, FanoutExpander)
    while await expander.run_once() + len(await scene.round(answer, most=1)) + await scene.folder.run_once():
        pass
    app = application()
    app.state.failing = failing
    async with mainspring.testing.run(app) as box:
        await box.async_client.create_workflow(body)
        ours = await (await box.async_client.run_workflow("mapped")).wait()
        theirs = await server.workflow_run(run_id)
        for mine, other in zip(ours.steps, theirs.steps, strict=True):
            assert plain(mine) == plain(other)
        assert plain(ours) == plain(theirs)
        seen = [(run.definition.name, msgspec.json.decode(run.definition.payload or "null")) for run in box.runs]
        assert [one for one in seen if one in payloads]  # the same values
        assert [one for one in payloads if one not in seen] == []
    [counted] = [payload["all"] for name, payload in payloads if name == "count"]
    assert (counted["total"], counted["succeeded"], len(counted["results"])) == (10, 0 if failing else 10, 10)
    alarms = [payload for name, payload in payloads if name == "alarm"]
    assert alarms == ([{"failed": 2}] if failing else [])
    assert sorted(payload["row"] for name, payload in payloads if name == "given") == [7, 8]
    assert theirs.steps[6].reason == "parameter region is not a list"


async def test_definitions_are_shown_and_refused_alike(server: AsyncClient) -> None:
    good: dict[str, Any] = {
        "workflow_id": "nightly", "schedule": {"cron": "0 2 * * *", "timezone": "Europe/Berlin"}, "timeout": "2h",
        "misfire": "all", "parameters": {"region": "eu"}, "steps": GRAPH, "labels": {"team": "bi"}, "queue": "heavy",
        "idempotency_key": "k",
    }  # fmt: skip
    bad: list[dict[str, Any]] = [
        {"steps": []},
        {"steps": [step("a", "b"), step("b", "a")]},
        {"steps": [step("a"), step("a")]},
        {"steps": [step("a", "x")]},
        {"steps": [step("a"), step("b", payload={"x": {"$from": "a"}})]},
        {"steps": [step("a", payload={"x": {"$parameter": "y"}})]},
        {"steps": [step("a", map={"range": 3, "over": [1]})]},
        {"steps": [step("a")], "schedule": {"cron": "61 * * * *"}},
    ]
    async with mainspring.testing.run(application()) as box:
        faces = (server, box.async_client)
        for face in faces:
            await face.create_workflow(good)
            await face.create_workflow(good)  # the key is the same
            await face.update_workflow("nightly", description="every night", parameters={"region": "us"})
        assert plain(await faces[0].workflow("nightly")) == plain(await faces[1].workflow("nightly"))
        assert plain(await faces[0].check_workflow(good)) == plain(await faces[1].check_workflow(good))
        for body in bad:
            said = [await refusal(face, body) for face in faces]
            assert said[0] == said[1]


async def refusal(client: AsyncClient, body: dict[str, Any]) -> tuple[Any, ...]:
    with pytest.raises(MainspringError) as refused:
        await client.create_workflow(body)
    error = refused.value
    return error.code, error.field, error.detail, error.hint


async def test_an_application_declares_its_workflows_and_a_second_start_changes_nothing(server: AsyncClient) -> None:
    def declared(description: str) -> Mainspring:
        app = Mainspring("declaring")
        task = app.task("one", queue="heavy", retries=2)(lambda x: x)
        wf = app.workflow("nightly", cron="@daily", timeout="90m", priority="high", misfire="once", parameters={"x": 1})
        first = wf.step(task, x=wf.parameter("x"), name="first")
        wf.step(task, x=first.result["y"], name="second", timeout=60).map(range=3)
        by_hand = app.workflow("by-hand", description=description)
        by_hand.add("only", command=["echo", "hello"])
        return app

    created = await ensure_schedules(server, declared("a"))
    assert created.done == {"nightly": "created", "by-hand": "created"} and not created.refused
    again = await ensure_schedules(server, declared("a"))
    assert again.done == {"nightly": "unchanged", "by-hand": "unchanged"}
    changed = await ensure_schedules(server, declared("b"))
    assert changed.done == {"nightly": "unchanged", "by-hand": "updated"}
    view = await server.workflow("nightly")
    assert (view.declared_by, view.timeout, view.priority) == ("declaring", 5400, "high")
    undeclared = await ensure_schedules(server, Mainspring("declaring"), prune=True)
    assert undeclared.declaration is not None
    assert sorted(undeclared.declaration.pruned) == ["by-hand", "nightly"]


async def test_a_batch_is_a_workflow_that_runs_once(server: AsyncClient, scene: Scene) -> None:
    app = application()
    app.state.failing = ()
    batch = app.batch("imports")
    for number in range(3):
        batch.add(app.tasks["noop"], number=number)
    batch.then(app.tasks["noop"])
    with app.speaking_to(None, server):  # type: ignore[arg-type]
        handle = await batch.submit_async()
        assert (await batch.submit_async()).run_id == handle.run_id
    assert await scene.starter.run_once()
    assert len(await scene.run_all()) == 4
    view = await handle.wait(timeout=60)
    assert (view.status, view.counts, view.workflow_id) == ("SUCCESS", {"SUCCESS": 4}, batch.workflow.workflow_id)
    assert isinstance(view.end_time, datetime)
