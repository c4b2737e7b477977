"""Messages are sent at least once, with one id, and a channel that hangs delays only its own."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.kernel.ids import uuid7
from mainspring.operations.notify.sender import NotificationSender
from mainspring.roles.assembly import Assembly
from mainspring.store import notifications
from tests.logs.scene import a_run, chunk, ship
from tests.operations.hand_worker import HandWorker, outcome
from tests.worker.http_service import HttpService, Writer, a_service, answer

from .aging import age

pytestmark = pytest.mark.anyio


async def a_channel(api: httpx.AsyncClient, name: str, receiver: HttpService) -> None:
    body = {"kind": "webhook", "url": receiver.url(f"/{name}"), "secret": "s"}
    assert (await api.put(f"/v1/channels/{name}", json=body)).status_code == 201


async def a_message(connection: asyncpg.Connection, channel: str, tenant: str = "default", **fields: str) -> str:
    message_id = uuid7()
    item = {"event": "failure", "subject": "job a", "since": "2030-01-01T00:00:00Z", **fields}
    message = {
        "id": str(message_id), "tenant": "default", "group": "g", "created_at": "2030-01-01T00:00:00Z", "items": [item],
    }  # fmt: skip
    await connection.execute(
        "insert into mainspring.notifications (notification_id, tenant_id, channel, state, next_at, title, message) "
        "select $1, tenant_id, $2, 1, (select clock_timestamp()), 'job a failed', $3::json from mainspring.tenants "
        "where name = $4",
        message_id, channel, json.dumps(message), tenant,
    )  # fmt: skip
    return str(message_id)


async def test_lines_of_output_are_in_messages_where_the_channel_wants_them(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    worker = HandWorker(api)
    order = await a_run(worker)
    await ship(worker, chunk(order, 0, b"first\nsecond\x1b[31m\nthird\n", end=True))
    await worker.report(outcome(order))
    sender = assembly.services.notification_sender
    async with a_service(answer(200)) as receiver:
        for name, lines in (("plain", {}), ("verbose", {"log_lines": 2})):
            body = {"kind": "webhook", "url": receiver.url(f"/{name}"), "secret": "s", **lines}
            made = await api.put(f"/v1/channels/{name}", json=body)
            assert (made.status_code, made.json().get("log_lines")) == (201, lines.get("log_lines")), made.text
            await a_message(connection, name, run_id=str(order.run_id))
        await sender.run_once()
        await sender.settle()
        got = {one.target: json.loads(one.body) for one in receiver.asked}
    assert "third" not in json.dumps(got["/plain"])
    assert got["/verbose"]["items"][0]["output"] == ["second [31m", "third"]
    assert "  | third" in got["/verbose"]["text"].splitlines()
    refused = await api.put("/v1/channels/x", json={**body, "log_lines": 21})
    assert (refused.status_code, refused.json()["field"]) == (422, "log_lines")


async def shown(api: httpx.AsyncClient, message_id: str) -> dict[str, Any]:
    found: dict[str, Any] = (await api.get(f"/v1/notifications/{message_id}")).json()
    return found


async def test_a_receiver_that_fails_is_asked_again_later_and_later_with_the_same_id(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    sender = assembly.services.notification_sender
    async with a_service(answer(503), answer(429, retry_after="120"), answer(200)) as receiver:
        await a_channel(api, "oncall", receiver)
        message_id = await a_message(connection, "oncall")
        waits = []
        for expected in ("HTTP 503", "HTTP 429"):
            assert await sender.run_once() == 1
            await sender.settle()
            assert await sender.run_once() == 0  # it is not due
            view = await shown(api, message_id)
            assert (view["status"], view["error"]) == ("PENDING", expected)
            waits.append(
                await connection.fetchval(
                    "select extract(epoch from next_at - clock_timestamp())::float from mainspring.notifications"
                )
            )
            await age(connection, 130)
        assert await sender.run_once() == 1
        await sender.settle()
    assert 3 < waits[0] <= 6 and 110 < waits[1] <= 120
    assert (await shown(api, message_id))["status"] == "SENT"
    assert {one.headers["webhook-id"] for one in receiver.asked} == {message_id}


async def test_a_message_that_is_given_up_is_seen_and_can_be_sent_again(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    sender = assembly.services.notification_sender
    async with a_service(answer(404), answer(200)) as receiver:
        await a_channel(api, "oncall", receiver)
        message_id = await a_message(connection, "oncall")
        await sender.run_once()
        pending = await api.post(f"/v1/notifications/{message_id}:send")
        await sender.settle()
        assert pending.json()["code"] == "not_ended"
        [dead] = (await api.get("/v1/notifications", params={"status": "DEAD"})).json()["notifications"]
        assert (dead["notification_id"], dead["error"], dead["attempts"]) == (message_id, "HTTP 404", 1)
        again = (await api.post(f"/v1/notifications/{message_id}:send")).json()
        assert (again["status"], again["attempts"]) == ("PENDING", 0)
        await sender.run_once()
        await sender.settle()
    sent = await shown(api, message_id)
    assert (sent["status"], sent["attempts"]) == ("SENT", 1)
    assert [one.headers["webhook-id"] for one in receiver.asked] == [message_id] * 2


async def test_after_its_last_attempt_a_message_is_given_up(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    sender = assembly.services.notification_sender
    async with a_service(answer(500)) as receiver:
        await a_channel(api, "oncall", receiver)
        message_id = await a_message(connection, "oncall")
        for _ in range(12):
            assert await sender.run_once() == 1
            await sender.settle()
            await age(connection, 2 * 3600)
        assert await sender.run_once() == 0
    assert ((await shown(api, message_id))["status"], len(receiver.asked)) == ("DEAD", 12)


async def test_a_channel_that_hangs_delays_only_its_own_messages(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    sender, hanging = assembly.services.notification_sender, asyncio.Event()

    async def hang(_: Writer) -> None:
        await hanging.wait()

    async with a_service(hang) as stuck, a_service(answer(200)) as receiver:
        await a_channel(api, "stuck", stuck)
        await a_channel(api, "fine", receiver)
        for _ in range(20):
            await a_message(connection, "stuck")
        for _ in range(5):
            await a_message(connection, "fine")
        for _ in range(10):
            await sender.run_once()
            while sender._sending[1, "fine"]:  # type: ignore[index]
                await asyncio.sleep(0)
        assert len(receiver.asked) == 5
        assert sender._sending[1, "stuck"] == 2  # type: ignore[index]
        hanging.set()


async def test_a_tenant_whose_channels_all_hang_delays_only_its_own_messages(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    sender, hanging = assembly.services.notification_sender, asyncio.Event()

    async def hang(_: Writer) -> None:
        await hanging.wait()

    async with a_service(hang) as stuck, a_service(answer(200)) as receiver:
        for number in range(40):
            await a_channel(api, f"stuck{number}", stuck)
            for _ in range(3):
                await a_message(connection, f"stuck{number}")
        other = (await api.post("/v1/tenants", json={"name": "other"})).json()["admin_token"]["token"]
        assert await sender.run_once() == 64
        api.headers["Authorization"] = f"Bearer {other}"
        await a_channel(api, "fine", receiver)
        message_id = await a_message(connection, "fine", "other")
        assert await sender.run_once() == 1
        while (await shown(api, message_id))["status"] != "SENT":
            await asyncio.sleep(0.01)
        hanging.set()


async def test_an_answer_that_comes_after_another_process_took_over_changes_nothing(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    """The claim of a process that stands still ends, and the receiver sees the id twice."""
    late = asyncio.Event()

    async def wait(writer: Writer) -> None:
        await late.wait()
        writer.write(answer(500))

    transport, store = assembly.services.notification_sender._transport, assembly.store
    first = NotificationSender(store, assembly.services.notification_sender._clock, transport, lease=0.0)
    async with a_service(wait, answer(200)) as receiver:
        await a_channel(api, "oncall", receiver)
        message_id = await a_message(connection, "oncall")
        assert await first.run_once() == 1
        while not receiver.asked:
            await asyncio.sleep(0.01)
        second = assembly.services.notification_sender
        assert await second.run_once() == 1
        await second.settle()
        assert (await shown(api, message_id))["status"] == "SENT"
        late.set()
        await first.settle()
    view = await shown(api, message_id)
    assert (view["status"], view.get("error")) == ("SENT", None)
    assert [one.headers["webhook-id"] for one in receiver.asked] == [message_id] * 2


async def test_a_claim_is_renewed_while_the_attempt_lasts(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    """Another process takes a message over soon after its sender is gone, and not while the receiver takes its time."""
    late = asyncio.Event()

    async def wait(writer: Writer) -> None:
        await late.wait()
        writer.write(answer(503))

    transport, store = assembly.services.notification_sender._transport, assembly.store
    first = assembly.services.notification_sender
    second = NotificationSender(store, first._clock, transport)
    due = "update mainspring.notifications set next_at = $2 where notification_id = $1"
    async with a_service(wait, answer(200)) as receiver:
        await a_channel(api, "oncall", receiver)
        message_id = await a_message(connection, "oncall")
        assert await first.run_once() == 1
        claimed = first._at_work[UUID(message_id)]
        await connection.execute(due, message_id, past := claimed.next_at - timedelta(hours=1))
        first._at_work[UUID(message_id)] = msgspec.structs.replace(claimed, next_at=past)
        assert await first.run_once() == 0  # it renews
        assert await second.run_once() == 0
        renewed = first._at_work[UUID(message_id)]
        assert renewed.next_at >= claimed.next_at
        late.set()
        await first.settle()
        assert first._at_work == {}
        waits = await connection.fetchval(
            "select next_at from mainspring.notifications where notification_id = $1", message_id
        )
        async with store.change() as changing:  # one that comes too late leaves the time of the next attempt
            assert await notifications.renew(changing, [renewed], 15.0) == []
        assert waits == await connection.fetchval(
            "select next_at from mainspring.notifications where notification_id = $1", message_id
        )


async def test_messages_to_a_deleted_channel_are_given_up(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    async with a_service(answer(200)) as receiver:
        await a_channel(api, "oncall", receiver)
        message_id = await a_message(connection, "oncall")
        await api.delete("/v1/channels/oncall")
        assert await assembly.services.notification_sender.run_once() == 0
    view = await shown(api, message_id)
    assert (view["status"], view["error"]) == ("DEAD", "the channel was deleted")
    again = await api.post(f"/v1/notifications/{message_id}:send")  # nobody would ever send it
    assert (again.status_code, again.json()["code"]) == (404, "not_found")
    assert (await shown(api, message_id))["status"] == "DEAD"
