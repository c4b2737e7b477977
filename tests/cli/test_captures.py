"""What the lists look like on terminals of 80 and 120 columns.

`python -m tests.cli.test_captures` writes the captures anew. Look at them before you commit them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from tests.sdk.wire_samples import job, run

from .conftest import CannedServer

CAPTURES = Path(__file__).parent / "captures"
IDS = [f"01990f3e-8a10-7{n:03x}-9d50-2f1f{n * 40503 % 65536:04x}0a8b" for n in range(40)]
SCREENS = ("status", "top")
LISTS = ("runs", "jobs", "workers", "queues", "limits", "dead-letters", "tasks", "tokens", "tenants", "timeline")
TRACEBACK = 'ConnectionError: could not reach "warehouse.internal" after 3 tries\nTraceback ...'


def away(**span: float) -> str:
    """A moment from now, and half a unit, so that the words do not depend on the speed of the test."""
    return (datetime.now(UTC) + timedelta(**span)).isoformat()


def runs() -> dict[str, Any]:
    shell = {"task": "shell", "name": "shell"}
    found = [
        run(run_id=IDS[1], job_id=IDS[1], **shell, status="RUNNING", scheduled_for=away(minutes=-2.5), duration=128.1),
        run(run_id=IDS[2], job_id="daily_report", task="report.generate", scheduled_for=away(hours=-3.5)),
        run(
            run_id=IDS[3], job_id="sync-customers-from-the-warehouse", task="sync.customers", status="FAILED",
            attempt_number=4, error_message=TRACEBACK, scheduled_for=away(hours=-5.5), duration=754.2,
        ),
        run(
            run_id=IDS[4], job_id=IDS[5], task="invoice.send", status="SCHEDULED", attempt_number=2, duration=None,
            reason="backing off after attempt 2 of 4", scheduled_for=away(minutes=-4.5), error_message="HTTP 503",
        ),
        run(
            run_id=IDS[6], job_id="nightly", task="backup", status="SKIPPED", attempt_number=0, duration=None,
            reason="expired", scheduled_for=away(days=-2.5),
        ),
        run(
            run_id=IDS[7], job_id="\u65e5\u672c\u8a9e\u306e\u5831\u544a", task="report.generate", status="CANCELLED",
            scheduled_for=away(days=-3.5), reason="cancelled by \x1b[31mops\x1b[0m",
        ),
    ]  # fmt: skip
    return {"runs": found, "next": None}


def jobs() -> dict[str, Any]:
    found = [
        job(
            job_id="daily_report", name="Daily report", task="report.generate", next_fire_at=away(hours=5.5),
            schedule="0 9 * * MON-FRI (Europe/Berlin)",
        ),
        job(
            job_id=IDS[5], name="invoice.send", task="invoice.send", schedule="at ...", queue="heavy",
            schedule_time="2026-12-31T23:59:59.123456Z", next_fire_at=away(days=45.5),
        ),
        job(
            job_id="sync-customers-from-the-warehouse", name="Customers of all regions", task="sync.customers",
            schedule="every 15m", status="PAUSED", next_fire_at=None, queue="heavy",
        ),
    ]  # fmt: skip
    return {"jobs": found, "next": None}


def workers() -> dict[str, Any]:
    tasks = ["http", "invoice.send", "report.generate", "shell", "sync.customers"]
    names = [("web-1-4242", "LIVE", {}), ("gpu-box-0.eu-west.example-17", "DRAINING", {"gpu": "a100", "zone": "eu"})]
    found = [
        {
            "worker_id": IDS[10 + n], "name": name, "state": state, "queues": ["default", "heavy"], "tasks": tasks,
            "slots": 16, "running": 3, "labels": labels, "version": "1", "registered_at": away(days=-1),
            "last_beat_at": away(minutes=-2.5),
        }
        for n, (name, state, labels) in enumerate(names)
    ]  # fmt: skip
    return {"workers": found}


def queues() -> dict[str, Any]:
    shape = ("name", "depth", "scheduled", "running", "oldest_seconds", "rate", "workers")
    numbers = [("default", 0, 0, 3, None, 12.34, 2), ("heavy", 120345, 17, 8, 754.0, 0.2, 1)]
    return {"queues": [dict(zip(shape, one, strict=True)) for one in numbers]}


def limits() -> dict[str, Any]:
    shape = ("limit_id", "name", "limit", "declared", "pinned", "order", "keys", "in_use", "held", "updated_at")
    rows = [
        (7, "job:daily_report", 1, 1, False, "strict", 1, 1, 0, away(days=-1)),
        (12, "task:invoice.send:payload.customer.account", 5, 1, True, "priority", 1200, 431, 120345, away(days=-1)),
    ]
    return {"limits": [dict(zip(shape, row, strict=True)) for row in rows], "next": None}


def dead_letters() -> dict[str, Any]:
    found = [
        {
            "run_id": IDS[20 + n], "job_id": job_id or IDS[20 + n], "name": task, "task": task, "queue": queue,
            "attempts": 4, "error_message": TRACEBACK, "payload": None, "scheduled_for": away(hours=-6),
            "died_at": away(hours=-5.5),
        }
        for n, (job_id, task, queue) in enumerate(
            [("sync-customers-from-the-warehouse", "sync.customers", "heavy"), (None, "shell", "default")]
        )
    ]  # fmt: skip
    return {"dead_letters": found, "next": None}


def tasks() -> dict[str, Any]:
    schema = {
        "properties": {"region": {"type": "string"}, "since": {"type": "string", "format": "date-time"}},
        "required": ["region"],
    }
    options = {"queue": "heavy", "timeout": 300.0, "retry": {"max_attempts": 5}}
    shape = ("task", "payload_schema", "options", "queues", "workers")
    rows = [("report.generate", schema, options, ["default", "heavy"], 2), ("shell", None, None, ["default"], 2)]
    return {"tasks": [dict(zip(shape, row, strict=True)) for row in rows]}


def tokens() -> dict[str, Any]:
    shape = ("token_id", "name", "role", "tenant", "tenants", "created_at", "expires_at", "revoked_at")
    rows = [
        (IDS[30], "ci", "admin", "default", "default", away(days=-20.5), away(days=9.5), None),
        (IDS[31], "workers of the web pool", "worker", None, "all", away(days=-90.5), None, None),
        (IDS[32], "somebody who left", "admin", "default", "default", away(days=-400.5), None, away(days=-3.5)),
    ]
    return {"tokens": [dict(zip(shape, row, strict=True)) for row in rows]}


def timeline() -> list[dict[str, Any]]:
    worker = {"worker_id": IDS[10], "worker_name": "gpu-box-0.eu-west.example-17"}
    begun = datetime.now(UTC) - timedelta(minutes=12.5)
    steps: list[tuple[float, str, dict[str, Any]]] = [
        (0, "FIRED", {"node_id": IDS[33], "reason": "by its schedule, for 2026-11-15T09:00:00Z"}),
        (0, "QUEUED", {}),
        (0.5, "RUNNING", {"attempt": 1, **worker}),
        (62, "FAILED", {"attempt": 1, **worker, "duration": 61.5, "error": TRACEBACK}),
        (62, "SCHEDULED", {"attempt": 1, "reason": "backing off until 2026-11-15T09:01:04Z"}),
    ]
    return [{"at": (begun + timedelta(seconds=at)).isoformat(), "state": state, **more} for at, state, more in steps]


ANSWERS: dict[str, tuple[str, Callable[[], Any]]] = {
    "runs": ("/v1/runs", runs),
    "jobs": ("/v1/jobs", jobs),
    "workers": ("/v1/workers", workers),
    "queues": ("/v1/queues", queues),
    "limits": ("/v1/limits", limits),
    "dead-letters": ("/v1/dead-letters", dead_letters),
    "tasks": ("/v1/tasks", tasks),
    "tokens": ("/v1/tokens", tokens),
    "tenants": (
        "/v1/tenants",
        lambda: {"tenants": [{"tenant_id": 1, "name": "default", "created_at": away(days=-90.5)}]},
    ),
    "timeline": (f"/v1/runs/{IDS[3]}/timeline", timeline),
}


def arguments(verb: str) -> list[str]:
    return [verb, *([IDS[3]] if verb == "timeline" else [])]


def capture(verb: str, width: int, server: CannedServer, call: Callable[..., tuple[int, str, str]]) -> str:
    path, answer = ANSWERS[verb]
    server.says(f"GET {path}", answer())
    os.environ["COLUMNS"] = str(width)
    code, out, err = call(*arguments(verb))
    assert (code, err) == (0, "")
    return out


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("verb", LISTS)
def test_a_list_on_a_terminal(
    verb: str, width: int, server: CannedServer, call: Callable[..., tuple[int, str, str]], monkeypatch: Any
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = capture(verb, width, server, call)
    assert out == (CAPTURES / f"{verb}-{width}.txt").read_text()
    lines = out.splitlines()
    assert max(map(cell_len, lines)) <= width
    answered = ANSWERS[verb][1]()
    rows = answered if isinstance(answered, list) else next(iter(answered.values()))
    assert len(lines) == len(rows) + 1
    assert "\x1b" not in out


def overview() -> dict[str, Any]:
    queue = {"name": "default", "depth": 12, "scheduled": 2, "running": 3, "oldest_seconds": 75.0, "rate": 41.5,
             "workers": 1, "succeeded": 2400, "failed": 90}  # fmt: skip
    long = queue | {"name": "nightly-imports-of-the-eu-warehouse", "depth": 120_400, "oldest_seconds": 7260.0}
    return {
        "status": "degraded", "problems": ["120400 runs wait in the queue nightly, and no worker takes runs from it"],
        "at": away(), "version": "0.3.0", "rate": 83.0, "succeeded": 4800, "failed": 180, "waiting": 120_412,
        "scheduled": 4, "oldest_seconds": 7260.0, "fire_lag": 0.0, "busy": 3, "slots": 16,
        "workers": {"LIVE": 1, "LOST": 2}, "dead_letters": 4, "schedulers": 1, "shards_held": 128, "shards": 128,
        "queues": [long, queue],
    }  # fmt: skip


def screen(verb: str, server: CannedServer, call: Callable[..., tuple[int, str, str]]) -> str:
    server.says("GET /v1/insights/overview", overview())
    server.says("GET /v1/workers", workers())
    failed = [each for each in runs()["runs"] if each["status"] == "FAILED"]
    server.says("GET /v1/runs", {"runs": [each | {"end_time": away(hours=-5.5)} for each in failed], "next": None})
    _, out, _ = call(verb, *(["--once"] if verb == "top" else []))
    return out.replace(server.url, "http://127.0.0.1:8700")


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("verb", SCREENS)
def test_a_screen_on_a_terminal(
    verb: str, width: int, server: CannedServer, call: Callable[..., tuple[int, str, str]], monkeypatch: Any
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = screen(verb, server, call)
    assert out == (CAPTURES / f"{verb}-{width}.txt").read_text()
    assert max(map(cell_len, out.splitlines())) <= width


@pytest.mark.parametrize("verb", LISTS)
def test_a_pipe_gets_whole_ids_and_every_column(
    verb: str, server: CannedServer, call: Callable[..., tuple[int, str, str]]
) -> None:
    path, answer = ANSWERS[verb]
    server.says(f"GET {path}", answer())
    _, out, _ = call(*arguments(verb))
    assert "…" not in out and "\x1b" not in out
    if verb in ("runs", "workers", "dead-letters", "tokens"):
        assert all(len(line.split()[0]) == 36 for line in out.splitlines()[1:])


def test_full_ids_are_whole_on_a_terminal_too(
    server: CannedServer, call: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    server.says("GET /v1/runs", runs())
    _, out, _ = call("runs", "--full-ids", "--utc")
    assert [line[:36] for line in out.splitlines()[1:]] == [IDS[n] for n in (1, 2, 3, 4, 6, 7)]
    assert max(map(cell_len, out.splitlines())) <= 80
    assert out.count("Z\n") == 6


def _write() -> None:
    """Write the captures."""
    import contextlib
    import io

    from mainspring.cli.main import main

    def call(*args: str) -> tuple[int, str, str]:
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) as out:
            code = main(args)
            out.seek(0)
            return code, out.read(), ""

    server = CannedServer()
    server.start()
    os.environ.update(MAINSPRING_URL=server.url, MAINSPRING_TOKEN="secret")
    CAPTURES.mkdir(exist_ok=True)
    for verb in LISTS:
        for width in (80, 120):
            (CAPTURES / f"{verb}-{width}.txt").write_text(capture(verb, width, server, call))
    for verb in SCREENS:
        for width in (80, 120):
            os.environ["COLUMNS"] = str(width)
            (CAPTURES / f"{verb}-{width}.txt").write_text(screen(verb, server, call))
    server.stop()
    sys.stdout.write(f"written to {CAPTURES}\n")


if __name__ == "__main__":
    _write()
