"""From a message of a broker to an event or a job: it is decoded, and the templates of the source are filled."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from mainspring.brokers.connect_settings import EmitIn, SourceSettings
from mainspring.brokers.consumers import BrokerMessage
from mainspring.brokers.templates import Missing, fill
from mainspring.wire.sources import LONGEST_DEAD, LONGEST_PROBLEM, DeadReport, SourceMessage

_LONGEST_ID = 200
_CLOUD_EVENT = ("specversion", "id", "source", "type")
_PREFIXES = ("ce-", "ce_", "cloudevents:", "cloudevents_")  # HTTP and NATS, Kafka, AMQP


class Undecodable(Exception):
    """The message cannot become an event or a job. The text says why."""


def converted(source: SourceSettings, message: BrokerMessage) -> SourceMessage:
    """What the server gets of the message."""
    try:
        return _made(source, message)
    except (Undecodable, Missing) as error:
        return buried(message, str(error))
    except RecursionError:
        return buried(message, "the value is nested too deeply")


def buried(message: BrokerMessage, reason: str) -> SourceMessage:
    """The message as a dead one."""
    text = message.value[:LONGEST_DEAD].decode(errors="replace").replace("\x00", "�")
    return SourceMessage(message.id, message.offset, dead=DeadReport(reason[:LONGEST_PROBLEM], text[:LONGEST_DEAD]))


def _made(source: SourceSettings, message: BrokerMessage) -> SourceMessage:
    value = _decoded(source.format, message.value)
    event: Mapping[str, Any] = {}
    whole = False
    if source.format == "json":
        event, data = _cloud_event(message, value)
        whole = data is value
        value = data
    parts = {
        "value": value, "headers": message.headers, "topic": message.topic, "partition": message.partition,
        "event": event,
    } | {
        name: given
        for name, given in (("key", message.key), ("id", message.id), ("offset", message.offset))
        if given is not None
    }  # fmt: skip
    encode = msgspec.json.encode
    # As it came: numbers of any size stay what they are.
    payload = msgspec.Raw(message.value) if whole and isinstance(value, dict) else _object(value)
    if source.emit is not None:
        made = _event(source, source.emit, message, parts, payload)
        return SourceMessage(message.id, message.offset, event=msgspec.Raw(encode(made)))
    job = fill(source.submit, parts)
    if "payload" not in job and "task" in job:
        job["payload"] = payload
    return SourceMessage(message.id, message.offset, job=msgspec.Raw(encode(job)))


def _event(
    source: SourceSettings, emit: EmitIn, message: BrokerMessage, parts: Mapping[str, Any], payload: Any
) -> dict[str, Any]:
    event = parts["event"]
    made: dict[str, Any] = {
        "name": event.get("type"),
        "key": event.get("subject", message.key),
        "id": _event_id(source, message, event),
        "payload": payload,
    }
    for field in ("name", "key", "id", "payload"):
        if (template := getattr(emit, field)) is not msgspec.UNSET:
            made[field] = fill(template, parts)
    if made["name"] is None:
        raise Undecodable("the event has no name: the message is no CloudEvent, and emit.name is not set")
    for field in ("name", "key", "id"):
        if isinstance(made[field], int | float) and not isinstance(made[field], bool):
            made[field] = str(made[field])
    if emit.payload is not msgspec.UNSET:
        made["payload"] = _object(made["payload"])
    return {field: value for field, value in made.items() if value is not None}


def _event_id(source: SourceSettings, message: BrokerMessage, event: Mapping[str, Any]) -> str | None:
    """The id of a CloudEvent is one of its source. Another message has its place in the broker."""
    if "id" in event:
        text = f"{event.get('source')}/{event['id']}"
    elif message.offset is not None:
        text = f"{source.name}/{message.partition}/{message.offset}"
    elif message.id is not None:
        text = f"{source.name}/{message.id}"
    else:
        return None
    return text if len(text) <= _LONGEST_ID else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _decoded(form: str, value: bytes) -> Any:
    if form == "base64":
        return base64.b64encode(value).decode()
    if form == "text":
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise Undecodable("the value is no UTF-8") from None
    try:
        return msgspec.json.decode(value) if value else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(f"the value is no JSON: {error}") from None


def _cloud_event(message: BrokerMessage, value: Any) -> tuple[Mapping[str, Any], Any]:
    """The attributes of a CloudEvent and its data. No attributes if the message is none."""
    if isinstance(value, dict) and all(isinstance(value.get(name), str) for name in _CLOUD_EVENT):
        attributes = {name: one for name, one in value.items() if name not in ("data", "data_base64")}
        return attributes, value.get("data", value.get("data_base64"))
    attributes = {}
    for name, text in message.headers.items():
        lowered = name.lower()
        for prefix in _PREFIXES:
            if lowered.startswith(prefix):
                attributes[lowered.removeprefix(prefix)] = text
    return (attributes, value) if all(name in attributes for name in _CLOUD_EVENT) else ({}, value)


def _object(value: Any) -> Any:
    """Payloads are objects: another value is put into one."""
    if value is None or isinstance(value, dict):
        return value
    return {"value": value}
