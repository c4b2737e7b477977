"""Output on its way to a server: in order, whole, bounded, and none of it for runs that print nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock, ManualClock
from mainspring.kernel.ids import uuid7
from mainspring.wire.execution import ResourceLimits, RunSetup
from mainspring.worker.exchange.server_client import ServerClient
from mainspring.worker.execution.attempt import Attempt, key_of
from mainspring.worker.incarnation import Incarnation
from mainspring.worker.output import attempt_log, log_shipper
from mainspring.worker.output.attempt_log import AttemptLog
from mainspring.worker.output.log_shipper import MOST_WAITING, LogShipper
from tests.eventually import PATIENCE
from tests.operations.waiting import until

from .exchange_server import an_order
from .log_server import LogServer

WORKER = uuid7()


def against(test: Callable[[LogServer, LogShipper], Awaitable[None]], clock: LoopClock = SYSTEM_CLOCK) -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE), LogServer() as server:
            shipper = LogShipper(ServerClient(server.url, "secret", timeout=20.0), clock)
            shipper.speaks_for(lambda: Incarnation(WORKER, ""))
            try:
                await test(server, shipper)
            finally:
                await shipper.close()

    uvloop.run(run())


def an_attempt(**fields: Any) -> Attempt:
    order = an_order(**fields)
    return Attempt(order, key_of(order), time.monotonic())


def stored(server: LogServer, attempt: Attempt) -> bytes:
    return server.logs[attempt.order.run_id, attempt.order.fence]


def test_a_log_is_whole_when_finish_returns() -> None:
    async def test(server: LogServer, shipper: LogShipper) -> None:
        attempt = an_attempt()
        log = shipper.open(attempt)
        assert attempt.log is log and shipper.open(attempt) is log
        for number in range(1000):
            log.write(b"%d\n" % number)
        await log.finish()
        assert stored(server, attempt) == b"".join(b"%d\n" % number for number in range(1000))
        assert (server.requests, server.worker_ids) == (1, {WORKER})
        assert len(server.ended(attempt.order.run_id)) == 1
        log.write(b"too late")
        await log.finish()
        assert server.requests == 1

    against(test)


def test_output_is_shipped_while_the_attempt_runs() -> None:
    clock = ManualClock()

    async def test(server: LogServer, shipper: LogShipper) -> None:
        attempt = an_attempt()
        shipper.open(attempt).write(b"early\n")
        await until(lambda: clock.next_timer is not None)
        clock.advance(0.1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not server.arrived.is_set(), "what comes close together goes together"
        clock.advance(0.1)
        await server.arrived.wait()
        await shipper.open(attempt).finish()
        assert stored(server, attempt) == b"early\n"

    against(test, clock)


def test_many_attempts_share_a_request() -> None:
    async def test(server: LogServer, shipper: LogShipper) -> None:
        attempts = [an_attempt() for _ in range(200)]
        for attempt in attempts:
            shipper.open(attempt).write(f"of {attempt.order.run_id}".encode())
        await asyncio.gather(*(shipper.open(attempt).finish() for attempt in attempts))
        assert server.requests <= 3
        assert all(stored(server, attempt) == f"of {attempt.order.run_id}".encode() for attempt in attempts)

    against(test)


def test_large_output_goes_in_chunks_and_the_rest_waits_behind_full() -> None:
    async def test(server: LogServer, shipper: LogShipper) -> None:
        attempt = an_attempt(setup=RunSetup(limits=ResourceLimits(output=50_000_000)))
        log = shipper.open(attempt)
        server.open.clear()
        piece, most = b"x" * 65536, 0
        while not log.full:
            log.write(piece)
            most += len(piece)
        assert most <= MOST_WAITING + len(piece)
        waiting = asyncio.create_task(log.room())
        await server.arrived.wait()
        assert not waiting.done()
        server.open.set()
        await waiting
        for _ in range(200):
            await log.room()
            log.write(piece)
            most += len(piece)
        await log.finish()
        assert len(stored(server, attempt)) == most
        assert max(len(chunk.data) for chunk in server.chunks) == 1024 * 1024

    against(test)


@pytest.mark.parametrize("fault", ["drop the answer", "503", "401"])
def test_a_shipment_is_repeated_until_it_is_acknowledged(fault: Any) -> None:
    async def test(server: LogServer, shipper: LogShipper) -> None:
        attempt = an_attempt()
        log = shipper.open(attempt)
        server.faults.extend([fault] * 3)
        log.write(b"one\n")
        finishing = asyncio.create_task(log.finish())
        await finishing
        assert stored(server, attempt) == b"one\n"
        assert server.requests == 4

    against(test)


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_a_log_that_is_never_taken_is_given_up_with_a_mark_and_the_others_are_kept(count: int) -> None:
    async def test(server: LogServer, shipper: LogShipper) -> None:
        attempts = [an_attempt() for _ in range(count)]
        bad = attempts[count // 2]
        server.not_taken.add(bad.order.run_id)
        for attempt in attempts:
            shipper.open(attempt).write(b"x" * (3 * 1024 * 1024 if attempt is attempts[0] else 10))
        await asyncio.gather(*(shipper.open(attempt).finish() for attempt in attempts))
        (mark,) = server.ended(bad.order.run_id)
        assert (mark.truncated, mark.data) == (True, b"")
        for attempt in attempts:
            if attempt is not bad:
                assert stored(server, attempt) == b"x" * (3 * 1024 * 1024 if attempt is attempts[0] else 10)
        assert server.requests <= 5 + 2 * count.bit_length()
        shipper.open(bad).write(b"more")
        later = an_attempt()
        shipper.open(later).write(b"later")
        await shipper.open(later).finish()
        assert stored(server, later) == b"later"
        assert shipper._bytes == 0

    against(test)


def test_a_log_that_is_refused_while_its_attempt_prints_on_does_not_make_anybody_wait() -> None:
    async def test(server: LogServer, shipper: LogShipper) -> None:
        bad = an_attempt()
        server.not_taken.add(bad.order.run_id)
        sink = shipper.open(bad)
        sink.write(b"first")
        await until(lambda: sink.over)
        sink.write(b"second")
        await sink.finish()
        assert shipper.refused_since(0.0) == 0.0, "the server keeps logs; it does not keep this one"

    against(test)


def test_a_fenced_attempt_is_let_go_at_once_and_others_are_not_disturbed() -> None:
    async def test(server: LogServer, shipper: LogShipper) -> None:
        fenced, other = an_attempt(), an_attempt()
        server.refused.add(fenced.order.run_id)
        for attempt in (fenced, other):
            shipper.open(attempt).write(b"text")
        await asyncio.gather(shipper.open(fenced).finish(), shipper.open(other).finish())
        assert stored(server, other) == b"text"
        requests = server.requests
        shipper.open(fenced).write(b"more")
        fenced_before_it_finished = an_attempt()
        fenced_before_it_finished.fenced = True
        shipper.open(fenced_before_it_finished).write(b"more")
        await shipper.open(fenced_before_it_finished).finish()
        assert server.requests == requests

    against(test)


def test_an_abandoned_attempt_of_a_run_does_not_spoil_the_log_of_the_next() -> None:
    async def test(server: LogServer, shipper: LogShipper) -> None:
        run_id = uuid7()
        old, new = an_attempt(run_id=run_id, fence=1), an_attempt(run_id=run_id, fence=3, attempt=2)
        shipper.open(old).write(b"old")
        shipper.open(new).write(b"new")
        await asyncio.gather(shipper.open(old).finish(), shipper.open(new).finish())
        assert server.requests == 2
        assert (stored(server, old), stored(server, new)) == (b"old", b"new")

    against(test)


def test_finish_waits_for_a_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_log, "_GIVE_UP", 0.1)

    async def test(server: LogServer, shipper: LogShipper) -> None:
        attempt = an_attempt()
        server.faults.extend(["503", "drop the answer", "503"])
        shipper.open(attempt).write(b"text")
        await shipper.open(attempt).finish()
        assert stored(server, attempt) == b"text"
        assert not server.chunks[-1].truncated

    against(test)


def test_finish_gives_up_on_a_log_store_that_is_away_and_leaves_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_log, "_GIVE_UP", 0.3)
    monkeypatch.setattr(log_shipper, "_TRY_ONCE_SECONDS", 30.0)

    async def test(server: LogServer, shipper: LogShipper) -> None:
        attempt, next_one = an_attempt(), an_attempt()
        shipper.open(attempt).write(b"early\n")
        await server.arrived.wait()
        await until(lambda: bool(server.logs))
        server.log_store_down = True
        shipper.open(attempt).write(b"late\n")
        await shipper.open(attempt).finish()
        assert stored(server, attempt) == b"early\n"
        assert (server.chunks[-1].truncated, server.chunks[-1].end) == (True, True)
        server.log_store_down = False
        monkeypatch.setattr(attempt_log, "_GIVE_UP", 30.0)
        shipper.open(next_one).write(b"next")
        await shipper.open(next_one).finish()
        assert stored(server, next_one) == b"next"
        assert shipper._bytes == 0

    against(test)


def test_a_second_server_that_is_away_is_no_reason_to_wait_longer_for_a_log_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempt_log, "_GIVE_UP", 2.2)  # longer than the pause between two tries
    monkeypatch.setattr(log_shipper, "_TRY_ONCE_SECONDS", 30.0)

    async def run() -> None:
        async with asyncio.timeout(PATIENCE), LogServer() as server:
            async with LogServer() as other:
                away = other.url
            shipper = LogShipper(ServerClient(f"{server.url},{away}", "secret", timeout=20.0))
            shipper.speaks_for(lambda: Incarnation(WORKER, ""))
            server.log_store_down = True
            attempt = an_attempt()
            shipper.open(attempt).write(b"late")
            await shipper.open(attempt).finish()
            assert (server.chunks[-1].truncated, server.chunks[-1].end) == (True, True), "whoever is asked first"
            await shipper.close()

    uvloop.run(run())


def test_whoever_prints_much_goes_on_without_a_log_when_nobody_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_log, "_GIVE_UP", 0.3)

    async def test(server: LogServer, shipper: LogShipper) -> None:
        attempt, other = an_attempt(), an_attempt()
        server.log_store_down = True
        shipper.open(other).write(b"little\n")
        sink = shipper.open(attempt)
        sink.write(b"x" * MOST_WAITING)
        was_full = sink.full
        assert was_full
        async with asyncio.timeout(PATIENCE):
            await sink.room()
        assert not sink.full
        sink.write(b"and more")
        monkeypatch.setattr(attempt_log, "_GIVE_UP", 30.0)
        server.log_store_down = False
        await sink.finish()
        await shipper.open(other).finish()
        assert stored(server, other) == b"little\n"
        assert shipper._bytes == 0

    against(test)


def test_finish_gives_up_in_the_end_and_at_once_when_the_run_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(server: LogServer, shipper: LogShipper) -> None:
        attempt, lost = an_attempt(), an_attempt()
        server.open.clear()
        for each in (attempt, lost):
            shipper.open(each).write(b"text")
        finishing = asyncio.create_task(shipper.open(lost).finish())
        await server.arrived.wait()
        lost.fenced = True
        async with asyncio.timeout(PATIENCE):
            await finishing
        monkeypatch.setattr(attempt_log, "_GIVE_UP_ANYWAY", 0.2)
        monkeypatch.setattr(log_shipper, "_TRY_ONCE_SECONDS", 0.1)
        await shipper.open(attempt).finish()
        assert server.logs == {}
        server.open.set()

    against(test)


@pytest.mark.parametrize(("limit", "kept"), [(10, 10), (None, 10 * 1024 * 1024)])
def test_what_goes_beyond_the_cap_is_dropped_and_marked(limit: int | None, kept: int) -> None:
    async def test(server: LogServer, shipper: LogShipper) -> None:
        attempt = an_attempt(setup=None if limit is None else RunSetup(limits=ResourceLimits(output=limit)))
        log = shipper.open(attempt)
        written = 0
        while written <= kept + 100_000:
            log.write(b"0123456")
            log.write(b"789" * 30_000)
            written += 90_007
            await log.room()
        await log.finish()
        assert len(stored(server, attempt)) == kept
        assert stored(server, attempt).startswith(b"0123456789")
        (last,) = server.ended(attempt.order.run_id)
        assert last.truncated
        assert not any(chunk.truncated for chunk in server.chunks if chunk is not last and not chunk.data)

    against(test)


def test_exactly_the_cap_is_not_truncated() -> None:
    async def test(server: LogServer, shipper: LogShipper) -> None:
        attempt = an_attempt(setup=RunSetup(limits=ResourceLimits(output=10)))
        shipper.open(attempt).write(b"0123456789")
        await shipper.open(attempt).finish()
        assert not any(chunk.truncated for chunk in server.chunks)

    against(test)


def test_one_that_prints_without_end_does_not_keep_the_others_waiting() -> None:
    async def test(server: LogServer, shipper: LogShipper) -> None:
        loud = shipper.open(an_attempt(setup=RunSetup(limits=ResourceLimits(output=10**9))))
        stop = asyncio.Event()

        async def shout() -> None:
            while not stop.is_set():
                loud.write(b"x" * 65536)
                await loud.room()
                await asyncio.sleep(0)

        shouting = asyncio.create_task(shout())
        await server.arrived.wait()
        quiet = an_attempt()
        shipper.open(quiet).write(b"quiet")
        async with asyncio.timeout(PATIENCE):
            await shipper.open(quiet).finish()
        assert stored(server, quiet) == b"quiet"
        stop.set()
        await shouting
        loud.drop()

    against(test)


def test_threads_write_in_their_own_order() -> None:
    async def test(server: LogServer, shipper: LogShipper) -> None:
        attempts = [an_attempt() for _ in range(8)]

        def work(attempt: Attempt) -> None:
            for number in range(5000):
                shipper.open(attempt).write(b"%d\n" % number)

        threads = [threading.Thread(target=work, args=[attempt]) for attempt in attempts]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        for attempt in attempts:
            assert isinstance(attempt.log, AttemptLog)
            await attempt.log.finish()
            assert stored(server, attempt) == b"".join(b"%d\n" % number for number in range(5000))
        assert shipper._bytes == 0

    against(test)
