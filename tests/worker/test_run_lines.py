"""What a person at a terminal sees of the runs: one line for each, and a count if there are too many."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.kernel.clock import ManualClock
from mainspring.kernel.ids import uuid7
from mainspring.kernel.logs import Logger
from mainspring.sdk.errors import Snooze
from mainspring.wire.exchange import RunOrder
from mainspring.worker.execution.attempt import SUCCEEDED, Attempt, failed, key_of
from mainspring.worker.execution.endings import snoozed
from mainspring.worker.output.run_lines import LINES_PER_SECOND, RunLines, short_error
from tests.worker.exchange_server import an_order


class Heard(Logger):
    def __init__(self) -> None:
        super().__init__("runs")
        self.lines: list[str] = []

    def info(self, event: str, **_: Any) -> None:
        self.lines.append(event)

    def warning(self, event: str, **_: Any) -> None:
        self.lines.append(f"! {event}")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def heard() -> Heard:
    return Heard()


def begun(order: RunOrder, clock: ManualClock) -> Attempt:
    return Attempt(order, key_of(order), 0.0, started=clock.monotonic())


def test_a_run_has_a_line_when_it_starts_and_one_when_it_ends(clock: ManualClock, heard: Heard) -> None:
    lines = RunLines(clock, heard)
    attempt = begun(an_order("report", job_id="nightly", attempt=2), clock)
    run = str(attempt.order.run_id)[-6:]
    lines.started(attempt)
    clock.advance(2.5)
    lines.ended(attempt, SUCCEEDED)
    lines.ended(attempt, failed('Traceback (most recent call last):\n  File "a.py"\nValueError: no region\x1b[2J\n'))
    assert heard.lines == [
        f"started      nightly                       {run}  attempt 2",
        f"succeeded    nightly                       {run}  2.5s",
        f"! failed       nightly                       {run}  2.5s  ValueError: no region\\x1b[2J",
    ]


def test_a_run_that_asks_to_come_back_later_has_not_failed(clock: ManualClock, heard: Heard) -> None:
    attempt = begun(an_order("poll", job_id="nightly"), clock)
    RunLines(clock, heard).ended(attempt, snoozed(Snooze(600.0)))
    assert heard.lines == [f"snoozed      nightly                       {str(attempt.order.run_id)[-6:]}  0s  for 10m"]


def test_a_run_that_ends_soon_has_only_the_second(clock: ManualClock, heard: Heard) -> None:
    lines = RunLines(clock, heard)
    run_id = uuid7()
    attempt = begun(an_order("noop", run_id=run_id, job_id=str(run_id)), clock)
    lines.started(attempt)
    attempt.reported = True
    lines.ended(attempt, SUCCEEDED)
    clock.advance(10)
    (line,) = heard.lines
    assert line.startswith("succeeded    noop  ")


def test_what_it_calls_is_its_name(clock: ManualClock, heard: Heard) -> None:
    run_id = uuid7()
    order = an_order("shell", run_id=run_id, job_id=str(run_id), command=["echo", "x" * 100])
    RunLines(clock, heard).ended(begun(order, clock), SUCCEEDED)
    assert f"  echo {'x' * 22}…  " in heard.lines[0]


def test_too_many_are_counted(clock: ManualClock, heard: Heard) -> None:
    lines = RunLines(clock, heard)
    attempt = begun(an_order(), clock)
    for _ in range(LINES_PER_SECOND + 1_500):
        lines.ended(attempt, SUCCEEDED)
    lines.ended(attempt, failed("no"))
    assert len(heard.lines) == LINES_PER_SECOND
    clock.advance(1)
    assert heard.lines[LINES_PER_SECOND:] == ["! … and 1,500 succeeded, 1 failed"]
    lines.ended(attempt, SUCCEEDED)
    assert len(heard.lines) == LINES_PER_SECOND + 2


def test_an_error_is_cut_to_a_line() -> None:
    assert short_error("ValueError: no\n  File\n") == "ValueError: no"
    assert short_error("") == "no error was given"
    assert short_error("x" * 500).endswith("…") and len(short_error("x" * 500)) == 160
