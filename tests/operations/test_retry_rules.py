"""Retry rules: the cause of a failure is matched with the rules of the job."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.wire.exchange import RunOrder
from mainspring.wire.execution import Cause
from tests.api.bookkeeping import rows
from tests.operations.firing import let_backoff_pass
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_outcomes import claimed, delay_of, run

pytestmark = pytest.mark.anyio

GIVE_UP_ON_2 = {"rules": [{"exit_code": [2, 3], "then": "give_up"}]}


async def why(api: httpx.AsyncClient, order: RunOrder) -> str:
    return str((await api.get(f"/v1/runs/{order.run_id}/why")).json()["why"])


async def fail(api: httpx.AsyncClient, policy: dict[str, Any], cause: Cause, **said: Any) -> dict[str, Any]:
    worker, order = await claimed(api, retry=policy)
    await worker.report(outcome(order, "FAILED", error="it failed", cause=cause, **said))
    return await run(api, order)


async def test_a_rule_gives_up_with_a_reason_that_names_it(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker, order = await claimed(api, retry=GIVE_UP_ON_2)
    await worker.report(outcome(order, "FAILED", error="exit code 2", cause=Cause(exit_code=2)))
    ended = await run(api, order)
    assert (ended["status"], ended["attempt_number"]) == ("FAILED", 1)
    assert ended["reason"] == "failed with exit code 2: rule retry.rules[0] gives up"
    assert await why(api, order) == (
        "It ended FAILED: failed with exit code 2: rule retry.rules[0] gives up. The last error: exit code 2"
    )
    assert (await rows(connection))["dead_letters"] == 1


async def test_failures_that_no_rule_is_about_are_retried(api: httpx.AsyncClient) -> None:
    assert (await fail(api, GIVE_UP_ON_2, Cause(exit_code=1)))["status"] == "SCHEDULED"
    assert (await fail(api, GIVE_UP_ON_2, Cause(errors=["ValueError"])))["status"] == "SCHEDULED"


async def test_a_rule_about_an_error_class_finds_bases_too(api: httpx.AsyncClient) -> None:
    retry = {"rules": [{"error": "PaymentError", "then": "give_up"}]}
    cause = Cause(errors=["CardDeclined", "app.CardDeclined", "PaymentError", "app.PaymentError", "Exception"])
    assert (await fail(api, retry, cause))["reason"] == "failed with PaymentError: rule retry.rules[0] gives up"


async def test_a_rule_may_retry_a_status_that_is_not_retried_otherwise(api: httpx.AsyncClient) -> None:
    cause = Cause(http_status=404)
    assert (await fail(api, {}, cause, retry=False))["status"] == "FAILED"
    retry = {"rules": [{"http_status": ["4xx"], "then": "retry"}]}
    assert (await fail(api, retry, cause, retry=False))["status"] == "SCHEDULED"


async def test_a_rule_gives_the_least_delay(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    rules = [{"http_status": 429, "then": "retry", "after": "1m"}]
    worker, order = await claimed(api, retry={"rules": rules})
    said = outcome(order, "FAILED", cause=Cause(http_status=429))
    assert await delay_of(connection, worker, said) == 60.0
    await let_backoff_pass(connection)
    [order] = await worker.claim()
    said = outcome(order, "FAILED", cause=Cause(http_status=429), retry_after=90.0)
    assert await delay_of(connection, worker, said) == 90.0


@pytest.mark.parametrize("name", ["GiveUp", "BadPayload"])
async def test_a_task_that_gives_up_is_not_retried_by_any_rule(api: httpx.AsyncClient, name: str) -> None:
    retry = {"rules": [{"error": name, "then": "retry"}]}
    ended = await fail(api, retry, Cause(errors=[name]), retry=False)
    assert (ended["status"], ended["reason"]) == ("FAILED", "failed and asked not to be retried")


async def test_tries_bind_whatever_a_rule_says(api: httpx.AsyncClient) -> None:
    retry = {"max_attempts": 1, "rules": [{"exit_code": 2, "then": "retry"}]}
    ended = await fail(api, retry, Cause(exit_code=2))
    assert (ended["status"], ended["reason"]) == ("FAILED", "failed 1 time, no tries left")


async def test_at_most_once_is_never_retried_by_rule_or_by_wish(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    retry = {"rules": [{"exit_code": 2, "then": "retry"}]}
    await api.post("/v1/jobs", json={"task": "noop", "delivery": "at_most_once", "retry": retry})
    # Even if the row had attempts left, which intake never allows.
    await connection.execute("update mainspring.runs set max_attempts = 5")
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order, "FAILED", error="x", retry_after=1.0, cause=Cause(exit_code=2)))
    ended = await run(api, order)
    assert (ended["status"], ended["attempt_number"]) == ("FAILED", 1)
    assert ended["reason"] == "failed, and the job is at most once"
    assert (await worker.exchange(free=5)).runs == []
