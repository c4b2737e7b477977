"""Reads timers of systemd, with the services that they start."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from mainspring.cli.imports.durations import systemd_seconds
from mainspring.cli.imports.model import Import, Imported, id_from

_WORDS = {
    "minutely": "*-*-* *:*:00", "hourly": "*-*-* *:00:00", "daily": "*-*-* 00:00:00", "monthly": "*-*-01 00:00:00",
    "weekly": "Mon *-*-* 00:00:00", "yearly": "*-01-01 00:00:00", "annually": "*-01-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00", "semiannually": "*-01,07-01 00:00:00",
}  # fmt: skip
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_RULE_DAYS = ("SU", "MO", "TU", "WE", "TH", "FR", "SA")
_BOUNDS = {"month": (1, 12), "day": (1, 31), "hour": (0, 23), "minute": (0, 59), "second": (0, 59)}
_MONOTONIC = ("OnUnitActiveSec", "OnBootSec", "OnStartupSec", "OnActiveSec")
_PREFIX = re.compile(r"^[-@:+!|]+")
Units = dict[str, dict[str, list[str]]]


class BadCalendar(ValueError):
    """An expression that no schedule here can say."""


def read_timers(paths: list[Path], *, zone: str) -> Import:
    """The timers in the files and folders. Services lie beside them."""
    found = Import(notes=[f"times without a zone are in {zone}"] if zone != "UTC" else [])
    files = [one for path in paths for one in (sorted(path.glob("*.timer")) if path.is_dir() else [path])]
    for file in files:
        timer = _unit(file.read_text(encoding="utf-8"))
        named = _last(timer, "Timer", "Unit") or f"{file.stem}.service"
        service_file = file.parent / named
        if not service_file.exists():
            found.refuse(str(file), file.name, f"its service {named} is not beside it")
            continue
        _add(found, file, timer, _unit(service_file.read_text(encoding="utf-8")), zone)
    return found


def _unit(text: str) -> Units:
    units: Units = {}
    section: dict[str, list[str]] = {}
    for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line.startswith("[") and line.endswith("]"):
            section = units.setdefault(line[1:-1], {})
            continue
        name, _, value = line.partition("=")
        if value.strip():
            section.setdefault(name.strip(), []).append(value.strip())
        else:
            section.pop(name.strip(), None)  # an empty value clears the list
    return units


def _last(units: Units, section: str, name: str) -> str | None:
    found = units.get(section, {}).get(name)
    return found[-1] if found else None


def _add(found: Import, file: Path, timer: Units, service: Units, zone: str) -> None:
    settings, name = timer.get("Timer", {}), id_from(file.stem)
    notes: list[str] = []
    work = _work(service, notes)
    if work is None:
        found.refuse(str(file), file.name, "its service has no ExecStart")
        return
    if "OnUnitInactiveSec" in settings:
        found.refuse(
            str(file), file.name, "OnUnitInactiveSec counts from the end of a run: use every with overlap skip"
        )
        return
    persistent = (_last(timer, "Timer", "Persistent") or "").lower() in ("yes", "true", "on", "1")
    usual: dict[str, Any] = {"overlap": "skip", "misfire": {"policy": "once" if persistent else "skip"}, "retries": 0}
    jitter = systemd_seconds(_last(timer, "Timer", "RandomizedDelaySec") or "")
    schedules: list[dict[str, Any]] = []
    for text in settings.get("OnCalendar", []):
        try:
            schedules.append(calendar_schedule(text, zone))
        except BadCalendar as error:
            found.refuse(str(file), f"OnCalendar={text}", str(error))
    every = systemd_seconds(_last(timer, "Timer", "OnUnitActiveSec") or "")
    if every is not None:
        schedules.append({"every": every})
    elif any(one in settings for one in _MONOTONIC):
        found.refuse(str(file), file.name, "it is about the start of the machine or of a unit, and runs once")
    if "AccuracySec" in settings:
        notes.append("AccuracySec is left out: a job here runs at its time")
    for schedule in schedules:
        when = schedule if jitter is None else {**schedule, "jitter": jitter}
        found.add(Imported(name, {"schedule": when, **work, **usual}, str(file), [*notes]))


def _work(service: Units, notes: list[str]) -> dict[str, Any] | None:
    commands = [_PREFIX.sub("", one) for one in service.get("Service", {}).get("ExecStart", [])]
    if not commands:
        return None
    body: dict[str, Any] = {}
    folder = _last(service, "Service", "WorkingDirectory")
    lines = ([f"cd {shlex.quote(folder)}"] if folder and folder[0] not in "-~%" else []) + commands
    body["command"] = " && ".join(lines) if len(lines) > 1 else _words(commands[0])
    description = _last(service, "Unit", "Description")
    if description:
        body["description"] = description
    env: dict[str, str] = {}
    for one in service.get("Service", {}).get("Environment", []):
        env.update(pair.partition("=")[::2] for pair in shlex.split(one))
    if env:
        body["env"] = env
    user = _last(service, "Service", "User")
    if user is not None:
        body["run_as"] = user
        notes.append(f"the worker must allow the user: --run-as-allow {user}")
    limit = systemd_seconds(_last(service, "Service", "TimeoutStartSec") or "")
    body["timeout"] = "1d" if limit is None else limit
    if any("%" in one for one in commands):
        notes.append("% in a command is filled in by systemd only")
    left = ("EnvironmentFile", "ExecStartPre", "ExecStartPost", "LoadCredential")
    notes += [f"{setting} is left out" for setting in left if setting in service.get("Service", {})]
    return body


def _words(command: str) -> Any:
    try:
        return shlex.split(command)
    except ValueError:
        return command


def calendar_schedule(text: str, zone: str) -> dict[str, Any]:
    """The schedule of an OnCalendar expression. Raises BadCalendar."""
    words = _WORDS.get(text.strip().lower(), text).split()
    weekdays: set[int] | None = None
    year, month, day = "*", "*", "*"
    hour, minute, second = "00", "00", "00"
    for index, word in enumerate(words):
        if ":" in word:
            hour, minute, second = (*word.split(":"), "00")[:3]
        elif re.fullmatch(r"[A-Za-z.,-]+", word) and word[:3].lower() in _DAYS and index == 0:
            weekdays = _weekdays(word.lower())
        elif re.fullmatch(r"[0-9*,./~-]+", word) and "-" in word:
            year, month, day = (["*", *word.split("-")] if word.count("-") == 1 else word.split("-"))[-3:]
        elif index == len(words) - 1:
            zone = word
        else:
            raise BadCalendar(f"{word!r} cannot be read")
    if "~" in text:
        raise BadCalendar("~ counts days from the end of the month: use a rule such as FREQ=MONTHLY;BYMONTHDAY=-1")
    if year != "*":
        raise BadCalendar("it has a year: use start, end or max_runs")
    if "." in second and not re.fullmatch(r"\d+\.\.\d+", second):
        raise BadCalendar("it has parts of a second")
    parts = {"month": month, "day": day, "hour": hour, "minute": minute, "second": second}
    values = {name: _values(name, part) for name, part in parts.items()}
    found: dict[str, Any]
    if weekdays is not None and len(weekdays) < 7 and len(values["day"]) < 31:
        found = {"rrule": _rule(values, weekdays)}
    else:
        fields = [_field(name, values[name]) for name in ("second", "minute", "hour", "day", "month")]
        week = "*" if weekdays is None or len(weekdays) == 7 else ",".join(map(str, sorted(weekdays)))
        found = {"cron": " ".join([*(fields[1:] if values["second"] == {0} else fields), week])}
    return found if zone == "UTC" else {**found, "timezone": zone}


def _weekdays(text: str) -> set[int]:
    found: set[int] = set()
    for term in text.split(","):
        first, _, last = term.replace("..", "-").partition("-")
        try:
            begin, end = _DAYS.index(first[:3]), _DAYS.index((last or first)[:3])
        except ValueError:
            raise BadCalendar(f"{term!r} is not a weekday") from None
        found.update(one % 7 for one in range(begin, end + 1 if end >= begin else end + 8))
    return found


def _values(name: str, text: str) -> set[int]:
    least, most = _BOUNDS[name]
    found: set[int] = set()
    for term in text.split(","):
        body, slash, step = term.partition("/")
        first, dots, last = body.partition("..")
        try:
            begin = least if first == "*" else int(first)
            end = int(last) if dots else most if slash or first == "*" else begin
            by = int(step) if slash else 1
        except ValueError:
            raise BadCalendar(f"{term!r} cannot be read") from None
        if not (least <= begin <= end <= most and by > 0):
            raise BadCalendar(f"{term!r} is out of range")
        found.update(range(begin, end + 1, by))
    return found


def _field(name: str, values: set[int]) -> str:
    least, most = _BOUNDS[name]
    return "*" if len(values) == most - least + 1 else ",".join(map(str, sorted(values)))


def _rule(values: dict[str, set[int]], weekdays: set[int]) -> str:
    def listed(numbers: set[int]) -> str:
        return ",".join(map(str, sorted(numbers)))

    months = [] if len(values["month"]) == 12 else [f"BYMONTH={listed(values['month'])}"]
    days = ",".join(_RULE_DAYS[one] for one in sorted(weekdays))
    times = [f"BY{name.upper()}={listed(values[name])}" for name in ("hour", "minute", "second")]
    return ";".join(["FREQ=DAILY", *months, f"BYMONTHDAY={listed(values['day'])}", f"BYDAY={days}", *times])
