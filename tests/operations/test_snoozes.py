"""Runs that ask to come back later (`ctx.snooze`): a snooze uses no attempt, within run_timeout, never at most once."""

from __future__ import annotations

from datetime import UTC, datetime

import asyncpg
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.job import Delivery, Spec, spec_to_text
from mainspring.domain.retry import LONGEST_DELAY, RetryPolicy
from mainspring.domain.snoozes import MOST_SNOOZES
from mainspring.kernel.ids import uuid7
from mainspring.operations.lifecycle.decide import decide
from mainspring.operations.lifecycle.effects import RunChanges
from mainspring.store.runs import HeldRun
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest, Outcome, RunOrder
from mainspring.wire.protocol import PROTOCOL
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 11, 15, tzinfo=UTC)


async def claim_now(connection: asyncpg.Connection, api: httpx.AsyncClient) -> tuple[HandWorker, RunOrder]:
    """Claim the run for a new worker, even if it waits."""
    await connection.execute("update mainspring.runs set ready_at = clock_timestamp()")
    worker = HandWorker(api)
    [order] = await worker.claim()
    return worker, order


async def snooze(worker: HandWorker, order: RunOrder, seconds: float = 600.0) -> ExchangeReply:
    """Report it as a worker does."""
    said = outcome(order, "FAILED", error="snoozed", retry_after=seconds, snooze=seconds, held_ms=1.0, ran_ms=5.0)
    return await worker.report(said)


async def run_of(api: httpx.AsyncClient, order: RunOrder) -> dict[str, object]:
    found: dict[str, object] = (await api.get(f"/v1/runs/{order.run_id}")).json()
    return found


async def test_a_snooze_spends_no_attempt_and_no_loss(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await api.post("/v1/jobs", json={"task": "noop", "retries": 1})
    for snoozes in range(3):
        worker, order = await claim_now(connection, api)
        assert (order.snoozes, order.attempt, order.max_attempts) == (snoozes, snoozes + 1, snoozes + 2)
        await snooze(worker, order)
    shown = await run_of(api, order)
    assert (shown["status"], shown["snoozes"], shown["losses"], shown["error_message"]) == ("SCHEDULED", 3, 0, None)
    worker, order = await claim_now(connection, api)
    await worker.report(outcome(order, "FAILED", error="no"))
    shown = await run_of(api, order)
    assert (shown["status"], shown["reason"]) == ("SCHEDULED", "backing off after attempt 4 of 5, 3 of them snoozed")
    worker, order = await claim_now(connection, api)
    await worker.report(outcome(order, "FAILED", error="no"))
    shown = await run_of(api, order)
    assert (shown["status"], shown["snoozes"], shown["attempt_number"]) == ("FAILED", 3, 5)
    assert shown["reason"] == "failed 2 times, no tries left"
    [letter] = (await api.get("/v1/dead-letters")).json()["dead_letters"]
    replay = (await api.post(f"/v1/dead-letters/{letter['run_id']}:replay")).json()
    again = (await api.get(f"/v1/runs/{replay['run_id']}")).json()
    assert (again["snoozes"], again["max_attempts"]) == (0, 2)


async def test_a_snoozed_run_is_scheduled_and_everything_says_until_when(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"task": "noop"})
    worker, order = await claim_now(connection, api)
    await snooze(worker, order)
    shown = await run_of(api, order)
    ready_at = datetime.fromisoformat(str(shown["ready_at"]))
    until = f"snoozed until {ready_at:%Y-%m-%dT%H:%M:%SZ}"
    assert (shown["status"], shown["reason"], shown["attempt_number"]) == ("SCHEDULED", until, 1)
    now = await connection.fetchval("select clock_timestamp()")
    assert 590 < (ready_at - now).total_seconds() <= 600
    why = (await api.get(f"/v1/runs/{order.run_id}/why")).json()
    assert why["why"] == f"It asked to come back later: it is {until}."
    entries = (await api.get(f"/v1/runs/{order.run_id}/timeline")).json()
    assert [(entry["state"], entry["attempt"]) for entry in entries[2:]] == [
        ("RUNNING", 1), ("SNOOZED", 1), ("SCHEDULED", 1),
    ]  # fmt: skip
    assert (entries[3]["error"], entries[3]["duration"] is None, entries[4]["reason"]) == (None, False, until)
    both = "select a.ready_at from mainspring.attempts a join mainspring.runs r using (run_id, ready_at)"
    assert [row["ready_at"] for row in await connection.fetch(both)] == [ready_at]
    [listed] = (await api.get("/v1/runs?status=scheduled")).json()["runs"]
    assert listed["reason"] == until
    worker, order = await claim_now(connection, api)
    await worker.report(outcome(order))
    ended = await run_of(api, order)
    assert (ended["status"], ended["attempt_number"], ended["snoozes"]) == ("SUCCESS", 2, 1)


