"""Named SQL. `-- name: x` starts a query in sql/*.sql. The comment lines after it say why it is written so, and what
guards it.

`{{NAME}}` is a constant. The numbers of states, priorities and the like come from domain/. Routines have further
constants about the fields of a job (store/submit_fields.py). `{{PAYLOAD_TEXT}}` and `{{RESULT_TEXT}}` are the columns
of the large values of a row, which `load_without_payloads` leaves out. `{{name}}` is a fragment of sql/fragments.sql,
where `-- fragment: name` starts one. `{{name(a, b)}}` fills in the parameters of `-- fragment: name(x, y)`, which its
text calls `{{x}}` and `{{y}}`. A fragment may use constants and other fragments; these see its parameters. `python -m
tests.store.sql_snapshot FILE NAME` prints the resulting statement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files

from mainspring.domain.audit import LEAST_DAYS
from mainspring.domain.backfills import BACKFILL_TRIGGER, BackfillState
from mainspring.domain.bulk import BulkState
from mainspring.domain.dependencies import Edges
from mainspring.domain.fairness import AGING_STEP
from mainspring.domain.health import LAST_RUNS, LEAST_LEARNED, NEVER_RAN_STATE, HealthState, Told
from mainspring.domain.job import DUE_TOGETHER, STILL_ALIVE, Delivery, Overlap, Priority
from mainspring.domain.notify.states import MOST_ATTEMPTS, MessageState
from mainspring.domain.pacing import LONGEST_LOOK
from mainspring.domain.rollups import NO_BUCKET, SAMPLE_JOBS, Span
from mainspring.domain.start_lag import LATE
from mainspring.domain.transitions import (
    ENDED,
    SHOWN_ASSIGNED,
    SHOWN_SCHEDULED,
    TRANSITIONS,
    UNKNOWN_STATE,
    Follows,
    StoredJobStatus,
    StoredState,
)
from mainspring.domain.worker_state import WorkerState
from mainspring.domain.workflows.children import ChildState
from mainspring.domain.workflows.flow import RERUN_TRIGGER, SERVER_TASKS, STEP_TRIGGER, FanoutState, FlowState
from mainspring.domain.workflows.rules import RULE_BITS, Rule, Waiting
from mainspring.domain.workflows.waits import WaitKind
from mainspring.kernel.config import DEFAULT_KEPT_PAYLOAD, MAX_LOG_CHUNK, SHARD_COUNT
from mainspring.kernel.ids import DEFAULT_TENANT, EVERY_TENANT

_NAME = re.compile(r"^-- name: (\w+)\s*$")
_FRAGMENT = re.compile(r"^-- fragment: (\w+(?:\([\w, ]+\))?)\s*$")
_INSERT = re.compile(r"\{\{(\w+)(?:\(([^(){}]*)\))?\}\}")

CONSTANTS: dict[str, str] = {
    **{state.name: str(int(state)) for state in StoredState},
    "SHOWN_SCHEDULED": str(SHOWN_SCHEDULED),
    "SHOWN_ASSIGNED": str(SHOWN_ASSIGNED),
    **{f"JOB_{status.name}": str(int(status)) for status in StoredJobStatus},
    **{f"BACKFILL_{state.name}": str(int(state)) for state in BackfillState},
    **{f"BULK_{state.name}": str(int(state)) for state in BulkState},
    **{f"MESSAGE_{state.name}": str(int(state)) for state in MessageState},
    "MESSAGE_ATTEMPTS": str(MOST_ATTEMPTS),
    **{f"HEALTH_{state.name}": str(int(state)) for state in HealthState},
    "HEALTH_NEVER_RAN": str(NEVER_RAN_STATE),
    **{f"TOLD_{bit.name}": str(int(bit)) for bit in Told},
    "LEAST_LEARNED": str(LEAST_LEARNED),
    "LAST_RUNS": str(LAST_RUNS),
    "LAST_SHARD": str(SHARD_COUNT - 1),
    "BACKFILL_TRIGGER": f"'{BACKFILL_TRIGGER}'",
    "FOLLOWS_BACKFILL": str(int(Follows.BACKFILL)),
    "FOLLOWS_JOBS": str(int(Follows.JOBS)),
    **{f"EDGES_{bit.name}": str(int(bit)) for bit in Edges},
    "FOLLOWS_FLOW": str(int(Follows.FLOW)),
    "FOLLOWS_STOPS": str(int(Follows.STOPS)),
    **{f"WAIT_FOR_{kind.name}": str(int(kind)) for kind in WaitKind},
    "FOLLOWS_WAIT": str(int(Follows.WAIT)),
    "FOLLOWS_CHILD": str(int(Follows.CHILD)),
    **{f"CHILD_{state.name}": str(int(state)) for state in ChildState},
    "FOLLOWS_STEP": str(int(Follows.STEP)),
    "FOLLOWED_BY_JOINS": str(int(Follows.EDGES | Follows.STEP | Follows.RESULT | Follows.LAST)),
    "RULE_BITS": str(RULE_BITS),
    "CONTAINER": str(int(Rule.CONTAINER)),
    "MAPPED": str(int(Waiting.MAPPED)),
    "FAILS": str(int(Waiting.FAILS)),
    **{f"FLOW_{state.name}": str(int(state)) for state in FlowState},
    **{f"FANOUT_{state.name}": str(int(state)) for state in FanoutState},
    "STEP_TRIGGER": f"'{STEP_TRIGGER}'",
    "RERUN_TRIGGER": f"'{RERUN_TRIGGER}'",
    "SERVER_TASKS": ", ".join(f"'{task}'" for task in sorted(SERVER_TASKS)),
    "JOBS_ENDED": f"{StoredJobStatus.CANCELLED:d}, {StoredJobStatus.COMPLETED:d}",
    **{f"WORKER_{state.name}": str(int(state)) for state in WorkerState},
    "WORKERS_ALIVE": f"{WorkerState.LIVE:d}, {WorkerState.DRAINING:d}",
    "WORKERS_ENDED": f"{WorkerState.LOST:d}, {WorkerState.STOPPED:d}",
    "DEFAULT_TENANT": str(DEFAULT_TENANT),
    "EVERY_TENANT": str(EVERY_TENANT),
    "CRITICAL": str(int(Priority.CRITICAL)),
    "OVERLAP_SKIP": str(int(Overlap.SKIP)),
    "UNKNOWN_STATE": str(UNKNOWN_STATE),
    "STILL_ALIVE": f"'{STILL_ALIVE}'",
    "DUE_TOGETHER": f"'{DUE_TOGETHER}'",
    "KEPT_PAYLOAD": str(DEFAULT_KEPT_PAYLOAD),
    "MAX_LOG_CHUNK": str(MAX_LOG_CHUNK),
    "AT_MOST_ONCE": f"'{Delivery.AT_MOST_ONCE}'",
    "LONGEST_LOOK": str(LONGEST_LOOK),
    "AUDIT_LEAST_DAYS": str(LEAST_DAYS),
    **{span.name: str(int(span)) for span in Span},
    "NO_BUCKET": str(NO_BUCKET),
    "LATE_FOR_LAG": str(LATE),
    "SAMPLE_JOBS": str(SAMPLE_JOBS),
    "AGING": f"interval '{int(AGING_STEP.total_seconds())} seconds'",
    # (before, after) of every end that is not a success.
    "ENDS": ", ".join(
        f"({int(before)}, {int(after)})"
        for before, following in TRANSITIONS.items()
        for after in following
        if after in ENDED and after is not StoredState.SUCCESS
    ),
    "PAYLOAD_TEXT": "payload::text as payload_text",
    "RESULT_TEXT": "result::text as result_text",
}
_WITHOUT_PAYLOADS = {"PAYLOAD_TEXT": "null::text as payload_text", "RESULT_TEXT": "null::text as result_text"}


@cache  # one dict per file, so that replacing a query affects all its users
def load(file: str) -> dict[str, str]:
    """All queries of sql/<file>.sql by name, with constants and fragments filled in."""
    return {name: render(text) for name, text in _read(file, _NAME).items()}


@cache
def load_without_payloads(file: str) -> dict[str, str]:
    """The queries of sql/<file>.sql that read a payload or a result, with null in its place. A value that is stored
    apart is not fetched then."""
    found = {name: render(text, _WITHOUT_PAYLOADS) for name, text in _read(file, _NAME).items()}
    return {name: sql for name, sql in found.items() if sql != load(file)[name]}


def render(text: str, arguments: Mapping[str, str] | None = None) -> str:
    """SQL with constants and fragments filled in. An unknown name is an error."""
    known = {**CONSTANTS, **(arguments or {})}

    def fill(found: re.Match[str]) -> str:
        name, given = found.groups()
        if given is None and name in known:
            return known[name]
        line = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
        return _fragment(name, given, known).replace("\n", "\n" + " " * (len(line) - len(line.lstrip())))

    return _INSERT.sub(fill, text)


def _fragment(name: str, given: str | None, known: Mapping[str, str]) -> str:
    if name not in _fragments():
        raise ValueError(f"{{{{{name}}}}} is neither a constant nor a fragment of sql/fragments.sql")
    parameters, text = _fragments()[name]
    values = [] if given is None else [value.strip() for value in given.split(",")]
    if len(values) != len(parameters):
        raise ValueError(f"{{{{{name}}}}} takes ({', '.join(parameters)}), not ({given or ''})")
    return render(text, {**known, **dict(zip(parameters, values, strict=True))})


@lru_cache(maxsize=1)
def _fragments() -> dict[str, tuple[list[str], str]]:
    """Parameters and text of each fragment."""
    found = {}
    for heading, text in _read("fragments", _FRAGMENT).items():
        name, _, parameters = heading.rstrip(")").partition("(")
        found[name] = ([word.strip() for word in parameters.split(",") if word], text)
    return found


def _read(file: str, heading: re.Pattern[str]) -> dict[str, str]:
    text = (files("mainspring.store") / "sql" / f"{file}.sql").read_text(encoding="utf-8")
    parts: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if found := heading.match(line):
            name = found.group(1)
            if name in parts:
                raise ValueError(f"{file}.sql has two queries or fragments called {name}")
            current = parts.setdefault(name, [])
        elif current is not None and not line.startswith("--"):
            current.append(line)
    return {name: "\n".join(lines).strip().rstrip(";") for name, lines in parts.items()}
