"""Slots that are about to become free are asked for in time, where that can be known."""

from __future__ import annotations

from mainspring.worker.exchange.slot_forecast import AHEAD, SlotForecast
from mainspring.worker.execution.attempt import Attempt, key_of

from .exchange_server import an_order

NOW = 100.0


def started(*moments: float, task: str = "steady") -> list[Attempt]:
    attempts = []
    for moment in moments:
        order = an_order(task)
        attempts.append(Attempt(order, key_of(order), moment, started=moment))
    return attempts


def learned(*durations: float, task: str = "steady") -> SlotForecast:
    forecast = SlotForecast()
    for duration in durations:
        forecast.ended(task, duration)
    return forecast


def test_runs_of_a_steady_task_are_seen_to_end() -> None:
    forecast = learned(*[1.0] * 20)
    active = started(NOW - 0.99, NOW - 0.98, NOW - 0.5)
    assert forecast.soon(active, NOW) == 2
    assert abs(forecast.ask_at(active, NOW, covered=2) - (NOW + 0.5 - AHEAD)) < 1e-6
    assert forecast.ask_at(active, NOW, covered=3) == float("inf")


def test_where_exchanges_take_long_they_are_asked_for_earlier() -> None:
    forecast = learned(*[1.0] * 20)
    for _ in range(50):
        forecast.heard(0.030)
    assert abs(forecast.ask_at(started(NOW), NOW, covered=0) - (NOW + 1.0 - 0.075)) < 1e-3
    for _ in range(50):
        forecast.heard(5.0)
    assert abs(forecast.ask_at(started(NOW), NOW, covered=0) - (NOW + 1.0 - 0.1)) < 1e-3


def test_a_task_that_takes_now_this_now_that_is_not_foreseen() -> None:
    forecast = learned(*[0.5, 1.5] * 20)
    assert forecast.soon(started(NOW - 1.0), NOW) == 0


def test_one_that_has_become_unsteady_is_not_foreseen_any_more() -> None:
    forecast = learned(*[1.0] * 20, 3.0)
    assert forecast.ask_at(started(NOW - 0.9), NOW, covered=0) == float("inf")


def test_a_few_runs_are_not_enough_to_know_it() -> None:
    assert learned(1.0, 1.0, 1.0).soon(started(NOW - 1.0), NOW) == 0


def test_a_run_that_is_overdue_counts_for_nothing() -> None:
    assert learned(*[1.0] * 20).soon(started(NOW - 1.5), NOW) == 0
