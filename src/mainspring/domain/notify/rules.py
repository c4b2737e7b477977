"""Rules: who is told of what, and when."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, time
from zoneinfo import ZoneInfo

import msgspec

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput, NotFound
from mainspring.domain.notify.channel_kinds import check_name
from mainspring.domain.texts import check_line, check_prose, meant, shown
from mainspring.wire.fields import LONGEST_NOTE
from mainspring.wire.rules import (
    CONDITIONS,
    OTHER_EVENTS,
    RUN_EVENTS,
    EscalateIn,
    JobNotify,
    NotifyIn,
    QuietIn,
    RuleRequest,
)

MOST_RULES = 1000
MOST_CHANNELS_OF_RULE = 20
MOST_NOTIFY = 20
MOST_LABELS = 20
GROUP_WAIT, GROUP_INTERVAL, REPEAT_INTERVAL = 5.0, 60.0, 4 * 3600.0
LEAST_INTERVAL = 10.0
_DAY, _MONTH, _YEAR = 86400.0, 30 * 86400.0, 366 * 86400.0
_DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
EVENTS = (*RUN_EVENTS, *OTHER_EVENTS, *CONDITIONS)
# One alert at most of a rule for a failed run: the first of these that the rule wants.
FAILURES = ("every_failure", "failure", "tries_exhausted", "first_failure")
# They last until they have recovered. All others are told once.
LASTING = frozenset({"failure", "tries_exhausted", "first_failure", *CONDITIONS})


class Bound(msgspec.Struct, frozen=True):
    """The default of a condition. over: the window in seconds. above or below: the bound; a rate is in percent."""

    over: float
    above: float | None = None
    below: float | None = None


BOUNDS = {
    "success_rate_below": Bound(3600.0, below=95.0),
    "retries_above": Bound(3600.0, above=5.0),
    "dead_letters_above": Bound(0.0, above=0.0),
    "queue_behind": Bound(0.0, above=300.0),
    "no_worker": Bound(60.0),
    "quota_near": Bound(0.0),
    "lag_above": Bound(300.0, above=10.0),
    "pause_forgotten": Bound(7 * 86400.0),
    "never_ran": Bound(7 * 86400.0),
    "always_fails": Bound(0.0, above=2.0),
    "clocks_differ": Bound(0.0, above=2.0),
    "database_near_limit": Bound(0.0, above=80.0),
}
OF_INSTALLATION = frozenset({"clocks_differ", "database_near_limit"})  # for rules of the tenant default
_OF_ALL = frozenset({"quota_near", *OF_INSTALLATION})  # they have no task and no queue


class Escalation(msgspec.Struct, frozen=True):
    after: float
    to: list[str]


class NotifyRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule as it is stored. Durations are in seconds."""

    on: list[str]
    to: list[str]
    description: str | None = None
    job: str | None = None
    task: str | None = None
    queue: str | None = None
    labels: dict[str, str] = {}
    group_wait: float = GROUP_WAIT
    group_interval: float = GROUP_INTERVAL
    repeat_interval: float = REPEAT_INTERVAL
    quiet: QuietIn | None = None
    escalate: Escalation | None = None
    over: float | None = None
    above: float | None = None
    below: float | None = None

    @property
    def channels(self) -> list[str]:
        """All that it may tell, each once."""
        return list(dict.fromkeys([*self.to, *(self.escalate.to if self.escalate else ())]))

    def concerns(
        self, *, job: str | None, task: str | None, queue: str | None, labels: Mapping[str, str] | None = None
    ) -> bool:
        """Whether the rule is about a run or a thing with these."""
        return (
            (self.job is None or self.job == job)
            and (self.task is None or self.task == task)
            and (self.queue is None or self.queue == queue)
            and all((labels or {}).get(name) == value for name, value in self.labels.items())
        )


def no_rule(name: str) -> NotFound:
    return NotFound(f"there is no rule {name!r}", hint="see GET /v1/rules")


def read_rule(request: RuleRequest) -> NotifyRule:
    """Check a request. Raises InvalidInput that names the field."""
    events, to = _events(request.on, "on", EVENTS), _channels(request.to, "to")
    for field in ("job", "task", "queue"):
        if (text := getattr(request, field)) is not None:
            check_line(text, field)
    if request.description is not None:
        check_prose(request.description, "description")
        if len(request.description) > LONGEST_NOTE:
            raise InvalidInput("the description is too long", field="description", expected=f"at most {LONGEST_NOTE}")
    labels = request.labels or {}
    if len(labels) > MOST_LABELS:
        raise InvalidInput(f"labels has {len(labels)} labels", field="labels", expected=f"at most {MOST_LABELS}")
    for name, value in labels.items():
        check_line(name, "labels")
        check_line(value, f"labels.{name}")
    conditions = [event for event in events if event in CONDITIONS]
    _check_scope(request, events, conditions)
    return NotifyRule(
        on=events,
        to=to,
        description=request.description,
        job=request.job,
        task=request.task,
        queue=request.queue,
        labels=labels,
        group_wait=_duration(request.group_wait, "group_wait", GROUP_WAIT, 0.0, 3600.0),
        group_interval=_duration(request.group_interval, "group_interval", GROUP_INTERVAL, LEAST_INTERVAL, _DAY),
        repeat_interval=_duration(request.repeat_interval, "repeat_interval", REPEAT_INTERVAL, 60.0, _MONTH),
        quiet=None if request.quiet is None else _quiet(request.quiet),
        escalate=None if request.escalate is None else _escalation(request.escalate),
        over=None
        if request.over is None
        else parse_duration(request.over, "over", least=60.0, most=_longest(conditions)),
        above=request.above,
        below=request.below,
    )


