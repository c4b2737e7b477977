"""The health of jobs, and what a run may exceed: the time to start, the expected duration and the deadline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import IntEnum, IntFlag

import msgspec

from mainspring.domain.durations import format_duration
from mainspring.domain.job import Spec
from mainspring.domain.run_key import rfc3339
from mainspring.domain.texts import read_word

NEVER_RAN = "never_ran"
NEVER_RAN_STATE = 0  # of a job that has no row
CANCEL = "cancel"
DEADLINE_MISSED = "deadline missed"  # the reason of a run that was cancelled
LEAST_LEARNED = 5  # runs
LAST_RUNS = 20
_MOST_BETWEEN_LOOKS = timedelta(minutes=1)
_LEAST_BETWEEN_LOOKS = timedelta(seconds=1)


class HealthState(IntEnum):
    """As it is stored. A job without a row has never run."""

    HEALTHY = 1
    LATE = 2
    FAILING = 3
    SILENT = 4

    @property
    def word(self) -> str:
        return self.name.lower()


def named_health(names: Sequence[str]) -> list[int]:
    """The states of these names, as they are stored. Raises InvalidInput."""
    known = {NEVER_RAN: NEVER_RAN_STATE, **{state.word: int(state) for state in HealthState}}
    return sorted({known[read_word(name, "health", list(known))] for name in names})


class Told(IntFlag):
    """What of a run has been told."""

    STARTED_LATE = 1
    RAN_TOO_LONG = 2
    DEADLINE_MISSED = 4

    @property
    def event(self) -> str:
        return (self.name or "").lower()


class RunSoFar(msgspec.Struct, frozen=True):
    """How far a run is at the time `at`, which is its end if it has ended. due_from: its fire time. begun: whether an
    attempt has begun. first_began_at: when the first one did, if that is known. began_at: the present or last one."""

    due_from: datetime
    at: datetime
    ended: bool
    begun: bool
    first_began_at: datetime | None
    began_at: datetime | None
    ran: float | None = None


class Exceeded(msgspec.Struct, frozen=True):
    what: Told
    reason: str


def exceeded(spec: Spec, run: RunSoFar, told: int) -> Iterator[Exceeded]:
    """What the run has exceeded and was not told yet."""
    when = f"its run for {rfc3339(run.due_from)}"
    if spec.late_after is not None and not told & Told.STARTED_LATE:
        limit = f"late_after is {format_duration(spec.late_after)}"
        began = run.first_began_at if run.begun else run.at
        if began is not None and began > run.due_from + timedelta(seconds=spec.late_after):
            words = f"started {_span(run.due_from, began)} late" if run.begun else "has not started"
            yield Exceeded(Told.STARTED_LATE, f"{when} {words}; {limit}")
    if spec.expected_duration is not None and not told & Told.RAN_TOO_LONG and run.began_at is not None:
        ran = (run.at - run.began_at).total_seconds() if run.ran is None else run.ran
        if ran > spec.expected_duration:
            words = f"took {format_duration(round(ran, 1))}" if run.ended else "runs longer than expected"
            limit = f"expected_duration is {format_duration(spec.expected_duration)}"
            yield Exceeded(Told.RAN_TOO_LONG, f"{when} {words}; {limit}")
    deadline = None if told & Told.DEADLINE_MISSED else spec.deadline
    if deadline is not None and run.at > run.due_from + timedelta(seconds=deadline):
        words = f"ended {_span(run.due_from, run.at)} after its time" if run.ended else "has not ended"
        yield Exceeded(Told.DEADLINE_MISSED, f"{when} {words}; the deadline is {format_duration(deadline)}")


def look_again(spec: Spec, run: RunSoFar, told: int) -> datetime | None:
    """When a live run may exceed the next of its limits. None: there is none left."""
    moments = []
    if spec.late_after is not None and not told & Told.STARTED_LATE and not run.begun:
        moments.append(run.due_from + timedelta(seconds=spec.late_after))
    if spec.deadline is not None and not told & Told.DEADLINE_MISSED:
        moments.append(run.due_from + timedelta(seconds=spec.deadline))
    if spec.expected_duration is not None and not told & Told.RAN_TOO_LONG:
        expected = timedelta(seconds=spec.expected_duration)
        # When it will begin is not known. A run that takes too long is seen at its end at the latest.
        moments.append(run.at + min(expected, _MOST_BETWEEN_LOOKS) if run.began_at is None else run.began_at + expected)
    return max(min(moments), run.at + _LEAST_BETWEEN_LOOKS) if moments else None


def learned_limit(usual: float) -> float:
    """How many seconds a run may take that had no expected duration, if its last runs took `usual` at most."""
    return max(2 * usual, usual + 60.0)


def _span(start: datetime, end: datetime) -> str:
    return format_duration(float(round((end - start).total_seconds())))
