"""Gates as clients see them, and in words."""

from __future__ import annotations

import math
from collections.abc import Iterable

from mainspring.domain.durations import format_duration
from mainspring.domain.quotas import pace
from mainspring.domain.rates import Bucket
from mainspring.kernel.ids import EVERY_TENANT
from mainspring.store.gates import Gate, GateState, LockedGate
from mainspring.wire.gates import GateView


def gate_view(gate: GateState) -> GateView:
    bucket = bucket_of(gate)
    return GateView(
        queue=gate.queue,
        paused=gate.paused_at is not None,
        paused_by=gate.paused_by,
        paused_at=gate.paused_at,
        pause_reason=gate.pause_reason,
        concurrency=gate.concurrency,
        in_use=None if gate.concurrency is None else gate.in_use,
        rate=gate.rate,
        burst=gate.burst,
        tokens=None if bucket is None else bucket.tokens(gate.now),
        max_depth=gate.max_depth,
        version=gate.version,
    )


def bucket_of(gate: GateState | LockedGate) -> Bucket | None:
    found = pace(gate.rate, gate.burst, gate.runs_per_minute)
    return None if found is None else Bucket(*found, gate.tat)


def own_gates(gates: Iterable[GateState], queue: str) -> list[GateState]:
    """The gates before the runs of a queue: its own, its tenant's, and that of all tenants."""
    return [gate for gate in gates if gate.queue in (None, queue)]


def pause_in_words(gates: Iterable[Gate]) -> str | None:
    """Why no run of a queue starts, if one of its gates is paused."""
    paused = [gate for gate in gates if gate.paused_at is not None]
    if not paused:
        return None
    gate = min(paused, key=lambda gate: (gate.queue is None, gate.tenant_id == EVERY_TENANT))
    reason = "" if gate.pause_reason is None else f": {gate.pause_reason}"
    if gate.queue is not None:
        return f"queue {gate.queue} is paused by {gate.paused_by}{reason}"
    if gate.tenant_id == EVERY_TENANT:
        return f"all tenants are paused by the instance administrator ({gate.paused_by}){reason}"
    return f"everything is paused by {gate.paused_by}{reason}"


def closed_in_words(gates: Iterable[GateState]) -> str | None:
    """Which limit keeps the runs of a queue back now."""
    words = []
    for gate in gates:
        whose = "the tenant" if gate.queue is None else f"queue {gate.queue}"
        most = gate.most_at_once
        if most is not None and gate.in_use >= most:
            which = "concurrency" if most != gate.concurrent_runs else "quota concurrent_runs"
            words.append(f"{whose} runs {gate.in_use} at once, and its {which} is {most}")
        bucket = bucket_of(gate)
        if bucket is not None and not bucket.tokens(gate.now):
            own = f"{gate.rate} (burst {gate.burst})"
            of_quota = f"{gate.runs_per_minute} runs per minute, its quota runs_per_minute"
            how_many = of_quota if _is_of_quota(bucket, gate) else own
            words.append(f"{whose} starts {how_many}, and its next start is in {_wait_in_words(bucket, gate)}")
    return "; ".join(words) or None


def quota_in_words(gate: GateState) -> str | None:
    """Which quota keeps every run of the tenant back now."""
    most = gate.concurrent_runs
    if most is not None and gate.in_use >= most:
        with_workers = "1 run is" if gate.in_use == 1 else f"{gate.in_use} runs are"
        return f"quota concurrent_runs ({most}): {with_workers} with workers"
    bucket = bucket_of(gate)
    if bucket is not None and _is_of_quota(bucket, gate) and not bucket.tokens(gate.now):
        soon = _wait_in_words(bucket, gate)
        return f"quota runs_per_minute ({gate.runs_per_minute}): the next start is in {soon}"
    return None


def _is_of_quota(bucket: Bucket, gate: GateState) -> bool:
    """Whether the quota of the tenant is slower than its own rate."""
    return gate.runs_per_minute is not None and bucket.every == 60.0 / gate.runs_per_minute


def _wait_in_words(bucket: Bucket, gate: GateState) -> str:
    wait = bucket.wait(gate.now)
    return format_duration(math.ceil(wait)) if wait > 1 else f"{wait:.2f}s"
