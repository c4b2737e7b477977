"""The overview of a tenant: what waits and runs, who works, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from heapq import nlargest

from mainspring.domain.durations import format_duration
from mainspring.domain.rollups import Span
from mainspring.domain.worker_state import WorkerState
from mainspring.kernel.config import SHARD_COUNT, Timing
from mainspring.kernel.version import VERSION
from mainspring.operations.access.caller import Caller
from mainspring.operations.limits.gate_views import pause_in_words
from mainspring.operations.read.findings import warnings_of
from mainspring.operations.read.queues import QueueReader
from mainspring.operations.read.tenant_counts import TenantCounts, TenantCountsReader, activity_of
from mainspring.operations.read.verdict import LOOK_BACK, verdict_of
from mainspring.operations.read.windows import read_window
from mainspring.store import fires, gates, gauges, leases, log_places, rollups
from mainspring.store.leases import LeaseCounts
from mainspring.store.pool import Store
from mainspring.wire.insights import NodeView, Overview, WindowWord

_QUEUES = 20
_REASONS = 5
_SAMPLE_AGE = timedelta(minutes=2)
_LATE = 10.0


class OverviewReader:
    def __init__(self, store: Store, counts: TenantCountsReader, queues: QueueReader, timing: Timing) -> None:
        self._store = store
        self._queues = queues
        self._tenant_counts = counts
        self._timing = timing

    async def overview(
        self, caller: Caller, w: WindowWord | None = None, task: str | None = None, queue: str | None = None
    ) -> Overview:
        """The window is that of a task or a queue if they are given; the rest is about all."""
        counts, tenant = await self._tenant_counts.counts(caller), caller.tenant
        async with self._store.reads.acquire() as connection:
            scheduling = await leases.counts(connection, 2 * self._timing.lease_ttl)
            known = await gates.of_tenant(connection, caller.tenant)
            late = await fires.oldest_due(connection, list(range(SHARD_COUNT)))
            apart = await log_places.apart(connection)
            nodes = await leases.nodes_with_shards(connection, 2 * self._timing.lease_ttl)
            now = scheduling.at
            minutes = await rollups.series(connection, tenant, Span.MINUTE, now - LOOK_BACK, None, None)
            sampled = await gauges.series(connection, tenant, Span.MINUTE, now - _SAMPLE_AGE, None)
            warnings = await warnings_of(connection, tenant)
            window = None if w is None else await read_window(connection, tenant, w, now, task, queue)
        queues = counts.queues
        ages = [queue.oldest_seconds for queue in queues if queue.oldest_seconds is not None]
        lag = max(0.0, late or 0.0)
        waits = any(queue.depth for queue in queues) and counts.workers.get(WorkerState.LIVE.name)
        untaken = await self._queues.untaken(caller, _REASONS) if waits else []
        problems = [*problems_of(counts, scheduling, lag, untaken), *_of_logs(apart)]
        return Overview(
            status="degraded" if problems else "ok",
            problems=problems,
            at=scheduling.at,
            version=VERSION,
            rate=round(sum(queue.rate for queue in queues), 3),
            succeeded=sum(queue.succeeded for queue in queues),
            failed=sum(queue.failed for queue in queues),
            waiting=sum(queue.depth for queue in queues),
            scheduled=sum(queue.scheduled for queue in queues),
            oldest_seconds=max(ages) if ages else None,
            fire_lag=round(lag, 3),
            busy=sum(queue.running for queue in queues),
            slots=counts.slots,
            workers=counts.workers,
            dead_letters=counts.dead_letters.number,
            dead_letters_estimated=counts.dead_letters.estimated,
            schedulers=scheduling.nodes,
            shards_held=scheduling.held,
            shards=SHARD_COUNT,
            queues=nlargest(_QUEUES, queues, key=activity_of),
            held=sum(queue.held for queue in queues),
            paused=[words for gate in known if (words := pause_in_words([gate])) is not None][:_QUEUES],
            verdict=verdict_of(problems, queues, minutes, now, warnings),
            taken_at=counts.taken_at or now,
            backlog=max(sampled, key=lambda each: each.at).backlog if sampled else 0,
            nodes=[
                NodeView(str(node.node_id), node.host, node.started_at, node.seen_at, node.shards) for node in nodes
            ],
            window=window,
            warnings=warnings,
        )


def problems_of(
    counts: TenantCounts, scheduling: LeaseCounts, lag: float, untaken: Sequence[tuple[str, int]]
) -> Iterator[str]:
    """What an operator should look at, the most urgent first. `untaken`: runs that no worker of their queue takes, by
    the reason."""
    if not scheduling.nodes:
        yield "no scheduler is live, so nothing fires; start a server or a scheduler"
    elif scheduling.held < SHARD_COUNT:
        yield f"{SHARD_COUNT - scheduling.held} of {SHARD_COUNT} shards have no scheduler; their jobs do not fire"
    if lag > _LATE:
        yield f"a job is due since {format_duration(round(lag))} and has not fired"
    waiting = sum(queue.depth for queue in counts.queues)
    if waiting and not counts.workers.get(WorkerState.LIVE.name):
        yield f"{_runs(waiting)} and no worker is live; start one with: mainspring worker"
    for queue in counts.queues:
        if queue.depth and not queue.workers and counts.workers.get(WorkerState.LIVE.name):
            yield f"{_runs(queue.depth)} in the queue {queue.name}, and no worker takes runs from it"
    for reason, number in untaken:
        yield f"{_runs(number)}: {reason}"
    if lost := counts.workers.get(WorkerState.LOST.name):
        yield f"{lost} {'worker is' if lost == 1 else 'workers are'} lost; the runs were given to others"


def _of_logs(apart: Sequence[tuple[str, str]]) -> Iterator[str]:
    for one, other in apart[:_REASONS]:
        yield (
            f"the servers {one} and {other} store logs in different places, so each lacks output that the other has; "
            "start all servers with the same --log-store, or without"
        )


def _runs(number: int) -> str:
    return "1 run waits" if number == 1 else f"{number} runs wait"
