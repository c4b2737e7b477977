"""Cron fields of other schedulers as a schedule of ours, where days that are both restricted mean something else."""

from __future__ import annotations

from typing import Any

from mainspring.cli.imports.wall_times import ALIASES, Rules, values_of

_DAYS = ("SU", "MO", "TU", "WE", "TH", "FR", "SA")
_SKIP = {"gap": "skip", "overlap": "both"}  # skipped times do not run, repeated ones run twice


def schedule_of(line: str, zone: str, rules: Rules) -> dict[str, Any]:
    """The schedule that fires as the line does by the rules of its source. Raises BadLine."""
    fields = ALIASES.get(line.strip().lower(), line).split()
    minute, hour, day, month, weekday = (field.replace("?", "*").lower() for field in fields)
    for index, field in enumerate((minute, hour, day, month, weekday)):
        values_of(index, field)
    restricted = [not _is_star(day), not _is_star(weekday)]
    found: dict[str, Any]
    if rules.both and all(restricted):
        found = {"rrule": _rule(minute, hour, day, month, weekday)}
    else:
        if rules.star == "whole":
            day, weekday = _without_star(2, day), _without_star(4, weekday)
        found = {"cron": " ".join((minute, hour, day, month, weekday))}
    if zone != "UTC":
        found["timezone"] = zone
        if rules.moved == "real" and not (minute.startswith("*") or hour.startswith("*")):
            found["dst"] = _SKIP
    return found


def _is_star(text: str) -> bool:
    return text in ("*", "*/1")


def _without_star(index: int, text: str) -> str:
    """These days without the star that would mean that both fields must match."""
    if not text.startswith("*") or _is_star(text):
        return "*" if _is_star(text) else text
    return ",".join(str(number) for number in sorted(values_of(index, text)))


def _rule(minute: str, hour: str, day: str, month: str, weekday: str) -> str:
    weekdays = sorted({number % 7 for number in values_of(4, weekday)})
    parts = ["FREQ=DAILY"]
    if not _is_star(month):
        parts.append("BYMONTH=" + _listed(3, month))
    parts.append("BYMONTHDAY=" + _listed(2, day))
    parts.append("BYDAY=" + ",".join(_DAYS[number] for number in weekdays))
    parts.append("BYHOUR=" + _listed(1, hour))
    parts.append("BYMINUTE=" + _listed(0, minute))
    return ";".join([*parts, "BYSECOND=0"])


def _listed(index: int, text: str) -> str:
    return ",".join(str(number) for number in sorted(values_of(index, text)))
