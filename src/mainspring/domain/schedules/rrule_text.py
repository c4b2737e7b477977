"""The text of a recurrence: a rule alone, or the lines DTSTART, RRULE and EXDATE of RFC 5545."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import shown

_LINE = re.compile(r"(?P<name>[A-Z-]+)(?P<parameters>(?:;[A-Z-]+=[^;:]+)*):(?P<value>.+)", re.IGNORECASE)
_BARE = re.compile(r"[A-Z]+=", re.IGNORECASE)
_RULE = "RRULE:"
_START = "DTSTART"
_LONGEST = 40_000
_EXPECTED = 'such as "FREQ=WEEKLY;BYDAY=MO;BYHOUR=9", or the lines DTSTART, RRULE and EXDATE'


class WallTime(msgspec.Struct, frozen=True):
    """A time as a line gives it: on the clocks of `zone`, or of the schedule's zone. `text` is the value."""

    wall: datetime
    text: str
    zone: str | None = None


class RuleText(msgspec.Struct, frozen=True):
    """body: the parts of the rule, in capitals."""

    body: str
    start: WallTime | None
    exdates: tuple[WallTime, ...]

    def as_stored(self) -> str:
        """The rule, and its start if it has one, as text."""
        if self.start is None:
            return self.body
        zone = "" if self.start.zone in (None, "UTC") else f";TZID={self.start.zone}"
        return f"{_START}{zone}:{self.start.text}\n{_RULE}{self.body}"


def body_of(stored: str) -> str:
    return stored.rpartition(_RULE)[2]


def has_start(stored: str) -> bool:
    return stored.startswith(_START)


def read_text(text: str) -> RuleText:
    """Raises InvalidInput that names no field."""
    if len(text) > _LONGEST:
        raise _bad("the rule is too long", f"at most {_LONGEST} characters")
    body, start, exdates = None, None, list[WallTime]()
    # RFC 5545 folds long lines: what follows a line break and a blank belongs to the line.
    for line in re.sub(r"\r?\n[ \t]", "", text).replace("\\n", "\n").split("\n"):
        line = line.strip()
        if not line:
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            if not _BARE.match(line):
                raise _bad(f"{shown(line)} is not a rule", _EXPECTED)
            name, parameters, value = "RRULE", "", line
        else:
            name, parameters, value = match["name"].upper(), match["parameters"], match["value"]
        match name:
            case "RRULE":
                if body is not None:
                    raise _bad("there are two rules", "one RRULE", "create a job for each")
                body = re.sub(r"\s", "", value).upper()
            case "DTSTART":
                if start is not None:
                    raise _bad("there are two DTSTART", "one DTSTART")
                start = _time(value.strip(), _parameters(parameters, name), name)
            case "EXDATE":
                given = _parameters(parameters, name)
                exdates += [_time(one.strip(), given, name) for one in value.split(",")]
            case "RDATE" | "EXRULE":
                raise _bad(f"{name} is not accepted", "DTSTART, RRULE and EXDATE", "create a job of its own for it")
            case _:
                raise _bad(f"{shown(name)} is not a line of a rule", "DTSTART, RRULE and EXDATE")
    if body is None:
        raise _bad("the text has no rule", _EXPECTED)
    return RuleText(body, start, tuple(exdates))


def _parameters(text: str, name: str) -> dict[str, str]:
    found = {}
    for item in text.split(";")[1:]:
        key, _, value = item.partition("=")
        if key.upper() not in ("TZID", "VALUE"):
            raise _bad(f"{shown(key)} is not a parameter of {name}", "TZID or VALUE")
        found[key.upper()] = value
    return found


def _time(value: str, parameters: dict[str, str], name: str) -> WallTime:
    kind, zone = parameters.get("VALUE", "").upper(), parameters.get("TZID")
    if kind not in ("", "DATE", "DATE-TIME"):
        raise _bad(f"VALUE={shown(kind)} is not accepted in {name}", "DATE or DATE-TIME")
    utc, text = value.upper().endswith("Z"), value.upper().removesuffix("Z")
    if utc and zone is not None:
        raise _bad(f"{name} has a TZID and is in UTC", hint="leave out TZID, or the Z")
    only_date = "T" not in text
    if only_date and name == "EXDATE":
        raise _bad(f"{shown(value)} in EXDATE has no time", "the time of a fire, such as 20301224T090000")
    if (kind == "DATE" and not only_date) or (kind == "DATE-TIME" and only_date) or (utc and only_date):
        raise _bad(f"{shown(value)} in {name} is not a {kind or 'DATE-TIME'}")
    try:
        if len(text) != (8 if only_date else 15) or not text.isascii():
            raise ValueError
        wall = datetime.strptime(text, "%Y%m%d" if only_date else "%Y%m%dT%H%M%S")
    except ValueError:
        raise _bad(f"{shown(value)} in {name} is not a time", "such as 20301231T090000 or 20301231T090000Z") from None
    return WallTime(wall, text + ("Z" if utc else ""), "UTC" if utc else zone)


def _bad(detail: str, expected: str | None = None, hint: str | None = None) -> InvalidInput:
    return InvalidInput(detail, code="invalid_rrule", expected=expected, hint=hint)
