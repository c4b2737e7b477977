"""A server in this process with the witness inside its database, for scenes with workflows. Each of its duties acts
when the scene says so. A worker by hand writes the ledger."""

from __future__ import annotations

import os
import time
from typing import Any
from uuid import UUID

import asyncpg
import httpx

from mainspring.roles.assembly import Assembly
from mainspring.wire.exchange import Outcome, RunOrder
from tests.cluster.history import History, Line
from tests.cluster.limit_stage import AUDIT
from tests.cluster.load import Clients
from tests.cluster.rules_flows import CANCEL_FLOW
from tests.cluster.witness import read_database
from tests.operations.hand_worker import outcome
from tests.operations.workflows.scene import Scene

_MOST_ROUNDS = 60  # a mutant may have no end


class FlowStage:
    def __init__(self, api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> None:
        self.scene = Scene(assembly, api, connection)
        self.clients = Clients(api)
        self._lines: list[Line] = []

    async def open(self) -> None:
        await self.scene.connection.execute(AUDIT.read_text())

    async def begin(self, *steps: dict[str, Any]) -> UUID:
        """A run of a new workflow."""
        return await self.scene.begin(await self.scene.create([{"retries": 0, **step} for step in steps]))

    async def claim(self, most: int = 100) -> list[RunOrder]:
        """What the worker gets now. It begins all of it."""
        worker = self.scene.worker
        reply = await worker.exchange(free=most, hello=None if worker.seq else worker.card)
        for order in reply.runs:
            self._note(order, "start")
        return reply.runs

    async def end(self, *orders: RunOrder, failing: tuple[str, ...] = ()) -> None:
        """Report these runs. Those of the steps `failing` have failed."""
        outcomes: list[Outcome] = []
        for order in orders:
            fails = order.name in failing
            self._note(order, "fail" if fails else "end")
            outcomes.append(outcome(order, "FAILED", error="no", retry=False) if fails else outcome(order))
        await self.scene.worker.report(*outcomes)
        await self.scene.join_counter.run_once()

    async def cancel(self, run_id: UUID) -> None:
        path = f"/v1/workflow-runs/{run_id}:cancel"
        call = await self.clients.call(CANCEL_FLOW, "POST", path, {}, target=str(run_id))
        assert call.result == "ok", call

    async def finish(self, most: int = 100, failing: tuple[str, ...] = ()) -> None:
        """Let all duties act until nothing is left to do."""
        for _ in range(_MOST_ROUNDS):
            orders = await self.claim(most)
            if orders:
                await self.end(*orders, failing=failing)
            expanded = await self.scene.expander.run_once()
            await self.scene.join_counter.run_once()
            await self.scene.stopper.run_once()
            if not orders and not expanded:
                return

    async def history(self) -> History:
        history = await read_database(self.scene.connection.fetch)
        history.lines, history.calls = self._lines, self.clients.calls
        return history

    def _note(self, order: RunOrder, what: str) -> None:
        line = Line(str(order.run_id), order.attempt, str(order.job_id), what, os.getpid(), time.monotonic())
        self._lines.append(line)
