"""A worker that was driven from the server it prefers goes back when that one is ready, and loses nothing by it."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import uvloop

from mainspring.kernel.clock import ManualClock
from mainspring.kernel.config import Timing
from mainspring.kernel.ids import uuid7
from mainspring.wire.exchange import ExchangeRequest, WorkerHello
from mainspring.worker.exchange.preferred_server import Pauses, PreferredServer
from mainspring.worker.exchange.server_client import AnswerLost, ServerClient
from tests.eventually import PATIENCE
from tests.operations.waiting import until

from .a_worker import QUICK, a_worker, release
from .exchange_server import ExchangeServer, an_order

SOON = dataclasses.replace(QUICK, preferred_server_check=0.1, preferred_server_check_longest=0.2)
HELLO = WorkerHello(name="by hand", queues=["default"], tasks=["noop"], slots=1)
PATIENT = Timing(
    beat=30.0, kill=60.0, rescue=90.0, base_kill=60.0, base_rescue=90.0
)  # a server that is ready may take so long to say it


def times_asked(
    pauses: Pauses, begin: int, end: int, *, at_preferred: Callable[[int], bool] = lambda _: False
) -> list[int]:
    return [second for second in range(begin, end) if pauses.due(float(second), at_preferred=at_preferred(second))]


def test_pauses_double_up_to_the_longest() -> None:
    pauses = Pauses(30.0, 300.0, lambda: 0.5)
    asked = times_asked(pauses, 0, 2000)
    assert asked == [30, 90, 210, 450, 750, 1050, 1350, 1650, 1950]


def test_chance_makes_each_pause_half_to_one_and_a_half_times_as_long() -> None:
    assert times_asked(Pauses(30.0, 300.0, lambda: 0.0), 0, 50) == [15, 45]
    assert times_asked(Pauses(30.0, 300.0, lambda: 0.99), 0, 50) == [45]


def test_a_worker_at_its_preferred_server_asks_nobody() -> None:
    assert times_asked(Pauses(30.0, 300.0, lambda: 0.5), 0, 5000, at_preferred=lambda _: True) == []


def test_a_server_that_keeps_its_worker_is_asked_soon_the_next_time() -> None:
    pauses = Pauses(30.0, 300.0, lambda: 0.5)
    assert times_asked(pauses, 0, 100) == [30, 90]
    assert times_asked(pauses, 100, 1000, at_preferred=lambda _: True) == []
    assert times_asked(pauses, 1000, 1050) == [1030]


def test_a_server_that_loses_its_worker_again_at_once_is_asked_less_and_less() -> None:
    """It says that it is ready, and takes no exchange."""
    pauses = Pauses(30.0, 300.0, lambda: 0.5)
    asked: list[int] = []
    home_until = 0
    for second in range(3000):
        if pauses.due(float(second), at_preferred=second < home_until):
            asked.append(second)
            home_until = second + 5
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert gaps[0] > 50 and gaps[-1] > 290 and gaps == sorted(gaps)


def with_three(
    test: Callable[[list[ExchangeServer], ServerClient, PreferredServer, ManualClock], Awaitable[None]],
) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(PATIENCE),
            ExchangeServer() as first,
            ExchangeServer(first.records) as second,
            ExchangeServer(first.records) as third,
        ):
            servers = [first, second, third]
            server_client = ServerClient(",".join(server.url for server in servers), "secret", timeout=30.0)
            clock = ManualClock(datetime(2026, 11, 15, tzinfo=UTC))
            await test(servers, server_client, PreferredServer(server_client, PATIENT, lambda: 0.5, clock), clock)
            server_client.close()

    uvloop.run(run())


async def driven_to_the_third(servers: list[ExchangeServer], server_client: ServerClient) -> None:
    for server in servers[:2]:
        server.faults.append("503")
    for seq in (1, 2, 3):
        try:
            await server_client.exchange(ExchangeRequest(uuid7(), seq, hello=HELLO))
        except AnswerLost:
            continue
    assert server_client.server == servers[2].url


async def asked_after(preferred_server: PreferredServer, clock: ManualClock, seconds: float) -> str | None:
    clock.advance(seconds)
    return await preferred_server.run_once()


def test_the_best_server_that_is_ready_is_wished_for_and_the_move_waits_to_be_made() -> None:
    async def test(
        servers: list[ExchangeServer],
        server_client: ServerClient,
        preferred_server: PreferredServer,
        clock: ManualClock,
    ) -> None:
        assert await asked_after(preferred_server, clock, 1000.0) is None, "it is at the best one"
        await driven_to_the_third(servers, server_client)
        servers[0].ready = servers[1].ready = False
        assert await preferred_server.run_once() is None
        assert await asked_after(preferred_server, clock, 29.0) is None
        assert [server.asked_if_ready for server in servers] == [0, 0, 0]
        assert await asked_after(preferred_server, clock, 1.0) is None
        assert [server.asked_if_ready for server in servers] == [1, 1, 0], "and neither is ready"
        servers[1].ready = True
        assert await asked_after(preferred_server, clock, 60.0) == servers[1].url == preferred_server.target
        assert server_client.server == servers[2].url
        preferred_server.move()
        assert server_client.server == servers[1].url
        servers[0].ready = True
        assert await asked_after(preferred_server, clock, 120.0) == servers[0].url
        preferred_server.move()
        assert server_client.server == servers[0].url and preferred_server.target is None
        assert await asked_after(preferred_server, clock, 1000.0) is None

    with_three(test)


def test_a_server_that_is_away_hangs_or_talks_nonsense_is_not_ready() -> None:
    async def test(
        servers: list[ExchangeServer],
        server_client: ServerClient,
        preferred_server: PreferredServer,
        clock: ManualClock,
    ) -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async def nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"I am not a web server\r\n\r\n")
            await writer.drain()
            writer.close()

        for behaviour, within in ((silent, 0.05), (nonsense, 30.0)):
            listening = await asyncio.start_server(behaviour, "127.0.0.1", 0)
            odd = ServerClient(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", "secret", timeout=30.0)
            assert not await odd.is_ready(odd.server, within)
            listening.close()
            assert not await odd.is_ready(odd.server, 30.0), "nobody listens any more"
        assert await server_client.is_ready(servers[0].url, 30.0)

    with_three(test)


def test_a_wish_that_has_come_true_meanwhile_moves_nobody() -> None:
    async def test(
        servers: list[ExchangeServer],
        server_client: ServerClient,
        preferred_server: PreferredServer,
        clock: ManualClock,
    ) -> None:
        await driven_to_the_third(servers, server_client)
        await preferred_server.run_once()
        assert await asked_after(preferred_server, clock, 30.0) == servers[0].url
        servers[2].faults.append("503")
        try:
            await server_client.exchange(ExchangeRequest(uuid7(), 4, hello=HELLO))
        except AnswerLost:
            assert server_client.server == servers[0].url, "after the last comes the first"
        servers[0].faults.append("503")
        preferred_server.move()
        assert server_client.server == servers[0].url

    with_three(test)


def test_the_client_for_logs_moves_along_also_when_it_alone_was_driven_away() -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE), ExchangeServer() as first, ExchangeServer(first.records) as second:
            both = f"{first.url},{second.url}"
            shipping = ServerClient(both, "secret", timeout=30.0)
            server_client = ServerClient(both, "secret", timeout=30.0, beside=shipping)
            shipping.leave(first.url)
            assert (server_client.server, shipping.server) == (first.url, second.url)
            assert server_client.better == (first.url,)
            assert server_client.move(first.url)
            assert (server_client.server, shipping.server) == (first.url, first.url)
            assert not server_client.move(first.url) and not server_client.better
            for each in (server_client, shipping):
                each.close()

    uvloop.run(run())


class Watchful(ExchangeServer):
    """Notes how many exchanges are under way at the other server when one arrives here."""

    def __init__(self) -> None:
        super().__init__()
        self.other: ExchangeServer | None = None
        self.under_way_elsewhere: list[int] = []

    async def _answer(self, request: ExchangeRequest) -> bytes | None:
        if self.other is not None:
            self.under_way_elsewhere.append(self.other._in_flight)
        return await super()._answer(request)


async def back_between_two_exchanges(first: Watchful, second: ExchangeServer) -> bool:
    """The first server is ready again, and the worker comes; whether it did so with nothing under way or lost."""
    asked_if_ready = first.asked_if_ready
    await first.until(lambda: first.asked_if_ready >= asked_if_ready + 3)
    asked = len(first.requests)
    first.other, first.under_way_elsewhere = second, []
    first.end_outage()
    first.ready = True
    await first.until(lambda: len(first.requests) > asked)
    came = first.requests[asked]
    assert came.hello is None
    return first.under_way_elsewhere[0] == 0 and not came.recover


def test_a_worker_goes_back_between_two_exchanges_as_the_same_incarnation_with_its_runs_in_hand() -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE), Watchful() as first, ExchangeServer(first.records) as second:
            both = cast(ExchangeServer, SimpleNamespace(url=f"{first.url},{second.url}"))
            release["ordinary"].clear()
            async with a_worker(both, 4, SOON, answered=300.0) as worker:
                before = an_order()
                first.submit(before)
                await first.outcome_of(before)
                first.ready = False
                first.begin_outage("503")
                lasting = an_order("blocks", payload={"name": "ordinary"})
                second.submit(lasting)
                await second.until(second.held_by_workers)
                # On a machine that stalls the second server is late, and the worker leaves it for that: then once more.
                while not await back_between_two_exchanges(first, second):
                    first.ready = False
                    first.begin_outage("503")
                release["ordinary"].set()
                reported = lambda: [o.run_id for s in (first, second) for r in s.requests for o in r.outcomes]  # noqa: E731
                await until(lambda: lasting.run_id in reported())
                assert set(first.incarnations) | set(second.incarnations) == {worker.worker_id}

    uvloop.run(run())
