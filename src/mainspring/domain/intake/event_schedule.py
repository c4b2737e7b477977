"""Intake of schedules by events: {"event": "order.paid", "if": "payload.total > 100"}."""

from __future__ import annotations

from mainspring.domain.conditions.condition import condition
from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.domain.texts import check_line
from mainspring.wire.schedules import ScheduleIn

EVENT_MEMBERS = ("condition", "batch", "debounce")
_SHOWN = {"condition": "if"}
_SHORTEST = 0.1
_LONGEST = 7 * 86400.0  # events are kept at least as long as they wait for a run


def refuse_without_event(given: ScheduleIn) -> None:
    """Raise InvalidInput for members that only go with an event."""
    if given.event is not None:
        return
    for member in EVENT_MEMBERS:
        if getattr(given, member) is not None:
            name = _SHOWN.get(member, member)
            raise InvalidInput(
                f"{name} needs event",
                field=f"schedule.{name}",
                hint="name the event, or leave it out",
            )


def read_event(given: ScheduleIn) -> Schedule:
    assert given.event is not None
    check_line(given.event, "schedule.event")
    if not given.event.strip():
        raise InvalidInput("the name of the event is empty", field="schedule.event", expected='such as "order.paid"')
    if given.condition is not None:
        condition(given.condition)
    if given.batch is not None and given.debounce is not None:
        raise InvalidInput(
            "batch and debounce cannot be combined", field="schedule.debounce",
            hint="batch runs with all events of a time, debounce with the last one; leave one of them out",
        )  # fmt: skip
    return Schedule(
        kind=ScheduleKind.EVENT,
        event=given.event,
        condition=given.condition,
        batch=None if given.batch is None else given.batch.size,
        batch_wait=None if given.batch is None else _duration(given.batch.wait, "schedule.batch.wait"),
        by_key=given.batch is not None and given.batch.by_key,
        debounce=None if given.debounce is None else _duration(given.debounce, "schedule.debounce"),
    )


def _duration(text: str | float, field: str) -> float:
    return parse_duration(text, field, least=_SHORTEST, most=_LONGEST)
