"""The log lines of a server about a run say whose run it is."""

from __future__ import annotations

import ast
import io
import json
import re
from pathlib import Path

import httpx
import pytest

import mainspring
from mainspring.kernel import logs
from mainspring.kernel.ids import DEFAULT_TENANT
from tests.operations.hand_worker import outcome
from tests.operations.test_outcomes import claimed

pytestmark = pytest.mark.anyio

_PERHAPS = re.compile(r"\blog\.\w+\([^)]*\b(run|run_id|attempt)=")
_LEVELS = {"debug", "info", "detail", "warning", "diagnostic", "error"}


async def test_a_run_that_fails_for_good_is_logged_with_tenant_job_run_and_attempt(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(logs, "_sink", logs._Sink(stream, logs._as_json, 0))
    worker, order = await claimed(api, max_retries=0, job_id="nightly")
    alone, single = await claimed(api, max_retries=0)
    assert (order.tenant, single.tenant) == (DEFAULT_TENANT, DEFAULT_TENANT)  # so that a worker can log it too
    await worker.report(outcome(order, "FAILED", error="boom"))
    await alone.report(outcome(single, "FAILED", error="boom"))
    lines = [one for one in map(json.loads, stream.getvalue().splitlines()) if one["event"] == "run failed for good"]
    assert [(one["tenant"], one["job"], one["run"], one["attempt"]) for one in lines] == [
        (DEFAULT_TENANT, "nightly", str(order.run_id), 1),
        (DEFAULT_TENANT, single.job_id, str(single.run_id), 1),
    ]


def test_no_line_names_a_run_without_the_rest() -> None:
    """A line that names a run takes its fields from `about_run`, or from `about` of a worker."""
    found = [
        f"{file.name}:{call.lineno}"
        for file in Path(mainspring.__file__).parent.rglob("*.py")
        if _PERHAPS.search(text := file.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _LEVELS
        if isinstance(call.func.value, ast.Name) and call.func.value.id == "log"
        if {keyword.arg for keyword in call.keywords} & {"run", "run_id", "attempt"}
    ]
    assert found == []
