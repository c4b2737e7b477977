"""Gates as clients see them, and in words."""

from __future__ import annotations

import math
from collections.abc import Iterable

from mainspring.domain.durations import format_duration
from mainspring.domain.rates import Bucket, parse_rate
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
        concurrency=gate.concurrency,
        in_use=None if gate.concurrency is None else gate.in_use,
        rate=gate.rate,
        burst=gate.burst,
        tokens=None if bucket is None else bucket.tokens(gate.now),
        max_depth=gate.max_depth,
        version=gate.version,
    )


def bucket_of(gate: GateState | LockedGate) -> Bucket | None:
    if gate.rate is None or gate.burst is None:
        return None
    return Bucket(parse_rate(gate.rate, "rate").every, gate.burst, gate.tat)


def own_gates(gates: Iterable[GateState], queue: str) -> list[GateState]:
    """The gates before the runs of a queue: its own, its tenant's, and that of all tenants."""
    return [gate for gate in gates if gate.queue in (None, queue)]


def pause_in_words(gates: Iterable[Gate]) -> str | None:
    """Why no run of a queue starts, if one of its gates is paused."""
    paused = [gate for gate in gates if gate.paused_at is not None]
    if not paused:
        return None
    gate = min(paused, key=lambda gate: (gate.queue is None, gate.tenant_id == EVERY_TENANT))
    if gate.queue is not None:
        return f"queue {gate.queue} is paused by {gate.paused_by}"
    if gate.tenant_id == EVERY_TENANT:
        return f"all tenants are paused by the instance administrator ({gate.paused_by})"
    return f"everything is paused by {gate.paused_by}"


def closed_in_words(gates: Iterable[GateState]) -> str | None:
    """Which limit keeps the runs of a queue back now."""
    words = []
    for gate in gates:
        whose = "the tenant" if gate.queue is None else f"queue {gate.queue}"
        if gate.concurrency is not None and gate.in_use >= gate.concurrency:
            words.append(f"{whose} runs {gate.in_use} at once, and its concurrency is {gate.concurrency}")
        bucket = bucket_of(gate)
        if bucket is not None and not bucket.tokens(gate.now):
            wait = bucket.wait(gate.now)
            soon = format_duration(math.ceil(wait)) if wait > 1 else f"{wait:.2f}s"
            words.append(f"{whose} starts {gate.rate} (burst {gate.burst}), and its next start is in {soon}")
    return "; ".join(words) or None
