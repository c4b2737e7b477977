"""Messages of a broker become events and jobs once, together with the place of the source."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from mainspring.operations.limits.gate_keeper import GateKeeper
from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem
from tests.operations.tenants import several_tenants

pytestmark = pytest.mark.anyio


async def take(api: httpx.AsyncClient, source: str = "orders", **given: Any) -> httpx.Response:
    body = {"kind": "kafka", "connector": "one", **given}
    return await api.post(f"/v1/sources/{source}:take", json=body)


async def taken(api: httpx.AsyncClient, source: str = "orders", **given: Any) -> dict[str, Any]:
    answer = await take(api, source, **given)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def event(offset: int | None = None, message_id: str | None = None, **fields: Any) -> dict[str, Any]:
    place = {"offset": offset} if offset is not None else {"id": message_id} if message_id is not None else {}
    return {**place, "event": {"name": "order.paid", **fields}}


async def emitted(api: httpx.AsyncClient, name: str = "order.paid") -> int:
    return len((await api.get("/v1/events", params={"name": name, "limit": 500})).json()["events"])


async def only_source(api: httpx.AsyncClient) -> dict[str, Any]:
    [found] = (await api.get("/v1/sources")).json()["sources"]
    return dict(found)


async def test_an_offset_is_stored_with_its_events_and_a_late_connector_is_refused(api: httpx.AsyncClient) -> None:
    assert await taken(api, partition="orders/0") == {}
    assert await taken(api, partition="orders/0", offset=-1) == {"offset": -1}
    first = {"after": -1, "messages": [event(0), event(1), event(7)]}
    assert await taken(api, partition="orders/0", **first) == {"taken": 3, "offset": 7}
    again = await take(api, partition="orders/0", **first)  # its answer was lost, or it is another connector
    assert (again.status_code, problem(again)["code"]) == (409, "source_moved")
    assert await emitted(api) == 3
    assert await taken(api, partition="orders/0") == {"offset": 7}
    assert await taken(api, partition="orders/0", after=7, messages=[event(8)], lag=12) == {"taken": 1, "offset": 8}
    shown = await only_source(api)
    assert (shown["partition"], shown["offset"], shown["taken"], shown["lag"]) == ("orders/0", 8, 4, 12)
    assert await taken(api, partition="orders/0", problem="broker is away") == {"offset": 8}
    shown = await only_source(api)
    assert (shown["problem"], shown["problems"]) == ("broker is away", 1)


async def test_of_two_connectors_at_one_offset_one_wins(api: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(take(api, messages=[event(0), event(1)]) for _ in range(6)))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409, 409, 409]
    assert await emitted(api) == 2


async def test_a_message_is_known_by_its_id(api: httpx.AsyncClient) -> None:
    messages = [event(message_id="a"), event(message_id="b"), event(message_id="a")]
    assert await taken(api, kind="redis", messages=messages) == {"taken": 2, "repeated": 1}
    assert await taken(api, kind="redis", messages=[*messages, event(message_id="c")], settled=["a"]) == {
        "taken": 1,
        "repeated": 3,
    }
    assert await emitted(api) == 3
    assert await taken(api, kind="redis", messages=[event()]) == {"taken": 1}  # without an id: at least once
    assert await emitted(api) == 4


async def test_connectors_that_race_for_the_same_messages_take_each_once(api: httpx.AsyncClient) -> None:
    async def some(start: int) -> dict[str, Any]:
        messages = [event(message_id=str(number)) for number in range(start, start + 40)]
        return await taken(api, kind="redis", messages=messages)

    done = await asyncio.gather(*(some(start) for start in (0, 20, 10, 0, 30)))
    assert sum(one.get("taken", 0) for one in done) == 70
    assert await emitted(api) == 70


async def test_jobs_are_submitted_with_the_place_of_the_source(api: httpx.AsyncClient) -> None:
    jobs = [{"offset": number, "job": {"task": "ship", "payload": {"order": number}}} for number in range(3)]
    assert await taken(api, messages=jobs) == {"taken": 3, "offset": 2}
    assert (await take(api, messages=jobs)).status_code == 409
    named = [{"id": "x", "job": {"task": "ship", "job_id": "order-1"}}, {"id": "y", "job": {"task": "ship"}}]
    assert await taken(api, "named", kind="nats", messages=named) == {"taken": 2}
    assert await taken(api, "named", kind="nats", messages=named) == {"repeated": 2}
    assert len((await api.get("/v1/runs", params={"task": "ship"})).json()["runs"]) == 5


async def test_what_cannot_be_used_is_kept_and_blocks_nothing(api: httpx.AsyncClient) -> None:
    messages = [
        event(0),
        {"offset": 1, "event": {"name": ""}},
        {"offset": 2, "event": {"nom": "x"}},
        {"offset": 3, "job": {"task": "ship", "retry": {"max_attempts": "many"}}},
        {"offset": 4, "dead": {"reason": "the value is no JSON", "value": "{\u0000"}},
        {"offset": 5, "job": {"task": "ship", "job_id": "twice", "delay": "1h"}},
        {"offset": 6, "job": {"task": "ship", "job_id": "twice", "delay": "1h"}},
        {"offset": 7, "event": [1]},
        event(8),
    ]
    assert await taken(api, messages=messages) == {"taken": 3, "dead": 6, "offset": 8}
    found = (await api.get("/v1/sources/orders/dead-messages")).json()["messages"]
    assert [one["id"] for one in found] == ["7", "6", "4", "3", "2", "1"]
    assert found[2]["reason"] == "the value is no JSON"
    assert all(one["reason"] for one in found)
    assert (await only_source(api))["dead"] == 6


async def test_dead_messages_are_bounded(api: httpx.AsyncClient) -> None:
    for start in range(0, 1500, 500):
        messages = [{"id": str(start + number), "dead": {"reason": "no"}} for number in range(500)]
        await taken(api, kind="redis", messages=messages)
    seen: list[str] = []
    cursor = None
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        page = (await api.get("/v1/sources/orders/dead-messages", params={"limit": 500, **more})).json()
        seen += [one["id"] for one in page["messages"]]
        if (cursor := page.get("next")) is None:
            break
    assert seen == [str(number) for number in range(1499, 499, -1)]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"kind": "mqtt"}, "kind"),
        ({"messages": [{}]}, "messages[0]"),
        ({"messages": [event(1), event(1)]}, "messages[1].offset"),
        ({"messages": [event(1), event(message_id="x")]}, "messages[1].offset"),
        ({"after": 5, "messages": [event(5)]}, "messages[0].offset"),
        ({"messages": [event(message_id="a\u0000")]}, "messages[0].id"),
        ({"partition": "a\nb"}, "partition"),
        ({"messages": [event(1)] * 1001}, "messages"),
    ],
)
async def test_a_request_that_is_wrong_changes_nothing(
    api: httpx.AsyncClient, given: dict[str, Any], field: str
) -> None:
    answer = await take(api, **given)
    assert (answer.status_code, problem(answer)["field"]) == (422, field)
    assert (await api.get("/v1/sources")).json()["sources"] == [] and await emitted(api) == 0


async def test_a_source_that_is_forgotten_begins_anew(api: httpx.AsyncClient) -> None:
    await taken(api, messages=[event(0)])
    assert (await api.delete("/v1/sources/orders")).json() == {"name": "orders", "partitions": 1}
    assert (await api.delete("/v1/sources/orders")).status_code == 404
    assert await taken(api, messages=[event(0)]) == {"taken": 1, "offset": 0}


async def test_tenants_do_not_see_each_others_sources(api: httpx.AsyncClient, assembly: Assembly) -> None:
    async with several_tenants(assembly, api) as tenants:
        [other] = await tenants.add("other")
        await taken(api, messages=[event(0), {"offset": 1, "dead": {"reason": "secret"}}])
        assert (await other.get("/v1/sources")).json()["sources"] == []
        assert (await other.get("/v1/sources/orders/dead-messages")).json()["messages"] == []
        assert (await other.delete("/v1/sources/orders")).status_code == 404
        assert await taken(other, messages=[event(0)]) == {"taken": 1, "offset": 0}


async def test_quotas_hold_a_connector_up_and_lose_nothing(api: httpx.AsyncClient, assembly: Assembly) -> None:
    async with several_tenants(assembly, api) as tenants:
        [acme] = await tenants.add("acme")
        for quotas in ({"stored_jobs": 2}, {"submissions_per_second": 4}):
            assert (await api.put("/v1/tenants/acme/quotas", json=quotas)).status_code == 200
            await gates_of(assembly).run_once()
            if "stored_jobs" in quotas:
                later = [{"id": str(number), "job": {"task": "x", "delay": "1h"}} for number in range(3)]
                refused = await take(acme, "later", kind="nats", messages=later)
                assert (refused.status_code, problem(refused)["code"]) == (403, "quota_exceeded")
                assert await taken(acme, "later", kind="nats", messages=later[:2]) == {"taken": 2}
        messages = [event(message_id=str(number)) for number in range(9)]
        refused = await take(acme, kind="nats", messages=messages)
        assert (refused.status_code, problem(refused)["code"]) == (429, "over_quota")
        assert "Retry-After" in refused.headers
        stored = await emitted(acme)
        assert 0 < stored <= 4  # in parts: the connector sends all of them again
        assert (await acme.get("/v1/sources/orders/dead-messages")).json()["messages"] == []


def gates_of(assembly: Assembly) -> GateKeeper:
    return next(task for task in assembly.services.periodic_tasks if isinstance(task, GateKeeper))
