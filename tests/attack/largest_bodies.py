"""The largest body that each route allows, made from the app itself: a new route or field is in it by itself.

`bodies_of` fills one field at a time with as much as goes into the size: long lists, long objects, long texts, nested
arrays. `HEAVY` has bodies that are valid and make work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args, get_type_hints
from uuid import uuid4

import msgspec
from msgspec import inspect

from mainspring.api.handlers import routed_handlers
from mainspring.api.http_application import HttpApplication
from mainspring.api.routing import public_path
from mainspring.operations.access.permissions import Roles

_DEEPEST = 2

Make = Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Asked:
    """A route, as a client asks for it. most: bytes of its largest body; None if it takes none."""

    method: str
    path: str
    operation: str
    most: int | None
    body: Any
    roles: Roles


def routes(app: HttpApplication) -> list[Asked]:
    """Every route with each of its methods."""
    found = {}
    for route, handler in routed_handlers(app):
        hints = get_type_hints(handler.function, include_extras=True)
        body = handler.body or hints.get("data")
        path = public_path(route, handler).replace("{", "").replace("}", "")
        most = None if handler.decode is None else handler.request_max_body_size
        found[handler.method, path] = Asked(handler.method, path, handler.operation, most, body, handler.roles)
    return list(found.values())


def bodies_of(route: Asked, size: int) -> Iterator[tuple[str, Make]]:
    """Bodies of about this size: the name of each, and how to make it."""
    assert route.most is not None
    size = min(size, route.most) - 1000
    yield "deep", lambda: b'{"a":' + b"[" * (size // 2) + b"]" * (size // 2) + b"}"
    for name, make in HEAVY.get(route.operation, {}).items():
        yield name, partial(make, size)
    yield from _large(inspect.type_info(route.body), size, 0)


def _large(kind: inspect.Type, size: int, depth: int) -> Iterator[tuple[str, Make]]:
    match kind:
        case inspect.StrType():
            yield "text", lambda: b'"' + b"x" * size + b'"'
        case inspect.RawType() | inspect.AnyType():
            yield "arrays", lambda: b'{"a":' + _repeated(b"[]", size // 3) + b"}"
            yield "texts", lambda: b'{"a":' + _repeated(b'"a"', size // 4) + b"}"
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            one = _small(item)
            yield "list", lambda: _repeated(one, size // (len(one) + 1))
            if depth < _DEEPEST:
                for name, make in _large(item, size - 2, depth + 1):
                    yield f"[0].{name}", partial(_enclosed, b"[", make, b"]")
        case inspect.DictType(value_type=value):
            yield "object", partial(_keys, _small(value), size)
        case inspect.UnionType(types=types):
            for number, member in enumerate(types):
                for name, make in _large(member, size, depth):
                    yield (f"{number}.{name}" if number else name), make
        case inspect.StructType(fields=fields) if depth <= _DEEPEST:
            needed = {field.encode_name: _small(field.type) for field in fields if field.required}
            for field in fields:
                others = _object({name: value for name, value in needed.items() if name != field.encode_name})
                begin = others[:-1] + (b"," if len(others) > 2 else b"") + json.dumps(field.encode_name).encode() + b":"
                for name, make in _large(field.type, size, depth + 1):
                    yield f"{field.encode_name}.{name}", partial(_enclosed, begin, make, b"}")
        case _:
            pass


def _enclosed(begin: bytes, make: Make, end: bytes) -> bytes:
    return begin + make() + end


def _keys(value: bytes, size: int) -> bytes:
    """An object with many fields."""
    count = max(1, size // (len(value) + 13))
    return b"{" + b",".join(b'"k%07d":%b' % (number, value) for number in range(count)) + b"}"


def _repeated(element: bytes, times: int) -> bytes:
    """An array."""
    return b"[" + (element + b",") * (max(1, times) - 1) + element + b"]"


def _small(kind: inspect.Type) -> bytes:
    match kind:
        case inspect.StrType():
            return b'"a"'
        case inspect.UUIDType():
            return b'"%s"' % str(uuid4()).encode()
        case inspect.DateTimeType():
            return b'"2026-01-01T00:00:00Z"'
        case inspect.IntType() | inspect.FloatType():
            return b"1"
        case inspect.BoolType():
            return b"true"
        case inspect.LiteralType(values=values):
            return json.dumps(values[0]).encode()
        case inspect.ListType() | inspect.VarTupleType():
            return b"[]"
        case inspect.TupleType(item_types=items):
            return b"[" + b",".join(map(_small, items)) + b"]"
        case inspect.UnionType(types=types):
            return _small(types[0])
        case inspect.StructType(fields=fields, array_like=True):
            return b"[" + b",".join(_small(field.type) for field in fields) + b"]"
        case inspect.StructType(fields=fields):
            return _object({field.encode_name: _small(field.type) for field in fields if field.required})
        case inspect.NoneType():
            return b"null"
        case _:
            return b"{}"


def _object(fields: dict[str, bytes]) -> bytes:
    return b"{" + b",".join(json.dumps(name).encode() + b":" + value for name, value in fields.items()) + b"}"


# --- bodies that are valid and make work


def wide_workflow(size: int) -> bytes:
    """As many dependencies as fit: 1.5 million between 2,000 steps in 12 MB."""
    size = min(size, 12_500_000)
    count = max(20, int((size / 4) ** 0.5))
    names = [f"s{number}" for number in range(count)]
    steps: list[dict[str, Any]] = [{"name": names[0], "task": "t"}]
    left = size - 100 * count
    for number in range(1, count):
        parents = names[:number] if number % 2 else names[: number - 1] or names[:1]
        left -= sum(map(len, parents)) + 3 * len(parents)
        steps.append({"name": names[number], "task": "t", "depends_on": parents if left > 0 else names[:1]})
    return json.dumps({"steps": steps}, separators=(",", ":")).encode()


def referring_workflow(size: int) -> bytes:
    """A chain of steps, each of which refers to one far before it."""
    count = min(10_000, size // 200)
    steps: list[dict[str, Any]] = [{"name": "s0", "task": "t"}]
    for number in range(1, count):
        payload = {"a": {"$from": f"s{number // 3}"}, "b": number}
        steps.append({"name": f"s{number}", "task": "t", "depends_on": [f"s{number - 1}"], "payload": payload})
    return json.dumps({"steps": steps}, separators=(",", ":")).encode()


def mapped_workflow(size: int) -> bytes:
    """A map over as many numbers as fit."""
    over = _repeated(b"1", size // 2 - 200)
    return b'{"steps":[{"name":"a","task":"t","map":{"over":%b}}]}' % over


def batch(size: int) -> bytes:
    """10,000 jobs with as large a payload as fits."""
    one = b'{"task":"x","payload":{"a":"%b"}}' % (b"x" * max(10, min(200_000, size // 10_000 - 40)))
    return _repeated(one, min(10_000, size // (len(one) + 1)))


def hostile_batch(size: int) -> bytes:
    """Schedules whose next fire is far, each another one."""
    jobs = [
        {"task": "x", "schedule": {"cron": f"{n % 60} {n // 60 % 24} 29 2 {n % 7}", "timezone": "Australia/Lord_Howe"}}
        for n in range(min(10_000, size // 100))
    ]
    return json.dumps(jobs, separators=(",", ":")).encode()


def paths_batch(size: int) -> bytes:
    """JSONPaths that nobody has sent before."""
    jobs = []
    tag = uuid4().hex[:8]
    for number in range(min(90, size // 1100)):
        path = "$" + ".a" * 450 + f".b{tag}{number}"
        jobs.append({"http": {"url": "https://example.com/", "success": {"json": path}}})
    return json.dumps(jobs).encode()


def hard_preview(_: int) -> bytes:
    rule = "FREQ=MINUTELY;BYSECOND=0,1,2,3,4,5,6,7,8,9;BYSETPOS=-1,-2,3"
    return json.dumps(
        {"schedule": {"rrule": rule, "timezone": "Australia/Lord_Howe", "jitter": "1s"}, "n": 1000}
    ).encode()


def many_dates(size: int) -> bytes:
    dates = [f"{1900 + n // 336 % 200}-{n // 28 % 12 + 1:02}-{n % 28 + 1:02}" for n in range(size // 14)]
    return json.dumps({"dates": dates}).encode()


def many_previewed_dates(size: int) -> bytes:
    return b'{"rules":' + many_dates(size - 20) + b"}"


def many_exdates(size: int) -> bytes:
    dates = ",".join(f"{2027 + n // 336 % 50}{n // 28 % 12 + 1:02}{n % 28 + 1:02}T000000" for n in range(size // 17))
    rule = f"DTSTART:20270101T000000\nRRULE:FREQ=DAILY\nEXDATE:{dates}"
    return json.dumps({"task": "x", "schedule": {"rrule": rule}}).encode()


def exchange(size: int) -> bytes:
    """The hello of a worker with as many signatures as fit."""
    schema = {"type": "object", "properties": {f"p{n}": {"type": "integer", "minimum": n} for n in range(200)}}
    text = json.dumps({**schema, "description": uuid4().hex})
    count = max(1, min(1_900_000, size) // (len(text) + 20))
    hello = {
        "name": "w", "queues": ["default"], "tasks": [f"t{n}" for n in range(count)], "slots": 1,
        "signatures": {f"t{n}": {**schema, "description": uuid4().hex} for n in range(count)},
    }  # fmt: skip
    return json.dumps({"worker_id": str(uuid4()), "seq": 1, "hello": hello}).encode()


def outcomes(size: int) -> bytes:
    one = {"run_id": str(uuid4()), "fence": 1, "status": "FAILED", "error": "it", "result": {"a": 1}}
    count = min(10_000, size // 140)
    return json.dumps({"worker_id": str(uuid4()), "seq": 1, "outcomes": [one] * count}).encode()


def shipment(size: int) -> bytes:
    chunk = {
        "run_id": str(uuid4()),
        "fence": 1,
        "attempt": 1,
        "offset": 0,
        "data": "QUJD" * (max(4000, size // 4000) // 4),
    }
    one = len(json.dumps(chunk)) + 2
    return json.dumps({"worker_id": str(uuid4()), "chunks": [chunk] * min(4000, size // one)}).encode()


Sized = Callable[[int], bytes]
_WORKFLOWS: dict[str, Sized] = {
    "wide": wide_workflow, "referring": referring_workflow, "mapped": mapped_workflow,
}  # fmt: skip
_JOBS: dict[str, Sized] = {"many exdates": many_exdates}
HEAVY: dict[str, dict[str, Sized]] = {
    "workflows.create": _WORKFLOWS,
    "workflows.validate": _WORKFLOWS,
    "workflows.update": _WORKFLOWS,
    "jobs.create": _JOBS,
    "jobs.validate": _JOBS,
    "jobs.create_batch": {"batch": batch, "hostile schedules": hostile_batch, "new paths": paths_batch},
    "schedules.preview": {"hard": hard_preview},
    "schedules.explain": {"hard": hard_preview},
    "calendars.put": {"many dates": many_dates},
    "calendars.preview": {"many dates": many_previewed_dates},
    "worker.exchange": {"signatures": exchange, "outcomes": outcomes},
    "worker.ship_logs": {"chunks": shipment},
}


def decodes(route: Asked, body: bytes) -> bool:
    """Whether the body has the form that the route takes. For those who want to know what is in a drill."""
    kinds = [kind for kind in (route.body, *get_args(route.body)) if kind is not type(None)]
    for kind in kinds:
        try:
            msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, RecursionError, TypeError):
            continue
        return True
    return False
