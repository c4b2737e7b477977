"""Events that applications emit are stored once, listed, and handed out once and in order."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.operations.events.matcher import EventMatcher
from mainspring.operations.lifecycle import dispatch
from mainspring.operations.lifecycle.dispatch import EVENTS_EMITTED, EventKind
from mainspring.operations.lifecycle.events import EventEmitted
from mainspring.roles.assembly import Assembly
from mainspring.store import events
from tests.api.bookkeeping import problem
from tests.operations.tenants import several_tenants

pytestmark = pytest.mark.anyio

ORDER = {"name": "order.paid", "key": "42", "id": "evt-1", "payload": {"total": 120}}


@pytest.fixture
async def matcher(assembly: Assembly) -> AsyncIterator[EventMatcher]:
    """The matcher of the server. It matches only when the test says so."""
    assembly.signals.emitted._listeners.clear()
    yield matcher_of(assembly)


def matcher_of(assembly: Assembly) -> EventMatcher:
    return next(task for task in assembly.periodic_tasks if isinstance(task, EventMatcher))


async def emit(api: httpx.AsyncClient, **event: Any) -> dict[str, Any]:
    answer = await api.post("/v1/events", json=event)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def names(api: httpx.AsyncClient, **query: Any) -> list[str]:
    return [one["id"] for one in (await api.get("/v1/events", params=query)).json()["events"]]


async def test_an_event_is_stored_once_and_the_same_id_answers_with_the_first(
    api: httpx.AsyncClient, matcher: EventMatcher
) -> None:
    assert await emit(api, **ORDER) == {"id": "evt-1", "repeated": False}
    again = await api.post("/v1/events", json={**ORDER, "name": "another", "payload": {"total": 1}})
    assert (again.status_code, again.json()) == (200, {"id": "evt-1", "repeated": True})
    view = (await api.get("/v1/events/evt-1")).json()
    assert (view["name"], view["key"], view["payload"]) == ("order.paid", "42", {"total": 120})
    assert "causes" not in view and "matched" not in view
    assert await matcher.run_once() == 1 and await matcher.run_once() == 0
    assert (await api.get("/v1/events/evt-1")).json()["matched"]
    bare = await emit(api, name="cache.stale")
    assert (await api.get(f"/v1/events/{bare['id']}")).json()["name"] == "cache.stale"


async def test_a_batch_is_stored_as_a_whole_or_not_at_all(api: httpx.AsyncClient, matcher: EventMatcher) -> None:
    batch = [{"name": "a", "id": str(number)} for number in range(3)]
    refused = await api.post("/v1/events:batch", json={"events": [*batch, {"name": "a\u0000b"}]})
    assert (refused.status_code, problem(refused)["field"]) == (422, "events[3].name")
    assert await names(api) == []
    done = await api.post("/v1/events:batch", json={"events": [*batch, batch[0]]})
    assert (done.status_code, done.json()) == (201, {"ids": ["0", "1", "2", "0"], "repeated": 1})
    assert await names(api) == ["2", "1", "0"]
    assert (await api.post("/v1/events:batch", json={"events": []})).status_code == 422
    assert (await api.post("/v1/events:batch", json={"events": [{"name": "a"}] * 1001})).status_code == 422


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "  "}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": "a", "key": "a\nb"}, "key"),
        ({"name": "a", "id": ""}, "id"),
        ({"name": "a", "payload": [1]}, "payload"),
        ({"name": "a", "payload": {"text": "x" * 262_144}}, "payload"),
        ({"name": "a", "pay": 1}, "pay"),
    ],
)
async def test_bad_input_names_the_field_and_stores_nothing(
    api: httpx.AsyncClient, event: dict[str, Any], field: str
) -> None:
    answer = await api.post("/v1/events", json=event)
    assert answer.status_code in (413, 422), answer.text
    assert problem(answer)["field"] == field or problem(answer)["errors"][0]["field"] == field
    assert await names(api) == []


async def test_lists_are_newest_first_and_found_by_name_and_key(api: httpx.AsyncClient, matcher: EventMatcher) -> None:
    for number in range(5):
        await emit(api, name="even" if number % 2 == 0 else "odd", key=str(number % 4), id=f"e/{number}")
    assert await names(api) == [f"e/{number}" for number in (4, 3, 2, 1, 0)]
    assert await names(api, name="even") == ["e/4", "e/2", "e/0"]
    assert await names(api, name="even", key="0") == ["e/4", "e/0"]
    first = (await api.get("/v1/events", params={"limit": 3})).json()
    assert await names(api, limit=3, cursor=first["next"]) == ["e/1", "e/0"]
    assert await names(api, since="2100-01-01T00:00:00Z") == []
    assert (await api.get("/v1/events/e%2F4")).json()["name"] == "even"
    lonely = await api.get("/v1/events", params={"key": "0"})
    assert (lonely.status_code, problem(lonely)["field"]) == (422, "name")
    assert (await api.get("/v1/events/none")).status_code == 404


async def test_tenants_do_not_see_each_other_and_ids_are_their_own(api: httpx.AsyncClient, assembly: Assembly) -> None:
    async with several_tenants(assembly, api) as tenants:
        [other] = await tenants.add("acme")
        await emit(api, **ORDER)
        assert (await other.get("/v1/events/evt-1")).status_code == 404
        assert await emit(other, **ORDER) == {"id": "evt-1", "repeated": False}
        assert await names(other) == ["evt-1"]


async def test_sql_emits_in_the_transaction_of_the_application(
    api: httpx.AsyncClient, database_url: str, matcher: EventMatcher
) -> None:
    user = await asyncpg.connect(database_url)
    try:
        emitting = "select mainspring.emit($1)"
        async with user.transaction():
            assert await user.fetchval(emitting, json.dumps(ORDER)) == "evt-1"
            assert await names(api) == []
        assert await user.fetchval(emitting, json.dumps({**ORDER, "name": "another"})) == "evt-1"
        assert (await api.get("/v1/events/evt-1")).json()["name"] == "order.paid"
        assert await matcher.run_once() == 1
        for bad, message in (
            ({"name": ""}, "name is empty"), ({"key": "a"}, "no name"), ({"name": "a", "payload": 1}, "payload"),
            ({"name": "a", "what": 1}, "unknown field 'what'"), ({"name": "a", "key": "b\n"}, "control character"),
        ):  # fmt: skip
            with pytest.raises(asyncpg.PostgresError, match=message):
                await user.fetchval(emitting, json.dumps(bad))
        assert await names(api) == ["evt-1"]
    finally:
        await user.close()


class Recorder:
    """A handler that records what it is handed, and fails when the test says so."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.failing = False

    def wants(self, event: EventEmitted, /) -> bool:
        return True

    async def handle(self, _connection: Any, events: Sequence[EventEmitted], _effects: Any, /) -> None:
        self.seen += [event.event_id for event in events]
        if self.failing:
            raise ConnectionError("killed here")


