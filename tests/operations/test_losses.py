"""Runs that are lost with their worker: a count of their own, what a testimony changes, and what decide() may do."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.job import Delivery, Spec, spec_to_text
from mainspring.domain.losses import Death
from mainspring.domain.retry import RetryPolicy
from mainspring.kernel.ids import uuid7
from mainspring.operations.lifecycle.decide import decide
from mainspring.operations.lifecycle.effects import RunChanges
from mainspring.operations.lifecycle.rescue import rescue
from mainspring.store import runs
from mainspring.store.runs import HeldRun
from mainspring.wire.exchange import Outcome, RunOrder
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 11, 15, tzinfo=UTC)


async def lose(
    connection: asyncpg.Connection, worker: HandWorker, started: Collection[tuple[UUID, int]] | None = None
) -> None:
    async with connection.transaction():
        held = await runs.held_by(connection, worker.worker_id, 100)
        await rescue(connection, held, lambda: 0.5, started=started)


async def claim_now(connection: asyncpg.Connection, api: httpx.AsyncClient) -> tuple[HandWorker, RunOrder]:
    """Claim the run for a new worker, even if it waits after a loss."""
    await connection.execute("update mainspring.runs set ready_at = clock_timestamp()")
    worker = HandWorker(api)
    [order] = await worker.claim()
    return worker, order


async def run_of(api: httpx.AsyncClient, order: RunOrder) -> dict[str, object]:
    found: dict[str, object] = (await api.get(f"/v1/runs/{order.run_id}")).json()
    return found


async def test_losses_spend_no_attempt_and_a_failure_spends_one(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"task": "noop", "retries": 1})
    for losses in range(3):
        worker, order = await claim_now(connection, api)
        assert (order.losses, order.attempt, order.max_attempts) == (losses, losses + 1, losses + 2)
        await lose(connection, worker)
    shown = await run_of(api, order)
    assert (shown["status"], shown["losses"], shown["error_message"]) == ("SCHEDULED", 3, "worker lost")
    assert shown["reason"] == "backing off after attempt 3 of 5, 3 of them lost"
    worker, order = await claim_now(connection, api)
    await worker.report(outcome(order, "FAILED", error="no"))
    worker, order = await claim_now(connection, api)
    await worker.report(outcome(order, "FAILED", error="no"))
    shown = await run_of(api, order)
    assert (shown["status"], shown["losses"], shown["attempt_number"]) == ("FAILED", 3, 5)
    assert shown["reason"] == "failed 2 times, no tries left"
    [letter] = (await api.get("/v1/dead-letters")).json()["dead_letters"]
    replay = (await api.post(f"/v1/dead-letters/{letter['run_id']}:replay")).json()
    again = (await api.get(f"/v1/runs/{replay['run_id']}")).json()
    assert (again["losses"], again["max_attempts"]) == (0, 2)


@pytest.mark.parametrize("retries", [0, 3])
async def test_the_fourth_loss_is_a_dead_letter_unless_the_job_says_otherwise(
    api: httpx.AsyncClient, connection: asyncpg.Connection, retries: int
) -> None:
    await api.post("/v1/jobs", json={"task": "noop", "retries": retries})
    for _ in range(4):
        assert (await api.get("/v1/dead-letters")).json()["dead_letters"] == []
        worker, order = await claim_now(connection, api)
        await lose(connection, worker)
    shown = await run_of(api, order)
    assert (shown["status"], shown["losses"], shown["start_time"] is None) == ("FAILED", 4, False)
    assert str(shown["reason"]).startswith("lost 4 times, max_losses is 3")
    answer = await api.post(f"/v1/runs/{order.run_id}:retry")
    again = (await api.get(f"/v1/runs/{answer.json()['run_id']}")).json()
    assert (again["losses"], again["max_attempts"]) == (0, retries + 1)


async def test_the_run_timeout_counts_while_a_lost_run_waits(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"task": "noop", "run_timeout": "10s"})
    worker, order = await claim_now(connection, api)
    await lose(connection, worker)
    worker, order = await claim_now(connection, api)
    await lose(connection, worker)  # it would wait for 15.5 s
    shown = await run_of(api, order)
    assert shown["status"] == "FAILED" and "run_timeout" in str(shown["reason"])


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("testimony", [True, False])
async def test_at_most_once_comes_back_only_if_its_watchdog_testifies_that_it_never_began(
    api: httpx.AsyncClient, connection: asyncpg.Connection, begun: bool, testimony: bool
) -> None:
    await api.post("/v1/jobs", json={"job_id": "once", "task": "noop", "delivery": "at_most_once"})
    worker, order = await claim_now(connection, api)
    started = [(order.run_id, order.fence)] if begun else [(order.run_id, order.fence - 1), (uuid7(), order.fence)]
    await lose(connection, worker, started if testimony else None)
    shown = await run_of(api, order)
    if begun or not testimony:
        assert (shown["status"], shown["losses"]) == ("FAILED", 1)
        assert shown["reason"] == "worker lost, and the job is at most once"
        return
    assert (shown["status"], shown["losses"], shown["attempt_number"]) == ("QUEUED", 0, 0)
    worker, again = await claim_now(connection, api)
    assert (again.attempt, again.max_attempts, again.losses) == (1, 1, 0)
    await worker.report(outcome(again))
    entries = (await api.get(f"/v1/runs/{order.run_id}/timeline")).json()
    assert [entry["state"] for entry in entries].count("RETURNED") == 1


async def test_a_testimony_says_nothing_about_ordinary_runs(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    """Only the starts of exclusive runs are told to the watchdog."""
    await api.post("/v1/jobs", json={"task": "noop", "retries": 0})
    worker, order = await claim_now(connection, api)
    await lose(connection, worker, [])
    shown = await run_of(api, order)
    assert (shown["status"], shown["losses"], shown["attempt_number"]) == ("QUEUED", 1, 1)


async def test_a_started_run_that_its_worker_ended_with_its_lease_counts_as_lost(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"task": "noop", "retries": 0})
    worker, order = await claim_now(connection, api)
    for _ in range(2):  # a repeated report is acknowledged and changes nothing
        reply = await worker.report(outcome(order, "RETURNED", error="its lease ended", ran_ms=9000.0))
        assert reply.fenced == []
    shown = await run_of(api, order)
    assert (shown["status"], shown["losses"], shown["attempt_number"]) == ("QUEUED", 1, 1)
    [tried] = await connection.fetch("select outcome, started_at from mainspring.attempts")
    assert tried["outcome"] == "LOST" and tried["started_at"] is not None


# -- the decision alone

specs = st.builds(
    Spec,
    retry=st.builds(RetryPolicy, max_attempts=st.integers(1, 5)),
    delivery=st.sampled_from(Delivery),
    max_losses=st.none() | st.integers(0, 5),
)
statuses = st.sampled_from(["FAILED", "CANCELLED", "RETURNED", "LOST"])
times = st.none() | st.floats(-10, 100)
deaths = st.none() | st.builds(Death, st.booleans(), st.just("exit status 1"), st.booleans())


@given(
    specs, statuses, st.integers(0, 6), st.integers(1, 6), times, st.booleans(), st.floats(0, 1, exclude_max=True),
    deaths,
)  # fmt: skip
def test_every_ending_has_one_consequence_and_a_loss_spends_no_attempt(
    spec: Spec,
    status: str,
    losses: int,
    failures: int,
    left: float | None,
    cancel: bool,
    chance: float,
    death: Death | None,
) -> None:
    """`failures`: how many attempts were not lost, with the present one."""
    attempt = losses + failures
    run = HeldRun(
        uuid7(), 7, attempt, spec.retry.max_attempts + losses, NOW if cancel else None, NOW, uuid7(),
        spec_to_text(spec), left, losses, spec.delivery is Delivery.AT_MOST_ONCE,
    )  # fmt: skip
    lost = status == "LOST"
    said = Outcome(run.run_id, run.fence, "FAILED" if lost else status)  # type: ignore[arg-type]
    changes = RunChanges([], [], [])
    decide(run, said, lambda: chance, changes, lost=lost, death=death if lost else None)
    assert len(changes.endings) + len(changes.requeues) == 1
    assert len(changes.attempts) == len(changes.requeues)
    once, in_time = spec.delivery is Delivery.AT_MOST_ONCE, left is None or left > 0
    allowed = 3 if spec.max_losses is None else spec.max_losses
    alone_again = death is not None and death.alone and losses >= 1
    if changes.endings:
        [ending] = changes.endings
        assert ending.lost == lost and ending.reason
        if lost:
            assert cancel or once or not in_time or losses + 1 > allowed or alone_again or left is not None
            assert ending.ran_ms is None and ending.held_ms is None
        elif status == "FAILED" and not cancel and left is None and not once:
            assert failures >= spec.retry.max_attempts
        return
    [requeue], [tried] = changes.requeues, changes.attempts
    assert not cancel and requeue.lost == lost
    assert requeue.given_back == (status == "RETURNED")
    if lost:
        assert not once and in_time and losses + 1 <= allowed and not alone_again
        assert requeue.alone == (death is not None and death.crashed)
        assert requeue.delay == 0 if losses == 0 else 1 <= requeue.delay <= 30
        assert tried.started_at is None  # nobody has told it
    elif status == "FAILED":
        assert not once and failures < spec.retry.max_attempts
        assert tried.started_at == NOW
    else:
        assert requeue.delay == 0 and tried.started_at is None
