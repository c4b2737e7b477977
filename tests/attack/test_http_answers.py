"""Servers that answer http tasks with malice: their answers cost little CPU, end the run at most, and tell nothing
about the network inside. Needs only loopback; one test needs openssl."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mainspring.kinds.http import json_path
from mainspring.kinds.http.call import SuccessRule
from mainspring.kinds.http.parser import MOST_INTERIM, AnswerParser, BadAnswer
from mainspring.wire.execution import ResourceLimits
from mainspring.worker.execution.attempt import AttemptEnding
from tests.certificates import Authority
from tests.operations.waiting import until
from tests.worker.http_service import Answer, Caller, Writer, a_service, answer, run

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
# An attack costs the worker less CPU than this. The attacks that were possible took 5 s and more, or had no end.
MOST_CPU = 2.0


def flood(start: bytes, piece: bytes) -> Callable[[Writer], Awaitable[None]]:
    """Send `start`, and then `piece` until the worker hangs up."""

    async def send(writer: Writer) -> None:
        writer.write(start)
        block = piece * (64 * 1024 // len(piece) + 1)
        while not writer.transport.is_closing():
            writer.write(block)
            await writer.drain()

    return send


def called(attack: Answer, most_cpu: float = MOST_CPU, **fields: Any) -> AttemptEnding:
    """The ending of a call to an attacker; another call of the same worker succeeds afterwards."""
    endings: list[AttemptEnding] = []

    async def test() -> None:
        async with a_service(attack) as attacker, a_service(answer(200, {"ok": True})) as friend:
            caller = Caller()
            began = time.process_time()
            endings.append(await caller.call(attacker.url(), **fields))
            assert time.process_time() - began < most_cpu
            assert (await caller.call(friend.url())).status == "SUCCESS"

    run(test)
    return endings[0]


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        (flood(b"", INTERIM), f"more than {MOST_INTERIM} 1xx answers"),
        (flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), f"more than {MOST_INTERIM} 1xx answers"),
        (flood(HEAD, b"a: b\r\n"), "more than 512 headers"),
        (flood(HEAD + b"a: ", b"x"), "bytes of headers and framing"),
        (flood(HEAD, b"x"), "bytes of headers and framing"),
        (flood(b"HTTP/1.1 200 ", b"x"), "bytes of headers and framing"),
        (flood(b"", b"\r\n"), "bytes of headers and framing"),
        (flood(CHUNKED, b"1\r\na\r\n"), "pieces of a few bytes"),
        (flood(CHUNKED + b"1;", b"x"), "bytes of headers and framing"),
        (flood(CHUNKED, b"1;" + b"x" * 400 + b"\r\na\r\n"), "bytes of headers and framing"),
        (flood(CHUNKED, b"0" * 15), "bytes of headers and framing"),
        (flood(CHUNKED + b"0\r\n", b"a: b\r\n"), "more than 512 headers"),
        (flood(CHUNKED + b"0\r\na: ", b"x"), "bytes of headers and framing"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "another protocol"),
        (HEAD + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "not HTTP/1.1"),
        (HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\na", "not HTTP/1.1"),
        (HEAD + b"content-length: 99999999999999999999999\r\n\r\n", "not HTTP/1.1"),
    ],
)
def test_an_answer_without_end_ends_the_run_and_not_the_worker(attack: Answer, words: str) -> None:
    ending = called(attack)
    assert ending.status == "FAILED" and ending.retry
    assert ending.error is not None and "RemoteProtocolError" in ending.error and words in ending.error


def test_an_endless_body_is_cut() -> None:
    ending = called(flood(HEAD + b"content-length: 99999999999\r\n\r\n", b"x"))
    assert ending.status == "SUCCESS"


def test_slow_trailers_take_no_longer_than_the_run() -> None:
    async def drip(writer: Writer) -> None:
        writer.write(CHUNKED + b"2\r\nok\r\n0\r\na: ")
        while not writer.transport.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async def test() -> None:
        async with a_service(drip) as attacker:
            ending = await Caller().call(attacker.url(), order={"timeout": 0.3})
            assert ending.status == "FAILED" and ending.error is not None and "timed out" in ending.error

    run(test)


@pytest.mark.parametrize("data", [HEAD + b"a: " + b"x" * 60_000, INTERIM * 16 + CHUNKED + b"1\r\na\r\n" * 9000])
def test_single_bytes_cost_little_more_than_blocks(data: bytes) -> None:
    """A server can send every byte by itself. That must not make the parser read everything again each time."""
    began = time.process_time()
    parser = AnswerParser("GET", 1_000_000)
    for byte in data:
        parser.feed(bytes((byte,)))
    assert parser.answer is None
    assert time.process_time() - began < MOST_CPU


def test_bytes_after_an_answer_never_answer_another_request() -> None:
    forged = answer(200, {"forged": True})
    for method in ("GET", "HEAD"):
        for extra in (forged, b"x", b"HTTP/1.1 100 Continue\r\n\r\n" + forged):
            parser = AnswerParser(method, 1000)
            parser.feed(answer(200, b"ab" if method == "GET" else b"") + extra)
            assert parser.answer is not None and parser.answer.body == (b"ab" if method == "GET" else b"")
            assert not parser.reusable


def test_an_answer_that_breaks_off_is_no_answer() -> None:
    for data in (HEAD, HEAD + b"content-length: 3\r\n\r\nab", CHUNKED + b"5\r\nab", CHUNKED + b"2\r\nab\r\n0\r\n"):
        parser = AnswerParser("GET", 1000)
        parser.feed(data)
        with pytest.raises(BadAnswer, match="in the middle"):
            parser.end()


# -- what is told about the network inside

INSIDE = "10.11.12.13"


@pytest.mark.parametrize("address", [INSIDE, "169.254.169.254", "127.0.0.1", "fd00::11", "::ffff:10.11.12.13"])
def test_a_refusal_does_not_tell_what_a_name_resolves_to(address: str) -> None:
    async def look_up(host: str, port: int) -> list[str]:
        return [address]

    async def test() -> None:
        error = (await Caller("", look_up=look_up).call("http://db.internal/")).error or ""
        assert "db.internal is not a public address" in error
        assert not any(word in error for word in (address, "private", "loopback", "metadata", "link-local"))

    run(test)


def test_a_failed_connection_does_not_tell_the_address_of_a_name() -> None:
    addresses = ["127.0.0.1", "127.0.0.9"]

    async def look_up(host: str, port: int) -> list[str]:
        return addresses

    async def test() -> None:
        async with a_service(answer()) as service:
            closed = service.port
        error = (await Caller("*", look_up=look_up).call(f"http://db.internal:{closed}/")).error
        assert error is not None and "ConnectError: no connection to db.internal" in error and "refused" in error
        assert not any(address in error for address in addresses)

    run(test)


def test_a_certificate_of_an_inside_server_does_not_tell_its_address(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Needs openssl."""
    issued = Authority(tmp_path_factory.mktemp("authority")).issue("inside", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*issued)

    async def look_up(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async def test() -> None:
        async with a_service(answer(), tls=context) as service:
            error = (await Caller("*", look_up=look_up).call(service.url(host="db.internal", scheme="https"))).error
            assert error is not None and "certificate" in error and "127.0.0.1" not in error

    run(test)


# -- bodies that are costly to search

OBJECTS = b"[" + b"{}," * 260_000 + b"{}]"


@pytest.mark.parametrize(
    ("body", "path", "words"),
    [
        (b"[" + b"{}," * 300_000 + b"{}]", "$..a", "success.json reads a body with at most 262144 arrays and objects"),
        (b"[" + b"1," * 1_100_000 + b"1]", "$..a", "success.json reads a body with at most 1048576 commas"),
        # Each of these finds nothing for many seconds.
        (OBJECTS, "$..[?@" + ".*" * 95 + "]", "success.json takes more than 1000000 steps"),
        (b"[" + b"1," * 900_000 + b"1]", "$[?@==2" + "||@==2" * 60 + "]", "success.json takes more than 1000000 steps"),
        (b"[" + b",".join([b"[" * 98 + b"]" * 98] * 2600) + b"]", "$..a", "success.json takes more than 1000000 steps"),
    ],
    ids=["objects", "numbers", "segments", "comparisons", "depth"],
)
def test_a_body_that_is_costly_to_search_fails_the_run(body: bytes, path: str, words: str) -> None:
    limits = ResourceLimits(output=16 * 1024 * 1024)
    # A budget takes 2 to 4 s of CPU, and more on a busy machine.
    ending = called(answer(200, body), most_cpu=20.0, success=SuccessRule(json=path), order={"limits": limits})
    assert ending.status == "FAILED" and ending.error is not None and words in ending.error


def test_a_search_ends_with_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it has threads of its own, so others' work does not wait for it."""
    began = threading.Event()
    searching: set[int] = set()
    spend = json_path.Budget.spend

    def endless(budget: json_path.Budget, steps: int) -> None:
        """A search that would take hours."""
        searching.add(threading.get_ident())
        began.set()
        try:
            while True:
                spend(budget, 0)
        finally:
            searching.discard(threading.get_ident())

    monkeypatch.setattr(json_path.Budget, "spend", endless)

    async def test() -> None:
        async with a_service(answer(200, OBJECTS)) as attacker:
            calls = [
                Caller().call(attacker.url(), order={"timeout": 1.0}, success=SuccessRule(json="$..a"))
                for _ in range(4)
            ]
            endings = asyncio.gather(*calls)
            assert await asyncio.to_thread(began.wait, 30)
            assert {ending.error for ending in await endings} == {"timed out after 1s"}
            await until(lambda: not searching)
            assert "json-path_2" not in {thread.name for thread in threading.enumerate()}

    run(test)
