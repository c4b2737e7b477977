"""The workflows and batches of an application at a server in the process of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import httpx
import pytest

from mainspring import AsyncClient, Mainspring
from mainspring.roles.assembly import Assembly
from mainspring.sdk.app.ensure_schedules import ensure_schedules
from tests.conftest import TOKEN
from tests.operations.workflows.conftest import scene as scene
from tests.operations.workflows.scene import Scene

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server(assembly: Assembly) -> AsyncIterator[AsyncClient]:
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    async with AsyncClient("http://127.0.0.1:8700", TOKEN, transport=transport, patience=0) as client:
        yield client


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
    app = Mainspring("batches")

    @app.task
    def noop(**_: Any) -> None: ...

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
