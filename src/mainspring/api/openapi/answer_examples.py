"""An example of an answer, made from its type: the value of each field by its name, or else by its type."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

from mainspring.kernel.version import VERSION

_RUN_ID = "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11"
_WORKER_ID = "0197a6c0-6b2f-7d44-8e61-90aa12bc34de"
_TIME = "2026-07-01T07:00:00Z"
# A field that may be null and is not here is null.
_BY_NAME: dict[str, Any] = {
    "run_id": _RUN_ID, "job_id": "nightly-report", "job_ids": ["nightly-report"], "run_ids": [_RUN_ID],
    "name": "nightly-report", "task": "report", "queue": "default", "priority": "normal", "trigger": "schedule",
    "worker_id": _WORKER_ID, "executor_id": _WORKER_ID, "worker_name": "host-3", "executor": "host-3",
    "schedule": "0 9 * * MON-FRI", "schedule_type": "CRON", "cron_expression": "0 9 * * MON-FRI",
    "schedule_in_words": "At 09:00, Monday to Friday, Europe/Berlin",
    "timezone": "Europe/Berlin", "next_fire_at": "2026-07-02T07:00:00Z", "payload": {"month": 6},
    "result": {"rows": 42}, "max_retries": 3, "max_attempts": 4, "attempt": 1, "attempt_number": 1, "attempts": 4,
    "timeout": 3600.0, "duration": 1.25, "version": 1, "fence": 1, "shard_id": 17, "owner": "bi",
    "description": "For the board", "labels": {"team": "bi"}, "tasks": ["report"], "queues": ["default"], "slots": 4,
    "workers": 1, "log_url": f"/v1/runs/{_RUN_ID}/logs", "seq": 1, "start_time": _TIME, "end_time": _TIME,
    "why": "it waits for a worker that offers the task report on the queue default", "tenant_id": 1,
    "token_id": "0197a6c0-8d41-7f66-8083-b2cc34de56f0", "tenant": "default", "role": "worker",
    "token": "ms_the-secret-of-the-token", "checks": {"database": "ok"}, "protocol": 2, "count": 3, "accepted": 1,
    "cpu_s": 0.4, "rss_peak": 31_457_280, "samples": [[1.0, 0.4, 31_457_280]],
    "breaker_id": 8, "failed": 5, "failures": 5, "open_for": 600.0, "probe_at": _TIME, "opened_at": _TIME,
    "id": _RUN_ID, "from": "2026-06-01T00:00:00Z", "to": _TIME,
    "limit_id": 7, "limit": 1, "declared": 1, "in_use": 1, "held": 2, "keys": 1, "key": "payload.account",
    "cap": 10, "base": 1.0, "jitter": 0.1, "rules": [], "last_beat_at": _TIME,
    "payload_schema": {"type": "object", "properties": {"month": {"type": "integer"}}},
}  # fmt: skip


def example_of(kind: Any) -> Any:
    """A value of this type as JSON has it."""
    return _value("", inspect.type_info(kind))


def _value(name: str, info: Any) -> Any:
    by_name = _BY_NAME.get(name, ...)
    if by_name is not ... and _fits(by_name, info):
        return by_name
    return _by_type(name, info)


def _fits(value: Any, info: Any) -> bool:
    try:
        msgspec.convert(value, _shape(info))
    except (msgspec.ValidationError, TypeError):
        return False
    return True


def _shape(info: Any) -> Any:
    """The JSON shape of a type, as far as an example has to match it."""
    match info:
        case inspect.UnionType():
            kinds = [_shape(part) for part in info.types]
            union: Any = kinds[0]
            for kind in kinds[1:]:
                union = union | kind
            return union
        case inspect.NoneType():
            return None
        case inspect.StrType() | inspect.DateTimeType() | inspect.UUIDType():
            return str
        case inspect.IntType():
            return int
        case inspect.FloatType():
            return float
        case inspect.BoolType():
            return bool
        case inspect.Metadata():
            return _shape(info.type)
        case inspect.ListType():
            return list[_shape(info.item_type)]  # type: ignore[misc]
        case inspect.DictType() | inspect.StructType():
            return dict
        case _:
            return Any


def _by_type(name: str, info: Any) -> Any:
    match info:
        case inspect.Metadata():
            schema = info.extra_json_schema or {}
            if "enum" in schema:
                return schema["enum"][0]
            return _by_type(name, info.type)
        case inspect.UnionType():
            structs = [part for part in info.types if isinstance(part, inspect.StructType)]
            if not structs and any(isinstance(part, inspect.NoneType) for part in info.types):
                return None
            return _by_type(name, (structs or info.types)[0])
        case inspect.StructType():
            return {
                field.encode_name: _value(field.encode_name, field.type)
                for field in info.fields
                if field.required or not info.cls.__struct_config__.omit_defaults
            }
        case inspect.ListType():
            return [_value(name.removesuffix("s"), info.item_type)]
        case inspect.DictType():
            return {}
        case inspect.LiteralType():
            return info.values[-1]
        case inspect.DateTimeType():
            return _TIME
        case inspect.UUIDType():
            return _RUN_ID
        case inspect.StrType():
            return VERSION if name == "version" else "ok"
        case inspect.BoolType():
            return False
        case inspect.IntType():
            return 0
        case inspect.FloatType():
            return 0.5
        case _:
            return None
