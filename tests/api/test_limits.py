"""/v1/limits, and how a run that a limit holds is shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.operations.limits.admitter import Admitter
from mainspring.roles.assembly import Assembly
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.limit_helpers import OneAdmitter

pytestmark = pytest.mark.anyio

PER_ACCOUNT = {"key": "payload.account", "limit": 1}


@pytest.fixture
async def admitter(assembly: Assembly) -> AsyncIterator[Admitter]:
    made = OneAdmitter(assembly.store, assembly.signals)
    yield made
    await made.close()


async def submit(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", **fields})
    assert answer.status_code == 201, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


async def read(api: httpx.AsyncClient, path: str) -> Any:
    answer = await api.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def only_limit(api: httpx.AsyncClient) -> dict[str, Any]:
    [limit] = (await read(api, "/v1/limits"))["limits"]
    found: dict[str, Any] = limit
    return found


async def statuses(api: httpx.AsyncClient, runs: list[str]) -> list[str]:
    return [(await read(api, f"/v1/runs/{run}"))["status"] for run in runs]


async def test_a_limit_shows_its_lines_and_who_has_the_slots(api: httpx.AsyncClient) -> None:
    runs = [await submit(api, payload={"account": account}, concurrency=PER_ACCOUNT) for account in (1, 1, 1, 2)]
    limit = await only_limit(api)
    assert {name: limit[name] for name in ("name", "limit", "declared", "pinned", "order")} == {
        "name": "task:noop:payload.account", "limit": 1, "declared": 1, "pinned": False, "order": "priority",
    }  # fmt: skip
    assert (limit["keys"], limit["in_use"], limit["held"]) == (2, 2, 2)
    details = await read(api, f"/v1/limits/{limit['limit_id']}")
    assert details["limit"] == limit
    assert details["lines"] == [
        {"key": "1", "in_use": 1, "held": 2, "runs": [runs[0]]},
        {"key": "2", "in_use": 1, "held": 0, "runs": [runs[3]]},
    ]


async def test_limits_are_listed_by_name_in_pages_and_found_by_a_part_of_it(api: httpx.AsyncClient) -> None:
    for task in ("c", "a", "b_x", "bzx"):
        await submit(api, task=task, concurrency=3)
    first = await api.get("/v1/limits?limit=3")
    assert [one["name"] for one in first.json()["limits"]] == ["task:a", "task:b_x", "task:bzx"]
    rest = await read(api, first.links["next"]["url"])
    assert ([one["name"] for one in rest["limits"]], rest["next"]) == (["task:c"], None)
    assert [one["name"] for one in (await read(api, "/v1/limits?q=B_X"))["limits"]] == ["task:b_x"]


@pytest.mark.parametrize(
    ("path", "status", "field"),
    [
        ("/v1/limits/0", 404, None),
        ("/v1/limits/task:noop", 404, None),
        ("/v1/limits/99999999999999", 404, None),
        ("/v1/limits/%D9%A3", 404, None),
        ("/v1/limits/" + "9" * 5000, 404, None),
        ("/v1/limits?q=%00", 422, "q"),
        ("/v1/limits?cursor=%00", 422, "cursor"),
        ("/v1/limits?cursor=AA", 422, "cursor"),
        ("/v1/limits?limit=0", 422, "limit"),
        ("/v1/limits?q=" + "x" * 300, 422, "q"),
    ],
)
async def test_what_cannot_be_read(api: httpx.AsyncClient, path: str, status: int, field: str | None) -> None:
    answer = await api.get(path)
    assert (answer.status_code, answer.json().get("field")) == (status, field), answer.text


async def test_a_raised_limit_admits_at_once_and_a_lowered_one_admits_nobody_until_there_is_room(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    runs = [await submit(api, concurrency=1) for _ in range(5)]
    limit_id = (await only_limit(api))["limit_id"]
    answer = await api.put(f"/v1/limits/{limit_id}", json={"limit": 3})
    assert (answer.status_code, answer.json()["limit"]["limit"], answer.json()["limit"]["pinned"]) == (200, 3, True)
    assert admitter._waking is not None
    await admitter._waking  # the change wakes the admitter: no round is waited for
    assert await statuses(api, runs) == ["QUEUED"] * 3 + ["HELD"] * 2
    worker = HandWorker(api)
    orders = await worker.claim(3)
    assert (await api.put(f"/v1/limits/{limit_id}", json={"limit": 1})).status_code == 200
    await worker.report(outcome(orders[0]), outcome(orders[1]))
    assert await admitter.run_once() == 0
    assert (await worker.exchange(free=5)).runs == []
    await worker.report(outcome(orders[2]))
    assert [str(order.run_id) for order in await worker.claim(1)] == [runs[3]]


async def test_a_set_limit_stays_whatever_is_declared_until_it_is_reset(api: httpx.AsyncClient) -> None:
    await submit(api, concurrency=1)
    limit_id = (await only_limit(api))["limit_id"]
    await api.put(f"/v1/limits/{limit_id}", json={"limit": 3})
    await submit(api, concurrency=2)
    limit = await only_limit(api)
    assert (limit["limit"], limit["declared"], limit["pinned"]) == (3, 2, True)
    answer = await api.put(f"/v1/limits/{limit_id}", json={"limit": None})
    limit = answer.json()["limit"]
    assert (limit["limit"], limit["declared"], limit["pinned"]) == (2, 2, False)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"limit": 0}, 422, "limit"),
        ({"limit": 1_000_001}, 422, "limit"),
        ({"limit": "5"}, 422, "limit"),
        ({"limit": True}, 422, "limit"),
        ({}, 422, "limit"),
        ({"limit": 1, "strict": True}, 422, "strict"),
    ],
)
async def test_a_bad_number_changes_nothing(
    api: httpx.AsyncClient, body: dict[str, Any], status: int, field: str
) -> None:
    await submit(api, concurrency=1)
    before = await only_limit(api)
    answer = await api.put(f"/v1/limits/{before['limit_id']}", json=body)
    assert (answer.status_code, answer.json()["field"]) == (status, field), answer.text
    assert await only_limit(api) == before


async def test_strict_order_and_an_overlap_rule_keep_their_limit_of_one(api: httpx.AsyncClient) -> None:
    await submit(api, concurrency={"limit": 1, "order": "strict"})
    await submit(api, job_id="nightly", schedule="manual", overlap="queue")
    overlap, strict = (await read(api, "/v1/limits"))["limits"]
    answer = await api.put(f"/v1/limits/{strict['limit_id']}", json={"limit": 2})
    assert (answer.status_code, answer.json()["field"]) == (422, "limit")
    answer = await api.put(f"/v1/limits/{overlap['limit_id']}", json={"limit": 2})
    assert (answer.status_code, answer.json()["code"]) == (409, "overlap_rule")
    assert "PATCH /v1/jobs/nightly" in answer.json()["hint"]


async def test_a_strict_declaration_ends_what_was_set(api: httpx.AsyncClient) -> None:
    await submit(api, concurrency=1)
    await api.put(f"/v1/limits/{(await only_limit(api))['limit_id']}", json={"limit": 3})
    await submit(api, concurrency={"limit": 1, "order": "strict"})
    limit = await only_limit(api)
    assert (limit["limit"], limit["pinned"], limit["order"]) == (1, False, "strict")


async def test_the_change_is_acknowledged_when_no_earlier_admission_is_under_way(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    """An admission that has locked a line may have read the number before. The answer waits for it."""
    await submit(api, concurrency=2)
    limit_id = (await only_limit(api))["limit_id"]
    async with connection.transaction():
        await connection.fetch("select from mainspring.limit_keys for no key update")
        change = asyncio.create_task(api.put(f"/v1/limits/{limit_id}", json={"limit": 1}))
        while (await only_limit(api))["limit"] != 1:  # committed, and seen by everybody who begins now
            assert not change.done()
        await read(api, "/v1/limits")
        assert not change.done()
    assert (await change).status_code == 200


async def test_another_tenant_sees_and_changes_nothing(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await submit(api, concurrency=2)
    limit_id = (await only_limit(api))["limit_id"]
    await connection.execute("update mainspring.limits set tenant_id = 77")
    assert (await read(api, "/v1/limits"))["limits"] == []
    assert (await api.get(f"/v1/limits/{limit_id}")).status_code == 404
    assert (await api.put(f"/v1/limits/{limit_id}", json={"limit": 1})).status_code == 404
    assert await connection.fetchval("select slots from mainspring.limits") == 2


# -- how held runs are shown


async def test_why_names_the_limit_who_holds_it_and_the_place_in_line(api: httpx.AsyncClient) -> None:
    first, second, third = [
        await submit(api, payload={"account": "a1"}, concurrency=PER_ACCOUNT, name="charge a1") for _ in range(3)
    ]
    limit = 'It is held: waiting for room in the limit of task noop, payload.account "a1": 1 of 1 in use'
    for run, place in ((second, "It is the next in line."), (third, "1 run is ahead of it in line.")):
        why = await read(api, f"/v1/runs/{run}/why")
        assert (why["status"], why["why"]) == ("HELD", f"{limit}, by run {first} (charge a1). {place}")
    view = await read(api, f"/v1/runs/{second}")
    assert view["reason"] == limit.removeprefix("It is held: ")
    listed = await read(api, "/v1/runs?status=held")
    assert [(run["run_id"], run["reason"]) for run in listed["runs"]] == [
        (third, view["reason"]),
        (second, view["reason"]),
    ]


async def test_why_names_the_run_that_overlap_queue_waits_for(api: httpx.AsyncClient) -> None:
    await submit(api, job_id="nightly", schedule="manual", overlap="queue")
    first, second = [(await api.post("/v1/jobs/nightly:runNow")).json()["run_id"] for _ in range(2)]
    why = (await read(api, f"/v1/runs/{second}/why"))["why"]
    assert why == (
        f"It is held: waiting for run {first} (nightly) of the same job to end (overlap). It is the next in line."
    )


async def test_filters_tell_held_runs_from_those_that_back_off(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    backs_off, queued, held = [await submit(api, concurrency=1) for _ in range(3)]
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    await worker.report(outcome(order, "FAILED", error="no"))
    found = {
        status: {run["run_id"] for run in (await read(api, f"/v1/runs?status={status}"))["runs"]}
        for status in ("held", "scheduled", "queued", "pending")
    }
    assert found == {"held": {held}, "scheduled": {backs_off}, "queued": {queued}, "pending": {backs_off, queued, held}}
    [queue] = (await read(api, "/v1/queues"))["queues"]
    assert {name: queue[name] for name in ("depth", "scheduled", "held", "running")} == {
        "depth": 1, "scheduled": 1, "held": 1, "running": 0,
    }  # fmt: skip
    overview = await read(api, "/v1/insights/overview")
    assert (overview["waiting"], overview["scheduled"], overview["held"]) == (1, 1, 1)


async def test_the_timeline_begins_with_held(api: httpx.AsyncClient) -> None:
    first, second = [await submit(api, concurrency=1, retries=3) for _ in range(2)]
    worker = HandWorker(api)
    [order] = await worker.claim(1)

    async def states(run: str) -> list[str]:
        return [entry["state"] for entry in await read(api, f"/v1/runs/{run}/timeline")]

    assert await states(second) == ["SUBMITTED", "HELD"]
    await worker.report(outcome(order, "FAILED", error="no"))
    assert await states(second) == ["SUBMITTED", "HELD", "QUEUED"]
    assert await states(first) == ["SUBMITTED", "HELD", "RUNNING", "FAILED", "SCHEDULED"]
    assert await states(await submit(api)) == ["SUBMITTED", "QUEUED"]
