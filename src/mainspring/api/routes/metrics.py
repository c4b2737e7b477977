"""/metrics: the counters of this process, and the current state of queues and workers in the database."""

from __future__ import annotations

from typing import Annotated, Literal

from mainspring.api.answers import Answer
from mainspring.api.handlers import get
from mainspring.api.services import caller_of, services_of
from mainspring.api.state_metrics import ready_metric, state_metrics
from mainspring.api.task_metrics import task_metrics
from mainspring.api.web import QueryParameter, Request, Response
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.kernel.metrics import exposition
from mainspring.operations.access.permissions import METRICS_READERS

GaugesWord = Literal["one", "yes", "no"]
_MEDIA_TYPE = "text/plain; version=0.0.4"
_EXAMPLE = """# HELP mainspring_dead_letters Dead letters
# TYPE mainspring_dead_letters gauge
mainspring_dead_letters 0.0
"""


@get(
    "/metrics", summary="Prometheus metrics", operation="metrics.read", roles=METRICS_READERS,
    answers={200: Answer("The text format of Prometheus.", content={"text/plain": _EXAMPLE})},
)  # fmt: skip
async def get_metrics(
    request: Request,
    gauges: GaugesWord = "one",
    jobs_shown: Annotated[list[str] | None, QueryParameter(name="job")] = None,
) -> Response[bytes]:
    """Text, not JSON. The state of the tenant's queues and workers, and outcomes, durations and lags by task and queue,
    which count from midnight in UTC on; for the tenant `default` also the counters of the server, and how near
    PostgreSQL is to its limits. All servers see the same state, so only one of those that are asked shows it, unless
    `gauges` says otherwise. `job` adds figures of this job; it can be repeated, up to 100 times."""
    caller, services = caller_of(request), services_of(request)
    # The counters of the process cover all tenants, so only the tenant of the instance administrator gets them.
    text = b""
    if caller.tenant == DEFAULT_TENANT:
        readiness = await services.readiness.check()
        text = exposition() + ready_metric(ready=readiness.status == "ready")
    if gauges == "yes" or (gauges == "one" and await services.gauge_server.shows(caller)):
        counts = await services.tenant_counts.with_scales(caller)
        jobs = await services.job_gauges.jobs(caller, jobs_shown or [])
        database, quotas = await services.tenant_counts.database(caller), await services.quotas.limited(caller)
        sinks = await services.sinks.all_sinks(caller)
        sources = await services.source_reader.for_metrics(caller)
        text += state_metrics(counts, jobs, database, quotas, sinks, sources)
        text += await task_metrics(await services.tenant_counts.by_task(caller))
    return Response(text, media_type=_MEDIA_TYPE)
