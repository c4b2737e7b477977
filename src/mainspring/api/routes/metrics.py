"""/metrics: the counters of this process, and the current state of queues and workers in the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from litestar import Request, Response, get
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mainspring.api.answers import Answer
from mainspring.api.services import caller_of, services_of
from mainspring.domain.rollups import LEAST_MS, Histogram
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.kernel.metrics import REGISTRY
from mainspring.operations.read.standing import Standing, TaskEnds

_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS = [LEAST_MS / 1000 * 2**octave for octave in range(1, 26, 2)]  # a millisecond to 4.6 hours
_EXAMPLE = """# HELP mainspring_dead_letters Dead letters
# TYPE mainspring_dead_letters gauge
mainspring_dead_letters 0.0
"""


@get(
    "/metrics", summary="Prometheus metrics", operation="metrics.read",
    answers={200: Answer("The text format of Prometheus.", content={"text/plain": _EXAMPLE})},
)  # fmt: skip
async def get_metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Text, not JSON. The state of the tenant's queues and workers, and outcomes, durations and lags by task and queue,
    which count from midnight in UTC on; for the operator also the counters of this process."""
    caller = caller_of(request)
    reader = services_of(request).standing_reader
    registry = CollectorRegistry()
    registry.register(_Standing(await reader.standing(caller)))
    registry.register(_Tasks(await reader.by_task(caller)))
    # The counters of the process cover all tenants, so only the operator gets them.
    counted = generate_latest(REGISTRY) if caller.tenant == DEFAULT_TENANT else b""
    return Response(counted + generate_latest(registry), media_type=_MEDIA_TYPE)


class _Standing(Collector):
    """The state of the database as gauges."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def collect(self) -> Iterable[Metric]:
        by_queue = {
            "mainspring_queue_depth": ("Runs that wait for a worker", "depth"),
            "mainspring_queue_backing_off": ("Runs that wait for their next attempt", "scheduled"),
            "mainspring_queue_running": ("Runs that workers hold", "running"),
            "mainspring_queue_oldest_seconds": ("Seconds that the oldest waiting run has waited", "oldest_seconds"),
        }
        for name, (words, field) in by_queue.items():
            family = GaugeMetricFamily(name, words, labels=["queue"])
            for queue in self._standing.queues:
                family.add_metric([queue.name], getattr(queue, field) or 0)
            yield family
        workers = GaugeMetricFamily("mainspring_workers", "Workers by state", labels=["state"])
        for state, count in sorted(self._standing.workers.items()):
            workers.add_metric([state], count)
        yield workers
        yield GaugeMetricFamily("mainspring_worker_slots", "Slots of the live workers", self._standing.slots)
        yield GaugeMetricFamily("mainspring_dead_letters", "Dead letters", self._standing.dead_letters)


class _Tasks(Collector):
    """What ended since midnight, by task and queue. A counter that begins again is nothing new to Prometheus."""

    def __init__(self, tasks: Sequence[TaskEnds]) -> None:
        self._tasks = tasks

    def collect(self) -> Iterable[Metric]:
        labels = ["queue", "task"]
        runs = CounterMetricFamily("mainspring_task_runs", "Runs that ended today", labels=[*labels, "outcome"])
        counters = {
            "retried": CounterMetricFamily("mainspring_task_retries", "Failed attempts before another", labels=labels),
            "lost": CounterMetricFamily("mainspring_task_losses", "Attempts that were lost", labels=labels),
            "missed": CounterMetricFamily("mainspring_task_missed_fires", "Fires that were missed", labels=labels),
        }
        duration = HistogramMetricFamily("mainspring_task_duration_seconds", "Durations of runs", labels=labels)
        lag = HistogramMetricFamily("mainspring_task_start_lag_seconds", "From due to started", labels=labels)
        for each in self._tasks:
            values = [each.queue, each.task]
            for outcome in ("succeeded", "failed", "cancelled", "skipped"):
                runs.add_metric([*values, outcome], each.ends.counts[outcome])
            for name, family in counters.items():
                family.add_metric(values, each.ends.counts[name])
            duration.add_metric(values, _buckets(each.ends.ran), each.ends.ran_us / 1e6)
            lag.add_metric(values, _buckets(each.ends.lag), each.ends.lag.about_seconds)
        yield from (runs, *counters.values(), duration, lag)


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [(f"{bound:g}", float(histogram.below(bound * 1000))) for bound in _BOUNDS]
    return [*bounds, ("+Inf", float(histogram.total))]
