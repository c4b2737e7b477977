"""Topics: what a stream tells about. A list (`runs`), or one thing (`run:ID`)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.ids import parse_uuid
from mainspring.wire.formats import LONGEST_JOB_ID

JOBS, RUNS, QUEUES, WORKERS = LISTS = ("jobs", "runs", "queues", "workers")
RUN, JOB, WORKFLOW_RUN = THINGS = ("run", "job", "workflow-run")
MOST_TOPICS = 16
_EXPECTED = ", ".join((*LISTS, *(f"{kind}:ID" for kind in THINGS)))

# What changes with an operation, by its name or the first part of it. The signal `ready` publishes new runs.
_CHANGED = {
    "applications": (JOBS,),
    "backfills": (JOBS, RUNS),
    "breakers": (RUNS, QUEUES),
    "calendars": (JOBS,),
    "dead_letters": (RUNS, QUEUES),
    "jobs": (JOBS,),
    "jobs.cancel": (JOBS, RUNS, QUEUES),
    "limits": (RUNS, QUEUES),
    "operations": (JOBS, RUNS),
    "queues": (QUEUES,),
    "runs": (RUNS, QUEUES),
    "tenant": (QUEUES,),
    "workflow_runs": (RUNS, JOBS),
    "workflows": (JOBS, RUNS),
}


class Topic(msgspec.Struct, frozen=True):
    """kind: one of LISTS or THINGS. id: "" for a list."""

    kind: str
    id: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.id}" if self.id else self.kind


def parse_topics(text: str) -> list[Topic]:
    """Each topic once, in their order. Raises InvalidInput."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    if len(names) > MOST_TOPICS:
        raise _wrong(f"there are {len(names)} topics", f"at most {MOST_TOPICS}")
    return [_parse(name) for name in names]


def _parse(name: str) -> Topic:
    if name in LISTS:
        return Topic(name)
    kind, colon, found = name.partition(":")
    if kind not in THINGS or not colon:
        raise _wrong(f"{name[:100]!r} is not a topic", _EXPECTED)
    if kind == JOB:
        if not 1 <= len(found) <= LONGEST_JOB_ID:
            raise _wrong(f"{name[:100]!r} has no id of a job", f"job: and 1 to {LONGEST_JOB_ID} characters")
        return Topic(kind, found)
    if (run_id := parse_uuid(found)) is None:
        raise _wrong(f"{name[:100]!r} has no id of a run", f"{kind}: and a UUID")
    return Topic(kind, str(run_id))


def _wrong(detail: str, expected: str) -> InvalidInput:
    return InvalidInput(detail, code="invalid_parameter", field="topics", expected=expected)


def changed_by(operation: str) -> Sequence[str]:
    """The lists that change with this operation, unless it only reads."""
    return _CHANGED.get(operation) or _CHANGED.get(operation.partition(".")[0], ())
