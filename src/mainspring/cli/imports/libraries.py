"""Fires as croniter works them out, if the interpreter of the user has it: in a child process."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from mainspring.cli.imports.child import run_python

_CRONITER = """
import json, sys
from datetime import datetime
from zoneinfo import ZoneInfo
from croniter import croniter
line, zone, start, end = sys.argv[1:5]
place, end = ZoneInfo(zone), datetime.fromisoformat(end)
begin = datetime.fromisoformat(start).astimezone(place)
first, second = (lambda walk: (walk.get_next(datetime), walk.get_next(datetime)))(croniter(line, begin))
# As Airflow does: a fixed time of the day is worked out without the zone.
fixed = (first.hour, first.minute) == (second.hour, second.minute)
walk = croniter(line, begin.replace(tzinfo=None) if fixed else begin)
found = []
while True:
    moment = walk.get_next(datetime)
    moment = moment.replace(tzinfo=place) if fixed else moment
    if moment >= end:
        break
    found.append(moment.timestamp())
print(json.dumps(found))
"""
_CELERY = """
import json, sys
from datetime import datetime
from zoneinfo import ZoneInfo
from celery import Celery
from celery.schedules import crontab
line, zone, start, end = sys.argv[1:5]
place, end = ZoneInfo(zone), datetime.fromisoformat(sys.argv[4])
minute, hour, day, month, week = line.split()
app = Celery(timezone=zone)
rule = crontab(minute=minute, hour=hour, day_of_month=day, month_of_year=month, day_of_week=week, app=app)
moment, found = datetime.fromisoformat(start).astimezone(place), []
while True:
    base, delta, _ = rule.remaining_delta(moment, tz=place)
    moment = base + delta
    if moment >= end:
        break
    found.append(moment.timestamp())
print(json.dumps(found))
"""
PROGRAMS = {"croniter": _CRONITER, "celery": _CELERY}


def has_library(python: str, library: str) -> bool:
    from mainspring.domain.errors import InvalidInput

    try:
        run_python(python, f"import {library}")
    except InvalidInput:
        return False
    return True


def library_fires(
    python: str, library: str, line: str, zone: str, start: datetime, end: datetime
) -> Iterable[datetime]:
    """The fires of a line by the library itself."""
    from datetime import UTC

    said = run_python(python, PROGRAMS[library], line, zone, start.isoformat(), end.isoformat())
    return [datetime.fromtimestamp(one, UTC) for one in json.loads(said)]
