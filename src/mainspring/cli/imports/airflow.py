"""Reads the DAGs of Airflow from the syntax tree of their files: a list of schedules. Each becomes a job that triggers
the DAG, until its tasks are moved."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from mainspring.cli.imports.fields import schedule_of
from mainspring.cli.imports.literals import Literals, NotLiteral, name_of
from mainspring.cli.imports.model import Import, Imported, id_from
from mainspring.cli.imports.wall_times import ALIASES, BadLine, Rules, line_fires

_WHEN = ("schedule", "schedule_interval", "timetable")
_AIRFLOW = Rules(star="whole", moved="debian")
_CRON_OF = {**ALIASES, "@quarterly": "0 0 1 */3 *"}
_TRIGGER = "it triggers the DAG in Airflow; its tasks are a workflow here when you have moved them"
_NOT_KNOWN = "is known only when the file runs: write a cron line or a timedelta, or the job by hand"


def read_dags(text: str, source: str) -> Import:
    found = Import()
    tree = ast.parse(text)
    literals = Literals({})
    literals.learn(tree)
    for call, name in _dags(tree):
        where = f"{source}:{call.lineno}"
        given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        named = given.get("dag_id") or (call.args[0] if call.args else None)
        try:
            dag_id = str(literals.value(named)) if named is not None else name
        except NotLiteral as error:
            found.refuse(where, name, f"the dag_id {error} is known only when the file runs")
            continue
        if dag_id is not None:
            _add(found, dag_id, given, literals, where)
    return found


def _dags(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Calls of DAG, and functions under @dag."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node.func) == "DAG":
            yield node, "DAG"
        elif isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and name_of(decorator.func) == "dag":
                    yield decorator, node.name


def _add(found: Import, dag_id: str, given: dict[str, ast.expr], literals: Literals, where: str) -> None:
    said = next((given[name] for name in _WHEN if name in given), None)
    try:
        when = None if said is None else literals.value(said)
    except NotLiteral as error:
        found.refuse(where, dag_id, f"its schedule {error} {_NOT_KNOWN}")
        return
    zone, notes, fires = _zone(given), [_TRIGGER], None
    body: dict[str, Any] = {}
    if isinstance(when, timedelta):
        body["schedule"] = {"every": when.total_seconds()}
    elif isinstance(when, str) and when.lower() in ("@once", "@continuous"):
        found.refuse(where, dag_id, f"{when} is no schedule: submit it once, or give it an interval")
        return
    elif isinstance(when, str):
        line = _CRON_OF.get(when.lower(), when)
        try:
            body["schedule"] = schedule_of(line, zone, _AIRFLOW)
        except (BadLine, ValueError) as error:
            found.refuse(where, dag_id, f"its schedule {when!r} cannot be read: {error}")
            return
        fires = partial(line_fires, line, zone, _AIRFLOW)
    elif when is not None:
        found.refuse(where, dag_id, "it follows datasets or assets: use `after` with jobs, or a workflow")
        return
    elif said is None:
        notes.append("it names no schedule: Airflow 2 runs it daily, Airflow 3 by hand; here it runs by hand")
    body["command"] = ["airflow", "dags", "trigger", dag_id]
    catchup = given.get("catchup")
    if not (isinstance(catchup, ast.Constant) and catchup.value is True):
        body["misfire"] = {"policy": "once"}
    else:
        body["misfire"] = {"policy": "all"}
        notes.append("catchup: what was due before the first application is not made up; see mainspring backfill")
    found.add(Imported(id_from(dag_id), body, where, notes, fires))


def _zone(given: dict[str, ast.expr]) -> str:
    """The zone of start_date: pendulum.datetime(..., tz="Europe/Berlin"), or pendulum.timezone("...") in it."""
    start = given.get("start_date")
    for node in ast.walk(start) if start is not None else ():
        if isinstance(node, ast.keyword) and node.arg in ("tz", "tzinfo") and isinstance(node.value, ast.Constant):
            return str(node.value.value)
        if isinstance(node, ast.Call) and name_of(node.func) in ("timezone", "ZoneInfo") and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant):
                return str(first.value)
    return "UTC"
