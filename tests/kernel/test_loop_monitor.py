"""The loop's monitor: what stood still is named, counted and felt, and then forgotten."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from mainspring.kernel import loop_monitor, metrics
from mainspring.kernel.loop_monitor import OVERLOAD, STALL, LoopMonitor

pytestmark = pytest.mark.anyio


class Lines:
    """What the monitor logs; `stack_seen` is set when a stack is among it."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.stack_seen = threading.Event()

    def diagnostic(self, event: str, **fields: Any) -> None:
        self.said.append((event, fields))
        if "stack" in fields:
            self.stack_seen.set()


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    found = Lines()
    monkeypatch.setattr(loop_monitor, "log", found)
    yield found


async def test_a_stall_is_logged_with_its_stack_and_counted(lines: Lines) -> None:
    before = metrics.loop_stalls._value.get()
    monitor = LoopMonitor()
    monitor.start()
    try:
        the_culprit(lines.stack_seen)
        while monitor.last_stall_at == float("-inf"):
            await asyncio.sleep(0.01)
    finally:
        monitor.stop()
    [(event, fields)] = [line for line in lines.said if "stack" in line[1]]
    assert event == "event loop stalls"
    assert "the_culprit" in fields["stack"]
    assert metrics.loop_stalls._value.get() == before + 1
    [ended] = [fields for event, fields in lines.said if event == "event loop stalled"]
    assert ended["seconds"] > STALL and ended["cpu_seconds"] >= 0


def the_culprit(seen: threading.Event) -> None:
    """Hold up the loop until the monitor has noticed."""
    assert seen.wait(60)


async def test_a_loop_at_work_stalls_nowhere(lines: Lines) -> None:
    monitor = LoopMonitor()
    monitor.start()
    await asyncio.sleep(0)
    monitor.stop()
    assert not monitor.overloaded


def test_one_stall_is_soon_forgotten_and_lasting_lag_is_overload() -> None:
    monitor = LoopMonitor()
    monitor.note(0.2, 1.0)
    assert not monitor.overloaded
    for _ in range(10):
        monitor.note(0.2, 1.0)
    assert monitor.overloaded
    monitor.note(60.0, 1.0)
    assert monitor.overloaded
    rounds = 0
    while monitor.overloaded:
        monitor.note(0.0, 1.0)
        rounds += 1
    assert rounds <= 10  # half a second


def test_a_loop_that_gets_no_cpu_is_late_but_not_overloaded() -> None:
    monitor = LoopMonitor()
    for _ in range(100):
        monitor.note(0.5, 0.2)
    assert monitor.lag > OVERLOAD and not monitor.overloaded
