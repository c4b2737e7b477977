from __future__ import annotations

import httpx
import pytest

pytestmark = pytest.mark.anyio


async def test_metrics_need_a_token_and_show_queues_workers_and_counters(api: httpx.AsyncClient) -> None:
    assert (await api.get("/metrics", headers={"Authorization": ""})).status_code == 401
    await api.post("/v1/jobs", json={"task": "nobody", "queue": "heavy"})
    answer = await api.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.text.splitlines()
    assert 'mainspring_queue_depth{queue="heavy"} 1.0' in lines
    assert 'mainspring_queue_running{queue="heavy"} 0.0' in lines
    assert "mainspring_dead_letters 0.0" in lines
    for name in (
        "mainspring_jobs_submitted_total",
        "mainspring_runs_fired_total",
        "mainspring_retries_total",
        "mainspring_runs_dead_total",
        "mainspring_lease_epoch",
        "mainspring_fire_lag_seconds_count",
        "mainspring_start_latency_seconds_count",
        "mainspring_exchange_seconds_count",
    ):
        assert any(line.startswith(name) for line in lines), name
