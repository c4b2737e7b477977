"""Builds a history step by step, for tests of the rules themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cluster.history import (
    CANCELLED_JOB,
    FAILED,
    PAUSED_JOB,
    QUEUED,
    RUNNING,
    SCHEDULED_JOB,
    SUCCESS,
    Call,
    Event,
    Exit,
    History,
    Line,
    Row,
)

START = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
SHARD = 7


class Story:
    """A history with one job that fires every second, one node and one worker. `at` is in seconds since the start."""

    def __init__(self) -> None:
        self.history = History(events=[], lines=[], offset=-START.timestamp())
        self.job: Row = {}
        self.runs: dict[str, Row] = {}
        self._tx = 0
        self.lease: Row = {"shard": SHARD, "owner": None, "epoch": 0}

    # -- the audit

    def write(self, at: float, process: str, *changes: tuple[str, str, Row, Row]) -> None:
        """One transaction."""
        self._tx += 1
        for table, op, old, new in changes:
            seq = len(self.history.events) + 1
            moment = START + timedelta(seconds=at)
            self.history.events.append(
                Event(seq, at, moment, self._tx, process, table, op, dict(old), dict(new), began=at)
            )

    def node(self, process: str) -> None:
        self.write(0.0, process, ("nodes", "I", {}, {"node_id": f"id of {process}"}))

    def grant(self, at: float, process: str, *, epoch: int | None = None) -> None:
        new = {"shard": SHARD, "owner": f"id of {process}", "epoch": epoch or self.lease["epoch"] + 1}
        self.write(at, process, ("shard_leases", "U", self.lease, new))
        self.lease = new

    def worker(self, name: str) -> None:
        self.write(0.0, "server", ("workers", "I", {}, {"worker_id": f"id of {name}", "name": name}))

    def create(self, at: float = 0.0, **fields: Any) -> None:
        self.job = {
            "job_id": "tick", "version": 1, "status": SCHEDULED_JOB, "shard": SHARD, "overlap": 1, "spec": None,
            "schedule": {"kind": "CRON", "cron": "* * * * * *"}, "next_fire_at": time_of(int(at) + 1),
            "last_fired_for": None, "paused_from": None, "created_at": time_of(at), "name": "tick",
            "updated_at": time_of(at), "tenant_id": 1,
        } | fields  # fmt: skip
        self.write(at, "server", ("jobs", "I", {}, self.job))

    def change(self, at: float, *missed: Row, **fields: Any) -> None:
        """One transaction that changes the job and records fires as missed."""
        new = self.job | {"version": self.job["version"] + 1, "updated_at": time_of(at)} | fields
        self.write(at, "server", ("jobs", "U", self.job, new), *(("missed_fires", "I", {}, row) for row in missed))
        self.job = new

    def close(self) -> None:
        """Nothing is due any more: the job was deleted right after its last fire, and the news of it comes late."""
        if self.job["status"] != CANCELLED_JOB:
            until = self.job["last_fired_for"] or self.job["updated_at"]
            self.change(30.0, status=CANCELLED_JOB, next_fire_at=None, paused_from=None, updated_at=until)

    def missed(self, first: int, last: int, reason: str) -> Row:
        return {
            "job_id": "tick", "first_at": time_of(first), "last_at": time_of(last), "count": last - first + 1,
            "reason": reason,
        }  # fmt: skip

    def fire(self, at: float, second: int, *, process: str = "node", through: int | None = None, **fields: Any) -> str:
        """Create the run for `second`. The next fire of the job is the second after it (or after `through`)."""
        last = through or second
        moved = self.job | {"last_fired_for": time_of(last), "next_fire_at": time_of(last + 1)}
        run = self.created(second) | {"generation": self.job.get("generation", 1), "fired_at": time_of(at)} | fields
        self.write(at, process, ("jobs", "U", self.job, moved), ("runs", "I", {}, run))
        self.job = moved
        self.runs[run["run_id"]] = run
        return str(run["run_id"])

    def created(self, second: int) -> Row:
        return {
            "run_id": f"run-{second}", "job_id": "tick", "trigger": None, "scheduled_for": time_of(second),
            "state": QUEUED, "fence": 0, "attempt": 0, "worker_id": None, "cancel_requested_at": None, "spec": None,
            "name": "tick", "ready_at": time_of(second), "losses": 0, "snoozes": 0, "max_attempts": 4,
            "started_at": None,
        }  # fmt: skip

    def claim(self, at: float, run: str, worker: str = "worker") -> None:
        old = self.runs[run]
        self.step(
            at, run, state=RUNNING, fence=old["fence"] + 1, attempt=old["attempt"] + 1, worker_id=f"id of {worker}"
        )

    def requeue(self, at: float, run: str, *, lost: bool = False) -> None:
        old = self.runs[run]
        if lost:
            entry = {key: old[key] for key in ("run_id", "attempt", "worker_id")} | {"outcome": "LOST"}
            self.write(at, "server", ("attempts", "I", {}, entry))
        more = {"losses": old["losses"] + lost, "max_attempts": old["max_attempts"] + lost}
        self.step(at, run, state=QUEUED, fence=old["fence"] + 1, worker_id=None, **more)

    def step(self, at: float, run: str, **fields: Any) -> None:
        new = self.runs[run] | fields
        self.write(at, "server", ("runs", "U", self.runs[run], new))
        self.runs[run] = new

    def end(self, at: float, run: str, state: int = SUCCESS, **fields: Any) -> None:
        old = self.runs[run]
        self.write(at, "server", ("runs", "D", old, {}), ("run_history", "I", {}, old | {"state": state} | fields))

    # -- the other sources

    def lines(self, run: str, attempt: int, **whats: float) -> None:
        """Lines of the ledger, such as start=1.2, end=1.4."""
        for what, at in whats.items():
            self.history.lines.append(Line(run, attempt, "tick", what, 1, at))

    def call(self, verb: str, at: float, result: str = "ok", *, body: Row | None = None, **answer: Any) -> None:
        call = Call(verb, "tick", body or {}, at - 0.01, at, result, 201 if result == "ok" else 409, answer)
        self.history.calls.append(call)

    def exit(self, process: str, role: str, at: float, code: int = -9, **fields: Any) -> None:
        self.history.exits.append(Exit(process, role, code, at, ready=True, **({"wanted": True} | fields)))

    def whole_life(self, second: int) -> str:
        """A fire, a claim, an attempt and its success."""
        run = self.fire(second + 0.01, second)
        self.claim(second + 0.02, run)
        self.lines(run, 1, start=second + 0.03, end=second + 0.1)
        self.end(second + 0.11, run)
        return run


def time_of(second: float) -> str:
    return (START + timedelta(seconds=second)).isoformat()


def plain_story() -> Story:
    """A history without violations: a node, a worker, and a job with three fires. The job is paused at the end."""
    story = Story()
    story.node("node")
    story.worker("worker")
    story.grant(0.0, "node")
    story.create(0.1)
    for second in (1, 2, 3):
        story.whole_life(second)
    return story


__all__ = ["CANCELLED_JOB", "FAILED", "PAUSED_JOB", "SHARD", "START", "Story", "plain_story", "time_of"]
