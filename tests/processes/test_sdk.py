"""The SDK with a real server and worker: typed payloads, results and timeouts."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from mainspring import AsyncClient, Client, RunFailed
from mainspring.sdk.client.core import encode
from tests.conftest import TOKEN
from tests.processes.cluster import Cluster
from tests.processes.orders_app import Item, Order, ship

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
ORDER = Order(UUID(int=7), datetime(2026, 11, 15, 9, tzinfo=UTC), [Item("spring", 1000)])
SHIPPED = {
    "id": "00000000-0000-0000-0000-000000000007",
    "placed": "2026-11-15T10:30:00Z",
    "items": [{"name": "spring", "cents": 1000}],
}


async def test_dataclasses_times_and_uuids_arrive_as_such_and_results_come_back_as_json(cluster: Cluster) -> None:
    await cluster.server()
    await cluster.worker(app="tests.processes.orders_app:app")
    async with AsyncClient(cluster.url, TOKEN) as client:
        fields = ship.options(retries=0).fields(ORDER, within=timedelta(minutes=90), tags={"a", "b"})
        handle = await client.submit(**fields)
        assert await handle.result(timeout=60) == SHIPPED

    def in_a_thread() -> object:
        with Client(cluster.url, TOKEN) as client:
            return client.submit(**fields).result(timeout=60)

    assert await asyncio.to_thread(in_a_thread) == SHIPPED
    # Submitted by name, it goes to the queue of the task, which the worker uses by default.
    payload = json.loads(encode(fields["payload"]))
    by_name = await cluster.ended(await cluster.submit(task="orders.ship", payload=payload))
    assert (by_name["status"], by_name["queue"], by_name["result"]) == ("SUCCESS", "shipping", SHIPPED)


async def test_a_result_that_does_not_come_in_time_is_a_timeout_that_says_why(cluster: Cluster) -> None:
    await cluster.server()

    def in_a_thread() -> None:
        with Client(cluster.url, TOKEN) as client:
            handle = client.submit(task="nobody.offers.this")
            with pytest.raises(TimeoutError, match=r"is still QUEUED \(no worker offers task nobody.offers.this\)"):
                handle.result(timeout=2)
            assert handle.status() == "QUEUED"
            handle.cancel()
            with pytest.raises(RunFailed, match="cancelled before it started") as caught:
                handle.result(timeout=60)
            assert caught.value.status == "CANCELLED"

    await asyncio.to_thread(in_a_thread)
