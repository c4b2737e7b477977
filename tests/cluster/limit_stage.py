"""A server in this process with the witness inside its database, for scenes with limits. A worker by hand does what the
scene tells it, and writes the ledger."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from mainspring.operations.lifecycle.rescue_worker import WorkerRescue
from mainspring.operations.limits.admitter import Admitter
from mainspring.roles.assembly import Assembly
from mainspring.wire.exchange import RunOrder
from tests.cluster.history import History, Line
from tests.cluster.line_book import SET
from tests.cluster.load import Clients
from tests.cluster.witness import read_database
from tests.operations.hand_worker import HandWorker, outcome

AUDIT = Path(__file__).with_name("audit.sql")
PER_ACCOUNT = {"key": "payload.account", "limit": 1}
_RETRY = {"max_attempts": 3, "backoff": "constant", "base": "1h", "jitter": 0}


class LimitStage:
    def __init__(self, api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> None:
        self.api = api
        self.assembly = assembly
        self.connection = connection
        self.clients = Clients(api)
        self.worker = HandWorker(api)
        self.admitter = Admitter(assembly.store, assembly.signals)
        self._lines: list[Line] = []

    async def open(self) -> None:
        await self.connection.execute(AUDIT.read_text())

    async def submit(self, **fields: Any) -> str:
        """A run of the one account, unless told otherwise."""
        job = {"task": "noop", "payload": {"account": 1}, "concurrency": PER_ACCOUNT, "retry": _RETRY}
        call = await self.clients.submit(job | fields)
        assert call.result == "ok", call
        return str(call.answer["job_id"])

    async def set(self, path: str, **fields: Any) -> None:
        """Change a limit, or pause a queue."""
        call = await self.clients.call(SET, "PUT", path, fields)
        assert call.result == "ok", call

    async def claim(self, free: int = 5) -> list[RunOrder]:
        """What the worker gets now. It begins all of it."""
        reply = await self.worker.exchange(free=free, hello=None if self.worker.seq else self.worker.card)
        for order in reply.runs:
            self._note(order, "start")
        return reply.runs

    async def end(self, *orders: RunOrder, status: str = "SUCCESS") -> None:
        for order in orders:
            self._note(order, "end" if status == "SUCCESS" else "fail")
        error = {} if status == "SUCCESS" else {"error": "no"}
        await self.worker.report(*(outcome(order, status, **error) for order in orders))

    async def lose_the_worker(self) -> None:
        """Its runs go on elsewhere."""
        rescue = WorkerRescue(self.assembly.signals, lambda: 0.0, self.worker.worker_id)
        assert await rescue.take_all(self.assembly.store)
        self.worker = HandWorker(self.api)

    async def finish(self) -> None:
        """Let the line go on until nothing is left to do."""
        while (orders := await self.claim()) or await self.admitter.run_once():
            await self.end(*orders)

    async def history(self) -> History:
        await self.admitter.close()
        history = await read_database(self.connection.fetch)
        history.lines, history.calls, history.at_rest = self._lines, self.clients.calls, False
        return history

    def _note(self, order: RunOrder, what: str) -> None:
        line = Line(str(order.run_id), order.attempt, str(order.job_id), what, os.getpid(), time.monotonic())
        self._lines.append(line)