async def test_a_snooze_is_guarded_like_every_report(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await api.post("/v1/jobs", json={"task": "noop"})
    worker, order = await claim_now(connection, api)
    for _ in range(2):  # a repeated report is acknowledged and changes nothing
        assert (await snooze(worker, order)).fenced == []
    assert (await run_of(api, order))["snoozes"] == 1
    other, again = await claim_now(connection, api)
    stranger = HandWorker(api)
    await stranger.hello()
    assert (await snooze(stranger, again)).fenced == [order.run_id]
    assert (await snooze(worker, again)).fenced == [order.run_id]  # the fence is right, the worker is not
    shown = await run_of(api, order)
    assert (shown["executor_id"], shown["snoozes"], shown["fence"]) == (str(other.worker_id), 1, again.fence)


async def test_the_run_timeout_bounds_all_snoozes(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await api.post("/v1/jobs", json={"task": "noop", "run_timeout": "10m"})
    worker, order = await claim_now(connection, api)
    await snooze(worker, order, 60)
    assert "(run_timeout)" in (await api.get(f"/v1/runs/{order.run_id}/why")).json()["why"]
    worker, order = await claim_now(connection, api)
    await snooze(worker, order, 600)
    shown = await run_of(api, order)
    assert shown["status"] == "FAILED"
    assert shown["reason"] == "timed out after 10m in all (run_timeout): it asked to be snoozed for longer than that"
    assert shown["error_message"] == shown["reason"]
    why = (await api.get(f"/v1/runs/{order.run_id}/why")).json()["why"]
    assert why.count("snoozed for longer") == 1


async def test_a_run_that_is_at_most_once_is_not_snoozed(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"task": "noop", "delivery": "at_most_once"})
    worker, order = await claim_now(connection, api)
    assert order.at_most_once
    await snooze(worker, order)
    shown = await run_of(api, order)
    assert (shown["status"], shown["reason"]) == ("FAILED", "it asked to be snoozed, and the job is at most once")


async def test_a_snoozed_run_can_be_cancelled(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await api.post("/v1/jobs", json={"task": "noop"})
    worker, order = await claim_now(connection, api)
    await snooze(worker, order)
    cancelled = (await api.post(f"/v1/runs/{order.run_id}:cancel")).json()
    assert (cancelled["status"], cancelled["reason"]) == ("CANCELLED", "cancelled while it waited for its next attempt")


async def test_a_cancel_comes_before_a_snooze(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await api.post("/v1/jobs", json={"task": "noop"})
    worker, order = await claim_now(connection, api)
    await api.post(f"/v1/runs/{order.run_id}:cancel")
    await snooze(worker, order)
    assert (await run_of(api, order))["status"] == "CANCELLED"


async def test_a_snoozed_run_counts_as_alive_and_does_not_expire(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job = {"job_id": "daily", "task": "noop", "schedule": {"cron": "@daily"}, "overlap": "skip", "expires_in": "1s"}
    await api.post("/v1/jobs", json=job)
    await api.post("/v1/jobs/daily:runNow")
    worker, order = await claim_now(connection, api)
    await snooze(worker, order)
    second = (await api.post("/v1/jobs/daily:runNow")).json()
    assert (await api.get(f"/v1/runs/{second['run_id']}")).json()["status"] == "SKIPPED"
    await connection.execute("update mainspring.runs set expires_at = clock_timestamp() - interval '1 hour'")
    worker, again = await claim_now(connection, api)
    assert again.run_id == order.run_id


async def test_a_wait_that_older_code_has_set_is_no_snooze(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    """It sets `ready_at` and leaves `snoozed_until` as it is."""
    await api.post("/v1/jobs", json={"task": "noop"})
    worker, order = await claim_now(connection, api)
    await snooze(worker, order)
    await connection.execute("update mainspring.runs set ready_at = ready_at + interval '1 second'")
    assert (await run_of(api, order))["reason"] == "backing off after attempt 1 of 5, 1 of them snoozed"


async def test_a_negative_snooze_is_refused_by_name(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await api.post("/v1/jobs", json={"task": "noop"})
    worker, order = await claim_now(connection, api)
    answer = await worker.ask(outcomes=[outcome(order, "FAILED", snooze=-1.0)])
    assert (answer.status_code, "snooze" in answer.json()["field"]) == (422, True)
    assert (await run_of(api, order))["fence"] == order.fence


# -- the decision alone

specs = st.builds(
    Spec,
    retry=st.builds(RetryPolicy, max_attempts=st.integers(1, 5)),
    delivery=st.sampled_from(Delivery),
)


@given(
    specs, st.integers(0, 3), st.integers(0, 5) | st.just(MOST_SNOOZES), st.integers(1, 6),
    st.none() | st.floats(-10, 1000), st.booleans(), st.floats(0, 1e12),
)  # fmt: skip
def test_a_snooze_brings_the_run_back_within_its_bounds_or_ends_it(
    spec: Spec, losses: int, snoozes: int, failures: int, left: float | None, cancel: bool, seconds: float
) -> None:
    run = HeldRun(
        uuid7(), 7, losses + snoozes + failures, spec.retry.max_attempts + losses + snoozes,
        NOW if cancel else None, NOW, uuid7(), spec_to_text(spec), left, losses, snoozes=snoozes,
    )  # fmt: skip
    changes = RunChanges([], [], [])
    decide(run, Outcome(run.run_id, run.fence, "FAILED", error="snoozed", snooze=seconds), lambda: 0.5, changes)
    assert len(changes.endings) + len(changes.requeues) == 1
    once, out_of_time = spec.delivery is Delivery.AT_MOST_ONCE, left is not None and seconds >= left
    if changes.endings:
        assert cancel or once or out_of_time or snoozes == MOST_SNOOZES
        return
    assert not (cancel or once or out_of_time or snoozes == MOST_SNOOZES)
    [requeue], [tried] = changes.requeues, changes.attempts
    assert (requeue.delay, requeue.snoozed, requeue.lost, requeue.given_back) == (min(seconds, LONGEST_DELAY), 1, 0, 0)
    assert (tried.outcome, tried.error, requeue.error, tried.started_at) == ("SNOOZED", None, None, NOW)


def test_an_older_server_sees_a_failure_that_asks_for_a_retry() -> None:
    """It refuses fields that it does not know, so a worker leaves this one out. Such a snooze uses an attempt."""
    said = Outcome(uuid7(), 1, "FAILED", error="snoozed for 10m", retry_after=600.0, snooze=600.0)
    [sent] = PROTOCOL.fit(ExchangeRequest(worker_id=uuid7(), seq=1, outcomes=[said]), 2).outcomes
    assert (sent.snooze, sent.status, sent.retry, sent.retry_after) == (None, "FAILED", True, 600.0)
