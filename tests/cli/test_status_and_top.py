"""`mainspring status` and `mainspring top`: one screen each, at 80 and at 120 columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mainspring.cli.figures import sparkline
from tests.cli.test_workers import worker
from tests.sdk.wire_samples import run

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]


def overview(**changes: Any) -> dict[str, Any]:
    queue = {"name": "default", "depth": 12, "scheduled": 2, "running": 3, "oldest_seconds": 75.0, "rate": 41.5,
             "workers": 1, "succeeded": 2400, "failed": 90}  # fmt: skip
    return {
        "status": "ok", "problems": [], "at": "2026-11-15T09:00:00Z", "version": "0.3.0", "rate": 41.5,
        "succeeded": 2400, "failed": 90, "waiting": 12, "scheduled": 2, "oldest_seconds": 75.0, "fire_lag": 0.0,
        "busy": 3, "slots": 16, "workers": {"LIVE": 1, "LOST": 2}, "dead_letters": 4, "schedulers": 1,
        "shards_held": 128, "shards": 128, "queues": [queue, queue | {"name": "a-queue-with-a-very-long-name" * 3}],
    } | changes  # fmt: skip


@pytest.fixture
def busy(server: CannedServer) -> CannedServer:
    server.says("GET /v1/insights/overview", overview())
    server.says(
        "GET /v1/workers", {"workers": [worker("0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b12", "web-1")], "more": False}
    )
    failed = run(status="FAILED", job_id="nightly", error_message="exit code 3: reading\nno such region")
    server.says("GET /v1/runs", {"runs": [failed], "next": None})
    return server


def test_status_is_one_screen_and_its_exit_code_says_whether_all_is_well(busy: CannedServer, call: Call) -> None:
    code, out, err = call("status")
    assert (code, err) == (0, "")
    assert "1 scheduler, 128 of 128 shards held, nothing is overdue" in out
    assert "1 live, 2 lost; 3 of 16 slots busy" in out
    assert "12 waiting (oldest 1m15s), 2 backing off, 3 running" in out
    assert "41.5 runs/s, 2,400 succeeded, 90 failed (96.4% succeeded)" in out
    assert "4; see: mainspring dead-letter list" in out
    busy.says("GET /v1/insights/overview", overview(status="degraded", problems=["no scheduler is live"], fire_lag=90))
    code, out, err = call("status")
    assert (code, err) == (1, "problem: no scheduler is live\n")
    assert "the most overdue job is 1m30s late" in out
    code, out, err = call("status", "--json")
    assert (code, err) == (1, "") and json.loads(out)["problems"] == ["no scheduler is live"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_top_fits_the_terminal(busy: CannedServer, call: Call, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, err = call("top", "--once")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= width
    for words in ("41.5 runs/s", "QUEUE", "default", "web-1", "FAILED RUN", "exit code 3: no"):
        assert words in out
    assert busy.asked[-1][1] == "status=failed&limit=6"


def test_top_takes_a_sensible_interval(busy: CannedServer, call: Call) -> None:
    code, _, err = call("top", "--interval", "1ms")
    assert code == 2 and "0.5s or more" in err


def test_a_sparkline_shows_the_last_values_from_zero_to_the_largest() -> None:
    assert sparkline([], 10) == ""
    assert sparkline([0, 0], 10) == "▁▁"
    assert sparkline([9, 0, 50, 100], 3) == "▁▄█"
