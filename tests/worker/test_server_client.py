"""The server client tells apart an answer, a refusal, a lost answer and a lost incarnation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
import uvloop

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock, ManualClock
from mainspring.kernel.ids import uuid7
from mainspring.wire.exchange import ExchangeRequest, WorkerHello
from mainspring.worker.exchange.server_client import (
    AnswerLost,
    ExchangeRefused,
    IncarnationLost,
    ServerClient,
    StoreDown,
    _decode_reply,
    _decoded,
)
from tests.eventually import PATIENCE

from .exchange_server import ExchangeServer, Fault, an_order

WORKER = uuid7()
HELLO = WorkerHello(name="by hand", queues=["default"], tasks=["noop"], slots=1)


def between(
    test: Callable[[ExchangeServer, ServerClient], Awaitable[None]],
    timeout: float = 60.0,
    clock: LoopClock = SYSTEM_CLOCK,
) -> None:
    async def run() -> None:
        async with ExchangeServer() as server:
            server_client = ServerClient(server.url, "secret", timeout=timeout, clock=clock)
            await test(server, server_client)
            server_client.close()

    uvloop.run(run())


def request(seq: int, free: int = 0, wait_ms: int = 0, worker_id: UUID = WORKER) -> ExchangeRequest:
    return ExchangeRequest(worker_id=worker_id, seq=seq, free=free, wait_ms=wait_ms, hello=HELLO)


def test_an_exchange_brings_its_answer_over_one_warm_connection() -> None:
    async def test(server: ExchangeServer, server_client: ServerClient) -> None:
        server.submit(*[an_order() for _ in range(5000)])
        first = await server_client.exchange(request(1, free=5000))
        assert len(first.runs) == 5000  # far more than one packet
        for seq in range(2, 20):
            assert (await server_client.exchange(request(seq))).seq == seq
        assert server.connected == 1

    between(test)


def test_two_exchanges_at_once_take_two_connections() -> None:
    async def test(server: ExchangeServer, server_client: ServerClient) -> None:
        waiting = asyncio.create_task(server_client.exchange(request(1, wait_ms=10_000)))
        await server.until(lambda: server.requests)
        assert not (await server_client.exchange(request(2))).superseded
        assert (await waiting).superseded
        assert server.connected == 2

    between(test)


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("503", AnswerLost, "503 unavailable"),
        ("store_down", StoreDown, "503 store_down"),
        ("drop the answer", AnswerLost, "without a response"),
        ("cut the answer short", AnswerLost, "without a response"),
        ("talk nonsense", AnswerLost, "HTTP"),
        ("hang", AnswerLost, "no answer within 3 s"),
        ("401", ExchangeRefused, "401 unauthorized"),
        ("422", ExchangeRefused, "422 invalid_input"),
        ("unknown_worker", IncarnationLost, "409 unknown_worker"),
        ("fenced", IncarnationLost, "409 fenced"),
        ("conflict", ExchangeRefused, "409 conflict"),
    ],
)
def test_what_goes_wrong_is_told_apart_and_the_next_exchange_works(
    fault: Fault, error: type[Exception], words: str
) -> None:
    clock = ManualClock()

    async def test(server: ExchangeServer, server_client: ServerClient) -> None:
        server.faults.append(fault)
        exchange = asyncio.create_task(server_client.exchange(request(1)))
        await server.until(lambda: server.requests)
        if fault == "hang":
            clock.advance(3.0)
        with pytest.raises(error, match=words) as caught:
            await exchange
        assert caught.type is error
        next_incarnation = uuid7() if error is IncarnationLost else WORKER
        assert (await server_client.exchange(request(2, worker_id=next_incarnation))).seq == 2

    between(test, timeout=3.0, clock=clock)


def test_a_server_that_is_not_there_is_a_lost_answer() -> None:
    async def run() -> None:
        async with ExchangeServer() as server:
            url = server.url
        with pytest.raises(AnswerLost):
            await ServerClient(url, "secret", timeout=30.0).exchange(request(1))

    uvloop.run(run())


def test_a_connection_that_the_server_closed_meanwhile_is_not_used_again() -> None:
    async def test(server: ExchangeServer, server_client: ServerClient) -> None:
        await server_client.exchange(request(1))
        await server.hang_up()
        async with asyncio.timeout(PATIENCE):
            while any(connection.usable for connection in server_client._servers[server.url].idle):
                await asyncio.sleep(0)
        assert (await server_client.exchange(request(2))).seq == 2

    between(test)


@pytest.mark.parametrize("address", ["127.0.0.1:8700", "ftp://x", "http://"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="server:"):
        ServerClient(address, "secret", timeout=1.0)


def test_a_stale_exchange_is_an_answer_that_was_lost() -> None:
    """Another copy of it was carried out; what that one claimed must be asked for again."""
    problem = b'{"type":"t","title":"t","status":409,"code":"stale_exchange","detail":"d"}'
    with pytest.raises(AnswerLost):
        _decoded(_decode_reply, 409, problem)


def with_two(
    test: Callable[[ExchangeServer, ExchangeServer, ServerClient], Awaitable[None]], clock: LoopClock = SYSTEM_CLOCK
) -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE), ExchangeServer() as first, ExchangeServer(first.records) as second:
            server_client = ServerClient(f"{first.url},{second.url}/", "secret", timeout=30.0, clock=clock)
            await test(first, second, server_client)
            server_client.close()

    uvloop.run(run())


def must_wait(server_client: ServerClient) -> bool:
    return not server_client.untried


def is_late(server_client: ServerClient) -> bool:
    return server_client.late


@pytest.mark.parametrize("fault", ["503", "store_down", "drop the answer", "talk nonsense", "401"])
def test_of_two_servers_the_next_is_used_from_the_first_failure_on(fault: Fault) -> None:
    async def test(first: ExchangeServer, second: ExchangeServer, server_client: ServerClient) -> None:
        await server_client.exchange(request(1))
        first.faults.append(fault)
        with pytest.raises((AnswerLost, ExchangeRefused)):
            await server_client.exchange(request(2))
        assert must_wait(server_client) is False
        for seq in (3, 4):
            await server_client.exchange(request(seq))
        assert [asked.seq for asked in second.requests] == [3, 4]
        second.faults.append("503")
        first.faults.append("503")
        for seq in (5, 6):
            with pytest.raises(AnswerLost):
                await server_client.exchange(request(seq))
        assert must_wait(server_client), "both are in trouble"
        assert (await server_client.exchange(request(7))).seq == 7

    with_two(test)


@pytest.mark.parametrize("fault", ["unknown_worker", "fenced"])
def test_what_the_database_says_is_not_asked_of_another_server(fault: Fault) -> None:
    async def test(first: ExchangeServer, second: ExchangeServer, server_client: ServerClient) -> None:
        first.faults.append(fault)
        with pytest.raises(IncarnationLost):
            await server_client.exchange(request(1))
        await server_client.exchange(request(2, worker_id=uuid7()))
        assert not second.requests

    with_two(test)


def test_while_an_answer_is_late_exchanges_go_to_the_other_server() -> None:
    clock = ManualClock()

    async def test(first: ExchangeServer, second: ExchangeServer, server_client: ServerClient) -> None:
        first.faults.append("hang")
        hanging = asyncio.create_task(server_client.exchange(request(1)))
        await first.until(lambda: first.requests)
        assert is_late(server_client) is False
        clock.advance(0.2)
        assert is_late(server_client)
        assert (await server_client.exchange(request(2))).seq == 2
        assert [asked.seq for asked in second.requests] == [2]
        assert is_late(server_client) is False
        with pytest.raises(AnswerLost, match="another server answers"):
            await hanging  # long before its time is over

    with_two(test, clock)


def test_what_waits_for_a_late_server_at_the_client_beside_goes_to_the_other_one_too() -> None:
    """Else a run that has printed something would keep its slot until the shipment of its log has timed out."""

    async def run() -> None:
        async with asyncio.timeout(PATIENCE), ExchangeServer() as first, ExchangeServer(first.records) as second:
            clock, both = ManualClock(), f"{first.url},{second.url}"
            patient = ServerClient(both, "secret", timeout=300.0, clock=clock)
            server_client = ServerClient(both, "secret", timeout=300.0, beside=patient, clock=clock)
            first.begin_outage("hang")
            waiting = asyncio.create_task(patient.exchange(request(1)))
            hanging = asyncio.create_task(server_client.exchange(request(2)))
            await first.until(lambda: len(first.requests) == 2)
            clock.advance(0.2)
            assert is_late(server_client)
            await server_client.exchange(request(3))
            for each in (waiting, hanging):
                with pytest.raises(AnswerLost, match="another server answers"):
                    await each
            assert patient.server == server_client.server == second.url
            for each_client in (patient, server_client):
                each_client.close()

    uvloop.run(run())


def test_while_one_is_late_and_the_other_is_away_nobody_is_in_a_hurry() -> None:
    """The worker would ask the one that is away again and again, as fast as it is refused."""

    async def run() -> None:
        async with asyncio.timeout(PATIENCE), ExchangeServer() as first:
            async with ExchangeServer() as second:
                away = second.url
            clock = ManualClock()
            server_client = ServerClient(f"{first.url},{away}", "secret", timeout=30.0, clock=clock)
            first.faults.append("hang")
            hanging = asyncio.create_task(server_client.exchange(request(1)))
            await first.until(lambda: first.requests)
            clock.advance(0.2)
            assert is_late(server_client)
            with pytest.raises(AnswerLost):
                await server_client.exchange(request(2))
            assert must_wait(server_client)
            hanging.cancel()
            server_client.close()

    uvloop.run(run())
