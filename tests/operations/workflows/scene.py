"""A server whose workflow runs move only when the test says so, and a worker that reports what the test wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import httpx

from mainspring.domain.transitions import StoredState
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.operations.access.caller import Caller
from mainspring.operations.workflows.control import WorkflowRuns
from mainspring.operations.workflows.expander import FanoutExpander
from mainspring.operations.workflows.join_counter import JoinCounter
from mainspring.operations.workflows.starter import FlowStarter
from mainspring.operations.workflows.stopper import FlowStopper
from mainspring.roles.assembly import Assembly
from mainspring.wire.exchange import Outcome, RunOrder
from tests.operations.hand_worker import HandWorker, outcome

Answer = Callable[[RunOrder], Outcome]
T = TypeVar("T")


def task_of(assembly: Assembly, kind: type[T]) -> T:
    return next(task for task in assembly.periodic_tasks if isinstance(task, kind))


class Scene:
    def __init__(self, assembly: Assembly, api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
        assembly.signals.flows._listeners.clear()
        assembly.signals.wakes._listeners.clear()
        self.starter = task_of(assembly, FlowStarter)
        self.expander = task_of(assembly, FanoutExpander)
        self.join_counter = task_of(assembly, JoinCounter)
        self.stopper = task_of(assembly, FlowStopper)
        assembly.signals.ready._listeners.remove(self.starter._on_ready)
        self.assembly = assembly
        self.api = api
        self.connection = connection
        self.worker = HandWorker(api, tasks=("noop",))
        self.control = WorkflowRuns(assembly.store, assembly.signals, self.starter._graph_indexes)
        self.caller = Caller(DEFAULT_TENANT, "admin", "test", uuid7())

    async def create(self, steps: list[dict[str, Any]], **fields: Any) -> str:
        body = {"steps": [{"task": "noop", **step} for step in steps], **fields}
        answer = await self.api.post("/v1/workflows", json=body)
        assert answer.status_code == 201, answer.text
        workflow_id: str = answer.json()["workflow_id"]
        return workflow_id

    async def begin(self, workflow_id: str, **body: Any) -> UUID:
        """A run of the workflow, started."""
        answer = await self.api.post(f"/v1/workflows/{workflow_id}:runNow", json=body)
        assert answer.status_code in (200, 202), answer.text
        assert await self.starter.run_once()
        await self.join_counter.run_once()
        return UUID(answer.json()["run_id"])

    async def round(self, answer: Answer, most: int = 100) -> list[RunOrder]:
        """Run what is ready, and count what that has marked."""
        reply = await self.worker.exchange(free=most, hello=None if self.worker.seq else self.worker.card)
        if reply.runs:
            await self.worker.report(*map(answer, reply.runs))
        await self.join_counter.run_once()
        return reply.runs

    async def run_all(self, answer: Answer = outcome, most: int = 100) -> list[str]:
        """Run until nothing is ready. Returns the names of the steps in order."""
        names: list[str] = []
        while orders := await self.round(answer, most):
            names += [order.name or "" for order in orders]
        return names

    async def ended(self, run_id: UUID) -> tuple[str, str | None] | None:
        """State and reason of a run that has ended."""
        row = await self.connection.fetchrow(
            "select state, reason from mainspring.run_history where run_id = $1", run_id
        )
        return None if row is None else (StoredState(row["state"]).name, row["reason"])

    async def steps(self, flow_id: UUID) -> dict[str, tuple[str, str | None]]:
        """State and reason of each step, by its newest run."""
        prefix = await self.connection.fetchval("select prefix from mainspring.flows where flow_id = $1", flow_id)
        rows = await self.connection.fetch(
            """select run_id, name, state, null as reason from mainspring.runs
               where run_id between $1 and (left($1::text, 28) || 'ffffffff')::uuid
               union all
               select run_id, name, state, reason from mainspring.run_history
               where run_id between $1 and (left($1::text, 28) || 'ffffffff')::uuid
               order by run_id""",
            prefix,
        )
        return {row["name"]: (StoredState(row["state"]).name, row["reason"]) for row in rows}

    async def at_rest(self) -> None:
        """Nothing is left undone."""
        assert await self.connection.fetchval("select count(*) from mainspring.join_marks") == 0
        stuck = """select count(*) from mainspring.runs r join mainspring.joins j on j.join_id = r.waits_for
                   where r.state = 3 and j.ok + j.failed + j.skipped >= j.total"""
        assert await self.connection.fetchval(stuck) == 0
