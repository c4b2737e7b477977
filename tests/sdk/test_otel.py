"""Spans of submissions and attempts, kept in memory."""

from __future__ import annotations

import subprocess
import sys
from uuid import UUID

from opentelemetry import trace as api
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import mainspring.testing
from mainspring import Context, Mainspring
from mainspring.sdk.otel import trace


def test_a_submission_is_in_the_trace_of_its_caller_and_all_attempts_are_in_that_of_the_run() -> None:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    app = Mainspring("traced")
    trace(app, provider)
    seen: list[tuple[int, str]] = []

    @app.task(retry={"max_attempts": 2, "base": "1m"})
    async def charge(ctx: Context) -> None:
        seen.append((api.get_current_span().get_span_context().trace_id, ctx.traceparent))
        if ctx.attempt == 1:
            raise ConnectionError("busy")

    with mainspring.testing.run(app) as box:
        with provider.get_tracer("caller").start_as_current_span("order") as caller:
            handle = charge.submit()
        box.run_pending()
        box.advance("1h")
        assert handle.status() == "SUCCESS"
        [run] = box.runs_of(charge)
    spans: dict[str, list[ReadableSpan]] = {}
    for span in kept.get_finished_spans():
        spans.setdefault(span.name, []).append(span)
    [submitted] = spans["submit charge"]
    assert submitted.context.trace_id == caller.get_span_context().trace_id
    assert submitted.attributes and submitted.attributes["mainspring.job_id"] == handle.job_id
    first, second = spans["run charge"]
    assert [span.status.status_code for span in (first, second)] == [StatusCode.ERROR, StatusCode.UNSET]
    assert {span.context.trace_id for span in (first, second, *spans["wait"])} == {UUID(run.run_id).int}
    assert [trace_id for trace_id, _ in seen] == [UUID(run.run_id).int] * 2
    assert first.parent and f"{first.parent.span_id:016x}" == seen[0][1].split("-")[2]
    assert seen[0][1] != seen[1][1], "each attempt has a span of its own to continue"


def test_without_it_nothing_of_opentelemetry_is_imported() -> None:
    code = (
        "import sys, mainspring.roles.worker; from mainspring import Mainspring, Client; "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
