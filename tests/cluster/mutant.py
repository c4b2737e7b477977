"""Starts the product with a defect: `python -m tests.cluster.mutant <verb> ...` instead of `mainspring`.

    ARENA_MUTANT       a guard that is removed; the checker must find that
    ARENA_STOP_BEFORE  a failpoint `function:job_id`: the process stops itself (SIGSTOP) once, just before that fire
    ARENA_CLOCK_SHIFT  seconds by which the wall clock is wrong (libfaketime would also shift Python's sleeps)

The product's files are not changed. Its queries and functions are changed in this process only.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from typing import Any

from mainspring.cli.main import main
from mainspring.kernel import clock
from mainspring.operations.exchange.hand_off import HandOffs
from mainspring.operations.exchange.transaction import ExchangeTransaction
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.store import fires
from mainspring.store.queries import load
from mainspring.store.rows import ROW_QUERIES

_FIRES = ("fire_one_time", "lock_due", "fire_recurring", "fire_free", "still_due", "await_due")
AFTER_THE_STOP = "the fire that was held up is over"
_CLAIMS = ("claim_from_lane", "claim_from_lanes")


def without_epoch() -> None:
    """A fire does not check whether the node still owns the lease."""
    for name in _FIRES:
        _replace("fire", name, "and l.epoch = m.epoch", "")
        _replace("fire", name, "where l.owner = $1", "where $1::uuid is not null")


def without_version() -> None:
    """A fire does not check whether the job was changed after it was planned. A change deals with what is due, so that
    the next fire, the status and the last nominal time show it as well as the version does: a fire that checks none of
    them."""
    _replace("fire", "fire_one_time", "j.version = d.version and ", "")
    seen = "and j.version = d.version and j.next_fire_at is not distinct from d.next_fire_at and j.status = 1"
    for name in ("fire_recurring", "fire_free"):
        _replace("fire", name, seen, "")
        _replace("fire", name, "j.last_nominal_for < coalesce(d.nominal, d.through)", "true")


def without_fence() -> None:
    """A report is checked by run and worker only."""
    _replace("runs", "report_successes", "and r.fence = o.fence ", "")
    _replace("exchange_groups", "exchange_together", "and r.fence = o.fence", "")


def without_state() -> None:
    """A claim does not check whether the run is QUEUED."""
    _replace("runs", "claim_from_lane", "and r.state = 1 ", "")
    _replace("runs", "claim_from_lane", " and state + 0 = 1", "")
    _replace("runs", "claim_from_lanes", "and r.state = 1 ", "")
    _replace("runs", "claim_from_lanes", " and state + 0 = 1", "")
    _replace("runs", "ready_lanes", "and r.state = 1 ", "")
    _replace("exchange_groups", "exchange_together", "and r.state = 1 ", "")
    _replace("exchange_groups", "exchange_together", " and r.state + 0 = 1", "")


def without_number() -> None:
    """A group does not check whether the number of an exchange is newer."""
    newer = "(w.last_seq < m.seq or (m.again and w.last_seq = m.seq))"
    _replace("exchange_groups", "exchange_together", newer, "w.last_seq is not null")


def without_number_of_a_taker() -> None:
    """A run is handed off to an exchange that waits, also if its worker has sent a newer one to another server."""
    newer = "(w.last_seq < t.seq or (t.again and w.last_seq = t.seq))"
    _replace("hand_off", "hand_off_runs", newer, "w.last_seq is not null")


def without_pauses_of_a_taker() -> None:
    """A hand-off asks for no pause, neither when it chooses an exchange nor in its statement."""
    known = "(select revision from mainspring.gate_revision where only_row) = $15"
    _replace("hand_off", "hand_off_runs", known, "$15::bigint is not null")

    class Open(GateRegistry):
        def pause_of(self, *_: Any) -> None:
            return None

    original = HandOffs.__init__

    def begin(self: HandOffs, store: Any, long_polls: Any, claimer: Any, gates: Any, lanes: Any) -> None:
        original(self, store, long_polls, claimer, Open(gates._clock, gates.history_days), lanes)

    HandOffs.__init__ = begin  # type: ignore[method-assign]


def without_redelivery() -> None:
    """A claim whose response was lost is not delivered again."""

    async def nothing(*_: Any) -> None: ...

    ExchangeTransaction._redeliver = nothing  # type: ignore[method-assign]


def without_neighbours() -> None:
    """A run counts as alone on its worker, however many others the worker holds."""
    _replace("workers", "held_number", "count(*)", "least(count(*), 1)")


MUTANTS: dict[str, Callable[[], None]] = {
    "epoch": without_epoch,
    "version": without_version,
    "fence": without_fence,
    "state": without_state,
    "number": without_number,
    "taker": without_number_of_a_taker,
    "pause": without_pauses_of_a_taker,
    "redelivery": without_redelivery,
    "neighbours": without_neighbours,
}


def _replace(file: str, query: str, guard: str, instead: str) -> None:
    """Change a query. A guard that is not found raises an error, so that no mutant is without effect."""
    queries = load(file)
    before = queries[query]
    changed = before.replace(guard, instead)
    if changed == before:
        raise SystemExit(f"{file}.sql, {query}: there is no {guard!r} to leave out")
    queries[query] = changed
    for row_query in ROW_QUERIES:
        if row_query.sql == before:
            row_query.sql = changed


def stop_before(function: str, job_id: str) -> None:
    original = getattr(fires, function)
    armed = [True]

    async def stopping(connection: Any, node_id: Any, leases: Any, due: Any, *patience: str) -> Any:
        if not armed or all(job.job_id != job_id for job in due):
            return await original(connection, node_id, leases, due, *patience)
        armed.clear()
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            return await original(connection, node_id, leases, due, *patience)
        finally:
            sys.stderr.write(f"{AFTER_THE_STOP}\n")
            sys.stderr.flush()

    setattr(fires, function, stopping)


def shift_clock(seconds: float) -> None:
    plain, plain_ns = time.time, time.time_ns

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + timedelta(seconds=seconds)

    time.time = lambda: plain() + seconds
    time.time_ns = lambda: plain_ns() + int(seconds * 1e9)
    clock.datetime = Shifted  # type: ignore[misc]


if __name__ == "__main__":
    if name := os.environ.get("ARENA_MUTANT"):
        MUTANTS[name]()
    if failpoint := os.environ.get("ARENA_STOP_BEFORE"):
        stop_before(*failpoint.split(":"))
    if shift := os.environ.get("ARENA_CLOCK_SHIFT"):
        shift_clock(float(shift))
    sys.exit(main())
