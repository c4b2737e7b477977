"""The payload stays with a run that has succeeded, up to a size. Any ended run can be repeated, and a repeat that is to
have effects has an idempotency key of its own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.domain.run_key import key_of
from mainspring.wire.exchange import RunOrder, WorkerHello
from tests.api.bookkeeping import problem, rows
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


async def make(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def end(api: httpx.AsyncClient, status: str = "SUCCESS", tasks: tuple[str, ...] = ("noop",)) -> RunOrder:
    """Run what waits, and end it."""
    worker = HandWorker(api, tasks=tasks)
    [order] = await worker.claim()
    await worker.report(outcome(order, status, **({} if status == "SUCCESS" else {"error": "boom", "retry": False})))
    return order


async def run_of(api: httpx.AsyncClient, run_id: Any) -> dict[str, Any]:
    run: dict[str, Any] = (await api.get(f"/v1/runs/{run_id}")).json()
    return run


def payload_of(size: int) -> dict[str, str]:
    """A payload of that many bytes, as the client sends it."""
    payload = {"x": "y" * (size - 8)}
    assert len(json.dumps(payload, separators=(",", ":"))) == size
    return payload


@pytest.mark.parametrize(
    ("keep", "size", "kept"),
    [
        (None, 16 * 1024, True),
        (None, 16 * 1024 + 1, False),
        (True, 256 * 1024, True),
        (False, 8, False),
        ("64KiB", 64 * 1024, True),
        ("64KiB", 64 * 1024 + 1, False),
        (100, 100, True),
        (100, 101, False),
    ],
)
async def test_the_payload_stays_up_to_a_size_and_the_run_says_when_it_does_not(
    api: httpx.AsyncClient, keep: Any, size: int, kept: bool
) -> None:
    payload = payload_of(size)
    job_id = await make(api, payload=payload, **({} if keep is None else {"keep_payload": keep}))
    await end(api)
    run = await run_of(api, job_id)
    assert (run["status"], run["payload"], run["payload_dropped"]) == ("SUCCESS", payload if kept else None, not kept)
    assert (await api.get(f"/v1/jobs/{job_id}")).json()["payload"] == run["payload"]
    [listed] = (await api.get("/v1/runs?status=success")).json()["runs"]
    assert (listed["payload"], listed["payload_dropped"]) == (run["payload"], not kept)


async def test_a_run_without_a_payload_has_dropped_none(api: httpx.AsyncClient) -> None:
    job_id = await make(api, keep_payload=False)
    await end(api)
    assert (await run_of(api, job_id))["payload_dropped"] is False
    assert (await api.post(f"/v1/runs/{job_id}:retry")).status_code == 202


async def test_other_ends_keep_it_whatever_its_size(api: httpx.AsyncClient) -> None:
    """A dead letter is replayed with its payload."""
    payload = payload_of(200_000)
    failed = await make(api, payload=payload, keep_payload=False)
    await end(api, "FAILED")
    cancelled = await make(api, payload=payload)
    await api.post(f"/v1/runs/{cancelled}:cancel")
    for run_id in (failed, cancelled):
        run = await run_of(api, run_id)
        assert (run["payload"], run["payload_dropped"]) == (payload, False)


async def test_keep_payload_is_shown_changed_and_taken_back(api: httpx.AsyncClient) -> None:
    job_id = await make(api, schedule="@daily")
    url = f"/v1/jobs/{job_id}"
    assert (await api.get(url)).json()["keep_payload"] == 16 * 1024
    for given, shown in [("64KiB", 65536), (0, False), (False, False), (True, True), (1000, 1000), (None, 16384)]:
        changed = await api.patch(url, json={"keep_payload": given})
        assert changed.json()["keep_payload"] == shown
        assert (await api.patch(url, json={"owner": "me"})).json()["keep_payload"] == shown


@pytest.mark.parametrize("wrong", ["soon", "", -1, "257KiB", 262145, 1.5, [1], "true"])
async def test_a_wrong_size_is_refused_by_name(
    api: httpx.AsyncClient, connection: asyncpg.Connection, wrong: Any
) -> None:
    before = await rows(connection)
    refused = problem(await api.post("/v1/jobs", json={"task": "noop", "keep_payload": wrong}))
    assert (refused["status"], refused["field"]) == (422, "keep_payload")
    assert await rows(connection) == before


async def test_a_task_declares_it_for_its_jobs_and_a_job_may_say_otherwise(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)
    worker.card.signatures = {"noop": msgspec.Raw(b'{"x-mainspring-options": {"keep_payload": 0}}')}
    await worker.hello()
    job_id = await make(api, payload={"secret": 1})
    await end(api)
    assert (await run_of(api, job_id))["payload_dropped"] is True
    job_id = await make(api, payload={"open": 1}, keep_payload=True)
    await end(api)
    assert (await run_of(api, job_id))["payload"] == {"open": 1}


# ------------------------------------------------------------------------------------------------------------- retries


async def test_a_retry_of_a_success_has_a_key_of_its_own_and_points_at_what_it_repeats(api: httpx.AsyncClient) -> None:
    job_id = await make(api, payload={"a": 1})
    first = await end(api)
    answer = await api.post(f"/v1/runs/{job_id}:retry")
    again = answer.json()
    assert (answer.status_code, again["status"], again["replay_of"]) == (202, "QUEUED", job_id)
    assert (again["job_id"], again["payload"]) == (job_id, {"a": 1})
    assert again["scheduled_for"] == (await run_of(api, job_id))["scheduled_for"]
    second = await end(api, "FAILED")
    assert second.scheduled_for == first.scheduled_for
    assert key_of(second) == again["idempotency_key"] != key_of(first)
    await api.post(f"/v1/runs/{second.run_id}:retry")
    third = await end(api)
    assert key_of(third) == key_of(second), "a plain replay of a failed run keeps the key"
    await api.post(f"/v1/runs/{third.run_id}:retry")
    fourth = await end(api)
    assert len({key_of(order) for order in (first, second, fourth)}) == 3


async def test_a_replay_of_a_failed_run_keeps_the_key_unless_its_payload_is_another_one(api: httpx.AsyncClient) -> None:
    await make(api, payload={"a": 1, "b": 2})
    first = await end(api, "FAILED")
    await api.post(f"/v1/runs/{first.run_id}:retry", json={"payload": {"b": 2, "a": 1}})
    second = await end(api, "FAILED")
    assert key_of(second) == key_of(first), "the same payload in other words"
    answer = await api.post(f"/v1/dead-letters/{second.run_id}:replay", json={"payload": {"a": 3}})
    third = await end(api)
    assert answer.json()["idempotency_key"] == key_of(third) != key_of(first)
    assert bytes(third.payload) == b'{"a":3}'


async def test_many_replays_with_another_payload_have_a_key_each(api: httpx.AsyncClient) -> None:
    """One of them has had this payload already."""
    keys = {}
    for number in (1, 2, 3):
        await make(api, payload={"a": number})
        order = await end(api, "FAILED")
        keys[order.job_id] = key_of(order)
    done = (await api.post("/v1/dead-letters:replay", json={"all": True, "payload": {"a": 2}})).json()
    assert done["replayed"] == 3
    orders = await HandWorker(api).claim(3)
    assert [key_of(order) == keys[order.job_id] for order in orders].count(True) == 1


async def test_a_retry_without_its_dropped_payload_says_to_give_one(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, payload={"a": 1}, keep_payload=False)
    await end(api)
    before = await rows(connection)
    refused = problem(await api.post(f"/v1/runs/{job_id}:retry"))
    assert (refused["status"], refused["code"], refused["field"]) == (409, "payload_dropped", "payload")
    assert "give a payload" in refused["hint"]
    assert await rows(connection) == before
    again = (await api.post(f"/v1/runs/{job_id}:retry", json={"payload": {"a": 2}})).json()
    assert (again["payload"], again["replay_of"]) == ({"a": 2}, job_id)


async def test_a_run_that_an_older_server_ended_counts_as_dropped(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    """It kept no payloads and does not know the column."""
    job_id = await make(api)
    await end(api)
    await connection.execute("update mainspring.run_history set payload_dropped = default")
    assert (await run_of(api, job_id))["payload_dropped"] is True
    assert problem(await api.post(f"/v1/runs/{job_id}:retry"))["code"] == "payload_dropped"
    assert (await api.post(f"/v1/runs/{job_id}:retry", json={"payload": None})).status_code == 202


@pytest.mark.parametrize(
    ("task", "payload", "given", "part"),
    [
        ("shell", {"command": "echo a"}, {"command": "echo b"}, {"command": "echo b"}),
        ("http", {"url": "http://a.example/x"}, {"url": "http://b.example/y"}, {"http": "http://b.example/y"}),
    ],
)
@pytest.mark.parametrize("keep", [True, False])
async def test_a_command_or_call_in_the_payload_changes_with_it(
    api: httpx.AsyncClient, task: str, payload: Any, given: Any, part: Any, keep: bool
) -> None:
    job_id = await make(api, task=task, payload=payload, keep_payload=keep)
    await end(api, tasks=(task,))
    answer = await api.post(f"/v1/runs/{job_id}:retry", json={"payload": given})
    assert answer.status_code == 202, answer.text
    order = await end(api, tasks=(task,))
    call = order.setup.http if order.setup is not None else None
    assert part == ({"command": order.command} if call is None else {"http": call.url})


async def test_a_command_beside_a_dropped_payload_stays(api: httpx.AsyncClient) -> None:
    answer = await api.post("/v1/jobs", json={"command": "echo a", "payload": {"x": 1}, "keep_payload": False})
    await end(api, tasks=("shell",))
    await api.post(f"/v1/runs/{answer.json()['job_id']}:retry", json={"payload": {"x": 2}})
    order = await end(api, tasks=("shell",))
    assert (order.command, bytes(order.payload)) == ("echo a", b'{"x":2}')


async def test_the_signature_of_the_task_holds_for_a_changed_payload_only(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, payload={"a": 1})
    await end(api)
    worker = HandWorker(api)
    schema = msgspec.Raw(b'{"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}')
    worker.card = WorkerHello("typed", ["default"], ["noop"], 1, signatures={"noop": schema})
    await worker.hello()
    before = await rows(connection)
    refused = problem(await api.post(f"/v1/runs/{job_id}:retry", json={"payload": {"b": "no"}}))
    assert (refused["status"], refused["field"]) == (422, "payload.b")
    assert await rows(connection) == before
    assert (await api.post(f"/v1/runs/{job_id}:retry", json={"payload": {"b": 2}})).status_code == 202


async def test_requests_at_the_same_time_repeat_a_success_once(api: httpx.AsyncClient) -> None:
    job_id = await make(api, payload={"a": 1})
    await end(api)
    answers = await asyncio.gather(*(api.post(f"/v1/runs/{job_id}:retry") for _ in range(6)))
    assert sorted(answer.status_code for answer in answers) == [202] + [409] * 5
    assert {problem(answer)["code"] for answer in answers if answer.status_code == 409} == {"replayed"}
    assert len((await api.get(f"/v1/jobs/{job_id}/runs")).json()) == 2
