"""Intake of cron expressions, and of what they do when clocks are moved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice, product

from mainspring.domain.errors import InvalidInput
from mainspring.domain.schedules.clock_changes import DAY, changes
from mainspring.domain.schedules.cron_fields import DAY_OF_WEEK, HOUR, MONTH, CronError
from mainspring.domain.schedules.cron_fires import CronFires
from mainspring.domain.schedules.cron_hash import all_values, has_hash
from mainspring.domain.schedules.occurrences import each
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.domain.schedules.wall_clock import wall_clock
from mainspring.domain.schedules.zones import check_timezone, zone
from mainspring.domain.texts import meant, shown
from mainspring.wire.schedules import DstIn
from mainspring.wire.states import FOLDS, GAPS

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
UTC_NAMES = frozenset(
    ("UTC", "UCT", "Zulu", "Universal", "Etc/UTC", "Etc/UCT", "Etc/Zulu", "Etc/Universal", "GMT", "Etc/GMT")
)
_LONGEST_CRON = 1000
_SPOKEN = re.compile(
    r"(?:every )?([0-9]{1,9}) ?(?:(s)(?:ec|econd)?s?|(m)(?:in|inute)?s?|(h)(?:r|our)?s?|(d)(?:ay)?s?)", re.IGNORECASE
)
_EVERY = re.compile(r"@every ([0-9a-z]{1,20})", re.IGNORECASE)
_ZONE = re.compile(r"(CRON_)?TZ=", re.IGNORECASE)
_DAYS = re.compile(r"\bL-[0-9]|[0-9]W\b")


def read_cron(
    expression: str, dst: DstIn | None, timezone: str | None, timezone_field: str, field: str, now: datetime
) -> Schedule:
    tz = "UTC" if timezone is None else check_timezone(timezone, timezone_field)
    gap, fold = read_dst(dst, tz)
    line = check_cron(expression, tz, field, now, gap, fold)
    return Schedule(kind=ScheduleKind.CRON, cron=line, timezone=tz, gap=gap, fold=fold)


def refuse_dst(dst: DstIn | None) -> None:
    """Refuse dst in a schedule that has no wall times."""
    if dst is not None:
        raise InvalidInput(
            "dst needs cron or rrule", field="schedule.dst", hint="leave it out: only wall times are skipped"
        )


def check_cron(
    expression: str, timezone: str, field: str, now: datetime, gap: str | None = None, fold: str | None = None
) -> str:
    """The expression with aliases expanded. Raises InvalidInput if it cannot be parsed or never fires."""
    if len(expression) > _LONGEST_CRON:
        raise _bad_cron("the expression is too long", field, f"at most {_LONGEST_CRON} characters")
    text = " ".join(expression.split())
    if text.startswith("@"):
        if text.lower() not in ALIASES:
            known = "one of " + ", ".join(sorted(ALIASES))
            hint = _instead(text, 1) or meant(text.lower(), ALIASES, "") or None
            raise _bad_cron(f"{shown(text)} is not a known alias", field, known, hint=hint)
        text = ALIASES[text.lower()]
    fields = len(text.split())
    if fields not in (5, 6):
        raise _bad_cron(f"{shown(expression)} has {fields} field(s)", field, hint=_instead(text, fields))
    try:
        never = _never_fires(text, timezone, gap, fold, now.year)
    except CronError as error:
        detail = f"{shown(expression)} is not a cron expression: {error}"
        raise _bad_cron(detail, field, about_hash=has_hash(text), hint=_instead(text, fields)) from None
    if never is not None:
        raise InvalidInput(
            f"{shown(expression)} never fires" + ("" if never == text else f" if H picks {shown(never)}"),
            code="cron_never_fires",
            field=field,
            hint="check the day and the month" if gap is None else "check the day and the month, and schedule.dst.gap",
        )
    return text


def _bad_cron(
    detail: str, field: str, expected: str | None = None, *, about_hash: bool = False, hint: str | None = None
) -> InvalidInput:
    return InvalidInput(
        detail,
        code="invalid_cron",
        field=field,
        expected=expected or "5 fields (minute hour day month weekday), or 6 with seconds first",
        hint=hint
        or 'such as "0 9 * * MON-FRI" or "@daily"' + (', with H as in "H(0-29)/10 * * * *"' if about_hash else ""),
    )


def _instead(text: str, fields: int) -> str | None:
    """What to write for what other crons know."""
    if every := _EVERY.fullmatch(text):
        return f'use "every": "{every[1]}" instead of cron'
    if spoken := _SPOKEN.fullmatch(text):
        unit = next(one for one in spoken.groups()[1:] if one)
        return f'use "every": "{spoken[1]}{unit.lower()}" instead of cron'
    if _ZONE.match(text):
        return 'leave it out, and give "timezone"'
    if fields == 7:
        return "leave out the year; schedule.start and schedule.end are bounds"
    if "?" in text:
        return "write * for ?"
    if _DAYS.search(text.upper()):
        return "of the days of the month, L (the last) and LW (the last from Monday to Friday) are known"
    return None


@lru_cache(maxsize=16384)
def _never_fires(cron: str, timezone: str, gap: str | None, fold: str | None, year: int) -> str | None:
    """The line, or what it can become by `H`, if that never fires. Raises CronError."""
    begin = datetime(year, 1, 1, tzinfo=UTC)
    for line in _lines(cron, (MONTH, DAY_OF_WEEK)):  # not each month has a day 31
        if not wall_clock(line).occurs or CronFires(line, timezone, gap, fold).next(begin) is None:
            return line
    if not has_hash(cron) or timezone == "UTC":
        return None
    for days in _days_of_moved_clocks(cron, timezone, begin):
        for line in _lines(" ".join([*cron.split()[:-3], *days]), (HOUR,)):
            if CronFires(line, timezone, gap, fold).next(begin) is None:
                return line
    return None


def _days_of_moved_clocks(cron: str, timezone: str, begin: datetime) -> Iterator[list[str]]:
    """The day, month and weekday that a line with `H` may have, if clocks are moved on all such days. Then a skipped
    hour matters."""
    for line in _lines(cron, (MONTH, DAY_OF_WEEK)):
        days = line.split()[-3:]
        for fire in islice(each(CronFires(" ".join(["0", "12", *days]), timezone), begin), 3):
            seconds = fire.timestamp()
            if not any(abs(change.at - seconds) < 2 * DAY for change in changes(zone(timezone), fire.year)):
                break
        else:
            yield days


def _lines(cron: str, indexes: tuple[int, ...]) -> Iterator[str]:
    """The line, with all values that `H` can have in these fields. In the others it has the first one."""
    fields = cron.upper().split()
    first = 6 - len(fields)
    if not has_hash(cron):
        return iter([cron])
    values = [all_values(index, field) if has_hash(field) else [field] for index, field in enumerate(fields, first)]
    some = [choice if index in indexes else choice[:1] for index, choice in enumerate(values, first)]
    return (" ".join(chosen) for chosen in product(*some))


def read_dst(dst: DstIn | None, timezone: str) -> tuple[str | None, str | None]:
    if dst is None:
        return None, None
    if timezone in UTC_NAMES:
        raise InvalidInput(
            "dst has no effect in UTC", field="schedule.dst", hint="leave it out, or give schedule.timezone"
        )
    gap, fold = (None if word is None else word.lower() for word in (dst.gap, dst.overlap))
    for name, word, words in (("gap", gap, GAPS), ("overlap", fold, FOLDS)):
        if word is not None and word not in words:
            raise InvalidInput(
                f"{shown(word)} is not one of the policies of {name}",
                field=f"schedule.dst.{name}",
                expected=" or ".join(words),
            )
    return gap, fold
