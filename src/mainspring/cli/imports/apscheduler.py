"""Reads job stores of APScheduler 3 in a database. Its jobs are pickles, and a pickle is code: they are read only with
--execute, and then in a child process. Without it the ids are listed."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from functools import partial
from typing import Any

from mainspring.cli.imports.child import run_python
from mainspring.cli.imports.fields import schedule_of
from mainspring.cli.imports.model import Import, Imported, id_from
from mainspring.cli.imports.wall_times import ALL_MATCH, BadLine

_SQLITE = "sqlite:///"
_PICKLED = "what it runs and when is a pickle, which is code: give --execute, which reads it in a process of its own"
_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CHILD = """
import json, pickle, sys
url, table = sys.argv[1], sys.argv[2]
if url.startswith("sqlite:///"):
    import sqlite3
    rows = sqlite3.connect(url[10:]).execute('select id, job_state from "%s" order by id' % table).fetchall()
else:
    import sqlalchemy
    with sqlalchemy.create_engine(url).connect() as c:
        rows = c.execute(sqlalchemy.text('select id, job_state from "%s" order by id' % table)).fetchall()
def said(t):
    kind = type(t).__name__
    if kind == "CronTrigger":
        return {"kind": "cron", "zone": str(t.timezone), "fields": {f.name: str(f) for f in t.fields},
                "jitter": t.jitter, "start": t.start_date and t.start_date.isoformat(),
                "end": t.end_date and t.end_date.isoformat()}
    if kind == "IntervalTrigger":
        return {"kind": "every", "seconds": t.interval.total_seconds(), "jitter": t.jitter,
                "anchor": t.start_date and t.start_date.isoformat(), "end": t.end_date and t.end_date.isoformat()}
    return {"kind": kind}
def plain(v):
    try:
        return json.loads(json.dumps(v))
    except (TypeError, ValueError):
        return {"not JSON": repr(v)}
found = []
for name, state in rows:
    s = pickle.loads(state)
    found.append({"id": name, "func": s["func"], "trigger": said(s["trigger"]),
        "args": plain(list(s.get("args") or ())), "kwargs": plain(dict(s.get("kwargs") or {})),
        "grace": s.get("misfire_grace_time"),
        "coalesce": s.get("coalesce", True), "instances": s.get("max_instances", 1)})
print(json.dumps(found))
"""

_FIRES = """
import json, sys
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo
from apscheduler.triggers.cron import CronTrigger
fields, zone, start, end = json.loads(sys.argv[1]), ZoneInfo(sys.argv[2]), *map(datetime.fromisoformat, sys.argv[3:5])
rule, before, now, found = CronTrigger(**fields, timezone=zone), None, start, []
while (moment := rule.get_next_fire_time(before, now)) is not None and moment < end:
    if moment.timestamp() not in found[-1:]:
        found.append(moment.timestamp())
    before, now = moment, datetime.fromtimestamp(moment.timestamp() + 1, zone)
print(json.dumps(found))
"""


def read_store(url: str, table: str, *, execute: bool, python: str) -> Import:
    found = Import()
    if not execute:
        for name in _ids(url, table):
            found.refuse(url, name, _PICKLED)
        return found
    for job in json.loads(run_python(python, _CHILD, url, table)):
        _add(found, job, f"{url}:{job['id']}", python)
    return found


def _fires(python: str, fields: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """The fires of a cron trigger, as APScheduler works them out in a child process."""
    said = run_python(python, _FIRES, fields, zone, start.isoformat(), end.isoformat())
    return [datetime.fromtimestamp(one, UTC) for one in json.loads(said)]


def _ids(url: str, table: str) -> list[str]:
    """The ids in a file of SQLite. Those of other databases are not read here."""
    from mainspring.domain.errors import InvalidInput

    if not url.startswith(_SQLITE) or not table.isidentifier():
        raise InvalidInput(
            f"{url} can be read only with --execute", field="store", expected="a store such as sqlite:///jobs.sqlite"
        )
    path = url.removeprefix(_SQLITE)
    try:
        opened = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            return [str(name) for (name,) in opened.execute(f'select id from "{table}" order by id')]
        finally:
            opened.close()
    except sqlite3.Error as error:
        raise InvalidInput(f"{url} cannot be read: {error}", field="store") from None


def _add(found: Import, job: dict[str, Any], where: str, python: str) -> None:
    trigger, name, fires = job["trigger"], str(job["id"]), None
    if trigger["kind"] == "every":
        when: dict[str, Any] = {"every": trigger["seconds"], "anchor": trigger["anchor"]}
    elif trigger["kind"] == "cron":
        try:
            when = _cron(trigger["fields"], trigger["zone"])
        except (BadLine, ValueError) as error:
            found.refuse(where, name, str(error))
            return
        when["start"] = trigger["start"]
        if trigger["start"] is None and trigger["jitter"] is None:
            fires = partial(_fires, python, json.dumps(trigger["fields"]), trigger["zone"])
    else:
        why = "it runs once: submit it with --at" if trigger["kind"] == "DateTrigger" else "its trigger is unknown here"
        found.refuse(where, name, why)
        return
    when |= {"end": trigger.get("end"), "jitter": trigger.get("jitter")}
    body: dict[str, Any] = {
        "schedule": {key: value for key, value in when.items() if value is not None},
        "task": str(job["func"]).replace(":", "."),
    }
    notes = []
    if job["args"]:
        body["payload"] = {"args": job["args"], **job["kwargs"]}
        notes.append("its positional arguments are in the payload as args: give them their names")
    elif job["kwargs"]:
        body["payload"] = job["kwargs"]
    body["overlap"] = "skip" if job["instances"] == 1 else "allow"
    body["misfire"] = {"policy": "once" if job["coalesce"] else "all"}
    if job["grace"] is not None:
        body["misfire"]["grace"] = float(job["grace"])
    found.add(Imported(id_from(name), {**body, "retries": 0}, where, notes, fires))


def _cron(fields: dict[str, str], zone: str) -> dict[str, Any]:
    """Raises BadLine."""
    for name in ("year", "week"):
        if fields[name] != "*":
            raise BadLine(f"its {name} is {fields[name]}: use start and end, or a rule")
    if fields["second"] != "0":
        raise BadLine(f"its second is {fields['second']}: write a cron line with six fields by hand")
    if any(word in fields["day"] for word in ("last", "st", "nd", "rd", "th")):
        raise BadLine(f"its day is {fields['day']}: use L or MON#2 in a cron line, or a rule")
    days = fields["day_of_week"]
    if days != "*":  # 0 is Monday there
        days = ",".join(_day_names(term) for term in days.split(","))
    found = schedule_of(
        " ".join((fields["minute"], fields["hour"], fields["day"], fields["month"], days)), zone, ALL_MATCH
    )
    if zone != "UTC" and not (fields["minute"].startswith("*") or fields["hour"].startswith("*")):
        found["dst"] = {"gap": "shift", "overlap": "both"}
    return found


def _day_names(term: str) -> str:
    body, slash, step = term.partition("/")
    first, dash, last = ("mon", "-", "sun") if body == "*" else body.partition("-")
    begin = int(first) if first.isdigit() else _index(first)
    end = begin if not dash else int(last) if last.isdigit() else _index(last)
    return ",".join(_NAMES[day % 7] for day in range(begin, end + 1, int(step) if slash else 1))


def _index(name: str) -> int:
    if name not in _NAMES:
        raise BadLine(f"{name!r} is not a weekday")
    return _NAMES.index(name)
