"""Decides whether a run that asks to come back later (`ctx.snooze`) does so. A snooze uses no attempt."""

from __future__ import annotations

from mainspring.domain.durations import format_duration
from mainspring.domain.job import Delivery, Spec
from mainspring.domain.retry import LONGEST_DELAY, RetryVerdict

MOST_SNOOZES = 30_000  # of one run; attempts are counted in a smallint


def after_snooze(spec: Spec, snoozes: int, seconds: float, time_left: float | None) -> RetryVerdict:
    """What follows an attempt that asks to come back after so many seconds. `snoozes`: how often the run was snoozed
    before. `time_left`: what is left of its run_timeout."""
    if spec.delivery is Delivery.AT_MOST_ONCE:
        return RetryVerdict(None, "it asked to be snoozed, and the job is at most once")
    if time_left is not None and seconds >= time_left:
        return RetryVerdict(None, f"{out_of_time(spec)}: it asked to be snoozed for longer than that")
    if snoozes >= MOST_SNOOZES:
        return RetryVerdict(None, f"snoozed {snoozes} times, and asked for it once more")
    return RetryVerdict(min(seconds, LONGEST_DELAY))


def out_of_time(spec: Spec) -> str:
    """The reason of a run whose run_timeout is over."""
    return f"timed out after {format_duration(spec.run_timeout or 0.0)} in all (run_timeout)"
