"""Messages about schedules: when a job fires, as a request says and changes it."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from mainspring.wire.events import Condition, EventName, EventsTogether
from mainspring.wire.formats import Cron, DurationIn, Moment, Name, TimeZone
from mainspring.wire.states import FoldWord, GapWord, OutsideWord


class DstIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a cron line does when clocks are moved. gap: a skipped time fires right after it, or not at all. overlap:
    which of two equal times fires. By default as Debian's cron does."""

    gap: GapWord | None = None
    overlap: FoldWord | None = None


class DstView(msgspec.Struct, omit_defaults=True):
    """What the job's cron line does when clocks are moved, where that is not the default."""

    gap: GapWord | None = None
    overlap: FoldWord | None = None


class ScheduleIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename={"condition": "if"}):
    """`schedule` as an object: exactly one of at, every, cron, rrule, after, event. With an event: `if`, and batch or
    debounce."""

    at: Moment | None = None
    every: DurationIn | None = None
    cron: Cron | None = None
    rrule: str | None = None
    after: list[str] | None = None
    event: EventName | None = None
    condition: Condition | None = None
    batch: EventsTogether | None = None
    debounce: DurationIn | None = None
    timezone: TimeZone | None = None
    anchor: Moment | None = None
    calendar: Name | None = None
    outside: OutsideWord | None = None
    jitter: DurationIn | None = None
    start: Moment | None = None
    end: Moment | None = None
    max_runs: int | None = None
    exdates: list[Moment] | None = None
    dst: DstIn | None = None


class ScheduleChange(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename={"condition": "if"}):
    """`schedule` of a change. With at, every, cron, rrule, after or event it is a whole schedule. Otherwise it changes
    the members that it names, and null removes one."""

    at: Moment | UnsetType | None = UNSET
    every: DurationIn | UnsetType | None = UNSET
    cron: Cron | UnsetType | None = UNSET
    rrule: str | UnsetType | None = UNSET
    after: list[str] | UnsetType | None = UNSET
    event: EventName | UnsetType | None = UNSET
    condition: Condition | UnsetType | None = UNSET
    batch: EventsTogether | UnsetType | None = UNSET
    debounce: DurationIn | UnsetType | None = UNSET
    timezone: TimeZone | UnsetType | None = UNSET
    anchor: Moment | UnsetType | None = UNSET
    calendar: Name | UnsetType | None = UNSET
    outside: OutsideWord | UnsetType | None = UNSET
    jitter: DurationIn | UnsetType | None = UNSET
    start: Moment | UnsetType | None = UNSET
    end: Moment | UnsetType | None = UNSET
    max_runs: int | UnsetType | None = UNSET
    exdates: list[Moment] | UnsetType | None = UNSET
    dst: DstIn | UnsetType | None = UNSET
