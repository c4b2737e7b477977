"""From a message of a broker to an event or a job, and what a file of sources may say."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from mainspring.brokers.connect_settings import SourceSettings, read_sources
from mainspring.brokers.consumers import BrokerMessage
from mainspring.brokers.messages import converted
from mainspring.domain.errors import InvalidInput

REDIS = {"name": "orders", "url": "redis://127.0.0.1:6379", "stream": "orders"}
KAFKA = {"name": "orders", "url": "kafka://a:9092,b:9092", "topic": "orders"}


def source(**fields: Any) -> SourceSettings:
    [found] = read_sources({"sources": [{**REDIS, **fields}]}, {})
    return found


def event(message: BrokerMessage, emit: dict[str, Any], **fields: Any) -> Any:
    made = converted(source(emit=emit, **fields), message)
    assert made.dead is None, made.dead
    return msgspec.json.decode(made.event)


def refusal(message: BrokerMessage, emit: dict[str, Any], **fields: Any) -> str:
    made = converted(source(emit=emit, **fields), message)
    assert made.dead is not None
    return made.dead.reason


def test_an_event_has_what_the_file_says_and_else_what_the_message_has() -> None:
    message = BrokerMessage(b'{"order": {"id": 7, "lines": ["a", "b"]}, "big": 123456789012345678901}', "1-0", key="k")
    assert event(message, {"name": "order.paid"}) == {
        "name": "order.paid", "key": "k", "id": "orders/1-0",
        "payload": {"order": {"id": 7, "lines": ["a", "b"]}, "big": 123456789012345678901},
    }  # fmt: skip
    emit = {
        "name": {"$from": "headers.type"},
        "key": {"$from": "value.order.id"},
        "id": {"$from": "id"},
        "payload": {"second": {"$from": "value.order.lines.1"}, "none": {"$from": "value.x", "default": 0}},
    }
    headed = msgspec.structs.replace(message, headers={"type": "order.sent"})
    assert event(headed, emit) == {
        "name": "order.sent", "key": "7", "id": "1-0", "payload": {"second": "b", "none": 0}
    }  # fmt: skip
    assert event(message, {"name": "x", "key": None, "id": None}).keys() == {"name", "payload"}


def test_values_that_are_no_objects_are_put_into_one() -> None:
    assert event(BrokerMessage(b"[1]"), {"name": "x"})["payload"] == {"value": [1]}
    assert event(BrokerMessage(b"\xc3\xa4"), {"name": "x"}, format="text")["payload"] == {"value": "ä"}
    assert event(BrokerMessage(b"\xff"), {"name": "x"}, format="base64")["payload"] == {"value": "/w=="}
    assert "payload" not in event(BrokerMessage(b""), {"name": "x"})


def test_a_cloud_event_says_what_it_is() -> None:
    attributes = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.paid", "subject": "42"}
    whole = {"name": "order.paid", "key": "42", "id": "/shop/1", "payload": {"total": 5}}
    structured = json.dumps({**attributes, "data": {"total": 5}}).encode()
    assert event(BrokerMessage(structured, "1-0"), {}) == whole
    for prefix in ("ce-", "ce_", "cloudEvents:", "cloudEvents_", "Ce-"):
        headers = {f"{prefix}{name}": value for name, value in attributes.items()}
        assert event(BrokerMessage(b'{"total": 5}', "1-0", headers=headers), {}) == whole


@pytest.mark.parametrize(
    ("value", "emit", "reason"),
    [
        (b"{", {"name": "x"}, "no JSON"),
        (b"\xff", {"name": "x"}, "no JSON"),
        (b"{}", {}, "no name"),
        (b"{}", {"name": {"$from": "value.a"}}, "no value.a"),
        (b"[" * 100_000, {"name": "x"}, ""),
    ],
)
def test_what_cannot_be_an_event_is_a_dead_message(value: bytes, emit: dict[str, Any], reason: str) -> None:
    assert reason in refusal(BrokerMessage(value, "1-0"), emit)


def test_a_job_gets_the_value_unless_the_file_says_otherwise() -> None:
    message = BrokerMessage(b'{"path": "a.csv"}', offset=4, partition="orders/0")
    made = converted(source(submit={"task": "import", "queue": "heavy"}), message)
    assert msgspec.json.decode(made.job) == {"task": "import", "queue": "heavy", "payload": {"path": "a.csv"}}
    made = converted(source(submit={"task": "import", "payload": {"at": {"$from": "offset"}}}), message)
    assert msgspec.json.decode(made.job) == {"task": "import", "payload": {"at": 4}}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "sources[0]"),
        ({"emit": {}, "submit": {"task": "x"}}, "sources[0]"),
        ({"emit": {}, "url": "http://x"}, "sources[0].url"),
        ({"emit": {}, "url": "redis://${NOT_SET}"}, "sources[0].url"),
        ({"emit": {}, "stream": None}, "sources[0].stream"),
        ({"emit": {}, "topic": "x"}, "sources[0].topic"),
        ({"emit": {}, "start": "middle"}, "sources[0].start"),
        ({"emit": {}, "format": "xml"}, "sources[0].format"),
        ({"emit": {"nom": 1}}, "sources[0].emit.nom"),
        ({"emit": {"name": {"$from": "body.x"}}}, "sources[0].emit.name"),
        ({"emit": {"name": {"$from": "value.x", "or": 1}}}, "sources[0].emit.name"),
        ({"submit": {}}, "sources[0].submit.task"),
        ({"submit": {"task": "x", "prio": 1}}, "sources[0].submit.prio"),
        ({"submit": {"command": ["sh", "-c", {"$from": "value.run"}]}}, "sources[0].submit.command"),
        ({"submit": {"task": "x", "idempotency_key": "1"}}, "sources[0].submit.idempotency_key"),
    ],
)
def test_a_mistake_in_the_file_is_named(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        source(**given)
    assert refused.value.field == field


def test_a_password_comes_from_the_environment_and_is_not_shown() -> None:
    [found] = read_sources(
        {"sources": [{**KAFKA, "url": "kafka://me:${SECRET}@a:1,b:2", "emit": {}}]}, {"SECRET": "pw"}
    )
    assert found.url == "kafka://me:pw@a:1,b:2" and found.shown_url == "kafka://a:1,b:2"
    assert found.without_password("cannot reach me:pw@a") == "cannot reach me:***@a"
