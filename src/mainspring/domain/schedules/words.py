"""A schedule in words: "At 09:00, Monday to Friday, Europe/Berlin"."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

from mainspring.domain.schedules.cron_words import cron_words
from mainspring.domain.schedules.rrule_text import body_of
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind

_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))
_GAPS = {"shift": "a skipped time runs right after the change", "skip": "a skipped time does not run"}
_FOLDS = {
    "first": "a repeated time runs the first time",
    "last": "a repeated time runs the second time",
    "both": "a repeated time runs both times",
}


@lru_cache(maxsize=2048)
def explain(schedule: Schedule) -> str:
    """When the schedule fires, in words. `H` of a cron expression is explained by its value, if there is a seed."""
    return ", ".join([*_rule(schedule), *_clock_changes(schedule), *_calendar(schedule), *_bounds(schedule)])


def duration_words(seconds: float) -> str:
    """ "10 minutes", "1 hour 30 minutes", "1.5 seconds"."""
    if seconds != int(seconds):
        return f"{seconds:.6f}".rstrip("0") + " seconds"
    words, rest = [], int(seconds)
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count} {unit}" + ("" if count == 1 else "s"))
    return " ".join(words) or "0 seconds"


def names_in_words(names: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def time_words(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _rule(schedule: Schedule) -> list[str]:
    match schedule.kind:
        case ScheduleKind.NOW:
            return ["Once, as soon as possible"]
        case ScheduleKind.AT:
            return ["Once" if schedule.at is None else f"Once, at {time_words(schedule.at)}"]
        case ScheduleKind.EVERY:
            every = duration_words(schedule.every or 0.0)
            words = "Every " + (every.removeprefix("1 ") if every.startswith("1 ") and every.count(" ") == 1 else every)
            return [words if schedule.anchor is None else f"{words} from {time_words(schedule.anchor)} on"]
        case ScheduleKind.CRON:
            return [*cron_words(schedule.cron or "", schedule.seed), schedule.timezone]
        case ScheduleKind.RRULE:
            left_out = [f"except {len(schedule.exdates)} dates"] if schedule.exdates else []
            return [f"By the rule {body_of(schedule.rrule or '')}", schedule.timezone, *left_out]
        case ScheduleKind.AFTER:
            return [f"After {names_in_words(schedule.after or ())}"]
        case ScheduleKind.EVENT:
            return _event(schedule)
        case ScheduleKind.MANUAL:
            return ["Only when somebody runs it"]


def _event(schedule: Schedule) -> list[str]:
    words = [f"When {schedule.event} is emitted"]
    if schedule.condition is not None:
        words.append(f"if {schedule.condition}")
    if schedule.batch is not None:
        of_key = " of a key" if schedule.by_key else ""
        words.append(
            f"up to {schedule.batch:,} events{of_key} in {duration_words(schedule.batch_wait or 0.0)} together"
        )
    if schedule.debounce is not None:
        words.append(f"{duration_words(schedule.debounce)} after the last event of a key")
    return words


def _clock_changes(schedule: Schedule) -> list[str]:
    words = []
    if schedule.gap is not None:
        words.append(_GAPS[schedule.gap])
    if schedule.fold is not None:
        words.append(_FOLDS[schedule.fold])
    return words


def _calendar(schedule: Schedule) -> list[str]:
    if schedule.calendar is None:
        return []
    moved = ", otherwise at the next time that it allows" if schedule.outside == "next" else ""
    return [f"if the calendar {schedule.calendar} allows it{moved}"]


def _bounds(schedule: Schedule) -> list[str]:
    words = []
    if schedule.jitter is not None:
        words.append(f"each up to {duration_words(schedule.jitter)} later")
    if schedule.start is not None:
        words.append(f"not before {time_words(schedule.start)}")
    if schedule.end is not None:
        words.append(f"not after {time_words(schedule.end)}")
    if schedule.max_runs is not None:
        words.append("one run" if schedule.max_runs == 1 else f"at most {schedule.max_runs:,} runs")
    return words
