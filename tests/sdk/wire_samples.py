"""Sample responses of a server, as JSON. Tests change single fields."""

from __future__ import annotations

from typing import Any

MOMENT = "2026-11-15T09:00:00Z"


def job(**changes: Any) -> dict[str, Any]:
    return {
        "job_id": "report",
        "name": "report",
        "task": "report",
        "command": None,
        "schedule_type": "CRON",
        "schedule": "0 0 * * * (UTC)",
        "status": "SCHEDULED",
        "schedule_time": None,
        "cron_expression": "0 0 * * *",
        "timezone": "UTC",
        "every": None,
        "rrule": None,
        "exdates": [],
        "jitter": None,
        "start": None,
        "end": None,
        "max_runs": None,
        "runs_left": None,
        "schedule_in_words": "",
        "dst": None,
        "calendar": None,
        "calendar_version": None,
        "outside": None,
        "payload": {},
        "max_retries": 3,
        "max_losses": 3,
        "retry": {"max_attempts": 4, "backoff": "exponential", "base": 2.0, "cap": 600.0, "jitter": 0.1, "rules": []},
        "timeout": 3600.0,
        "misfire": {"policy": "once", "grace": None, "cap": 100},
        "overlap": "skip",
        "concurrency": [],
        "unique": None,
        "delivery": "at_least_once",
        "idempotency_key": None,
        "owner": None,
        "description": None,
        "labels": {},
        "queue": "default",
        "priority": "normal",
        "next_fire_at": MOMENT,
        "last_fired_for": None,
        "shard_id": 7,
        "version": 1,
        "created_at": MOMENT,
        "updated_at": MOMENT,
        "generation": 1,
        "http": None,
        "run_timeout": None,
        "expires_in": None,
        "kill_grace": None,
        "env": {},
        "limits": None,
        "sandbox": None,
        "run_as": None,
        "required_labels": {},
        "latest_run": None,
        "error_message": None,
        "keep_payload": 16384,
        "declared_by": None,
        "pause_reason": None,
        "rate_limit": [],
        "circuit_breaker": None,
        **changes,
    }


def run(**changes: Any) -> dict[str, Any]:
    return {
        "run_id": "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11",
        "job_id": "report",
        "name": "report",
        "task": "report",
        "queue": "default",
        "priority": "normal",
        "status": "SUCCESS",
        "reason": None,
        "trigger": "schedule",
        "scheduled_for": MOMENT,
        "ready_at": MOMENT,
        "start_time": MOMENT,
        "end_time": MOMENT,
        "duration": 0.25,
        "modified_time": MOMENT,
        "executor_id": "w1",
        "attempt_number": 1,
        "max_attempts": 4,
        "fence": 1,
        "error_message": None,
        "log_url": None,
        "result": None,
        "payload": None,
        **changes,
    }


def problem(status: int, code: str, detail: str = "no", **more: Any) -> dict[str, Any]:
    return {"type": f"urn:{code}", "title": code, "status": status, "code": code, "detail": detail, **more}
