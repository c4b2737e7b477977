"""Backfills: the fires of a past range of a job's schedule, as runs.

The fires are taken in slices, from a cursor on. Fires before the cursor are dealt with; of a backfill that begins with
the newest, those from the cursor on.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import IntEnum
from itertools import islice, takewhile
from uuid import UUID

import msgspec

from mainspring.domain.errors import Conflict, InvalidInput
from mainspring.domain.intake.times import parse_time
from mainspring.domain.job import Spec
from mainspring.domain.schedules.calendar_fires import most_days
from mainspring.domain.schedules.fires import count_fires, fires, newest_fires, next_fire
from mainspring.domain.schedules.nominal_times import nominal_of
from mainspring.domain.schedules.schedule import Schedule
from mainspring.domain.workflows.references import may_refer

BACKFILL_TRIGGER = "backfill:"
MOST_FIRES = 1_000_000
MOST_AT_ONCE = 1000
_MOST_PARTS = 50_000  # open parts of a calendar, which are counted one by one: about 3 s
_MOMENT = timedelta(microseconds=1)

# Why a backfill does not go on.
JOB_PAUSED = "its job is paused"
JOB_CANCELLED = "its job was cancelled"
JOB_GONE = "its job has become another one: a one-time job, or a new generation"


class BackfillState(IntEnum):
    """The number in `backfills.state`."""

    RUNNING = 1
    PAUSED = 2
    CANCELLED = 3
    COMPLETED = 4

    @property
    def word(self) -> str:
        return self.name.lower()


class FireRange(msgspec.Struct, frozen=True):
    """The fires of a schedule in [start, end)."""

    start: datetime
    end: datetime

    @property
    def after(self) -> datetime:
        """All fires of the range are strictly after it."""
        return self.start - _MOMENT

    @property
    def until(self) -> datetime:
        """The last moment of the range."""
        return self.end - _MOMENT


class Slice(msgspec.Struct, frozen=True):
    """Some fires in the order in which they become runs, their nominal times, and the cursor when all of them are dealt
    with."""

    times: list[datetime]
    nominal: list[datetime]
    end: datetime


def trigger_of(backfill_id: UUID) -> str:
    """The trigger of the runs of a backfill."""
    return f"{BACKFILL_TRIGGER}{backfill_id}"


def backfill_of(trigger: str | None) -> str | None:
    """The backfill that has created a run with this trigger."""
    found = (trigger or "").partition(BACKFILL_TRIGGER)
    return found[2] if not found[0] and found[1] else None


def read_range(start: str, end: str, now: datetime) -> FireRange:
    """The range that a request names. It must be over."""
    found = FireRange(parse_time(start, "from"), parse_time(end, "to"))
    if found.start >= found.end:
        raise InvalidInput(
            f"the range ends at {_stamp(found.end)} and begins at {_stamp(found.start)}", code="invalid_range",
            field="to", expected="a time after `from`", hint="the fire at `to` itself is not in the range",
        )  # fmt: skip
    check_past(found, now)
    return found


def check_past(chosen: FireRange, now: datetime) -> None:
    if chosen.end > now:
        raise InvalidInput(
            f"the range ends at {_stamp(chosen.end)}, in the future", code="invalid_range", field="to",
            expected=f"a time up to now, {_stamp(now)}", hint="the schedule itself fires what is to come",
        )  # fmt: skip


def check_recurring(job_id: str, schedule: Schedule) -> None:
    if not schedule.recurring:
        kind = "only runs by hand" if not schedule.one_time else "runs once"
        raise not_recurring(job_id, kind)


def check_no_references(job_id: str, payload: str | None, spec: Spec) -> None:
    """Runs of a backfill wait for no other run, so there are no results that they could use."""
    if spec.depends_on is not None and may_refer(payload):
        raise InvalidInput(
            f"the payload of job {job_id!r} takes results of other jobs, and runs of a backfill wait for none",
            code="has_references", field="job_id", hint=f"run it with POST /v1/jobs/{job_id}:runNow and a payload",
        )  # fmt: skip


def not_recurring(job_id: str, why: str = "runs once") -> InvalidInput:
    return InvalidInput(
        f"job {job_id!r} {why}, so it has no fires in the past to make up for", code="not_recurring",
        field="job_id", expected="a job with cron, every or rrule", hint=f"run it with POST /v1/jobs/{job_id}:runNow",
    )  # fmt: skip


def count_in(schedule: Schedule, chosen: FireRange) -> int:
    """How many fires the range has. Raises InvalidInput if there are none or too many."""
    if schedule.calendar is not None and (chosen.end - chosen.start).days > (most := most_days(schedule, _MOST_PARTS)):
        raise InvalidInput(
            f"the calendar {schedule.calendar!r} divides this range into too many parts to count its fires",
            code="invalid_range", field="from", expected=f"a range of at most {most:,} days",
            hint="make several backfills of shorter ranges",
        )  # fmt: skip
    total = count_fires(schedule, chosen.after, chosen.until)
    if total > MOST_FIRES:
        raise InvalidInput(
            f"the schedule has {total:,} fires in this range", code="too_many_fires", field="from",
            expected=f"at most {MOST_FIRES:,}", hint="make several backfills of shorter ranges",
        )  # fmt: skip
    if not total:
        first = next_fire(schedule, chosen.after)
        hint = "it never fires after `from`" if first is None else f"its first fire after `from` is at {_stamp(first)}"
        raise InvalidInput("the schedule has no fire in this range", code="no_fires", field="from", hint=hint)
    return total


def check_concurrency(number: int) -> int:
    if not 1 <= number <= MOST_AT_ONCE:
        raise InvalidInput(f"{number} is out of range", field="concurrency", expected=f"1 to {MOST_AT_ONCE}")
    return number


def read_order(order: str) -> bool:
    """Whether the newest fires come first."""
    if order.lower() not in ("oldest", "newest"):
        raise InvalidInput(f"{order!r} is not an order", field="order", expected="oldest or newest")
    return order.lower() == "newest"


def first_cursor(chosen: FireRange, *, newest_first: bool) -> datetime:
    return chosen.end if newest_first else chosen.start


def next_slice(schedule: Schedule, chosen: FireRange, cursor: datetime, *, newest_first: bool, count: int) -> Slice:
    """The next `count` fires from the cursor on, or all that are left."""
    if newest_first:
        times = newest_fires(schedule, chosen.after, cursor - _MOMENT, count) if cursor > chosen.start else []
        times.reverse()
        return Slice(times, _nominal(schedule, times), chosen.start if len(times) < count else times[-1])
    later = takewhile(lambda moment: moment < chosen.end, fires(schedule, cursor - _MOMENT))
    times = list(islice(later, count))
    return Slice(times, _nominal(schedule, times), chosen.end if len(times) < count else times[-1] + _MOMENT)


def _nominal(schedule: Schedule, times: list[datetime]) -> list[datetime]:
    return times if schedule.jitter is None else [nominal_of(schedule, moment) for moment in times]


def cursor_after(last: datetime, *, newest_first: bool) -> datetime:
    """The cursor when `last` is dealt with."""
    return last if newest_first else last + _MOMENT


def is_over(state: BackfillState, backfill_id: UUID, what: str) -> Conflict:
    return Conflict(
        f"backfill {backfill_id} is {state.word} and cannot be {what}", code="backfill_ended",
        hint="create another one; fires that have a run are left out",
    )  # fmt: skip


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
