"""Traces with OpenTelemetry: `pip install 'mainspring[otel]'`, then `trace(app)`. Nothing of it is imported without.

A run is a trace of its own, with the id of the run: HTTP tasks and commands get the same context without OpenTelemetry
(wire/trace_context.py). A submission is a span in the trace of the caller, with a link to the trace of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from opentelemetry import trace as api
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mainspring.kernel.version import VERSION
from mainspring.sdk.app.app import Mainspring
from mainspring.sdk.tasks.context import Context

_PROPAGATOR = TraceContextTextMapPropagator()
_SYSTEM = {"messaging.system": "mainspring"}


def trace(app: Mainspring, tracer_provider: TracerProvider | None = None) -> None:
    """Make a span of each submission of the application's tasks and of each attempt of their runs. During an attempt
    its span is the current one, so that calls of other services continue the trace. Call it before other middlewares
    are declared, so that they are inside the span. Without `tracer_provider`: the global one."""
    tracer = api.get_tracer("mainspring", VERSION, tracer_provider)

    @app.middleware(around="submission")
    def submission(request: dict[str, Any]) -> Iterator[None]:
        task = request["task"]
        named = {**_SYSTEM, "messaging.operation.type": "send", "messaging.destination.name": task}
        with tracer.start_as_current_span(f"submit {task}", kind=SpanKind.PRODUCER, attributes=named) as span:
            handle: Any = yield
            span.set_attribute("mainspring.job_id", handle.job_id)
            if (run := _trace_of(handle.job_id)) is not None:
                span.add_link(run.context)

    @app.middleware
    def attempt(ctx: Context) -> Iterator[None]:
        claimed = _PROPAGATOR.extract({"traceparent": ctx.traceparent})
        named: dict[str, str | int] = {
            **_SYSTEM, "messaging.operation.type": "process", "messaging.destination.name": ctx.task,
            "mainspring.job_id": ctx.job_id, "mainspring.run_id": ctx.run_id, "mainspring.attempt": ctx.attempt,
        }  # fmt: skip
        now = datetime.now(UTC)
        if ctx.attempt == 1:
            due = min(ctx.scheduled_for, now)
            waited = tracer.start_span("wait", context=claimed, attributes=named, start_time=_nanoseconds(due))
            waited.end(_nanoseconds(now))
        with tracer.start_as_current_span(f"run {ctx.task}", context=claimed, kind=SpanKind.CONSUMER, attributes=named):
            yield


def _trace_of(job_id: str) -> Link | None:
    """The trace of the run of a job that runs once: job and run have the same id. None for a chosen id."""
    try:
        run_id = UUID(job_id)
    except ValueError:
        return None
    # A span id must not be zero. The claim is not known yet, so the first half of the run's id stands for it.
    context = SpanContext(run_id.int, (run_id.int >> 64) or 1, is_remote=True, trace_flags=TraceFlags(1))
    return Link(context)


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1000
