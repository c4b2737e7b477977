"""Collects the four sources into a history."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.arena import Arena
from tests.cluster.history import Call, Event, History, Line, Report, StoredLog
from tests.processes.cluster import Patient

Ask = Callable[[str], Awaitable[list[Any]]]

# One snapshot of all lines of limits, and of the runs that own their slots.
_COUNTS = """
    select l.name, k.key, k.in_use, (select count(*) from mainspring.runs r
                                     where r.state in (1, 2) and k.key_id = any (r.limit_keys)) as owners
    from mainspring.limit_keys k
    join mainspring.limits l using (limit_id)
"""


async def gather(
    arena: Arena, calls: Sequence[Call] = (), reports: Sequence[Report] = (), *, at_rest: bool = True
) -> History:
    """The history of this arena so far. PostgreSQL must be up."""
    history = await read_database(arena.ask)
    history.lines = read_ledger(arena.ledger)
    history.calls, history.reports = list(calls), list(reports)
    history.injections, history.exits = list(arena.injections), list(arena.exits)
    history.logs = await read_logs(arena) if arena.shape.servers else []
    history.at_rest = at_rest
    return history


async def read_database(ask: Ask) -> History:
    """What the database tells."""
    offset = _ahead(time.time)
    rows = await ask(
        "select seq, at, began, tx, process, tbl, op, old::text as old, new::text as new, "
        "case when current_setting('track_commit_timestamp') = 'on' "
        "then pg_xact_commit_timestamp((tx % 4294967296)::text::xid) end as committed "
        "from cluster_audit.events order by seq"
    )
    events = [
        Event(
            row["seq"], row["at"].timestamp() + offset, row["at"], row["tx"], row["process"], row["tbl"], row["op"],
            _row(row["old"]), _row(row["new"]), row["began"].timestamp() + offset,
            None if row["committed"] is None else row["committed"].timestamp() + offset,
        )
        for row in rows
    ]  # fmt: skip
    live = await ask("select to_jsonb(r)::text as row, clock_timestamp() as now from mainspring.runs r")
    keys = await ask("select key, job_id from mainspring.idempotency_keys")
    return History(
        events=events,
        lines=[],
        live_runs=[_row(row["row"]) | {"now": row["now"]} for row in live],
        keys={row["key"]: row["job_id"] for row in keys},
        counts=[dict(row) for row in await ask(_COUNTS)],
        offset=offset,
    )


async def read_logs(arena: Arena) -> list[StoredLog]:
    """Every stored log, as a client reads it."""
    rows = await arena.ask(
        "select run_id::text, attempt, fence, bytes, truncated from mainspring.run_logs order by 1, 3"
    )
    newest = {(row["run_id"], row["attempt"]): row for row in rows}
    found = []
    async with arena.client(timeout=60, transport=Patient()) as http:
        for (run, attempt), row in newest.items():
            answer = await http.get(f"/v1/runs/{run}/logs", params={"attempt": attempt})
            assert answer.status_code == 200, answer.text
            found.append(StoredLog(run, attempt, answer.text, row["truncated"], row["bytes"]))
    return found


def read_ledger(file: Path) -> list[Line]:
    """The ledger's lines in order of time. A killed shell leaves no incomplete line, because each line is one write."""
    if not file.exists():
        return []
    booted = _ahead(lambda: float(Path("/proc/uptime").read_text().split()[0]))
    found = []
    for text in file.read_text().splitlines():
        line = json.loads(text)
        at = line["at"] if "at" in line else line["uptime"] + booted
        found.append(Line(line["run"], line["attempt"], line["job"], line["what"], line["pid"], at))
    return sorted(found, key=lambda line: line.at)


def _ahead(clock: Callable[[], float]) -> float:
    """The difference between the monotonic clock and another one. This process can stall between the two reads, so the
    closest of several pairs is used."""
    looks = []
    for _ in range(20):
        before, read, after = time.monotonic(), clock(), time.monotonic()
        looks.append((after - before, before - read))
    return min(looks)[1]


def _row(text: str | None) -> dict[str, Any]:
    return {} if text is None else json.loads(text)
