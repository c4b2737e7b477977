"""What tests of rules share: a server with a channel, a worker and a receiver."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import httpx

from mainspring.roles.assembly import Assembly
from tests.operations.hand_worker import HandWorker, outcome
from tests.worker.http_service import HttpService

from .aging import age


class Scene:
    """A server with a channel, a worker and a receiver."""

    def __init__(
        self, api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, receiver: HttpService
    ) -> None:
        self.api = api
        self.assembly = assembly
        self.connection = connection
        self.receiver = receiver
        self.worker = HandWorker(api)

    async def channel(self, name: str = "oncall", **more: Any) -> None:
        body = {"kind": "webhook", "url": self.receiver.url(f"/{name}"), "secret": "s", **more}
        assert (await self.api.put(f"/v1/channels/{name}", json=body)).status_code == 201

    async def rule(self, name: str, **rule: Any) -> None:
        answered = await self.api.put(f"/v1/rules/{name}", json=rule)
        assert answered.status_code in (200, 201), answered.text

    async def run(self, job_id: str | None = None, status: str = "FAILED", **job: Any) -> None:
        """A run of a job, or of a new one-time job, that ends at once."""
        if job_id is None:
            body = {"task": "noop", "retries": 0, **job}
            assert (await self.api.post("/v1/jobs", json=body)).status_code == 201
        else:
            assert (await self.api.post(f"/v1/jobs/{job_id}:runNow")).status_code == 202
        [order] = await self.worker.claim()
        error = {} if status == "SUCCESS" else {"error": "ValueError: no\nTraceback", "retry": False}
        await self.worker.report(outcome(order, status, **error))

    async def job(self, job_id: str, **fields: Any) -> None:
        body = {"job_id": job_id, "task": "noop", "retries": 0, "schedule": "manual", **fields}
        made = await self.api.post("/v1/jobs", json=body)
        assert made.status_code == 201, made.text

    async def told(self, seconds: float = 10) -> list[dict[str, Any]]:
        """What is told when so much time has passed."""
        await age(self.connection, seconds)
        before = len(self.receiver.asked)
        await self.assembly.services.alert_keeper.run_once()
        while await self.assembly.services.notification_sender.run_once():
            await self.assembly.services.notification_sender.settle()
        return [json.loads(one.body) for one in self.receiver.asked[before:]]


def items(messages: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    return [(item["event"], item["subject"], item.get("count", 1)) for one in messages for item in one["items"]]
