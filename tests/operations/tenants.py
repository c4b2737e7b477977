"""Several tenants and shared workers, created through the API like an operator does."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx

from mainspring.roles.assembly import Assembly
from mainspring.wire.exchange import RunOrder
from tests.operations.hand_worker import HandWorker


class Tenants:
    """Clients of one server, each with the token of a tenant's admin, by the tenant's name."""

    def __init__(self, assembly: Assembly, operator: httpx.AsyncClient, stack: AsyncExitStack) -> None:
        self.operator = operator
        self.ids: dict[str, int] = {"default": 1}
        self.shared_token = ""
        self._assembly = assembly
        self._stack = stack
        self.clients: dict[str, httpx.AsyncClient] = {"default": operator}

    async def add(self, *names: str) -> list[httpx.AsyncClient]:
        for name in names:
            answer = await self.operator.post("/v1/tenants", json={"name": name})
            assert answer.status_code == 201, answer.text
            self.ids[name] = answer.json()["tenant_id"]
            self.clients[name] = await self.client(answer.json()["admin_token"]["token"])
        return [self.clients[name] for name in names]

    async def client(self, token: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=self._assembly.app)  # type: ignore[arg-type]
        headers = {"Authorization": f"Bearer {token}"}
        client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers)
        return await self._stack.enter_async_context(client)

    async def token(self, **fields: Any) -> dict[str, Any]:
        """A token that the operator creates."""
        answer = await self.operator.post("/v1/tokens", json={"name": "made for a test", **fields})
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    async def shared_worker(self, **fields: Any) -> HandWorker:
        """A worker that takes runs of every tenant."""
        if not self.shared_token:
            self.shared_token = (await self.token(role="worker", tenants="all"))["token"]
        return HandWorker(await self.client(self.shared_token), **fields)

    async def submit(self, name: str, count: int = 1, **fields: Any) -> list[str]:
        """Submit jobs of this tenant that run immediately. The payload contains the name of the tenant."""
        body = {"task": "noop", "payload": {"of": name}, **fields}
        made: list[str] = []
        while len(made) < count:
            jobs = [body] * min(10_000, count - len(made))
            answer = await self.clients[name].post("/v1/jobs:batch", json=jobs)
            assert answer.status_code == 201, answer.text
            made += answer.json()["job_ids"]
        return made


@asynccontextmanager
async def several_tenants(assembly: Assembly, operator: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with AsyncExitStack() as stack:
        yield Tenants(assembly, operator, stack)


def whose(orders: Iterable[RunOrder]) -> list[str]:
    """The tenants of these runs, in their order."""
    return [bytes(order.payload).decode().split('"')[3] for order in orders]


def shares(orders: Iterable[RunOrder]) -> dict[str, int]:
    return dict(Counter(whose(orders)))
