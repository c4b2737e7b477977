"""Reads the schedules of Celery beat from the syntax tree of a file. With --execute a child process imports the
application and prints them."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from mainspring.cli.imports.child import run_python
from mainspring.cli.imports.fields import schedule_of
from mainspring.cli.imports.literals import Literals, NotLiteral, name_of
from mainspring.cli.imports.model import Fires, Import, Imported, id_from
from mainspring.cli.imports.wall_times import ALL_MATCH, BadLine, line_fires

_SCHEDULES = ("beat_schedule", "CELERY_BEAT_SCHEDULE", "CELERYBEAT_SCHEDULE")
_ZONES = ("timezone", "CELERY_TIMEZONE")
_CRONTAB = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_NOT_KNOWN = "is known only when the file runs: give --execute, which imports it in a process of its own"
_CHILD = """
import importlib, json, sys
from datetime import timedelta
module, _, name = sys.argv[1].partition(":")
sys.path.insert(0, "")
found = importlib.import_module(module)
app = getattr(found, name) if name else next(v for v in vars(found).values() if type(v).__name__ == "Celery")
def said(s):
    kind = type(s).__name__
    if kind == "crontab":
        return {"kind": "crontab", **{n: str(v) for n, v in zip(NAMES, s.__reduce__()[1])}}
    if kind == "solar":
        return {"kind": "solar"}
    s = getattr(s, "run_every", s)
    return {"kind": "every", "seconds": float(s.total_seconds() if isinstance(s, timedelta) else s)}
NAMES = ("minute", "hour", "day_of_week", "day_of_month", "month_of_year")
print(json.dumps({"zone": str(app.conf.timezone or "UTC"), "entries": {str(n): {"task": e["task"],
    "schedule": said(e["schedule"]), "args": list(e.get("args") or ()), "kwargs": dict(e.get("kwargs") or {}),
    "options": {k: v for k, v in (e.get("options") or {}).items() if isinstance(v, (str, int, float))}}
    for n, e in app.conf.beat_schedule.items()}}))
"""


def read_file(text: str, source: str) -> Import:
    """The schedules that the file writes as literals."""
    tree = ast.parse(text)
    literals = Literals(
        {
            "crontab": _crontab,
            "solar": lambda *_args, **_more: {"kind": "solar"},
            "schedule": lambda run_every=None, **_more: run_every,
        }
    )
    literals.learn(tree)
    found = Import()
    zone = "UTC"
    for name, value, _ in _assigned(tree):
        if name in _ZONES and isinstance(value, ast.Constant):
            zone = str(value.value)
    for name, value, line in _assigned(tree):
        if name not in _SCHEDULES:
            continue
        if not isinstance(value, ast.Dict):
            found.refuse(f"{source}:{line}", name, f"it {_NOT_KNOWN}")
            continue
        for key, entry in zip(value.keys, value.values, strict=True):
            where = f"{source}:{entry.lineno}"
            try:
                found_entry = literals.value(entry)
                entry_name = str(literals.value(key)) if key is not None else "?"
            except NotLiteral as error:
                found.refuse(where, ast.unparse(key) if key is not None else "?", f"{error} {_NOT_KNOWN}")
                continue
            _add(found, entry_name, found_entry, where, zone)
    return found


def read_application(application: str, python: str) -> Import:
    """The schedules of `module:app`, as a child process prints them after it has imported it."""
    said = json.loads(run_python(python, _CHILD, application))
    found = Import()
    for name, entry in said["entries"].items():
        _add(found, name, entry, f"{application}:{name}", said["zone"])
    return found


def _assigned(tree: ast.Module) -> list[tuple[str, ast.expr, int]]:
    """Names that are given values anywhere: x = ..., app.conf.x = ..., app.conf.update(x=...)."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            found += [(name_of(target), node.value, node.lineno) for target in node.targets]
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            found.append((name_of(node.target), node.value, node.lineno))
        elif isinstance(node, ast.Call) and name_of(node.func) == "update":
            found += [(keyword.arg or "", keyword.value, node.lineno) for keyword in node.keywords]
    return found


def _crontab(
    minute: Any = "*",
    hour: Any = "*",
    day_of_week: Any = "*",
    day_of_month: Any = "*",
    month_of_year: Any = "*",
    **_: Any,
) -> dict[str, Any]:
    """Its parameters in the order of Celery 5."""
    given = {
        "minute": minute,
        "hour": hour,
        "day_of_month": day_of_month,
        "month_of_year": month_of_year,
        "day_of_week": day_of_week,
    }
    return {"kind": "crontab", **{name: _field(value) for name, value in given.items()}}


def _field(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _add(found: Import, name: str, entry: Any, where: str, zone: str) -> None:
    if not isinstance(entry, Mapping) or "task" not in entry or entry.get("schedule") is None:
        found.refuse(where, name, "it has no task or no schedule")
        return
    schedule, fires = entry["schedule"], None
    if isinstance(schedule, timedelta):
        schedule = {"kind": "every", "seconds": schedule.total_seconds()}
    elif isinstance(schedule, int | float):
        schedule = {"kind": "every", "seconds": float(schedule)}
    if schedule["kind"] == "solar":
        found.refuse(where, name, "it follows the sun, which no schedule here does")
        return
    if schedule["kind"] == "every":
        when: dict[str, Any] = {"every": schedule["seconds"]}
    else:
        line = " ".join(_five(str(schedule[part])) for part in _CRONTAB)
        try:
            when = schedule_of(line, zone, ALL_MATCH)
        except (BadLine, ValueError) as error:
            found.refuse(where, name, f"its crontab {line!r} cannot be read: {error}")
            return
        fires = _fires(line, zone)
    notes: list[str] = []
    args, kwargs = list(entry.get("args") or ()), dict(entry.get("kwargs") or {})
    body: dict[str, Any] = {"schedule": when, "task": str(entry["task"])}
    if args:
        body["payload"] = {"args": args, **kwargs}
        notes.append("its positional arguments are in the payload as args: give them their names")
    elif kwargs:
        body["payload"] = kwargs
    options = entry.get("options") or {}
    if "queue" in options:
        body["queue"] = str(options["queue"])
    if isinstance(options.get("expires"), int | float):
        body["expires_in"] = float(options["expires"])
    body |= {"overlap": "allow", "misfire": {"policy": "once"}, "retries": 0}
    found.add(Imported(id_from(name), body, where, notes, fires))


def _five(field: str) -> str:
    return field.replace(" ", "")


def _fires(line: str, zone: str) -> Fires:
    return partial(line_fires, line, zone, ALL_MATCH)
