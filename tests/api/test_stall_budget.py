"""No request uses more than 100 ms of the loop's CPU time in one go, whatever is in its body."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from uuid import uuid4

import pytest

from mainspring.api.handlers import routed_handlers
from mainspring.kernel.config import MAX_EXCHANGE_BYTES, MAX_HEAD_BYTES, MAX_JOB_BYTES, MAX_SHIPMENT_BYTES
from mainspring.roles.assembly import Assembly
from tests.api.slices import Slices, check, filled, measured, request, send, shared_server
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


@pytest.fixture(scope="module")
def assembly(server: tuple[Assembly, int]) -> Assembly:
    return server[0]


HELD = b'["%s",1]' % str(uuid4()).encode()
STARTED = b'["%s",1,0.5]' % str(uuid4()).encode()
OUTCOME = b'{"run_id":"%s","fence":1}' % str(uuid4()).encode()
FAILED = b'{"run_id":"%s","fence":1,"status":"FAILED","error":"it"}' % str(uuid4()).encode()
CHUNK = b'{"run_id":"%s","fence":1,"attempt":1,"offset":0,"data":""}' % str(uuid4()).encode()


def _worker() -> bytes:
    """The begin of the first exchange of a worker."""
    return b'{"worker_id":"%s","seq":1,' % str(uuid4()).encode()


def _hello(**fields: object) -> bytes:
    hello = {"name": "w", "queues": ["default"], "tasks": ["a"], "slots": 1, **fields}
    return _worker() + b'"hello":' + json.dumps(hello).encode() + b"}"


def _schema(parameters: int) -> dict[str, object]:
    """With objects of 200 parameters each."""
    numbers = {f"p{i}": {"type": "integer", "minimum": i} for i in range(200)}
    parts = {f"o{i}": {"type": "object", "properties": numbers} for i in range(parameters // 200)}
    return {"type": "object", "properties": parts}


def _signatures(count: int, parameters: int) -> dict[str, object]:
    return {f"t{number}": _schema(parameters) for number in range(count)}


DEEP = b"[" * 500_000

EXCHANGES: dict[str, tuple[Callable[[], bytes], int]] = {
    "held": (lambda: filled(_worker() + b'"inventory":[', HELD, b"]}", MAX_EXCHANGE_BYTES), 422),
    "outcomes": (lambda: filled(_worker() + b'"outcomes":[', OUTCOME, b"]}", MAX_EXCHANGE_BYTES), 422),
    "10,000 outcomes": (lambda: _worker() + b'"outcomes":[' + b",".join([OUTCOME] * 10_000) + b"]}", 409),
    "room": (lambda: _worker() + b'"room":{' + b",".join(b'"%d":1' % i for i in range(700_000)) + b"}}", 413),
    "shares": (lambda: filled(_worker() + b'"shares":[', b'{"most":1,"queue":""}', b"]}", MAX_EXCHANGE_BYTES), 413),
    "started": (lambda: filled(_worker() + b'"started":[', STARTED, b"]}", MAX_EXCHANGE_BYTES), 413),
    "progress": (lambda: filled(_worker() + b'"progress":[', b'{"a":1}', b"]}", MAX_EXCHANGE_BYTES), 422),
    "a hello of 34 MB": (lambda: _hello(tasks=[f"t{n}" for n in range(150)], signatures=_signatures(150, 4500)), 413),
    "signatures": (lambda: _hello(tasks=[f"t{n}" for n in range(150)], signatures=_signatures(150, 1000)), 413),
    "allowed signatures": (lambda: _hello(tasks=[f"t{n}" for n in range(40)], signatures=_signatures(40, 900)), 200),
    "tasks": (lambda: _hello(tasks=["t" * 100] * 10_000), 422),
    "labels": (lambda: _hello(labels={f"l{n}": "v" for n in range(10_000)}), 422),
}


@pytest.mark.parametrize("name", EXCHANGES)
async def test_an_exchange(port: int, slices: Slices, name: str) -> None:
    make, status = EXCHANGES[name]
    body = make()
    assert len(body) <= MAX_EXCHANGE_BYTES or name == "a hello of 34 MB"
    await check(port, slices, request("POST", "/v1/exchange", body), status)


@pytest.mark.parametrize("element", [CHUNK, CHUNK[:-3] + b'"' + b"QUJD" * 100_000 + b'"}'], ids=["tiny", "large"])
async def test_a_shipment(port: int, slices: Slices, element: bytes) -> None:
    body = filled(b'{"worker_id":"%s","chunks":[' % str(uuid4()).encode(), element, b"]}", MAX_SHIPMENT_BYTES)
    await check(port, slices, request("POST", "/v1/exchange/logs", body), None)


BODIES = {
    "notify": (b'{"notify":[', b"[]", b"]}"),
    "rules": (b'{"retry":{"rules":[', b"{}", b"]}}"),
    "body": (b'{"http":{"url":"http://a/","body":[', b"{}", b"]}}"),
    "payload": (b'{"payload":{"a":[', b"[]", b"]}}"),
    "depends_on": (b'{"depends_on":[', b'"a"', b"]}"),
    "deep payload": (b'{"payload":{"a":' + DEEP, b"", b"]" * 500_000 + b"}}"),
    "deep body": (b'{"http":{"url":"http://a/","body":' + DEEP, b"", b"]" * 500_000 + b"}}"),
    "deep": (DEEP, b"", b"]" * 500_000),
    "text": (b'{"task":"x","payload":{"a":"', b"x" * 1000, b'"}}'),
    "http": (b'{"http":{"url":"http://a/","method":"POST","body":{"a":[', b"[[[]]]", b"]}}}"),
}


@pytest.mark.parametrize("name", chosen(BODIES, ("rules", "deep payload")))
async def test_every_route_and_its_largest_body(assembly: Assembly, port: int, slices: Slices, name: str) -> None:
    body = filled(*BODIES[name], MAX_JOB_BYTES)
    for method, path in _routes(assembly):
        await check(port, slices, request(method, path, body), None)


QUERIES = (
    "a=1&",
    "limit=1&",
    "status=a,b&",
    "label=a:b&q=%25&",
    "error=%F0%9F%98%80&",
    f"cursor={'A' * 4000}&",
    "&",
    "%",
)


@pytest.mark.parametrize("element", chosen(QUERIES, ("status=a,b&", "label=a:b&q=%25&")))
async def test_every_route_with_a_long_query(assembly: Assembly, port: int, slices: Slices, element: str) -> None:
    query = element * (60_000 // len(element))
    for method, path in _routes(assembly):
        if method == "GET":
            await check(port, slices, request(method, f"{path}?{query}"), None)


@pytest.mark.parametrize("segment", chosen(["x", "%25", ":", "%F0%9F%98%80", "a/", "%2F"], ("%25", "a/")))
async def test_a_long_path(port: int, slices: Slices, segment: str) -> None:
    name = segment * (60_000 // len(segment))
    for method in ("GET", "POST", "PATCH", "DELETE"):
        for begin in ("/v1/jobs/", "/v1/runs/", "/v1/queues/", "/"):
            await check(port, slices, request(method, begin + name), None)


@pytest.mark.parametrize("line", ["a:b", "Cookie: a=b; c=d", "Accept: text/html;q=0.1,*/*", "X: " + "x" * 5000])
async def test_a_head_full_of_fields(port: int, slices: Slices, line: str) -> None:
    data = b"".join(request("GET", "/v1/jobs"))
    fields = f"{line}\r\n".encode() * (60_000 // (len(line) + 2))
    await check(port, slices, [data.replace(b"Connection:", fields + b"Connection:")], None)


def _routes(assembly: Assembly) -> list[tuple[str, str]]:
    """Method and path of all routes, each verb for itself."""
    return [
        (handler.method, route.path.replace("{", "").replace("}", ""))
        for route, handler in routed_handlers(assembly.app)
    ]


async def test_a_head_is_refused_before_it_is_parsed(port: int, slices: Slices) -> None:
    line = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 80_000_000
    await check(port, slices, [line + b"\r\n\r\n"], 431)
    await check(port, slices, [b"GET /" + b"x" * 80_000_000], 431)
    await check(port, slices, [b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"a:\r\n" * 10_000_000], 431)


async def test_a_head_may_have_64_kib_and_comes_in_pieces(port: int) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "
    filled = head + b"x" * (MAX_HEAD_BYTES - len(head) - 5) + b"\r\n\r\n"
    assert await send(port, [filled]) == 200
    assert await send(port, [filled[at : at + 1000] for at in range(0, len(filled), 1000)]) == 200
    assert await send(port, [head + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n"]) == 431


async def test_trailers_are_part_of_no_body(port: int, slices: Slices) -> None:
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: "
    await check(port, slices, [head + b"x" * 80_000_000], None)


async def test_a_body_behind_another_request_is_read_whole(port: int) -> None:
    body = b'{"task":"x","payload":{"a":"' + b"x" * 200_000 + b'"}}'
    first, second = (b"".join(request("POST", "/v1/jobs", body)).replace(b"Connection: close\r\n", b""),) * 2
    assert await send(port, [first + second]) == 201


async def test_many_requests_at_once_on_one_connection(port: int, slices: Slices) -> None:
    await check(port, slices, [b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 100_000], None)


async def test_a_body_in_tiny_chunks(port: int, slices: Slices) -> None:
    head = b"".join(request("POST", "/v1/jobs"))[: -len(b"Content-Length: 0\r\nConnection: close\r\n\r\n")]
    body = b"1\r\n \r\n" * 1_000_000 + b"0\r\n\r\n"
    await check(port, slices, [head + b"Transfer-Encoding: chunked\r\n\r\n" + body], None)
