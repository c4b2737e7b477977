"""The fires of a job within a range of time, and where a list of such fires ends. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, islice, takewhile

from mainspring.domain.errors import InvalidInput
from mainspring.domain.schedules.fires import count_fires, fires
from mainspring.domain.schedules.schedule import Schedule

INSTANT = timedelta(microseconds=1)
_AHEAD = timedelta(days=366)
_LAST = datetime(9999, 1, 1, tzinfo=UTC)


def end_of_list(start: datetime, given: datetime | None) -> datetime:
    """Where a list of fires from `start` on ends. Raises InvalidInput if that is not after its start."""
    if given is None:
        return start + min(_AHEAD, _LAST - start)
    if given <= start:
        raise InvalidInput(
            "to is not after from", code="invalid_parameter", field="to", hint="give a later time, or leave it out"
        )
    return given


def fires_within(
    schedule: Schedule, first: datetime, runs_left: int | None, start: datetime, end: datetime
) -> Iterator[datetime]:
    """The fires from `start` to before `end` of a job whose next fire is `first` and which has so many runs left."""
    passed = 0
    moments: Iterator[datetime] = iter(())
    if first >= start:
        moments = chain([first], fires(schedule, first)) if schedule.recurring else iter([first])
    elif schedule.recurring:
        passed = 0 if runs_left is None else 1 + count_fires(schedule, first, start - INSTANT)
        moments = fires(schedule, start - INSTANT)
    if runs_left is not None:
        moments = islice(moments, max(0, runs_left - passed))
    return takewhile(lambda moment: moment < end, moments)
