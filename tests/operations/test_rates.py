"""Rates: runs are HELD until there is a token, and each attempt spends one. An hour passes when the test says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise

import asyncpg
import httpx
import pytest

from mainspring.operations.limits.admitter import Admitter
from mainspring.roles.assembly import Assembly
from tests.domain.test_pacing import check_bound
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.limit_helpers import OneAdmitter, check_counts, let_pass, lose, statuses, submit

pytestmark = pytest.mark.anyio

HOUR = 3600.0


@pytest.fixture
async def admitter(assembly: Assembly) -> AsyncIterator[Admitter]:
    made = OneAdmitter(assembly.store, assembly.signals)
    yield made
    await made.close()


async def test_runs_wait_for_tokens_and_rank_decides(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    first, second = [await submit(api, rate="1/h") for _ in range(2)]
    urgent = await submit(api, rate="1/h", priority="critical")
    assert await statuses(api, first, second, urgent) == ["QUEUED", "HELD", "HELD"]
    assert await admitter.run_once() == 0
    worker = HandWorker(api)
    for expected, following in ((first, urgent), (urgent, second)):
        [order] = await worker.claim(1)
        assert str(order.run_id) == expected
        await worker.report(outcome(order))
        await let_pass(connection, HOUR)
        assert await admitter.run_once() == 1
        assert await statuses(api, following) == ["QUEUED"]
        await check_counts(connection)


async def test_a_burst_starts_at_once_and_then_one_by_one(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    runs = [await submit(api, rate_limit={"rate": "1/h", "burst": 3}) for _ in range(5)]
    assert await statuses(api, *runs) == ["QUEUED"] * 3 + ["HELD"] * 2
    worker = HandWorker(api)
    await worker.report(*map(outcome, await worker.claim(3)))
    await let_pass(connection, HOUR)
    assert await admitter.run_once() == 1
    assert await statuses(api, *runs[3:]) == ["QUEUED", "HELD"]


async def test_after_a_stall_of_the_workers_no_more_than_the_burst_is_waiting_for_them(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    runs = [await submit(api, rate_limit={"rate": "1/h", "burst": 2}) for _ in range(6)]
    for _ in range(3):
        await let_pass(connection, 5 * HOUR)
        assert await admitter.run_once() == 0
    assert await statuses(api, *runs) == ["QUEUED"] * 2 + ["HELD"] * 4
    worker = HandWorker(api)
    worker.card.protocol = 2  # it tells which runs have started
    orders = await worker.claim(2)
    assert all(order.paced for order in orders)
    await let_pass(connection, HOUR)
    assert await admitter.run_once() == 0, "they are claimed, and nobody knows that they have started"
    await worker.exchange(started=[(order.run_id, order.fence, 1.0) for order in orders])
    await let_pass(connection, HOUR)
    assert await admitter.run_once() == 2
    await check_counts(connection)


async def test_a_rate_ahead_of_time_gives_each_run_its_moment(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    answer = await api.post("/v1/jobs:batch", json={"jobs": [{"task": "noop", "rate": "20/s"}] * 10})
    assert answer.status_code == 201, answer.text
    moments = [
        row["ready_at"].timestamp()
        for row in await connection.fetch("select ready_at from mainspring.runs where state = 1 order by ready_at")
    ]
    assert len(moments) == 7, "a burst of 2, and what comes within 250 ms"
    gaps = [after - before for before, after in pairwise(moments)]
    assert gaps[1:] == pytest.approx([0.05] * 5, abs=0.002)
    check_bound(moments, 0.05, 2)


@pytest.mark.parametrize("how", ["failed", "failed without a delay", "returned", "lost"])
async def test_every_attempt_spends_a_token(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, admitter: Admitter, how: str
) -> None:
    retry = {"max_attempts": 3, "backoff": "constant", "base": 0 if how.endswith("delay") else 60}
    run = await submit(api, rate="1/h", retry=retry)
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    if how == "lost":
        await lose(assembly, worker)
    elif how == "returned":
        await worker.report(outcome(order, "RETURNED"))
    else:
        await worker.report(outcome(order, "FAILED", error="no"))
    await let_pass(connection, 120)
    assert await admitter.run_once() == 0
    assert await statuses(api, run) == ["HELD"]
    await check_counts(connection)
    await let_pass(connection, HOUR)
    assert await admitter.run_once() == 1
    [order] = await worker.claim(1)
    assert order.attempt == (1 if how == "returned" else 2)
    await check_counts(connection)


async def test_keys_have_buckets_of_their_own(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    per_account = {"rate": "1/h", "key": "payload.account"}
    runs = [await submit(api, rate_limit=per_account, payload={"account": account}) for account in (1, 1, 2)]
    assert await statuses(api, *runs) == ["QUEUED", "HELD", "QUEUED"]


async def test_per_job_or_per_task(api: httpx.AsyncClient) -> None:
    for job_id, per, expected in (("a", "job", "QUEUED"), ("b", "job", "QUEUED"), ("c", "task", "QUEUED")):
        await submit(api, job_id=job_id, schedule="manual", rate_limit={"rate": "1/h", "per": per})
        assert (await api.post(f"/v1/jobs/{job_id}:runNow")).json()["status"] == expected
    await submit(api, job_id="d", schedule="manual", rate_limit={"rate": "1/h", "per": "task"})
    assert (await api.post("/v1/jobs/d:runNow")).json()["status"] == "HELD"


async def test_a_run_with_two_rates_and_a_limit_needs_all_of_them(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    fields = {
        "rate_limit": [{"rate": "2/h", "burst": 2}, {"rate": "1/h", "key": "payload.account"}],
        "concurrency": {"limit": 1, "per": "task"},
    }
    runs = [await submit(api, payload={"account": account}, **fields) for account in (1, 1, 2, 3)]
    assert await statuses(api, *runs) == ["QUEUED", "HELD", "HELD", "HELD"]
    worker = HandWorker(api)
    done: list[str] = []
    for _ in range(8):
        orders = (await worker.exchange(free=4, hello=None if worker.seq else worker.card)).runs
        assert len(orders) <= 1, "the limit of the task"
        await check_counts(connection)
        for order in orders:
            done.append(str(order.run_id))
            await worker.report(outcome(order))
        for _ in range(3):
            await admitter.run_once()
        if not orders:
            await let_pass(connection, HOUR / 2)
            await admitter.run_once()
    assert done == [runs[0], runs[2], *done[2:]]
    assert sorted(done) == sorted(runs)


async def test_a_job_that_loses_its_rate(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await submit(api, job_id="hourly", schedule="manual", overlap="allow", rate="1/h")
    view = (await api.get("/v1/jobs/hourly")).json()
    assert view["rate_limit"] == [{"rate": "1/h", "burst": 1}]
    assert (await api.patch("/v1/jobs/hourly", json={"rate": "2/h"})).json()["rate_limit"][0]["rate"] == "2/h"
    patched = await api.patch("/v1/jobs/hourly", json={"rate_limit": None})
    assert patched.json()["rate_limit"] == []
    assert [(await api.post("/v1/jobs/hourly:runNow")).json()["status"] for _ in range(3)] == ["QUEUED"] * 3


async def test_a_rate_that_becomes_faster_counts_at_once(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    await submit(api, job_id="daily", schedule="manual", overlap="allow", rate="1/30d")
    runs = [(await api.post("/v1/jobs/daily:runNow")).json()["run_id"] for _ in range(2)]
    worker = HandWorker(api)
    await worker.report(outcome((await worker.claim(1))[0]))
    assert await statuses(api, runs[1]) == ["HELD"]
    assert (await api.patch("/v1/jobs/daily", json={"rate": "100/s"})).status_code == 200
    await admitter.run_once()
    await let_pass(connection, 1)
    await admitter.run_once()
    assert await statuses(api, runs[1]) == ["QUEUED"]


async def test_a_line_that_is_not_full_yet_is_kept(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    from mainspring.store import limits

    run = await submit(api, rate="1/h")
    await api.post(f"/v1/runs/{run}:cancel")
    async with assembly.store.hot.acquire() as hot:
        assert await limits.prune_lines(hot, -1, 10) == 0
        await let_pass(connection, HOUR)
        assert await limits.prune_lines(hot, -1, 10) == 1


async def test_it_is_visible(api: httpx.AsyncClient) -> None:
    first, second = [await submit(api, rate="1/h") for _ in range(2)]
    [shown] = (await api.get("/v1/limits")).json()["limits"]
    assert (shown["name"], shown["limit"], shown["rate"], shown["burst"]) == ("rate:task:noop", None, "1/h", 1)
    said = (await api.get(f"/v1/runs/{second}/why")).json()["why"]
    assert said.startswith("It is held: waiting for its turn under the rate of task noop: 1/h. It is the next in line")
    assert first not in said


BAD = [
    ({"rate": "100 per fortnight"}, "rate", "100/m"),
    ({"rate": "0/s"}, "rate", "pause"),
    ({"rate": "2000000/s"}, "rate", "100/m"),
    ({"rate_limit": "1/31d"}, "rate_limit", "100/m"),
    ({"rate_limit": {"rate": "5"}}, "rate_limit.rate", "100/m"),
    ({"rate_limit": {"rate": "5/s", "burst": 0}}, "rate_limit.burst", "at once"),
    ({"rate_limit": {"rate": "5/s", "key": "account"}}, "rate_limit.key", "payload.account"),
    ({"rate_limit": {"rate": "5/s", "per": "queue"}}, "rate_limit.per", None),
    ({"rate_limit": []}, "rate_limit", "false"),
    ({"rate_limit": [{"rate": "5/s"}, {"rate": "6/s"}]}, "rate_limit", "leave one"),
    ({"rate_limit": {"rate": "5/s"}, "rate": "5/s"}, "rate", "one of them"),
    ({"rate": "5/s", "concurrency": {"limit": 1, "order": "strict"}}, "rate_limit", "leave out"),
    ({"rate_limit": {"rate": "5/s", "key": "payload.a"}, "payload": {"a": [1]}}, "rate_limit.key", "outside of lists"),
    ({"circuit_breaker": {"failures": 0}}, "circuit_breaker.failures", "failures in a row"),
    ({"circuit_breaker": {"open_for": "1 week or so"}}, "circuit_breaker.open_for", "15m"),
    ({"circuit_breaker": {"open_for": "500w"}}, "circuit_breaker.open_for", None),
    ({"circuit_breaker": {"per": "tenant"}}, "circuit_breaker.per", None),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "field", "hint"), BAD, ids=lambda value: str(value)[:40])
async def test_a_bad_rate_or_breaker_is_refused_and_nothing_is_stored(
    api: httpx.AsyncClient, connection: asyncpg.Connection, fields: dict[str, object], field: str, hint: str | None
) -> None:
    answer = await api.post("/v1/jobs", json={"task": "noop", **fields})
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert problem["field"] == field
    assert hint is None or hint in problem["hint"]
    assert await connection.fetchval("select count(*) from mainspring.runs") == 0
    assert await connection.fetchval("select count(*) from mainspring.limits") == 0
