"""The state of the database as gauges: queues, workers, single jobs, and how near PostgreSQL is to its limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mainspring.operations.read.job_gauges import JobGauges
from mainspring.operations.read.tenant_counts import TenantCounts, activity_of
from mainspring.store.gauges import DatabaseFigures
from mainspring.wire.insights import QueueScale
from mainspring.wire.quotas import QuotaUse
from mainspring.wire.runs import QueueView
from mainspring.wire.sinks import SinkView
from mainspring.wire.sources import SourceView

_MOST_QUEUES = 1000
_OF_QUEUE = {
    "mainspring_queue_depth": ("Runs that wait for a worker", "depth"),
    "mainspring_queue_backing_off": ("Runs that wait for their next attempt", "scheduled"),
    "mainspring_queue_running": ("Runs that workers hold", "running"),
    "mainspring_queue_oldest_seconds": ("Seconds that the oldest waiting run has waited", "oldest_seconds"),
    "mainspring_queue_workers": ("Live workers that take from the queue", "workers"),
    "mainspring_queue_paused": ("1 if the queue is paused", "paused"),
}
_SCALE = {
    "mainspring_queue_free_slots": ("Slots of its live workers that hold nothing", "free"),
    "mainspring_queue_backlog_seconds": ("Seconds until what waits has started", "backlog_s"),
    "mainspring_queue_slots_wanted": ("Slots that keep up and start what waits within a minute", "slots_wanted"),
}
_OF_JOB = {
    "mainspring_job_last_end_timestamp_seconds": ("When its newest run succeeded or failed", "ended"),
    "mainspring_job_last_success_timestamp_seconds": ("When its newest successful run ended", "succeeded"),
    "mainspring_job_last_duration_seconds": ("How long its newest run took", "duration"),
    "mainspring_job_last_start_lag_seconds": ("From due to started, of its newest run", "lag"),
    "mainspring_job_failures_in_a_row": ("Runs that failed since its last success, up to 50", "failures"),
    "mainspring_job_next_fire_timestamp_seconds": ("When it fires next", "next_fire"),
}
_OF_DATABASE = {
    "mainspring_shards_held": ("Shards that have a scheduler, of 128", "shards_held"),
    "mainspring_shard_epochs": ("Sum of the epochs of all shards: it rises when they change their scheduler", "epochs"),
    "mainspring_database_connections": ("Connections to PostgreSQL", "connections"),
    "mainspring_database_connections_limit": ("Connections that PostgreSQL allows", "connections_limit"),
    "mainspring_database_transaction_age": ("Transactions since the oldest row was frozen", "transaction_age"),
    "mainspring_database_longest_transaction_seconds": ("How long a transaction is open", "longest_open"),
    "mainspring_database_bytes": ("Size of the database", "bytes"),
}


_OF_SOURCE = {
    "mainspring_source_lag": ("Messages that waited at the broker when the connector last said so", "lag"),
    "mainspring_source_taken": ("Messages that were taken", "taken"),
    "mainspring_source_dead_messages": ("Messages that could not become an event or a job", "dead"),
    "mainspring_source_problems": ("How often the connector could not read or write", "problems"),
}


def ready_metric(*, ready: bool) -> bytes:
    """Whether this server is ready, as /readyz says."""
    return _written([GaugeMetricFamily("mainspring_ready", "1 if the server is ready, as /readyz says", int(ready))])


def state_metrics(
    counts: TenantCounts,
    jobs: Sequence[JobGauges],
    database: DatabaseFigures | None,
    quotas: Sequence[QuotaUse],
    sinks: Sequence[SinkView],
    sources: Sequence[SourceView],
) -> bytes:
    return _written(
        [
            *_of_counts(counts),
            *_of_jobs(jobs),
            *_of_database(database),
            *_of_quotas(quotas),
            *_of_sinks(sinks),
            *_of_sources(sources),
        ]
    )


class _Families(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _written(families: list[Metric]) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Families(families))
    return generate_latest(registry)


def _of_counts(counts: TenantCounts) -> Iterator[Metric]:
    queues: list[QueueView] = nlargest(_MOST_QUEUES, counts.queues, key=activity_of)
    for name, (words, field) in _OF_QUEUE.items():
        family = GaugeMetricFamily(name, words, labels=["queue"])
        for queue in queues:
            family.add_metric([queue.name], getattr(queue, field) or 0)
        yield family
    shown = {queue.name for queue in queues}
    scales: list[QueueScale] = [scale for scale in counts.scales if scale.queue in shown]
    for name, (words, field) in _SCALE.items():
        family = GaugeMetricFamily(name, words, labels=["queue"])
        for scale in scales:
            family.add_metric([scale.queue], getattr(scale, field))
        yield family
    workers = GaugeMetricFamily("mainspring_workers", "Workers by state", labels=["state"])
    for state, count in sorted(counts.workers.items()):
        workers.add_metric([state], count)
    yield workers
    yield GaugeMetricFamily("mainspring_worker_slots", "Slots of the live workers", counts.slots)
    yield GaugeMetricFamily("mainspring_dead_letters", "Dead letters", counts.dead_letters.number)


def _of_jobs(jobs: Sequence[JobGauges]) -> Iterator[Metric]:
    for name, (words, field) in _OF_JOB.items() if jobs else ():
        family = GaugeMetricFamily(name, words, labels=["job_id"])
        for job in jobs:
            if (value := getattr(job, field)) is not None:
                family.add_metric([job.job_id], value)
        yield family


def _of_database(figures: DatabaseFigures | None) -> Iterator[Metric]:
    for name, (words, field) in _OF_DATABASE.items() if figures else ():
        yield GaugeMetricFamily(name, words, getattr(figures, field))


def _of_sinks(sinks: Sequence[SinkView]) -> Iterator[Metric]:
    """None if the tenant has no sinks."""
    if not sinks:
        return
    lag = GaugeMetricFamily("mainspring_sink_lag_seconds", "Age of the oldest change to send", labels=["sink"])
    waiting = GaugeMetricFamily("mainspring_sink_waiting", "Changes to send, up to 100,000", labels=["sink"])
    dropped = CounterMetricFamily("mainspring_sink_dropped", "Changes that had waited for too long", labels=["sink"])
    for sink in sinks:
        lag.add_metric([sink.name], sink.lag_s or 0.0)
        waiting.add_metric([sink.name], sink.waiting)
        dropped.add_metric([sink.name], sink.dropped)
    yield from (lag, waiting, dropped)


def _of_quotas(uses: Sequence[QuotaUse]) -> Iterator[Metric]:
    """None if the tenant has no quotas."""
    if not uses:
        return
    limits = GaugeMetricFamily("mainspring_quota_limit", "The quotas of the tenant", labels=["quota"])
    used = GaugeMetricFamily("mainspring_quota_used", "How much of each quota is used", labels=["quota"])
    for use in uses:
        limits.add_metric([use.quota], use.limit or 0)
        if use.used is not None:
            used.add_metric([use.quota], use.used)
    yield from (limits, used)


def _of_sources(sources: Sequence[SourceView]) -> Iterator[Metric]:
    """None if the tenant has no sources."""
    for name, (words, field) in _OF_SOURCE.items() if sources else ():
        family = GaugeMetricFamily(name, words, labels=["source", "partition"])
        for source in sources:
            if (value := getattr(source, field)) is not None:
                family.add_metric([source.name, source.partition], value)
        yield family
