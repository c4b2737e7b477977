"""Many small workers in one process: each speaks the exchange as the real one does, and its runs only take time.

What a worker holds, when it exchanges, how it sends, recovers and proves itself are the parts of the real worker
(`worker/exchange/`). It has no executors, tells no starts and no progress, and does not ask ahead for slots that become
free soon.

A process of its own (`python -m mainspring.bench.fleet_workers`). It reads its orders from stdin as JSON, prints a line
when all workers are registered, forgets what it counted when it reads `measure`, and ends when stdin is closed; then it
prints its report.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import Counter

import msgspec
import uvloop

from mainspring.bench.worker_processes import MEASURE, REGISTERED
from mainspring.kernel.config import DEFAULT_TIMING
from mainspring.kernel.garbage_collection import freeze_garbage_collection
from mainspring.kernel.ids import uuid7
from mainspring.wire.exchange import ExchangeReply, WorkerHello
from mainspring.wire.protocol import PROTOCOL
from mainspring.worker.exchange.exchange_timing import ExchangeTiming, pause_after
from mainspring.worker.exchange.flight import Flight
from mainspring.worker.exchange.held_runs import HeldRuns
from mainspring.worker.exchange.server_client import AnswerLost, ExchangeRefused, IncarnationLost, ServerClient
from mainspring.worker.execution.attempt import CANCELLED, SUCCEEDED, Attempt, Key
from mainspring.worker.incarnation import new_secret

TASK, QUEUE = "bench.fleet", "fleet"
_BEAT = DEFAULT_TIMING.beat
_WAIT_MS = int(_BEAT * 1000) - 100
_TIMEOUT = 2 * _BEAT
_LAST_ANSWERS = 5.0
_now = time.monotonic


class FleetOrders(msgspec.Struct):
    """seconds: how long each run takes."""

    url: str
    token: str
    workers: int
    slots: int
    seconds: float


class FleetReport(msgspec.Struct):
    """Since `measure`, except for `lost` and `registered_s`.

    acknowledged: outcomes. report_ms: for each of them, from the first exchange that carried it to its acknowledgement.
    answers: by kind. longest_silence_s: between two acknowledgements of one worker. registered_s: from the start of all
    workers to the last answer to a hello.
    """

    seconds: float
    acknowledged: int
    report_ms: list[float]
    answers: dict[str, int]
    longest_silence_s: float
    lost: int
    registered_s: float


class FleetCounts:
    def __init__(self) -> None:
        self.began = _now()
        self.acknowledged = 0
        self.report_ms: list[float] = []
        self.answers: Counter[str] = Counter()
        self.longest_silence = 0.0


class Fleet:
    """All workers of the process."""

    def __init__(self, orders: FleetOrders) -> None:
        self.orders = orders
        self.counts = FleetCounts()
        self.registered_s = 0.0
        self._workers = [FleetWorker(self) for _ in range(orders.workers)]

    async def register(self) -> None:
        """All workers start together, as after a deployment."""
        began = _now()
        for worker in self._workers:
            worker.consider()
        await asyncio.gather(*(worker.registered.wait() for worker in self._workers))
        self.registered_s = _now() - began

    def measure(self) -> None:
        self.counts = FleetCounts()

    async def end(self) -> FleetReport:
        counts, seconds = self.counts, _now() - self.counts.began
        self.counts = FleetCounts()
        await asyncio.gather(*(worker.end() for worker in self._workers))
        return FleetReport(
            seconds,
            counts.acknowledged,
            counts.report_ms,
            dict(counts.answers),
            max([counts.longest_silence, *(worker.silence(counts.began + seconds) for worker in self._workers)]),
            sum(worker.lost for worker in self._workers),
            self.registered_s,
        )


class FleetWorker:
    def __init__(self, fleet: Fleet) -> None:
        orders, now = fleet.orders, _now()
        hello = WorkerHello(
            "bench", [QUEUE], [TASK], orders.slots, lease=DEFAULT_TIMING.rescue, protocol=PROTOCOL.number
        )
        self.registered = asyncio.Event()
        self.lost = False
        self._fleet = fleet
        self._seconds = orders.seconds
        self._hello = hello
        self._secret = new_secret()
        self._client = ServerClient(orders.url, orders.token, timeout=_TIMEOUT)
        self._held_runs = HeldRuns(uuid7(), hello, now)
        self._timing = ExchangeTiming(_BEAT, now)
        self._running: dict[Key, asyncio.TimerHandle] = {}
        self._first_sent: dict[Key, float] = {}
        self._exchanges: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._heard = now
        self._ended = False

    def silence(self, now: float) -> float:
        return 0.0 if self.lost else now - self._heard

    def consider(self) -> None:
        """Start an exchange if it is time for one, and set the timer for the next."""
        if self._ended:
            return
        now = _now()
        if (at := self._next_start(now)) <= now:
            self._start_exchange(now)
            at = self._next_start(now)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at != float("inf"):
            self._timer = asyncio.get_running_loop().call_later(max(0.0, at - now), self.consider)

    def _next_start(self, now: float) -> float:
        return self._timing.next_start(self._held_runs, len(self._running), now, wants_runs=True)

    def _start_exchange(self, now: float) -> None:
        flight = self._held_runs.compose(now, holding=len(self._running), wait_ms=_WAIT_MS)
        if self._client.hello_outdated:
            flight.request.hello = self._hello
            flight.request.wait_ms = 0
        for outcome in flight.request.outcomes:
            self._first_sent.setdefault((outcome.run_id.int, outcome.fence), now)
        self._timing.started(now)
        exchange = asyncio.create_task(self._exchange(flight))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)

    async def _exchange(self, flight: Flight) -> None:
        answers = self._fleet.counts.answers
        try:
            reply = await self._client.exchange(flight.request, self._secret)
        except IncarnationLost:
            self.lost = True
            answers["lost"] += 1
            self._stop()
            self.registered.set()
        except (AnswerLost, ExchangeRefused) as error:
            answers[type(error).__name__] += 1
            refused = isinstance(error, ExchangeRefused)
            self._held_runs.lost(flight, _now(), answered=refused)
            (self._timing.refused if refused else self._timing.failed)(_now())
        else:
            self._landed(flight, reply)
        self.consider()

    def _landed(self, flight: Flight, reply: ExchangeReply) -> None:
        now, counts = _now(), self._fleet.counts
        counts.answers[_kind(reply)] += 1
        counts.longest_silence = max(counts.longest_silence, now - max(self._heard, counts.began))
        self._heard = now
        landing = self._held_runs.landed(flight, reply, now)
        useful = bool(landing.taken or landing.stop or reply.superseded or reply.recall or reply.give_back)
        pause = pause_after(flight, reply, newest=self._held_runs.is_newest(flight))
        self._timing.landed(flight, now, useful=useful, pause=pause)
        if not reply.superseded or reply.acked >= len(flight.request.outcomes):
            for outcome in flight.request.outcomes:
                counts.acknowledged += 1
                counts.report_ms.append((now - self._first_sent.pop((outcome.run_id.int, outcome.fence), now)) * 1000.0)
        if self._held_runs.known:
            self.registered.set()
        loop = asyncio.get_running_loop()
        for attempt in landing.taken:
            attempt.started = now
            self._running[attempt.key] = loop.call_later(self._seconds, self._end_run, attempt)
        for attempt in landing.stop:
            if (timer := self._running.pop(attempt.key, None)) is not None:
                timer.cancel()
                attempt.reported = True
                self._held_runs.record(attempt, CANCELLED, now)

    def _end_run(self, attempt: Attempt) -> None:
        del self._running[attempt.key]
        attempt.reported = True
        self._held_runs.record(attempt, SUCCEEDED, _now())
        self.consider()

    def _stop(self) -> None:
        self._ended = True
        for timer in self._running.values():
            timer.cancel()
        if self._timer is not None:
            self._timer.cancel()

    async def end(self) -> None:
        """Start nothing more, and wait for the answers that are on their way."""
        self._stop()
        if self._exchanges:
            await asyncio.wait(self._exchanges, timeout=_LAST_ANSWERS)
        for exchange in self._exchanges:
            exchange.cancel()
        self._client.close()


def _kind(reply: ExchangeReply) -> str:
    if reply.superseded:
        return "superseded_by_newer" if reply.retry_in is None else "superseded_by_load"
    return "runs" if reply.runs else "acknowledged" if reply.acked else "empty"


async def _main() -> None:
    loop = asyncio.get_running_loop()
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=FleetOrders)
    fleet = Fleet(orders)
    freeze_garbage_collection()
    await fleet.register()
    sys.stdout.write(REGISTERED.decode())
    sys.stdout.flush()
    with contextlib.suppress(OSError):
        while await loop.run_in_executor(None, sys.stdin.buffer.readline) == MEASURE:
            fleet.measure()
    report = await fleet.end()
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")


if __name__ == "__main__":
    uvloop.run(_main())