async def test_events_are_handed_out_in_order_and_again_if_the_process_dies_before_the_commit(
    api: httpx.AsyncClient, matcher: EventMatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    kind = EventKind[EventEmitted]("events of this test")
    kind.handled_by(recorder)
    monkeypatch.setattr("mainspring.operations.events.matcher.EVENTS_EMITTED", kind)
    assert EVENTS_EMITTED is dispatch.EVENTS_EMITTED
    ids = [f"e{number}" for number in range(5)]
    await api.post("/v1/events:batch", json={"events": [{"name": "a", "id": one} for one in ids]})
    recorder.failing = True
    with pytest.raises(ConnectionError):
        await matcher.run_once()
    recorder.failing, recorder.seen = False, []
    assert await matcher.run_once() == 5
    assert recorder.seen == ids


async def test_old_events_are_forgotten_once_they_have_been_matched(
    api: httpx.AsyncClient, matcher: EventMatcher, connection: asyncpg.Connection
) -> None:
    for event_id in ("old", "unmatched", "new"):
        await emit(api, name="a", id=event_id)
    await matcher.run_once()
    await connection.execute("update mainspring.events set at = at - interval '8 days' where event_id <> 'new'")
    await connection.execute(
        """insert into mainspring.unmatched_events
           select seq, tenant_id, event_id from mainspring.events where event_id = 'unmatched'"""
    )
    assert await events.prune(connection, 7) == 1
    assert await names(api) == ["new", "unmatched"]
    assert await emit(api, name="a", id="old") == {"id": "old", "repeated": False}


async def test_events_of_servers_of_before_are_matched_in_turn(
    api: httpx.AsyncClient, matcher: EventMatcher, connection: asyncpg.Connection
) -> None:
    """They mark the event itself."""
    for event_id in ("a-1", "a-2", "a-3"):
        await emit(api, name="a", id=event_id)
    async with connection.transaction():
        await connection.execute("delete from mainspring.unmatched_events where event_id = 'a-2'")
        await connection.execute("update mainspring.events set matched = false where event_id = 'a-2'")
    found = await events.to_match(connection, 10)
    assert [(one.event_id, one.marked) for one in found] == [("a-1", False), ("a-2", True), ("a-3", False)]
    assert not (await api.get("/v1/events/a-2")).json().get("matched")
    assert await matcher.run_once() == 3 and await matcher.run_once() == 0
    assert (await api.get("/v1/events/a-2")).json()["matched"]


async def test_a_condition_is_tried_with_stored_events(api: httpx.AsyncClient, matcher: EventMatcher) -> None:
    for number, payload in enumerate(({"total": 120}, {"total": 20}, {})):
        await emit(api, name="order.paid", id=f"evt-{number}", key="42", payload=payload)
    await emit(api, name="other", payload={"total": 500})
    body = {"event": "order.paid", "if": "payload.total > 100"}
    found = (await api.post("/v1/events:test", json=body)).json()
    assert (found["tested"], found["matched"]) == (3, 1)
    assert [(one["id"], one["matches"], "error" in one) for one in found["events"]] == [
        ("evt-2", False, True), ("evt-1", False, False), ("evt-0", True, False),
    ]  # fmt: skip
    assert "total" in found["events"][0]["error"]
    refused = await api.post("/v1/events:test", json={**body, "if": "payload.total >"})
    assert (refused.status_code, problem(refused)["field"], problem(refused)["code"]) == (
        422,
        "if",
        "invalid_condition",
    )
    assert (await api.post("/v1/events:test", json={**body, "event": "none"})).json()["tested"] == 0
