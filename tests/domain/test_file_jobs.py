"""A job that is exported and read again is the same job, whatever fields it has."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput
from mainspring.domain.file_jobs import exported_job, field_changes, in_file, instead, wanted_job
from mainspring.domain.schedules.schedule import for_job
from mainspring.wire.fields import FIELDS, Place
from mainspring.wire.files import FILE_KINDS
from mainspring.wire.jobs import JobRequest

CREATED = datetime(2026, 11, 16, 10, 0, 7, tzinfo=UTC)
LATER = datetime(2027, 2, 1, tzinfo=UTC)
SCHEDULES: list[Any] = [
    {"schedule": "0 9 * * MON-FRI"}, {"cron": "@daily", "timezone": "Europe/Berlin"}, {"schedule": "manual"}, {},
    {"schedule": {"every": "90s"}}, {"schedule": {"every": 86400, "anchor": "2026-01-01T03:00:00+01:00"}},
    {"schedule": {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "dst": {"gap": "skip", "overlap": "both"}}},
    {"schedule": {"cron": "H H * * *", "jitter": "10m", "start": "2026-12-01T00:00:00Z", "max_runs": 7}},
    {"schedule": {"rrule": "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17", "timezone": "America/New_York"}},
    {"schedule": {"rrule": "FREQ=DAILY;BYHOUR=9", "exdates": ["2026-12-24T09:00:00Z"], "end": "2030-01-01T00:00:00Z"}},
    {"schedule": {"after": ["other", "another"]}, "rule": "all_done"},
    {"schedule": {"cron": "0 9 * * *"}, "depends_on": ["other"], "rule": "one_failed", "on_upstream_failure": "fail"},
]  # fmt: skip
WORK: list[Any] = [
    {"command": "echo a\necho b"}, {"command": ["echo", "a b"], "payload": {"a": 1}}, {"task": "report"},
    {"task": "report", "payload": {"deep": [1, 2.5, None, {"x": "ü"}]}}, {"job_type": "report", "payload": {"a": [1]}},
    {"http": {"url": "https://example.org/", "method": "POST", "headers": {"A": "b"}}},
    {"task": "shell", "payload": {"command": "echo x"}},
    {"sql": {"statement": "select 1", "connection": "main"}},
]  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "name": ["A name"], "queue": ["mails", "default"], "priority": ["high", "critical", 1], "timeout": ["15m", 0.5, 90],
    "max_losses": [0, 5], "run_timeout": ["2h"], "expires_in": ["10m"], "kill_grace": ["5s"], "env": [{"A": "1"}, {}],
    "limits": [{"memory": "512MB"}, {"cpu": "30s", "processes": 8}], "sandbox": ["bubblewrap"], "run_as": ["nobody"],
    "required_labels": [{"zone": "a"}], "keep_payload": [True, False, "32KiB"],
    "retry": [{"max_attempts": 7}, {"base": "5s", "cap": "1m"}, {"rules": [{"exit_code": 2, "then": "give_up"}]},
              {"backoff": "linear", "jitter": 0.25}],
    "retry_policy": [{"max_attempts": 2}], "retries": [0, 9], "max_retries": [1],
    "misfire": [{"policy": "all", "cap": 5}, {"policy": "once", "grace": "1h"}, {"policy": "skip"}],
    "overlap": ["allow", "queue", "cancel_previous", "skip"], "concurrency": [2, {"limit": 3, "per": "task"}],
    "rate_limit": ["100/m", {"rate": "5/s", "burst": 10}], "rate": ["7/h"],
    "circuit_breaker": [True, {"failures": 3, "open_for": "10m"}], "delivery": ["at_most_once"], "owner": ["team"],
    "description": ["what it is for\nand why"], "labels": [{"team": "bi"}, {}],
    "search": [["account"], ["account", "customer.id"]], "secrets": [["db-password"]],
    "notify": [[{"on": ["failure"], "to": ["ops"]}]],
    "late_after": ["5m"], "expected_duration": ["90s"], "deadline": ["2h"], "on_deadline": ["cancel"],
    "keep_logs": ["1w"],
}  # fmt: skip
ELSEWHERE = {
    "schedule", "schedule_type", "cron", "cron_expression", "timezone", "depends_on", "dependencies", "rule",
    "on_upstream_failure", "task", "job_type", "payload", "command", "http", "sql",
}  # fmt: skip


def test_every_field_that_a_file_may_have_is_tried() -> None:
    fields = {field.name for field in FIELDS if Place.REQUEST in field.places} - {*FILE_KINDS["jobs"].without}
    assert fields == {*VALUES, *ELSEWHERE}


@settings(max_examples=60)
@given(st.data())
def test_an_exported_job_is_the_same_job(data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=8))
    given_fields = {name: data.draw(st.sampled_from(VALUES[name])) for name in sorted(chosen)}
    body = {**data.draw(st.sampled_from(WORK)), **data.draw(st.sampled_from(SCHEDULES)), **given_fields}
    try:
        first = wanted_job(read(body), CREATED, {})
    except InvalidInput:
        return  # fields that do not go together
    stored = msgspec.structs.replace(first, schedule=for_job(first.schedule, 1, "a", CREATED))
    exported = exported_job(stored, LATER, {})
    assert exported.keys() <= {*VALUES, *ELSEWHERE}
    again = instead(stored, wanted_job(read(exported), CREATED, {}))
    assert field_changes(stored, again, LATER) == [], exported
    assert again.schedule == stored.schedule
    assert exported_job(again, LATER, {}) == exported


def read(body: dict[str, Any]) -> JobRequest:
    return in_file(msgspec.json.decode(msgspec.json.encode(body), type=JobRequest), "a")


def test_a_job_that_runs_once_cannot_be_in_a_file() -> None:
    for schedule in ("now", {"at": "2030-01-01T00:00:00Z"}):
        with pytest.raises(InvalidInput, match="cannot run once"):
            wanted_job(read({"task": "t", "schedule": schedule}), CREATED, {})
