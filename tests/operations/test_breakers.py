"""Circuit breakers: failures in a row stop the runs of a job for a while, and one run finds out whether it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest

from mainspring.operations.limits.admitter import Admitter
from mainspring.roles.assembly import Assembly
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.limit_helpers import OneAdmitter, check_counts, let_pass, lose, statuses, submit

pytestmark = pytest.mark.anyio

AFTER_TWO = {"failures": 2, "open_for": "1h"}
HOUR = 3600.0


@pytest.fixture
async def admitter(assembly: Assembly) -> AsyncIterator[Admitter]:
    made = OneAdmitter(assembly.store, assembly.signals)
    yield made
    await made.close()


async def made(api: httpx.AsyncClient, count: int, **fields: object) -> list[str]:
    return [await submit(api, circuit_breaker=AFTER_TWO, retries=0, **fields) for _ in range(count)]


async def end(worker: HandWorker, status: str) -> str:
    [order] = await worker.claim(1)
    await worker.report(outcome(order, status, **({} if status == "SUCCESS" else {"error": "no"})))
    return str(order.run_id)


async def opened(api: httpx.AsyncClient, admitter: Admitter, waiting: int) -> tuple[HandWorker, list[str]]:
    """A breaker that is open, and runs that wait behind it."""
    worker = HandWorker(api)
    await made(api, 2)
    for _ in range(2):
        await end(worker, "FAILED")
    return worker, await made(api, waiting)


async def nothing_to_claim(worker: HandWorker) -> bool:
    return (await worker.exchange(free=5)).runs == []


async def test_failures_in_a_row_open_it_and_a_probe_closes_it(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    worker, runs = await opened(api, admitter, 3)
    assert await statuses(api, *runs) == ["HELD"] * 3
    await admitter.run_once()
    assert await statuses(api, *runs) == ["HELD"] * 3
    await let_pass(connection, HOUR)
    for _ in range(2):
        await admitter.run_once()
        assert await statuses(api, *runs) == ["QUEUED", "HELD", "HELD"], "one probe"
    assert await end(worker, "SUCCESS") == runs[0]
    assert await statuses(api, *runs[1:]) == ["QUEUED"] * 2
    await check_counts(connection)


async def test_a_probe_that_fails_opens_it_again(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    worker, runs = await opened(api, admitter, 3)
    for place in range(2):
        await let_pass(connection, HOUR)
        await admitter.run_once()
        assert await end(worker, "FAILED") == runs[place]
        await let_pass(connection, HOUR - 60)
        await admitter.run_once()
        assert await nothing_to_claim(worker)
    await check_counts(connection)


async def test_a_success_between_failures_keeps_it_closed(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)
    await made(api, 5)
    for status in ("FAILED", "SUCCESS", "FAILED", "SUCCESS"):
        await end(worker, status)
    assert len(await worker.claim(1)) == 1


async def test_attempts_count_and_what_waits_for_a_worker_is_taken_back(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    runs = [
        await submit(api, circuit_breaker=AFTER_TWO, concurrency={"limit": 5, "per": "task"}, rate="100/h")
        for _ in range(1)
    ]
    runs += [await submit(api, circuit_breaker=AFTER_TWO) for _ in range(3)]
    worker = HandWorker(api)
    orders = await worker.claim(2)
    await worker.report(*(outcome(order, "FAILED", error="no") for order in orders))
    await admitter.run_once()
    assert await nothing_to_claim(worker)
    assert await statuses(api, *runs) == ["SCHEDULED", "SCHEDULED", "HELD", "HELD"]
    await check_counts(connection)
    await let_pass(connection, HOUR)
    await admitter.run_once()
    assert len((await worker.exchange(free=5)).runs) == 1


@pytest.mark.parametrize("how", ["snoozed", "cancelled", "lost", "returned"])
async def test_other_ends_do_not_count(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, how: str
) -> None:
    worker = HandWorker(api)
    await made(api, 3)
    for _ in range(2):
        [order] = await worker.claim(1)
        if how == "snoozed":
            await worker.report(outcome(order, "FAILED", snooze=600))
        elif how == "cancelled":
            await worker.report(outcome(order, "CANCELLED"))
        elif how == "returned":
            await worker.report(outcome(order, "RETURNED"))
        else:
            await lose(assembly, worker)
            worker = HandWorker(api)
    assert await connection.fetchval("select max(failed) from mainspring.limit_keys") == 0
    await check_counts(connection)


@pytest.mark.parametrize("how", ["lost", "cancelled while queued", "cancelled", "snoozed"])
async def test_a_probe_that_says_nothing_makes_way_for_another(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, admitter: Admitter, how: str
) -> None:
    worker, runs = await opened(api, admitter, 2)
    await let_pass(connection, HOUR)
    await admitter.run_once()
    assert await statuses(api, *runs) == ["QUEUED", "HELD"]
    if how == "cancelled while queued":
        assert (await api.post(f"/v1/runs/{runs[0]}:cancel")).status_code == 202
    else:
        [order] = await worker.claim(1)
        if how == "lost":
            await lose(assembly, worker)
            worker = HandWorker(api)
        elif how == "cancelled":
            await worker.report(outcome(order, "CANCELLED"))
        else:
            await worker.report(outcome(order, "FAILED", snooze=7200))
    [order] = await worker.claim(1)
    assert str(order.run_id) == (runs[0] if how == "lost" else runs[1])
    assert await nothing_to_claim(worker)
    await check_counts(connection)


async def test_two_failures_at_once_open_it_once(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    await made(api, 6)
    workers = [HandWorker(api) for _ in range(4)]
    orders = [(await worker.claim(1))[0] for worker in workers]
    await asyncio.gather(*(
        worker.report(outcome(order, "FAILED", error="no")) for worker, order in zip(workers, orders, strict=True)
    ))  # fmt: skip
    [row] = await connection.fetch("select failed, opened_at, probe from mainspring.limit_keys")
    assert row["failed"] == 2 and row["opened_at"] is not None and row["probe"] is None
    await check_counts(connection)


async def test_the_success_of_a_run_that_began_before_does_not_close_it(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker = HandWorker(api)
    await made(api, 3)
    early, *others = await worker.claim(3)
    await worker.report(*(outcome(order, "FAILED", error="no") for order in others))
    await worker.report(outcome(early))
    assert await statuses(api, *await made(api, 1)) == ["HELD"]


async def test_it_belongs_to_the_job_or_to_the_task(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)
    for job_id, per in (("a", "job"), ("b", "job"), ("c", "task"), ("d", "task")):
        breaker = {"failures": 1, "per": per}
        await submit(api, job_id=job_id, schedule="manual", overlap="allow", retries=0, circuit_breaker=breaker)
    for job_id in "ac":
        await api.post(f"/v1/jobs/{job_id}:runNow")
        await end(worker, "FAILED")
    found = {job_id: (await api.post(f"/v1/jobs/{job_id}:runNow")).json()["status"] for job_id in "abcd"}
    assert found == {"a": "HELD", "b": "QUEUED", "c": "HELD", "d": "HELD"}


async def test_true_means_five_failures_and_false_none(api: httpx.AsyncClient) -> None:
    await submit(api, job_id="a", schedule="manual", circuit_breaker=True)
    view = (await api.get("/v1/jobs/a")).json()
    assert view["circuit_breaker"] == {"failures": 5, "open_for": 600.0}
    assert (await api.patch("/v1/jobs/a", json={"circuit_breaker": False})).json()["circuit_breaker"] is None


async def why(api: httpx.AsyncClient, run_id: str) -> str:
    sentence: str = (await api.get(f"/v1/runs/{run_id}/why")).json()["why"]
    return sentence


async def test_it_is_visible_and_can_be_reset(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    worker, runs = await opened(api, admitter, 3)
    [shown] = (await api.get("/v1/breakers")).json()["breakers"]
    assert (shown["task"], shown["job_id"], shown["state"]) == ("noop", None, "open")
    assert (shown["failed"], shown["failures"], shown["open_for"], shown["held"]) == (2, 2, 3600.0, 3)
    assert "the circuit breaker of task noop is open after 2 failures in a row, until" in await why(api, runs[1])
    await let_pass(connection, HOUR)
    await admitter.run_once()
    [shown] = (await api.get("/v1/breakers")).json()["breakers"]
    assert (shown["state"], shown["probe"], shown["held"]) == ("half_open", runs[0], 2)
    assert f"run {runs[0]} is its probe" in await why(api, runs[1])
    answer = await api.post(f"/v1/breakers/{shown['breaker_id']}:reset")
    assert (answer.status_code, answer.json()["state"], answer.json()["failed"]) == (200, "closed", 0)
    await admitter.run_once()
    assert await statuses(api, *runs) == ["QUEUED"] * 3
    await check_counts(connection)
    [order, *_] = await worker.claim(3)
    await worker.report(outcome(order, "FAILED", error="no"))
    assert await statuses(api, *await made(api, 1)) == ["QUEUED"], "the failures before the reset do not count"


@pytest.mark.parametrize("breaker_id", ["0", "999", "x", "-1", "9999999999999", "٣"])
async def test_a_breaker_that_does_not_exist(api: httpx.AsyncClient, breaker_id: str) -> None:
    await submit(api, concurrency={"limit": 1, "per": "task"})
    assert (await api.post(f"/v1/breakers/{breaker_id}:reset")).status_code == 404


async def test_no_number_of_runs_is_set_for_it(api: httpx.AsyncClient) -> None:
    await submit(api, circuit_breaker=True, rate="5/m")
    for limit in (await api.get("/v1/limits")).json()["limits"]:
        answer = await api.put(f"/v1/limits/{limit['limit_id']}", json={"limit": 3})
        assert (answer.status_code, answer.json()["code"]) == (409, "not_a_number_of_runs")


async def behind_its_own(api: httpx.AsyncClient, worker: HandWorker, **fields: object) -> list[str]:
    """A job whose breaker is open, and two of its runs that wait behind it."""
    body = {"task": "noop", "job_id": "sync", "schedule": "manual", "overlap": "allow", "retries": 0}
    body["circuit_breaker"] = {"failures": 1, "open_for": "1h"}
    assert (await api.post("/v1/jobs", json=body | fields)).status_code == 201
    await api.post("/v1/jobs/sync:runNow")
    await end(worker, "FAILED")
    return [(await api.post("/v1/jobs/sync:runNow")).json()["run_id"] for _ in range(2)]


@pytest.mark.parametrize("per", ["job", "task"])
async def test_runs_behind_a_breaker_go_on_when_the_job_gives_it_up(
    api: httpx.AsyncClient, connection: asyncpg.Connection, per: str
) -> None:
    worker = HandWorker(api)
    breaker = {"failures": 1, "open_for": "1h", "per": per}
    runs = await behind_its_own(api, worker, circuit_breaker=breaker)
    assert await statuses(api, *runs) == ["HELD", "HELD"]
    assert (await api.patch("/v1/jobs/sync", json={"circuit_breaker": False})).status_code == 200
    assert await statuses(api, *runs) == ["QUEUED", "QUEUED"]
    assert [await end(worker, "FAILED"), await end(worker, "SUCCESS")] == runs
    await check_counts(connection)


async def test_a_run_behind_a_breaker_that_is_gone_still_needs_its_other_slots(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)
    runs = await behind_its_own(api, worker, concurrency=1)
    await api.patch("/v1/jobs/sync", json={"circuit_breaker": False})
    assert await statuses(api, *runs) == ["QUEUED", "HELD"], "the change admits it itself"
    [order] = await worker.claim(1)
    assert str(order.run_id) == runs[0]
    assert await nothing_to_claim(worker)
    await worker.report(outcome(order))
    assert await end(worker, "SUCCESS") == runs[1]


async def test_the_breaker_of_a_job_is_listed_as_long_as_the_job_can_run(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)

    async def listed() -> list[str]:
        return [one["job_id"] for one in (await api.get("/v1/breakers")).json()["breakers"]]

    own = {"failures": 1, "per": "job"}
    once = await submit(api, circuit_breaker=own)
    await submit(api, job_id="daily", cron="0 3 * * *", circuit_breaker=own)
    assert sorted(await listed()) == sorted([once, "daily"])
    await end(worker, "SUCCESS")
    assert await listed() == ["daily"]
    assert (await api.delete("/v1/jobs/daily")).status_code == 200
    assert await listed() == []
