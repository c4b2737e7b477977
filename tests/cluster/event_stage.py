"""The stage of workflows, with events: matcher, starter and sweeper act when the scene says so."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import httpx

from mainspring.operations.events.matcher import EventMatcher
from mainspring.operations.events.starter import EventStarter
from mainspring.operations.waits.sweeper import WaitSweeper
from mainspring.operations.workflows.children import ChildRunner
from mainspring.roles.assembly import Assembly
from tests.cluster.event_book import EMIT
from tests.cluster.flow_stage import FlowStage
from tests.cluster.history import Call
from tests.operations.workflows.scene import task_of


class EventStage(FlowStage):
    def __init__(self, api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> None:
        super().__init__(api, assembly, connection)
        for signal in (assembly.signals.emitted, assembly.signals.event_starts):
            signal._listeners.clear()
        self.matcher = task_of(assembly, EventMatcher)
        self.starter = task_of(assembly, EventStarter)
        self.sweeper = task_of(assembly, WaitSweeper)
        self.children = task_of(assembly, ChildRunner)

    async def begin(self, *steps: dict[str, Any]) -> UUID:
        """A run of a new workflow. Its steps run the task of the worker, or wait."""
        works = {"task": "noop", "retries": 0}
        given = [step if {"wait", "sleep", "workflow"} & step.keys() else {**works, **step} for step in steps]
        answer = await self.scene.api.post("/v1/workflows", json={"steps": given})
        assert answer.status_code == 201, answer.text
        return await self.scene.begin(answer.json()["workflow_id"])

    async def job(self, job_id: str, event: str = "made", **schedule: Any) -> None:
        body = {"job_id": job_id, "task": "noop", "schedule": {"event": event, **schedule}, "retries": 0}
        call = await self.clients.call("submit", "POST", "/v1/jobs", body, target=job_id)
        assert call.result == "ok", call

    async def steer(self, job_id: str, verb: str) -> None:
        call = await self.clients.call(verb, "POST", f"/v1/jobs/{job_id}:{verb}", target=job_id)
        assert call.result == "ok", call

    async def emit(self, event_id: str, name: str = "made", n: int = 1, **more: Any) -> None:
        body = {"name": name, "id": event_id, "payload": {"n": n}, **more}
        call = await self.clients.call(EMIT, "POST", "/v1/events", body)
        assert call.result == "ok", call

    async def step_run(self, flow_id: UUID, name: str) -> str:
        shown = (await self.scene.api.get(f"/v1/workflow-runs/{flow_id}")).json()
        return str(next(step["run_id"] for step in shown["steps"] if step["name"] == name))

    async def decide(self, verb: str, run_id: str, reason: str) -> Call:
        path = f"/v1/approvals/{run_id}:{verb.split()[0]}"
        return await self.clients.call(verb, "POST", path, {"reason": reason}, target=run_id)

    async def is_busy(self) -> bool:
        """Whether a run is alive."""
        return bool(await self.scene.connection.fetchval("select exists (select from mainspring.runs)"))

    async def settle(self) -> None:
        """Let all duties act, twice, and work off what is ready."""
        for _ in range(2):
            await self.matcher.run_once()
            await self.starter.run_once()
            await self.sweeper.run_once()
            await self.children.run_once()
            await self.scene.starter.run_once()
            await self.finish()
