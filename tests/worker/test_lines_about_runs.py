"""The log lines of a worker about a run say whose run it is."""

from __future__ import annotations

import io
import json

import pytest

from mainspring.kernel import logs
from mainspring.worker.worker import Worker
from tests.worker.a_worker import against_a_server, app
from tests.worker.exchange_server import ExchangeServer, an_order


@app.task
async def fails_at_once() -> None:
    raise ValueError("no")


def test_a_failed_attempt_is_logged_with_tenant_job_run_and_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(logs, "_sink", logs._Sink(stream, logs._as_json, 0))
    order = an_order("fails_at_once", tenant=7)

    async def test(server: ExchangeServer, _: Worker) -> None:
        server.submit(order)
        await server.outcome_of(order)

    against_a_server(test)
    [line] = [one for one in map(json.loads, stream.getvalue().splitlines()) if one["event"] == "attempt failed"]
    assert (line["tenant"], line["job"], line["run"], line["attempt"]) == (7, order.job_id, str(order.run_id), 1)
    assert (line["task"], line["error"]) == ("fails_at_once", "ValueError")
