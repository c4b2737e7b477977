"""What the test box does not have. One error says so, and names the fixture that gives a real server.

The fields of jobs are marked in the table of fields (`not_in_box` in wire/fields.py). The calls are those that the
local server has no route for.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter

import msgspec

from mainspring.domain.errors import InvalidInput, NotSupportedYet
from mainspring.domain.job import JobDefinition
from mainspring.wire.fields import FIELDS, Place

WORKFLOWS = "workflows"
EVENTS = "events"
_BY_FIELD = {field.name: field for field in FIELDS}
_FIELDS = {  # by the path in a definition; `after` is a member of the schedule
    field.stored or f"{_BY_FIELD[field.means or ''].stored}.{field.name}": field for field in FIELDS if field.not_in_box
}
_OPTIONS = {path: field for path, field in _FIELDS.items() if Place.TASK_OPTION in field.places}
IGNORABLE = (*(field.name for field in _OPTIONS.values()), WORKFLOWS, EVENTS)
_CALLS = {  # what a call is about, where its path has another word for it
    "applications": "declarations",
    "insights/{}": "insights",
    "jobs/{}:backfill": "backfills",
    "jobs/{}/series": "insights",
    "jobs/{}/timeline": "timelines",
    "jobs/{}/why": "explanations of jobs",
    "jobs:act": "bulk operations",
    "runs:act": "bulk operations",
    "operations": "bulk operations",
    "dead-letters:discard": "bulk operations",
    "dead-letters:replay": "bulk operations",
    "breakers": "circuit breakers",
    "calendars/{}:preview": "previews of calendars",
    "ids": "search for ids",
    "missed-fires": "list of the missed fires of all jobs",
    "pause": "pause of all queues",
    "readyz": "readiness",
    "resume": "pause of all queues",
    "rules": "rules of notifications",
    "runs/{}/logs/range": "parts of logs",
    "runs/{}/logs/search": "search in logs",
    "logs": "search in logs",
    "runs/{}/timeline": "timelines",
    "views": "saved views",
    "schedules:explain": "explanations of schedules",
    "schedules:preview": "previews of schedules",
    "session": "sessions",
    "tasks": "list of tasks",
    "user": "users",
    "tenant": "settings of the tenant",
    "tenants/{}/quotas": "quotas",
    "tenants/{}/usage": "quotas",
    "workflow-runs": WORKFLOWS,
}


def not_in_box(what: str, *, field: str | None = None) -> NotSupportedYet:
    """The error for everything that the box does not have."""
    hint = None
    if field in IGNORABLE:
        hint = f'if this test is not about {what}: mainspring.testing.run(app, ignore=["{field}"])'
    asked = "" if field in (None, WORKFLOWS, EVENTS) else f" ({field})"
    return NotSupportedYet(
        f"The test box has no {what}{asked}. Use the pytest fixture mainspring_server: docs/testing.md",
        code="not_in_test_box",
        field=field,
        hint=hint,
    )


def no_route(route: str) -> NotSupportedYet:
    """The error for a call that the box does not answer. route: such as "POST jobs/{}:backfill"."""
    path = route.partition(" ")[2]
    thing = path.partition("/")[0].partition(":")[0]
    return not_in_box(_CALLS.get(path) or _CALLS.get(thing) or thing.replace("-", " "))


def check_ignored(names: Collection[str]) -> frozenset[str]:
    """The names of what a box leaves out. Raises InvalidInput."""
    for name in names:
        if name not in IGNORABLE:
            raise InvalidInput(
                f"{name!r} cannot be ignored", field="ignore", expected=f"some of {', '.join(IGNORABLE)}"
            )
    return frozenset(names)


def checked(definition: JobDefinition, ignored: Collection[str]) -> JobDefinition:
    """The definition without what is ignored. Raises NotSupportedYet if the box does not have one of its fields."""
    left_out: dict[str, None] = {}
    for path, field in _FIELDS.items():
        if attrgetter(path)(definition) is None:
            continue
        if field.name not in ignored:
            raise not_in_box(field.not_in_box or "", field=field.name)
        left_out[path.removeprefix("spec.")] = None
    if not left_out:
        return definition
    return msgspec.structs.replace(definition, spec=msgspec.structs.replace(definition.spec, **left_out))
