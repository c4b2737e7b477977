"""What processes of runs use: told while they run and at their end, kept with the attempt, shown with the run."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.wire.exchange import ExchangeRequest, Progress, RunOrder
from mainspring.wire.protocol import PROTOCOL
from mainspring.wire.usage import MOST_SAMPLES, Usage, usage_view
from tests.logs.scene import claim_soon
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_losses import lose
from tests.operations.test_queue_shares import submit

pytestmark = pytest.mark.anyio

USED = Usage(1.25, 40_000_000, samples=[(1.0, 0.5, 30_000_000), (3.0, 1.2, 40_000_000)])


async def run_of(api: httpx.AsyncClient, order: RunOrder) -> dict[str, Any]:
    found: dict[str, Any] = (await api.get(f"/v1/runs/{order.run_id}")).json()
    return found


@pytest.mark.parametrize("status", ["SUCCESS", "FAILED", "CANCELLED"])
async def test_it_is_kept_with_an_ended_run_and_its_samples_are_not_in_lists(
    api: httpx.AsyncClient, status: str
) -> None:
    await submit(api, retries=0)
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order, status, usage=USED))
    shown = await run_of(api, order)
    assert shown["usage"] == {
        "cpu_s": 1.25, "rss_peak": 40_000_000, "rss": None, "samples": [[1.0, 0.5, 30_000_000], [3.0, 1.2, 40_000_000]],
    }  # fmt: skip
    [listed] = (await api.get("/v1/runs")).json()["runs"]
    assert listed["usage"] == shown["usage"] | {"samples": []}


async def test_a_run_without_processes_has_none(api: httpx.AsyncClient) -> None:
    await submit(api)
    worker = HandWorker(api)
    [order] = await worker.claim()
    assert (await run_of(api, order))["usage"] is None
    await worker.report(outcome(order))
    assert (await run_of(api, order))["usage"] is None


async def test_it_is_shown_while_the_run_runs_and_the_next_attempt_begins_without_it(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await submit(api, retry={"max_attempts": 3, "base": "1ms", "backoff": "constant"})
    worker = HandWorker(api)
    [order] = await worker.claim()
    said = Progress(order.run_id, order.fence, 1, 0.5, "half", Usage(0.5, 3000, 2000))
    assert (await worker.exchange(progress=[said])).fenced == []
    shown = await run_of(api, order)
    assert shown["progress"] == {"fraction": 0.5, "message": "half"}
    assert shown["usage"] == {"cpu_s": 0.5, "rss_peak": 3000, "rss": 2000, "samples": []}
    await worker.exchange(progress=[Progress(order.run_id, order.fence, 2, 0.6, "more")])
    assert (await run_of(api, order))["usage"]["cpu_s"] == 0.5
    await worker.report(outcome(order, "FAILED", error="no", usage=USED))
    assert (await run_of(api, order))["usage"] is None
    kept = await connection.fetchval("select usage from mainspring.attempts")
    assert msgspec.json.decode(kept, type=Usage) == USED
    [again] = await claim_soon(worker)
    await worker.report(outcome(again, usage=Usage(9.0, 1)))
    assert (await run_of(api, order))["usage"]["cpu_s"] == 9.0
    timeline = (await api.get(f"/v1/runs/{order.run_id}/timeline")).json()
    ends = [(entry["attempt"], entry["usage"]) for entry in timeline if entry["usage"] is not None]
    assert ends == [
        (1, {"cpu_s": 1.25, "rss_peak": 40_000_000, "rss": None, "samples": []}),
        (2, {"cpu_s": 9.0, "rss_peak": 1, "rss": None, "samples": []}),
    ]


async def test_a_lost_run_ends_with_the_last_that_was_told(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await submit(api, delivery="at_most_once")
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.exchange(progress=[Progress(order.run_id, order.fence, 1, usage=Usage(0.5, 3000, 2000))])
    await lose(connection, worker)
    shown = await run_of(api, order)
    assert (shown["status"], shown["usage"]["cpu_s"]) == ("FAILED", 0.5)


@pytest.mark.parametrize(
    "usage",
    [
        {"cpu_s": -1, "rss_peak": 1},
        {"cpu_s": 1, "rss_peak": -1},
        {"cpu_s": 1},
        {"cpu_s": 1, "rss_peak": 1, "more": 1},
        {"cpu_s": 1, "rss_peak": 1, "samples": [[0, 0, 0]] * (MOST_SAMPLES + 1)},
        {"cpu_s": 1, "rss_peak": 1, "samples": [[0, 0, -1]]},
    ],
)
async def test_a_bad_one_is_refused_and_nothing_is_recorded(api: httpx.AsyncClient, usage: dict[str, Any]) -> None:
    await submit(api)
    worker = HandWorker(api)
    [order] = await worker.claim()
    body = {
        "worker_id": str(worker.worker_id), "seq": 100,
        "outcomes": [{"run_id": str(order.run_id), "fence": order.fence, "usage": usage}],
    }  # fmt: skip
    answer = await api.post("/v1/exchange", json=body, headers=worker.headers)
    assert (answer.status_code, answer.json()["field"].startswith("outcomes[0].usage")) == (422, True), answer.text
    assert (await run_of(api, order))["end_time"] is None


async def test_an_older_server_is_not_sent_it(api: httpx.AsyncClient) -> None:
    await submit(api)
    worker = HandWorker(api)
    [order] = await worker.claim()
    request = ExchangeRequest(
        worker.worker_id, 1, outcomes=[outcome(order, usage=USED)],
        progress=[Progress(order.run_id, order.fence, 1, usage=USED)],
    )  # fmt: skip
    fitting = PROTOCOL.fit(request, 3)
    assert (fitting.outcomes[0].usage, fitting.progress[0].usage) == (None, None)
    assert PROTOCOL.fit(request, 4).outcomes[0].usage == USED


def test_what_cannot_be_read_is_not_shown() -> None:
    assert usage_view('{"cpu_s": "much"}', samples=True) is None
    assert usage_view(None, samples=True) is None
