"""A service for http tasks to call: real sockets on loopback, every answer spelled out by the test."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import uvloop

from mainspring.kinds.http.address_guard import AddressGuard
from mainspring.kinds.http.call import HttpCall
from mainspring.kinds.http.caller import HttpExecutor
from mainspring.kinds.http.network import Resolve
from mainspring.wire.exchange import RunOrder
from mainspring.wire.execution import RunSetup
from mainspring.worker.execution.attempt import Attempt, AttemptEnding, OpenLog, key_of
from mainspring.worker.execution.runner import Runner
from tests.eventually import PATIENCE

from .exchange_server import an_order

Writer = asyncio.StreamWriter
Answer = bytes | Callable[[Writer], Awaitable[None]]


class Asked(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


def answer(status: int = 200, body: Any = b"", **headers: str) -> bytes:
    """An answer as bytes; anything but bytes becomes JSON, `content_type` becomes Content-Type."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
        given.setdefault("content-type", "application/json")
    given.setdefault("content-length", str(len(body)))
    content: bytes = body
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode() + content


class HttpService:
    """Gives its answers in turn, the last one from then on."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[Asked] = []
        self.connections = 0
        self.hung_up = asyncio.Event()
        self.port = 0

    def url(self, path: str = "/hook", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        self.connections += 1
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    self.asked.append(await _request(reader))
                    reply = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                    if isinstance(reply, bytes):
                        writer.write(reply)
                    else:
                        await reply(writer)
                    await writer.drain()
        finally:
            self.hung_up.set()
            writer.close()


async def _request(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, target, headers, body)


@asynccontextmanager
async def a_service(*answers: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpService]:
    service = HttpService(*answers)
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0, ssl=tls)
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        server.close()


class Caller:
    """A worker's slots with nothing but http tasks; loopback is allowed unless the test says otherwise."""

    def __init__(
        self, allow: str = "127.0.0.1", *, look_up: Resolve | None = None, open_log: OpenLog | None = None
    ) -> None:
        self.executor = HttpExecutor(AddressGuard.from_text(allow), resolve=look_up, open_log=open_log)
        self.runner = Runner(1000, [self.executor], kill_grace=1.0, report=self._report, notify=lambda: None)
        self._endings: dict[tuple[int, int], asyncio.Future[AttemptEnding]] = {}

    def start(self, order: RunOrder) -> tuple[Attempt, asyncio.Future[AttemptEnding]]:
        attempt = Attempt(order, key_of(order), 0.0)
        ending = self._endings[attempt.key] = asyncio.get_running_loop().create_future()
        self.runner.take([attempt])
        return attempt, ending

    async def call(self, url: str, *, order: dict[str, Any] | None = None, **fields: Any) -> AttemptEnding:
        async with asyncio.timeout(PATIENCE):
            return await self.start(an_http_order(url, **fields, order=order))[1]

    def _report(self, attempt: Attempt, ending: AttemptEnding) -> None:
        self._endings[attempt.key].set_result(ending)


def an_http_order(url: str, *, order: dict[str, Any] | None = None, **fields: Any) -> RunOrder:
    fields.setdefault("method", "POST" if fields.get("body") is not None else "GET")
    more = dict(order or {})
    limits = more.pop("limits", None)
    return an_order("http", setup=RunSetup(http=HttpCall(url, **fields), limits=limits), **more)


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test on uvloop, as a worker would."""

    async def timed() -> None:
        async with asyncio.timeout(PATIENCE):
            await test()

    uvloop.run(timed())
