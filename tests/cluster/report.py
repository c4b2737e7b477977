"""What one needs to understand a violation: the rule, the history of what it names, in order, and how to replay it.

Rules say in words what they found, and name jobs, runs, limits, keys, processes, shards and times there. Everything
that the witnesses know of them is printed, up to some lines: those that are nearest to the times.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cluster.history import Call, Event, History, Row, Violation

MOST_LINES = 60  # of the history, for each violation
MOST_EXPLAINED = 8  # violations whose history is printed; of the others only the words are
_LONGEST = 320  # characters of one change
_AROUND = 3.0  # seconds before and after, in which faults are named
_ENVIRONMENT = ("MAINSPRING_FAULT_", "MAINSPRING_TEST_", "MAINSPRING_CHAOS")  # what changes a test
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:\+\d\d:?\d\d|Z)?|\b\d\d:\d\d:\d\d(?:\.\d+)?\b")
_DAY = re.compile(r"\d{4}-\d\d-\d\d[T ](\d\d:\d\d:\d\d(?:\.\d{1,3})?)\d*(?:\+00:?00|Z)?")
_TRANSACTION = re.compile(r"transaction (\d+)")
_SHARD = re.compile(r"shard (\d+)")
_DULL = {
    "tenant_id", "lane_id", "created_at", "updated_at", "id_generated", "one_time", "exclusive", "node_id", "shard",
    "payload", "payload_dropped",
}  # fmt: skip
_LAST = ("state", "status", "fence", "attempt", "version")  # what is said of a row that goes
_ID = ("run_id", "job_id", "flow_id", "key_id", "limit_id", "backfill_id", "worker_id", "node_id", "shard", "queue")


def report(history: History, violations: Sequence[Violation], replay: str) -> str:
    """All violations, the first of them with their history, and the command."""
    lines = [f"violations: {len(violations)}"]
    for violation in violations[:MOST_EXPLAINED]:
        lines += ["", explained(history, violation)]
    if rest := violations[MOST_EXPLAINED:]:
        lines += ["", f"and {len(rest)} more:", *(f"  {violation}" for violation in rest[:40])]
    if violations:
        lines += ["", "replay it with:", f"  {replay}"]
    return "\n".join(lines)


def explained(history: History, violation: Violation) -> str:
    """The violation, and the history of what it names."""
    about = subjects(history, violation.words)
    entries = sorted(_entries(history, about), key=_in_order)
    kept = _nearest(entries, _anchors(history, violation.words, about))
    numbers = {id(entry): number for number, entry in enumerate(entries)}
    lines = [str(violation), f"  history of {about}: {len(kept)} of {len(entries)} lines"]
    before: int | None = None
    for entry in sorted([*kept, *_faults(history, kept)], key=_in_order):
        number = numbers.get(id(entry))  # none if it is a fault
        if number is not None:
            if before is not None and number > before + 1:
                lines.append(f"    ... {number - before - 1} line(s) left out ...")
            before = number
        lines.append(f"    {_clock(history, entry.at)}  {entry.text}")
    return "\n".join(lines)


def replay_of_drill(seed: int, rate: float, only: Iterable[str] | None, groups: int) -> str:
    """The command that repeats a drill of `python -m tests.cluster`, as far as it came."""
    chosen = [] if only is None else ["--only", ",".join(only)]
    words = [
        "python",
        "-m",
        "tests.cluster",
        "--seed",
        str(seed),
        "--groups",
        str(groups),
        "--rate",
        f"{rate:g}",
        *chosen,
    ]
    return _in_environment(words)


def replay_of_test(seed: int) -> str:
    """The command that repeats the test which runs now."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "tests/cluster/test_faults.py").rpartition(" (")[0]
    words = ["python", "-m", "pytest", "-n", "0", test or "tests/cluster/test_faults.py"]
    return _in_environment(words, MAINSPRING_FAULT_SEED=str(seed))


def _in_environment(words: Sequence[str], **more: str) -> str:
    given = {name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)} | more
    if "--seed" in words:
        given.pop("MAINSPRING_FAULT_SEED", None)
    return shlex.join([*(f"{name}={value}" for name, value in sorted(given.items())), *words])


