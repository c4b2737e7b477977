"""/metrics: the counters of this process, and the current state of queues and workers in the database."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Any, Literal

from litestar import Request, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mainspring.api.answers import Answer
from mainspring.api.handlers import get
from mainspring.api.services import caller_of, services_of
from mainspring.api.task_metrics import task_metrics
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.kernel.metrics import exposition
from mainspring.operations.access.permissions import METRICS_READERS
from mainspring.operations.read.tenant_counts import TenantCounts, activity_of

GaugesWord = Literal["one", "yes", "no"]
_MOST_QUEUES = 1000
_MEDIA_TYPE = "text/plain; version=0.0.4"  # Litestar adds the charset
_EXAMPLE = """# HELP mainspring_dead_letters Dead letters
# TYPE mainspring_dead_letters gauge
mainspring_dead_letters 0.0
"""


@get(
    "/metrics", summary="Prometheus metrics", operation="metrics.read", roles=METRICS_READERS,
    answers={200: Answer("The text format of Prometheus.", content={"text/plain": _EXAMPLE})},
)  # fmt: skip
async def get_metrics(request: Request[Any, Any, Any], gauges: GaugesWord = "one") -> Response[bytes]:
    """Text, not JSON. The state of the tenant's queues and workers, and outcomes, durations and lags by task and queue,
    which count from midnight in UTC on; for the tenant `default` also the counters of the server. All servers see the
    same state, so only one of those that schedule shows it, unless `gauges` says otherwise."""
    caller, services = caller_of(request), services_of(request)
    # The counters of the process cover all tenants, so only the tenant of the instance administrator gets them.
    text = exposition() if caller.tenant == DEFAULT_TENANT else b""
    if gauges == "yes" or (gauges == "one" and services.readiness.exports_gauges):
        registry = CollectorRegistry()
        registry.register(_CountsCollector(await services.tenant_counts.counts(caller)))
        text += generate_latest(registry) + await task_metrics(await services.tenant_counts.by_task(caller))
    return Response(text, media_type=_MEDIA_TYPE)


class _CountsCollector(Collector):
    """The state of the database as gauges."""

    def __init__(self, counts: TenantCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        by_queue = {
            "mainspring_queue_depth": ("Runs that wait for a worker", "depth"),
            "mainspring_queue_backing_off": ("Runs that wait for their next attempt", "scheduled"),
            "mainspring_queue_running": ("Runs that workers hold", "running"),
            "mainspring_queue_oldest_seconds": ("Seconds that the oldest waiting run has waited", "oldest_seconds"),
        }
        queues = nlargest(_MOST_QUEUES, self._counts.queues, key=activity_of)
        for name, (words, field) in by_queue.items():
            family = GaugeMetricFamily(name, words, labels=["queue"])
            for queue in queues:
                family.add_metric([queue.name], getattr(queue, field) or 0)
            yield family
        workers = GaugeMetricFamily("mainspring_workers", "Workers by state", labels=["state"])
        for state, count in sorted(self._counts.workers.items()):
            workers.add_metric([state], count)
        yield workers
        yield GaugeMetricFamily("mainspring_worker_slots", "Slots of the live workers", self._counts.slots)
        yield GaugeMetricFamily("mainspring_dead_letters", "Dead letters", self._counts.dead_letters.number)
