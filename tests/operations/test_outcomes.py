"""Reports: the end of an attempt is recorded once, and only if fence and incarnation match the run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.operations.lifecycle.rescue import rescue
from mainspring.store import runs
from mainspring.wire.exchange import Outcome, RunOrder
from tests.api.bookkeeping import rows
from tests.operations.firing import let_backoff_pass
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.servers import another_server

pytestmark = pytest.mark.anyio


async def claimed(api: httpx.AsyncClient, **fields: Any) -> tuple[HandWorker, RunOrder]:
    """Submit a job and let a new worker claim its run."""
    answer = await api.post("/v1/jobs", json={"task": "noop", **fields})
    assert answer.status_code == 201, answer.text
    worker = HandWorker(api)
    [order] = await worker.claim()
    return worker, order


async def run(api: httpx.AsyncClient, order: RunOrder) -> dict[str, Any]:
    return dict((await api.get(f"/v1/runs/{order.run_id}")).json())


async def delay_of(connection: asyncpg.Connection, worker: HandWorker, said: Outcome) -> float:
    """Report a failure. Return after how many seconds the run is ready again, in milliseconds precision."""
    before: datetime = await connection.fetchval("select clock_timestamp()")
    await worker.report(said)
    after, ready_at = await connection.fetchrow("select clock_timestamp(), ready_at from mainspring.runs")
    told = "select ready_at - ended_at from mainspring.attempts where run_id = $1 order by attempt desc limit 1"
    delay: timedelta = await connection.fetchval(told, said.run_id)
    assert before + delay <= ready_at <= after + delay, "run and attempt agree on the time"
    return round(delay.total_seconds(), 3)


async def test_a_success_is_recorded_with_its_result(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    for result in ({"a": [1, "ä\0"]}, 5, "text", None, False):
        worker, order = await claimed(api, payload={"x": 1})
        await worker.report(outcome(order, held_ms=2.0, ran_ms=1500.0, result=result))
        ended = await run(api, order)
        assert (ended["status"], ended["result"], ended["duration"]) == ("SUCCESS", result, 1.5)
        assert ended["payload"] == {"x": 1}
    stored = await rows(connection)
    assert (stored["runs"], stored["run_history"], stored["dead_letters"], stored["attempts"]) == (0, 5, 0, 0)


@pytest.mark.parametrize("status", ["SUCCESS", "FAILED", "CANCELLED"])
async def test_an_outcome_reported_twice_is_acknowledged_twice_and_recorded_once(
    api: httpx.AsyncClient, connection: asyncpg.Connection, database_url: str, status: str
) -> None:
    worker, order = await claimed(api)
    said = outcome(order, status, error=None if status == "SUCCESS" else "x")
    assert (await worker.report(said)).fenced == []
    recorded = await rows(connection)
    state = await connection.fetch("select * from mainspring.runs")
    async with another_server(database_url) as other:
        for worker.api in (api, other):
            assert (await worker.report(said)).fenced == []
            assert (await worker.report(said, said)).fenced == []
    assert await rows(connection) == recorded
    assert await connection.fetch("select * from mainspring.runs") == state


async def test_an_outcome_that_stands_twice_in_one_report_is_recorded_once(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    for status in ("SUCCESS", "FAILED", "CANCELLED", "RETURNED"):
        worker, order = await claimed(api)
        said = outcome(order, status)
        await worker.exchange(outcomes=[said, said])
        before = await connection.fetchval("select count(*) from mainspring.attempts where run_id = $1", order.run_id)
        assert before == (1 if status in ("FAILED", "RETURNED") else 0)
        await connection.execute("delete from mainspring.runs")


async def test_an_outcome_with_an_old_fence_is_fenced_and_changes_nothing(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker, old = await claimed(api)
    await worker.report(outcome(old, "RETURNED"))
    [order] = await worker.claim()
    assert order.fence > old.fence
    before = await connection.fetch("select * from mainspring.runs")
    for status in ("SUCCESS", "FAILED", "CANCELLED"):
        assert (await worker.report(outcome(old, status))).fenced == [order.run_id]
    assert (await worker.report(outcome(old, "RETURNED"))).fenced == [], "a repeated report is acknowledged"
    assert await connection.fetch("select * from mainspring.runs") == before
    # In one report, a stale outcome does not replace the valid one.
    await worker.exchange(outcomes=[outcome(old, "FAILED", error="old"), outcome(order, "FAILED", error="new")])
    [tried] = await connection.fetch("select * from mainspring.attempts where outcome <> 'RETURNED'")
    assert (tried["fence"], tried["error"]) == (order.fence, "new")


async def test_an_outcome_of_another_incarnation_is_fenced_and_changes_nothing(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker, order = await claimed(api)
    other = HandWorker(api)
    await other.hello()
    before = await connection.fetch("select * from mainspring.runs")
    for status in ("SUCCESS", "FAILED", "CANCELLED", "RETURNED"):
        reply = await other.report(outcome(order, status))
        assert reply.fenced == [order.run_id]
    assert await connection.fetch("select * from mainspring.runs") == before
    assert (await worker.report(outcome(order))).fenced == []
    assert (await other.report(outcome(order))).fenced == [order.run_id], "the same after the run has ended"


async def test_one_stale_outcome_does_not_hold_up_the_others(api: httpx.AsyncClient) -> None:
    worker, first = await claimed(api)
    await api.post("/v1/jobs", json={"task": "noop"})
    [second] = await worker.claim()
    reply = await worker.report(msgspec.structs.replace(outcome(first), fence=99), outcome(second))
    assert reply.fenced == [first.run_id]
    assert [(await run(api, order))["status"] for order in (first, second)] == ["RUNNING", "SUCCESS"]


async def test_a_returned_run_gives_its_attempt_back(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    worker, order = await claimed(api, max_retries=0)
    await worker.report(outcome(order, "RETURNED"))
    waiting = await run(api, order)
    assert (waiting["status"], waiting["attempt_number"], waiting["executor_id"]) == ("QUEUED", 0, None)
    [again] = await worker.claim()
    assert (again.run_id, again.attempt) == (order.run_id, 1)
    assert again.fence > order.fence
    [handed_back] = await connection.fetch("select * from mainspring.attempts")
    assert (handed_back["outcome"], handed_back["attempt"], handed_back["fence"]) == ("RETURNED", 1, order.fence)


async def test_failures_back_off_for_2_4_and_8_seconds_and_then_become_a_dead_letter(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker, order = await claimed(api, payload={"a": 1})
    fences = []
    for attempt, delay in ((1, 2.0), (2, 4.0), (3, 8.0)):
        assert order.attempt == attempt
        fences.append(order.fence)
        assert await delay_of(connection, worker, outcome(order, "FAILED", error=f"no {attempt}")) == delay
        await connection.execute(
            "update mainspring.runs set ready_at = ready_at + interval '1 hour'"
        )  # so that the backoff cannot pass yet
        waiting = await run(api, order)
        assert (waiting["status"], waiting["reason"]) == ("SCHEDULED", f"backing off after attempt {attempt} of 4")
        assert (waiting["error_message"], waiting["executor_id"]) == (f"no {attempt}", None)
        assert (await worker.exchange(free=5)).runs == [], "its backoff has not passed"
        await let_backoff_pass(connection)
        [order] = await worker.claim()
    fences.append(order.fence)
    await worker.report(outcome(order, "FAILED", error="no 4"))
    ended = await run(api, order)
    assert (ended["status"], ended["reason"]) == ("FAILED", "failed 4 times, no tries left")
    assert (ended["attempt_number"], ended["error_message"], ended["payload"]) == (4, "no 4", {"a": 1})
    [letter] = (await api.get("/v1/dead-letters")).json()["dead_letters"]
    assert (letter["run_id"], letter["attempts"]) == (str(order.run_id), 4)
    tries = await connection.fetch("select * from mainspring.attempts order by attempt")
    assert [(row["attempt"], row["outcome"], row["error"]) for row in tries] == [
        (1, "FAILED", "no 1"), (2, "FAILED", "no 2"), (3, "FAILED", "no 3"),
    ]  # fmt: skip
    assert {row["worker_id"] for row in tries} == {worker.worker_id}
    assert fences == sorted(set(fences)) and [row["fence"] for row in tries] == fences[:3]


async def test_a_success_after_failures_is_a_success(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    worker, order = await claimed(api)
    await worker.report(outcome(order, "FAILED", error="first"))
    await let_backoff_pass(connection)
    [order] = await worker.claim()
    await worker.report(outcome(order))
    ended = await run(api, order)
    assert (ended["status"], ended["attempt_number"], ended["error_message"]) == ("SUCCESS", 2, None)
    stored = await rows(connection)
    assert (stored["attempts"], stored["dead_letters"]) == (1, 0)


async def test_the_other_backoffs_do_what_they_say(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    for backoff, delays in (("linear", (3.0, 6.0, 9.0)), ("fibonacci", (3.0, 3.0, 6.0)), ("constant", (3.0, 3.0, 3.0))):
        worker, order = await claimed(api, retry={"backoff": backoff, "base": "3s", "cap": "8500ms"})
        for delay in delays:
            assert await delay_of(connection, worker, outcome(order, "FAILED")) == min(delay, 8.5)
            await let_backoff_pass(connection)
            [order] = await worker.claim()
        await worker.report(outcome(order))


async def test_a_failure_that_asks_not_to_be_retried_is_a_dead_letter_at_once(api: httpx.AsyncClient) -> None:
    worker, order = await claimed(api)
    await worker.report(outcome(order, "FAILED", error="give up", retry=False))
    ended = await run(api, order)
    assert (ended["status"], ended["reason"]) == ("FAILED", "failed and asked not to be retried")
    [letter] = (await api.get("/v1/dead-letters")).json()["dead_letters"]
    assert (letter["attempts"], letter["error_message"]) == (1, "give up")


async def test_retry_after_is_honoured_where_it_is_longer(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker, order = await claimed(api, retry={"max_attempts": 10, "backoff": "constant"})
    year = timedelta(days=366).total_seconds()
    for asked, delay in ((100.0, 100.0), (0.5, 2.0), (0.0, 2.0), (-5.0, 2.0), (1e300, year)):
        said = outcome(order, "FAILED", retry_after=asked)
        assert await delay_of(connection, worker, said) == delay
        await let_backoff_pass(connection)
        [order] = await worker.claim()


async def test_the_words_of_an_error_decide_nothing_and_can_always_be_stored(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker, order = await claimed(api)
    assert await delay_of(connection, worker, outcome(order, "FAILED", error="worker lost")) == 2.0
    await let_backoff_pass(connection)
    [order] = await worker.claim()
    await worker.report(outcome(order, "FAILED", error="a\0b" + "x" * 100_000, retry=False))
    message = (await run(api, order))["error_message"]
    assert message.startswith("a\ufffdbxxx") and len(message) == 65536


async def test_at_most_once_is_never_tried_again(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    worker, order = await claimed(api, delivery="at_most_once")
    assert order.max_attempts == 1
    await worker.report(outcome(order, "FAILED", error="x"))
    assert (await run(api, order))["status"] == "FAILED"
    assert (await rows(connection))["dead_letters"] == 1


async def test_a_lost_workers_runs_are_tried_again_at_once_unless_they_may_not_be(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker = HandWorker(api)
    for job_id, fields in (
        ("again", {}), ("once", {"delivery": "at_most_once"}), ("cancelled", {}), ("spent", {"max_losses": 0}),
    ):  # fmt: skip
        await api.post("/v1/jobs", json={"job_id": job_id, "task": "noop", **fields})
    orders = {order.job_id: order for order in await worker.claim(4)}
    await api.delete("/v1/jobs/cancelled")
    await connection.execute("update mainspring.workers set state = 3")
    async with connection.transaction():
        lost = await runs.held_by(connection, worker.worker_id, 100)
        await rescue(connection, lost, lambda: 0.5)
    ends = {job_id: await run(api, order) for job_id, order in orders.items()}
    assert {job_id: (end["status"], end["error_message"]) for job_id, end in ends.items()} == {
        "again": ("QUEUED", "worker lost"), "once": ("FAILED", "worker lost"), "spent": ("FAILED", "worker lost"),
        "cancelled": ("CANCELLED", "worker lost"),
    }  # fmt: skip
    assert ends["once"]["reason"] == "worker lost, and the job is at most once"
    assert ends["spent"]["reason"].startswith("lost once, max_losses is 0")
    [tried] = await connection.fetch("select * from mainspring.attempts")
    assert (tried["run_id"], tried["outcome"]) == (orders["again"].run_id, "LOST")
    other = HandWorker(api)
    [again] = await other.claim()
    assert (again.attempt, again.fence > orders["again"].fence) == (2, True)
    assert (await worker.ask(outcomes=[outcome(orders["again"])])).json()["code"] == "fenced"
    assert (await run(api, again))["executor_id"] == str(other.worker_id)


async def test_a_run_that_was_asked_to_stop_ends_cancelled_unless_it_was_done_first(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    for said, ended in (
        ("CANCELLED", "CANCELLED"),
        ("FAILED", "CANCELLED"),
        ("RETURNED", "CANCELLED"),
        ("SUCCESS", "SUCCESS"),
    ):
        worker, order = await claimed(api)
        assert (await api.post(f"/v1/runs/{order.run_id}:cancel")).status_code == 202
        reply = await worker.exchange()
        assert reply.stop == [order.run_id]
        await worker.report(outcome(order, said))
        shown = await run(api, order)
        assert (shown["status"], shown["reason"]) == (ended, "cancelled on request" if ended == "CANCELLED" else None)
    assert (await rows(connection))["dead_letters"] == 0


async def test_a_worker_may_cancel_by_itself(api: httpx.AsyncClient) -> None:
    worker, order = await claimed(api)
    await worker.report(outcome(order, "CANCELLED"))
    shown = await run(api, order)
    assert (shown["status"], shown["reason"]) == ("CANCELLED", "cancelled by its worker")
