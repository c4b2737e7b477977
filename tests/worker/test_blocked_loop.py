"""An async task that blocks the event loop of its worker is named, with the line at which it blocks."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from mainspring.worker.executors.python import blocked_loop
from tests.worker.a_runner import Bench, app, on_a_bench
from tests.worker.exchange_server import an_order


class Lines:
    """What is logged; `said` is set with the first line."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.said = threading.Event()

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))
        self.said.set()


LINES = Lines()


@app.task
async def holds_the_loop() -> str:
    LINES.said.wait(60)  # it blocks here
    return "done"


@app.task
async def holds_it_below() -> str:
    async def inner() -> str:
        return holding()

    return await inner()


def holding() -> str:
    threading.Event().wait(0.001)
    LINES.said.wait(60)  # and here
    return "done"


@app.task
async def waits_as_it_should() -> str:
    await asyncio.sleep(0.05)
    return "done"


@pytest.fixture(autouse=True)
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    monkeypatch.setattr(blocked_loop, "log", LINES)
    LINES.lines.clear()
    LINES.said.clear()
    return LINES


@pytest.mark.parametrize(
    ("task", "function", "comment"),
    [("holds_the_loop", "holds_the_loop", "# it blocks here"), ("holds_it_below", "holding", "# and here")],
)
def test_a_task_that_blocks_for_a_second_is_named_with_its_line(
    lines: Lines, task: str, function: str, comment: str
) -> None:
    blocking = an_order(task)

    async def test(bench: Bench) -> None:
        bench.take(blocking)
        await bench.ending(blocking)

    on_a_bench(test)
    [(event, said)] = lines.lines
    assert event == "an async task blocks the event loop of its worker for a second"
    assert (said["task"], said["run"], said["function"]) == (task, str(blocking.run_id), function)
    path, _, line = said["at"].rpartition(":")
    assert path == __file__ and Path(path).read_text().splitlines()[int(line) - 1].endswith(comment)
    assert "to_thread" in said["hint"]


def test_a_task_that_awaits_is_not(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked_loop, "BLOCKED", 60.0)  # a machine that stands still is no task that blocks
    awaiting = an_order("waits_as_it_should")

    async def test(bench: Bench) -> None:
        bench.take(awaiting)
        await bench.ending(awaiting)

    on_a_bench(test)
    assert lines.lines == []