# -- what it is about


@dataclass
class Subjects:
    """What the words of a violation name."""

    runs: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    lines: dict[int, str] = field(default_factory=dict)  # of limits
    backfills: set[str] = field(default_factory=set)
    processes: set[str] = field(default_factory=set)
    shards: set[int] = field(default_factory=set)
    transactions: set[int] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    queues: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        named: Mapping[str, Iterable[Any]] = {
            "job": self.jobs, "run": self.runs, "limit": self.lines.values(), "backfill": self.backfills,
            "process": self.processes, "shard": self.shards, "transaction": self.transactions, "key": self.keys,
            "queue": self.queues,
        }  # fmt: skip
        found = [f"{what} {one}" for what, ones in named.items() for one in sorted(ones)]
        return ", ".join(found) or "everything that it may be about"


def subjects(history: History, words: str) -> Subjects:
    named = set(re.findall(r"[\w.:-]+", words)) | set(re.findall(r"[\w-]+", words))
    about = Subjects(
        runs=named & history.runs.keys(),
        jobs={job for job in history.jobs if job in named or re.search(rf"(?<![\w-]){re.escape(job)}(?![\w-])", words)},
        processes=named & ({ended.process for ended in history.exits} | history.nodes.keys() | history.workers.keys()),
        shards={int(number) for number in _SHARD.findall(words)},
        transactions={int(number) for number in _TRANSACTION.findall(words)},
        backfills=named & {str(event.new.get("backfill_id")) for event in history.of("backfills")},
        keys=named & {str(call.body.get("idempotency_key")) for call in history.calls},
        queues=named & {str(event.new["queue"]) for event in history.of("gates")},
    )
    limits = {event.new["limit_id"]: event.new["name"] for event in history.of("limits")}
    for event in history.of("limit_keys"):
        if event.op == "I" and (name := f"{limits.get(event.new['limit_id'])}[{event.new['key']}]") in words:
            about.lines[event.new["key_id"]] = name
    about.jobs |= named & {str(call.answer.get("job_id")) for call in history.calls}
    about.runs |= named & {str(call.answer.get("run_id")) for call in history.calls}
    if not (about.jobs or about.runs):  # some have only a name
        about.runs |= {run for run, life in history.runs.items() if life[0].row.get("name") in named}
    flows = named & {str(event.new["flow_id"]) for event in history.of("flows")}
    about.runs |= {run for run, life in history.runs.items() if flows & set(str(life[0].row["trigger"]).split(":"))}
    about.runs |= {str(call.answer["run_id"]) for call in _calls(history, about) if "run_id" in call.answer}
    return about


def _concerns(about: Subjects, event: Event) -> bool:
    row = event.row
    if event.tx in about.transactions or str(row.get("run_id")) in about.runs:
        return True
    if event.table in ("limits", "limit_keys") and about.lines:
        return row.get("key_id") in about.lines or event.table == "limits"
    if row.get("job_id") in about.jobs:  # of its runs only that they were created
        return event.table != "run_history" and (event.table != "runs" or event.op == "I")
    if event.table == "backfills" and str(row["backfill_id"]) in about.backfills:
        return True
    if event.table == "gates":
        return row["queue"] in about.queues
    if event.table == "shard_leases":
        return row["shard"] in about.shards
    return event.table in ("nodes", "workers") and bool({event.process, str(row.get("name"))} & about.processes)


def _calls(history: History, about: Subjects) -> Iterator[Call]:
    for call in history.calls:
        ids = {call.target, str(call.answer.get("job_id")), str(call.answer.get("run_id"))}
        if ids & (about.jobs | about.runs) or call.body.get("idempotency_key") in about.keys:
            yield call


# -- what is known of it


@dataclass(frozen=True, eq=False)
class Entry:
    at: float
    order: int
    text: str