def check_notify(given: list[NotifyIn], field: str = "notify") -> list[JobNotify]:
    """Check the rules of a job. Raises InvalidInput that names the field."""
    if len(given) > MOST_NOTIFY:
        raise InvalidInput(f"{field} has {len(given)} rules", field=field, expected=f"at most {MOST_NOTIFY}")
    return [
        JobNotify(_events(one.on, f"{field}[{i}].on", RUN_EVENTS), _channels(one.to, f"{field}[{i}].to"))
        for i, one in enumerate(given)
    ]


def is_quiet(quiet: QuietIn | None, now: datetime) -> bool:
    """Whether `now` lies in the quiet times. Those that pass midnight belong to the day on which they begin."""
    if quiet is None:
        return False
    local = now.astimezone(ZoneInfo(quiet.timezone))
    start, end, moment = _minutes(quiet.start), _minutes(quiet.end), local.hour * 60 + local.minute
    days = quiet.days or _DAYS
    today, yesterday = _DAYS[local.weekday()], _DAYS[local.weekday() - 1]
    if start < end:
        return today in days and start <= moment < end
    return (today in days and moment >= start) or (yesterday in days and moment < end)


def _events(given: list[str], field: str, known: tuple[str, ...]) -> list[str]:
    if not given:
        raise InvalidInput(f"{field} names no event", field=field, expected=", ".join(known))
    given = [event.lower() for event in given]
    for event in given:
        if event not in known:
            raise InvalidInput(
                f"there is no event {shown(event)} here", field=field, expected=", ".join(known),
                hint=meant(event, known, "see the list of events"),
            )  # fmt: skip
    return list(dict.fromkeys(given))


def _channels(given: list[str], field: str) -> list[str]:
    if not given:
        raise InvalidInput(f"{field} names no channel", field=field, hint="create one first: PUT /v1/channels/oncall")
    if len(given) > MOST_CHANNELS_OF_RULE:
        raise InvalidInput(
            f"{field} has {len(given)} channels", field=field, expected=f"{MOST_CHANNELS_OF_RULE} at most"
        )
    return list(dict.fromkeys(check_name(name, "channel", field) for name in given))


def unknown_channel(name: str, known: list[str], field: str) -> InvalidInput:
    return InvalidInput(
        f"there is no channel {name!r}", code="unknown_channel", field=field,
        hint=meant(name, known, f"create it first: PUT /v1/channels/{name}"),
    )  # fmt: skip


def _check_scope(request: RuleRequest, events: list[str], conditions: list[str]) -> None:
    if len(conditions) > 1:
        raise InvalidInput(
            f"on has several conditions: {', '.join(conditions)}", field="on", hint="make a rule for each of them"
        )
    given = [name for name in ("over", "above", "below") if getattr(request, name) is not None]
    bound = BOUNDS[conditions[0]] if conditions else Bound(0.0)
    takes = [name for name in ("over", "above", "below") if conditions and getattr(bound, name) not in (None, 0.0)]
    if conditions == ["dead_letters_above"]:
        takes = ["above"]
    for name in given:
        if name not in takes:
            what = conditions[0] if conditions else "a rule without a condition"
            raise InvalidInput(f"{what} has no {name}", field=name, hint=f"it has {', '.join(takes) or 'no bound'}")
    if conditions and (request.job is not None or request.labels):
        field = "job" if request.job is not None else "labels"
        raise InvalidInput(f"{conditions[0]} is about a task, a queue or the tenant", field=field, hint="leave it out")
    if not _OF_ALL.isdisjoint(conditions) and (request.task is not None or request.queue is not None):
        field = "task" if request.task is not None else "queue"
        whole = "installation" if conditions[0] in OF_INSTALLATION else "tenant"
        raise InvalidInput(f"{conditions[0]} is about the {whole}", field=field, hint="leave it out")
    others = [event for event in events if event in OTHER_EVENTS]
    if others and request.labels:
        raise InvalidInput(f"{others[0]} has no labels", field="labels", hint="leave them out")


def _longest(conditions: list[str]) -> float:
    """The longest window of a condition: rates are read from the minutes of a day."""
    return _YEAR if conditions in (["pause_forgotten"], ["never_ran"]) else _DAY


def _duration(value: str | float | None, field: str, default: float, least: float, most: float) -> float:
    return default if value is None else parse_duration(value, field, least=least, most=most)


def _escalation(given: EscalateIn) -> Escalation:
    after = parse_duration(given.after, "escalate.after", least=60.0, most=_MONTH)
    return Escalation(after, _channels(given.to, "escalate.to"))


def _quiet(given: QuietIn) -> QuietIn:
    try:
        ZoneInfo(given.timezone)
    except (KeyError, ValueError, OSError):
        raise InvalidInput(
            f"there is no time zone {shown(given.timezone)}", code="unknown_timezone", field="quiet.timezone",
            expected="the name of an IANA time zone, such as Europe/Berlin",
        ) from None  # fmt: skip
    for day in given.days or ():
        if day not in _DAYS:
            raise InvalidInput(f"{shown(day)} is not a weekday", field="quiet.days", expected=", ".join(_DAYS))
    for field, text in (("from", given.start), ("to", given.end)):
        try:
            _minutes(text)
        except ValueError:
            raise InvalidInput(f"{shown(text)} is not a time", field=f"quiet.{field}", expected="22:00") from None
    if given.start == given.end:
        raise InvalidInput("the quiet time has no length", field="quiet.to", expected="another time than from")
    return given


def _minutes(text: str) -> int:
    if text == "24:00":
        return 24 * 60
    moment = time.fromisoformat(text)
    if len(text) != 5 or moment.tzinfo is not None:
        raise ValueError(text)
    return moment.hour * 60 + moment.minute
