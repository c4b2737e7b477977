"""No batch of jobs uses more than 100 ms of the loop's CPU time in one go, whatever is in it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from mainspring.kernel.config import MAX_BODY_BYTES
from mainspring.roles.assembly import Assembly
from tests.api.slices import Slices, check, filled, measured, request, shared_server
from tests.conftest import Databases
from tests.pgbouncer import PgBouncer
from tests.sizes import chosen

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(databases: Databases, pgbouncer: PgBouncer | None) -> AsyncIterator[tuple[Assembly, int]]:
    async with shared_server(databases, pgbouncer) as shared:
        yield shared


@pytest.fixture(scope="module")
def port(server: tuple[Assembly, int]) -> int:
    return server[1]


@pytest.fixture(scope="module")
def slices(server: tuple[Assembly, int]) -> Iterator[Slices]:
    with measured() as found:
        yield found


def _call(path: str) -> dict[str, object]:
    return {"url": "https://example.com/", "success": {"json": path}}


def _jobs(count: int, one: Callable[[int], dict[str, object]]) -> bytes:
    return json.dumps([one(number) for number in range(count)]).encode()


def _after_many(number: int) -> dict[str, object]:
    parents = [f"j{parent}" for parent in range(max(0, number - 100), number)]
    return {"task": "x", "job_id": f"j{number}", "schedule": {"after": parents} if parents else "manual"}


LONG_PATH = "$" + ".a" * 499
NESTED = b'{"task":"x","payload":{"a":[' + b",".join([b"[[[[]]]]"] * 700) + b"]}}"

BATCHES: dict[str, tuple[Callable[[], bytes], int]] = {
    "empty objects": (lambda: filled(b"[", b"{}", b"]", MAX_BODY_BYTES), 422),
    "empty objects in 1 MiB": (lambda: filled(b"[", b"{}", b"]", 1024 * 1024), 422),
    "empty objects in 256 KiB": (lambda: filled(b"[", b"{}", b"]", 256 * 1024), 422),
    "jobs in 256 KiB": (lambda: filled(b"[", b'{"task":"x"}', b"]", 256 * 1024), 422),
    "empty objects in an object": (lambda: filled(b'{"jobs":[', b"{}", b"]}", MAX_BODY_BYTES), 422),
    "numbers": (lambda: filled(b"[", b"1", b"]", MAX_BODY_BYTES), 422),
    "not closed": (lambda: b"[" * MAX_BODY_BYTES, 400),
    "spaces": (lambda: b" " * MAX_BODY_BYTES, 422),
    "spaces behind": (lambda: b"[{}]" + b" " * (MAX_BODY_BYTES - 4), 400),
    "another name": (lambda: filled(b'{"\\u006aobs":[', b"1", b"]}", MAX_BODY_BYTES), 422),
    "one that is large": (lambda: filled(b'[{"notify":[', b"[]", b"]}]", MAX_BODY_BYTES), 422),
    "10,000 that are nested": (lambda: b"[" + b",".join([NESTED] * 10_000) + b"]", 201),
    "10,000 with something wrong": (lambda: _jobs(10_000, lambda n: {"task": "x", "que" + "u" * 90: 1}), 422),
    "10,000 with a path": (lambda: _jobs(10_000, lambda n: {"http": _call(LONG_PATH)}), 201),
    "2,000 after 100 each": (lambda: _jobs(2000, _after_many), 422),
    "1,000 paths": (lambda: _jobs(1000, lambda n: {"http": _call(LONG_PATH[:90] + f".b{n}")}), 201),
    "100 long paths": (lambda: _jobs(100, lambda n: {"http": _call(LONG_PATH[:-8] + f".b{n}")}), 201),
    "1,000 paths in payloads": (
        lambda: _jobs(10_000, lambda n: {"task": "http", "payload": _call(LONG_PATH[:90] + f".c{n % 1000}")}), 201,
    ),
    "10,000 paths": (lambda: _jobs(10_000, lambda n: {"http": _call(f"$.d{n}")}), 422),
    "10,000 long paths": (lambda: _jobs(10_000, lambda n: {"http": _call(LONG_PATH[:-8] + f".e{n}")}), 422),
    "10,000 crons with keys and ids": (
        lambda: _jobs(
            10_000,
            lambda n: {"task": "x", "schedule": "5 4 29 2 1", "timezone": "Europe/Berlin", "idempotency_key": f"k{n}",
                       "job_id": f"j{n}", "labels": {"a": "b"}},
        ), 201,
    ),
    "10,000 labels": (
        lambda: _jobs(10_000, lambda n: {"task": "x", "required_labels": {f"l{i}": "v" * 100 for i in range(16)}}), 201,
    ),
}  # fmt: skip


# Each way to be large: elements, nesting, one value, what is stored, what is refused, what is compiled.
ALWAYS = (
    "empty objects", "not closed", "one that is large", "10,000 that are nested", "10,000 with something wrong",
    "1,000 paths", "10,000 crons with keys and ids",
)  # fmt: skip


@pytest.mark.parametrize("name", chosen(BATCHES, ALWAYS))
async def test_a_batch(port: int, slices: Slices, name: str) -> None:
    make, status = BATCHES[name]
    await check(port, slices, request("POST", "/v1/jobs:batch", make()), status)