def _entries(history: History, about: Subjects) -> Iterator[Entry]:
    for event in history.events:
        if _concerns(about, event):
            yield Entry(event.at, event.seq, _change(history, event))
    for line in history.lines:
        if line.run in about.runs:
            yield Entry(line.at, 0, f"ledger       run {line.run} attempt {line.attempt}: {line.what} (pid {line.pid})")
    for call in _calls(history, about):
        body = f" {_cut(call.body)}" if call.body else ""
        yield Entry(call.began, 0, f"client       {call.verb} {call.target}{body}")
        answer = _cut({name: call.answer[name] for name in ("job_id", "run_id", "code") if name in call.answer})
        yield Entry(call.ended, 0, f"client       {call.verb} {call.target}: {call.result} {call.status} {answer}")
    for ended in history.exits:
        if ended.process in about.processes:
            yield Entry(ended.at, 0, f"exit         {ended.process}: code {ended.code}, wanted: {ended.wanted}")


def _faults(history: History, kept: Sequence[Entry]) -> list[Entry]:
    """The faults about that time. All of them if nothing else is known."""
    first = min((entry.at for entry in kept), default=float("-inf")) - _AROUND
    last = max((entry.at for entry in kept), default=float("inf")) + _AROUND
    found = []
    for fault in history.injections:
        for at, what in ((fault.begin, "begins"), (fault.end or fault.begin, "is over")):
            if first <= at <= last:
                found.append(Entry(at, 0, f"fault        {fault.name} ({fault.target}) {what}"))
    return found


def _change(history: History, event: Event) -> str:
    committed = "" if event.committed is None else f", committed {event.committed - event.at:+.3f}"
    kind = {"I": "insert", "U": "update", "D": "delete"}[event.op]
    name = next((f" {key}={event.row[key]}" for key in _ID if event.row.get(key) is not None), "")
    return (
        f"{event.process:<12} tx {event.tx} (began {event.began - event.at:+.3f}{committed}) {kind} {event.table}{name}"
        f": {_fields(event.old, event.new)}"
    )


def _fields(old: Row, new: Row) -> str:
    """What has changed, or all that is said."""
    if old and new:
        changed = [name for name in new if new[name] != old.get(name) and name not in _DULL]
        return _cut(", ".join(f"{name} {_brief(old.get(name))} -> {_brief(new[name])}" for name in changed))
    told = (name for name in new if new[name] is not None and name not in _DULL) if new else _LAST
    return _cut(", ".join(f"{name} {_brief((new or old).get(name))}" for name in told if name in (new or old)))


def _brief(value: Any) -> str:
    return "null" if value is None else _DAY.sub(r"\1", str(value))


def _cut(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _clock(history: History, at: float) -> str:
    moment = datetime.fromtimestamp(at - history.offset, UTC)
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03}"


# -- which part of it


def _anchors(history: History, words: str, about: Subjects) -> list[float]:
    """The times that the violation is about: those in its words, otherwise those of what it names that is short."""
    found = [_moment(history, text) for text in _MOMENT.findall(words)]
    if not found and (about.jobs or about.lines or about.shards):
        found = [event.at for run in about.runs for event in history.runs.get(run, ())]
        found += [event.at for tx in about.transactions for event in history.by_tx.get(tx, ())]
        found += [ended.at for ended in history.exits if ended.process in about.processes]
    return found


def _moment(history: History, text: str) -> float:
    if len(text) > 18:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() + history.offset
    # A time without its day: that of the first event, or the next one.
    first = history.events[0].wall if history.events else datetime.now(UTC)
    hour, minute, second = text.split(":")
    moment = first.astimezone(UTC).replace(hour=int(hour), minute=int(minute), second=0, microsecond=0)
    moment += timedelta(seconds=float(second))
    if moment < first - timedelta(hours=12):
        moment += timedelta(days=1)
    return moment.timestamp() + history.offset


def _nearest(entries: Sequence[Entry], anchors: Sequence[float]) -> list[Entry]:
    """As many as may be printed, in their order: those next to the anchors, otherwise the last ones."""
    if len(entries) <= MOST_LINES:
        return list(entries)
    if not anchors:
        return list(entries[-MOST_LINES:])
    near = sorted(entries, key=lambda entry: min(abs(entry.at - at) for at in anchors))[:MOST_LINES]
    return sorted(near, key=_in_order)


def _in_order(entry: Entry) -> tuple[float, int]:
    return entry.at, entry.order
