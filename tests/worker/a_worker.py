"""A worker in this process, against the exchange server of the tests."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock, ManualClock
from mainspring.kernel.config import DEFAULT_TIMING, Timing
from mainspring.sdk.app.app import Mainspring
from mainspring.sdk.tasks.context import Context
from mainspring.wire.exchange import LeaseGrant, RunOrder
from mainspring.worker.exchange.progress import ProgressReports
from mainspring.worker.exchange.server_client import ServerClient
from mainspring.worker.executors.registry import build_executors
from mainspring.worker.processes.watchdog_client import WatchdogClient
from mainspring.worker.worker import Worker
from tests.eventually import PATIENCE

from .exchange_server import ExchangeServer

# No lease lapses unless a test says so, however slow the machine: coroutines would take pytest along.
QUICK = Timing(beat=0.4, base_kill=30.0, base_rescue=60.0, kill_grace=0.3, drain_grace=0.3)
# For tests of the lease, which does not lapse because the machine stood still for two seconds. Nobody would take the
# runs over before rescue - beat_slack.
LAPSES = Timing(beat=0.4, base_kill=5.0, base_rescue=30.0, kill_grace=0.3, drain_grace=0.3)
_TURNS = 30
ANSWERED = 10.0  # seconds after which an exchange counts as lost
HELD = "while :; do sleep 0.05; done"

app = Mainspring()
task_clock: LoopClock = SYSTEM_CLOCK
ran: Counter[str] = Counter()
release = {"ordinary": threading.Event(), "exclusive": threading.Event()}


@app.task
async def noop() -> None: ...


@app.task
async def counted(name: str) -> str:
    ran[name] += 1
    return name


@app.task
async def sleeps(seconds: float) -> None:
    await task_clock.sleep(seconds)


@app.task
def blocks(name: str) -> None:
    ran[name] += 1
    release[name].wait(60)


@app.task
async def tells(ctx: Context, steps: int, pause: float) -> None:
    for step in range(1, steps + 1):
        ctx.progress(step / steps, f"step {step} of {steps}")
        await task_clock.sleep(pause)


class PatientWatchdog(WatchdogClient):
    """The worker is in pytest's process, which the watchdog would kill at a deadline that a stall of the machine let
    pass. The worker acts before it anyway; that the watchdog does act is tested on processes of their own. It knows
    no time but the system's."""

    def set_deadline(self, deadline: float | None) -> None:
        if self._clock is SYSTEM_CLOCK:
            super().set_deadline(None if deadline is None else deadline + 60.0)


async def pass_time(clock: ManualClock, seconds: float, *, step: float = 0.05) -> None:
    """Move the clock in small steps. After each, everybody has turns enough to send an exchange and to read the answer:
    both ends are in this process, so what one writes the other can read at once."""
    end = clock.monotonic() + seconds
    while (left := end - clock.monotonic()) > 1e-9:
        clock.advance(min(step, left))
        for _ in range(_TURNS):
            await asyncio.sleep(0)


async def passes_until(clock: ManualClock, condition: Callable[[], object], *, step: float = 0.05) -> None:
    """Let time pass for as long as it takes."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await pass_time(clock, step)


async def passes_until_reported(server: ExchangeServer, clock: ManualClock, order: RunOrder) -> None:
    await passes_until(clock, lambda: order.run_id in server.outcomes)


@asynccontextmanager
async def a_worker(
    server: ExchangeServer,
    slots: int,
    timing: Timing,
    *,
    answered: float = ANSWERED,
    last_breath: float = 30.0,
    clock: LoopClock = SYSTEM_CLOCK,
    **options: Any,
) -> AsyncIterator[Worker]:
    """One that leaves is not hurried: it waits `last_breath` seconds for what it has killed, and as long as that for
    the answer to its farewell."""
    watchdog, progress = PatientWatchdog(clock), ProgressReports()
    worker = Worker(
        ServerClient(server.url, "secret", timeout=answered, clock=clock),
        watchdog,
        build_executors(
            app.tasks,
            slots=slots,
            watchdog=watchdog,
            kill_grace=timing.kill_grace,
            note_progress=progress.note,
            clock=clock,
        ),
        name="under test",
        slots=slots,
        timing=timing,
        progress=progress,
        clock=clock,
        **{"queues": ["default"], **options},
    )
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("mainspring.worker.drain._AFTER_KILL", last_breath)
        patches.setattr("mainspring.worker.worker._FAREWELL", 30.0)
        # Processes start in the time of the machine, while the clock of the test may pass half a minute in a moment.
        patches.setattr("mainspring.worker.processes.watchdog_client._LONGEST_START", 3600.0)
        patches.setattr(f"{__name__}.task_clock", clock)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            worker.stop()
            assert await running


def against_a_server(
    test: Callable[[ExchangeServer, Worker], Awaitable[None]],
    *,
    slots: int = 4,
    timing: Timing = QUICK,
    tell_again: float = DEFAULT_TIMING.beat,
    clock: LoopClock = SYSTEM_CLOCK,
    grants: LeaseGrant | None = None,
    **options: Any,
) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(PATIENCE),
            ExchangeServer(clock=clock, tell_again=tell_again, grants=grants) as server,
            a_worker(server, slots, timing, clock=clock, **options) as worker,
        ):
            await server.until(lambda: server.requests)
            await test(server, worker)

    ran.clear()
    for event in release.values():
        event.clear()
    uvloop.run(run())
