"""Messages about the future: what a schedule does, the next fires of all jobs, and the heat map."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mainspring.wire.formats import ChosenJobId, Cron, DurationIn, Moment, ScheduleText, TimeZone
from mainspring.wire.problems import FieldProblem
from mainspring.wire.schedules import ScheduleIn
from mainspring.wire.states import ScheduleType, words

MOST_FIRES = 1000
_NAMES = {"from_": "from"}
RangeWord = Literal["day", "week"]
WarningKind = Annotated[str, words("WarningKind", "clock_change", "note", "pile_up")]


class PreviewRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename=_NAMES):
    """The body of `POST /v1/schedules:preview` and `:explain`: a schedule in any form in which a job can have it. n:
    how many fires. from: those from this time on; by default from now on. job_id: the job for which `H` and jitter are
    worked out."""

    schedule: ScheduleText | ScheduleIn | None = None
    schedule_type: ScheduleType | None = None
    schedule_time: Moment | None = None
    cron_expression: Cron | None = None
    cron: Cron | None = None
    timezone: TimeZone | None = None
    delay: DurationIn | None = None
    job_id: ChosenJobId | None = None
    n: Annotated[int, Meta(ge=1, le=MOST_FIRES)] = 10
    from_: Moment | None = None


class FireTime(msgspec.Struct):
    """at: in UTC. local: the wall time in the zone of the schedule, with its offset."""

    at: datetime
    local: str
    weekday: str


class SpreadView(msgspec.Struct):
    """How to move a schedule away from the moments at which many jobs fire. reason: why. cron: the same line with a
    minute or second of its own for each job. jitter: a delay of its own for each fire. null if it does not help."""

    reason: str
    cron: str | None
    jitter: str | None


class SchedulePreview(msgspec.Struct, rename=_NAMES):
    """The response to `POST /v1/schedules:preview`. schedule: the short form, as lists of jobs show it. explanation:
    the schedule in words. fires_per_day: on average over the next 364 days, or until the last fire. notes: what is
    special about these fires, such as changes of the clocks. spread: a proposal, if the fires are where many are."""

    schedule: str
    schedule_type: ScheduleType
    explanation: str
    timezone: TimeZone
    from_: datetime
    fires: list[FireTime]
    fires_per_day: float
    notes: list[str]
    spread: SpreadView | None = None


class ScheduleWarning(msgspec.Struct):
    """What a person should know before using a schedule. at: the moment that it is about, of a pile-up."""

    kind: WarningKind
    text: str
    at: datetime | None = None


class ScheduleExplanation(msgspec.Struct):
    """The response to `POST /v1/schedules:explain`. valid: whether a job with the schedule would be accepted.
    problems: otherwise, what is wrong with each field; the rest is empty then. words: when it fires. fires_per_day: on
    average over the next 364 days, or until the last fire. warnings: what the changes of the clocks do to fires of the
    next year, minutes in which many jobs of the tenant fire already, and notes. spread: how to move away from them."""

    valid: bool
    problems: list[FieldProblem] = []
    words: str | None = None
    schedule: str | None = None
    schedule_type: ScheduleType | None = None
    timezone: TimeZone | None = None
    fires: list[FireTime] = []
    fires_per_day: float | None = None
    warnings: list[ScheduleWarning] = []
    spread: SpreadView | None = None


class UpcomingFire(msgspec.Struct):
    """A fire of a job that has yet to come."""

    at: datetime
    job_id: str
    name: str
    schedule: str
    queue: str


class UpcomingFires(msgspec.Struct, rename=_NAMES):
    """The response to `GET /v1/insights/upcoming`: fires in order of time, if no job is paused or changed. A job
    may occur several times. until: before this moment no fire is missing. more: whether others follow before `to`.
    next: the cursor of the page with these; null with `more` if too many jobs fire before them to list them."""

    from_: datetime
    until: datetime
    fires: list[UpcomingFire]
    more: bool
    next: str | None = None


class HeatCell(msgspec.Struct):
    """local: the beginning of the cell in the zone that was asked for, with its offset."""

    at: datetime
    local: str
    fires: int


class PileUpPart(msgspec.Struct):
    """Jobs with the same schedule. timezone: the time zone of a cron line or an rrule. job_ids: some of them. spread:
    what would spread them."""

    schedule: str
    timezone: TimeZone | None
    jobs: int
    fires: int
    job_ids: list[str]
    spread: SpreadView | None = None


class PileUp(msgspec.Struct):
    """A minute in which more jobs fire than in others. by: the schedules with the most fires in it, five at most."""

    at: datetime
    local: str
    fires: int
    by: list[PileUpPart]


class HeatMap(msgspec.Struct, rename=_NAMES):
    """The response to `GET /v1/insights/heatmap`: the fires of all jobs of the tenant that are not paused, counted in
    cells of 5 minutes (day) or an hour (week). jobs: how many are counted. as_of: when they were read; with very many
    jobs this is minutes ago. estimated: whether some fires were not counted one by one."""

    range: RangeWord
    timezone: TimeZone
    from_: datetime
    to: datetime
    cell_seconds: int
    as_of: datetime
    estimated: bool
    jobs: int
    fires: int
    cells: list[HeatCell]
    pile_ups: list[PileUp]
