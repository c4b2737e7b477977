"""Every request of the documentation becomes the definition it describes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.request import define, parse_priority, parse_time
from mainspring.domain.job import (
    DEFAULT_SPEC,
    Delivery,
    JobDefinition,
    Overlap,
    Priority,
    Spec,
    spec_from_text,
    spec_to_text,
)
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedules.misfire import MisfirePolicy
from mainspring.domain.schedules.schedule import MANUAL, Schedule, ScheduleKind
from mainspring.domain.schedules.schedule import NOW as AT_ONCE
from mainspring.wire.jobs import JobRequest
from tests.domain.requests_as_sent import NOW, defined

FULL = """
{"name": "Daily report", "task": "report.generate", "payload": {"region": "eu"},
 "schedule": {"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin", "calendar": "de-business", "jitter": "30s"},
 "queue": "default", "priority": "high", "timeout": "15m",
 "retry": {"max_attempts": 4, "backoff": "exponential", "base": "2s", "cap": "10m", "jitter": 0.1},
 "misfire": {"policy": "once", "grace": "1h"}, "overlap": "skip", "delivery": "at_least_once",
 "depends_on": ["data-ingestion"], "idempotency_key": "2026-11-15/report", "owner": "bi", "description": "...",
 "labels": {"team": "bi"},
 "notify": [{"on": ["failure"], "url": "mailto://..."}]}
"""
SHORT_AT = """
{"job_type": "email_send", "schedule_time": "2026-12-31T23:59:59Z", "payload": {"user_id": 123, "body": "..."},
 "retries": 3}
"""
SHORT_CRON = """
{"name": "Daily Data Cleanup", "schedule_type": "CRON", "cron_expression": "0 0 * * *",
 "payload": {"cleanup_target": "old_logs", "retention_days": 30}, "max_retries": 2}
"""
SHORT_FUTURE = """
{"name": "One shot", "schedule_type": "FUTURE", "schedule_time": "2026-12-25T10:00:00Z", "payload": {}}
"""
SHORT_NOW = """{"name": "Right away", "schedule_type": "IMMEDIATE", "payload": {}}"""
SHORT_SHELL = """
{"job_id": "daily_report", "schedule": "0 0 * * *", "command": "python generate_report.py",
 "dependencies": ["data_ingestion"], "max_retries": 3, "timeout": 3600}
"""


def test_the_short_request_with_a_time() -> None:
    assert defined(SHORT_AT) == JobDefinition(
        task="email_send",
        payload='{"user_id": 123, "body": "..."}',
        schedule=Schedule(kind=ScheduleKind.AT, at=datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)),
    )


def test_the_short_request_with_a_cron_expression_runs_the_task_called_like_the_job() -> None:
    assert defined(SHORT_CRON) == JobDefinition(
        task="Daily Data Cleanup",
        name="Daily Data Cleanup",
        payload='{"cleanup_target": "old_logs", "retention_days": 30}',
        schedule=Schedule(kind=ScheduleKind.CRON, cron="0 0 * * *"),
        spec=Spec(retry=RetryPolicy(max_attempts=3)),
    )


def test_the_short_request_for_later() -> None:
    found = defined(SHORT_FUTURE)
    assert found.schedule == Schedule(kind=ScheduleKind.AT, at=datetime(2026, 12, 25, 10, tzinfo=UTC))
    assert (found.task, found.payload, found.spec) == ("One shot", "{}", DEFAULT_SPEC)


def test_the_short_request_for_now() -> None:
    found = defined(SHORT_NOW)
    assert (found.task, found.schedule, found.queue) == ("Right away", AT_ONCE, "default")


def test_the_short_request_with_dependencies_is_the_same_as_one_with_depends_on() -> None:
    found = defined(SHORT_SHELL)
    assert found == defined(SHORT_SHELL.replace("dependencies", "depends_on"))
    assert (found.job_id, found.name, found.task) == ("daily_report", "daily_report", "shell")
    assert found.schedule == Schedule(kind=ScheduleKind.CRON, cron="0 0 * * *")
    assert found.spec == Spec(timeout=3600.0, command="python generate_report.py", depends_on=["data_ingestion"])


def test_the_full_request_is_accepted_without_an_address_to_notify() -> None:
    text = FULL.replace('"depends_on": ["data-ingestion"], ', "")
    with pytest.raises(msgspec.ValidationError, match="unknown field `url`"):
        defined(text)
    text = text.replace(',\n "notify": [{"on": ["failure"], "url": "mailto://..."}]', "", 1)
    assert defined(text) == JobDefinition(
        task="report.generate",
        name="Daily report",
        payload='{"region": "eu"}',
        queue="default",
        priority=Priority.HIGH,
        schedule=Schedule(
            kind=ScheduleKind.CRON,
            cron="0 9 * * MON-FRI",
            timezone="Europe/Berlin",
            jitter=30.0,
            calendar="de-business",
        ),
        spec=Spec(
            timeout=900.0,
            misfire=MisfirePolicy("once", 3600.0),
            owner="bi",
            description="...",
            labels={"team": "bi"},
            idempotency_key="2026-11-15/report",
        ),
        idempotency_key="2026-11-15/report",
    )


def test_a_task_alone_has_all_the_defaults() -> None:
    found = defined({"task": "noop"})
    assert found == JobDefinition(task="noop")
    assert found.spec is DEFAULT_SPEC
    assert (found.priority, found.overlap, found.spec.timeout) == (Priority.NORMAL, Overlap.SKIP, 3600.0)
    assert found.spec.retry == RetryPolicy(4, "exponential", 2.0, 600.0, 0.1)
    assert found.spec.misfire.policy == "once"
    assert found.spec.delivery is Delivery.AT_LEAST_ONCE


@pytest.mark.parametrize(
    ("body", "schedule"),
    [
        ({"schedule": "now"}, AT_ONCE),
        ({"schedule": " NOW "}, AT_ONCE),
        ({"schedule": "manual"}, MANUAL),
        ({"schedule_type": "manual"}, MANUAL),
        ({"schedule": "@daily"}, Schedule(kind=ScheduleKind.CRON, cron="0 0 * * *")),
        ({"schedule": {"cron": "*/5 * * * * *"}}, Schedule(kind=ScheduleKind.CRON, cron="*/5 * * * * *")),
        (
            {"schedule": "0 9 * * *", "timezone": "Asia/Kolkata"},
            Schedule(kind=ScheduleKind.CRON, cron="0 9 * * *", timezone="Asia/Kolkata"),
        ),
        ({"schedule": {"every": "10m"}}, Schedule(kind=ScheduleKind.EVERY, every=600.0)),
        ({"schedule": {"every": 1}}, Schedule(kind=ScheduleKind.EVERY, every=1.0)),
        ({"schedule": {"every": "10m"}, "schedule_type": "interval"}, Schedule(kind=ScheduleKind.EVERY, every=600.0)),
        (
            {"schedule": {"every": "1d", "anchor": "2026-01-01T06:00:00", "timezone": "Europe/Berlin"}},
            Schedule(kind=ScheduleKind.EVERY, every=86400.0, anchor=datetime(2026, 1, 1, 5, tzinfo=UTC)),
        ),
        (
            {"schedule": {"at": "2026-12-31T23:59:59+01:00"}},
            Schedule(kind=ScheduleKind.AT, at=datetime(2026, 12, 31, 22, 59, 59, tzinfo=UTC)),
        ),
        (
            {"schedule_time": "2026-12-31T23:59:59", "timezone": "Europe/Berlin"},
            Schedule(kind=ScheduleKind.AT, at=datetime(2026, 12, 31, 22, 59, 59, tzinfo=UTC)),
        ),
        (
            {"schedule_time": "2026-12-31T23:59:59+01:00", "timezone": "Europe/Berlin"},
            Schedule(kind=ScheduleKind.AT, at=datetime(2026, 12, 31, 22, 59, 59, tzinfo=UTC)),
        ),
        (
            {"schedule_time": "2026-12-31t23:59:59.25z"},
            Schedule(kind=ScheduleKind.AT, at=datetime(2026, 12, 31, 23, 59, 59, 250_000, tzinfo=UTC)),
        ),
        ({"cron": "@daily", "cron_expression": None}, Schedule(kind=ScheduleKind.CRON, cron="0 0 * * *")),
        (
            {"cron": "@daily", "timezone": "Asia/Tokyo", "schedule_type": "CRON"},
            Schedule(kind=ScheduleKind.CRON, cron="0 0 * * *", timezone="Asia/Tokyo"),
        ),
        ({"delay": "1h30m"}, Schedule(kind=ScheduleKind.AT, at=NOW + timedelta(minutes=90))),
        ({"delay": 0.5}, Schedule(kind=ScheduleKind.AT, at=NOW + timedelta(seconds=0.5))),
    ],
)
def test_each_way_to_say_when(body: dict[str, object], schedule: Schedule) -> None:
    assert defined({"task": "noop", **body}).schedule == schedule


@pytest.mark.parametrize(
    ("body", "task", "command"),
    [
        ({"command": "echo hi"}, "shell", "echo hi"),
        ({"command": ["echo", ""]}, "shell", ["echo", ""]),
        ({"task": "shell", "command": "a\nb\t'c'"}, "shell", "a\nb\t'c'"),
        ({"task": "shell", "payload": {"command": "echo hi", "n": 1}}, "shell", "echo hi"),
        ({"job_type": "shell", "payload": {"command": ["echo", "hi"]}}, "shell", ["echo", "hi"]),
        ({"task": "shell", "payload": {"argv": ["echo", "hi"]}}, "shell", ["echo", "hi"]),
        ({"task": "a", "job_type": "a"}, "a", None),
        ({"name": "a", "task": "b"}, "b", None),
        ({"job_id": "a"}, "a", None),
        ({"job_id": "a", "name": "Ä title 👩‍💻"}, "Ä title 👩‍💻", None),
    ],
)
def test_each_way_to_say_what(body: dict[str, object], task: str, command: str | list[str] | None) -> None:
    found = defined(body)
    assert (found.task, found.spec.command) == (task, command)


@pytest.mark.parametrize(
    ("body", "spec"),
    [
        ({"retries": 0}, Spec(retry=RetryPolicy(max_attempts=1))),
        ({"max_retries": 999}, Spec(retry=RetryPolicy(max_attempts=1000))),
        ({"retry": {"max_attempts": 1000}}, Spec(retry=RetryPolicy(max_attempts=1000))),
        ({"retry": {"backoff": "Linear", "base": 5}}, Spec(retry=RetryPolicy(backoff="linear", base=5.0))),
        ({"retry": {"base": "1h"}}, Spec(retry=RetryPolicy(base=3600.0, cap=3600.0))),
        ({"retry": {"base": "1h", "cap": "5m"}}, Spec(retry=RetryPolicy(base=3600.0, cap=300.0))),
        ({"retry": {}, "retries": 1}, Spec(retry=RetryPolicy(max_attempts=2))),
        ({"delivery": "at_most_once"}, Spec(delivery=Delivery.AT_MOST_ONCE, retry=RetryPolicy(max_attempts=1))),
        (
            {"delivery": "AT_MOST_ONCE", "retries": 0},
            Spec(delivery=Delivery.AT_MOST_ONCE, retry=RetryPolicy(max_attempts=1)),
        ),
        ({"misfire": {"policy": "ALL", "cap": 5}}, Spec(misfire=MisfirePolicy("all", None, 5))),
        ({"misfire": {"grace": 90}}, Spec(misfire=MisfirePolicy("once", 90.0))),
        ({"timeout": "250ms"}, Spec(timeout=0.25)),
        ({"labels": {}}, DEFAULT_SPEC),
        ({"description": "two\nlines"}, Spec(description="two\nlines")),
    ],
)
def test_each_way_to_say_how(body: dict[str, object], spec: Spec) -> None:
    assert defined({"task": "noop", **body}).spec == spec


@pytest.mark.parametrize("spec", [DEFAULT_SPEC, Spec(), Spec(timeout=5.0), Spec(command=["a"], labels={"ä": "\n"})])
def test_a_spec_reads_back_from_its_text(spec: Spec) -> None:
    text = spec_to_text(spec)
    assert spec_from_text(text) == spec
    assert (text is None) == (spec == DEFAULT_SPEC)


@pytest.mark.parametrize(
    ("value", "priority"),
    [("low", 0), ("Normal", 1), ("HIGH", 2), ("critical", 3), (0, 0), (3, 3), ("0", 0), ("3", 3)],
)
def test_a_priority_is_a_word_or_a_number(value: str | int, priority: int) -> None:
    assert parse_priority(value) == priority


@pytest.mark.parametrize("value", ["", "urgent", "4", "-1", "²", "9" * 5000, -1, 4, 10**4000, True, False, "1.0"])
def test_any_other_priority_is_refused(value: str | int) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_priority(value)
    assert refused.value.field == "priority" and len(refused.value.detail) < 120


def test_overlap_takes_four_rules() -> None:
    for rule in Overlap:
        assert defined({"task": "noop", "overlap": rule.word.title()}).overlap is rule
    assert [rule.word for rule in Overlap] == ["skip", "allow", "queue", "cancel_previous"]


@pytest.mark.parametrize(
    ("payload", "stored"),
    [
        (b"null", None),
        (b"{}", "{}"),
        (b'  {"a": [1, 2]}  ', '{"a": [1, 2]}'),
        (rb'{"a": "\u0000\n"}', r'{"a": "\u0000\n"}'),
        ('{"ä": "😀"}'.encode(), '{"ä": "😀"}'),
    ],
)
def test_a_payload_is_kept_as_it_was_sent(payload: bytes, stored: str | None) -> None:
    assert defined(b'{"task": "noop", "payload": ' + payload + b"}").payload == stored


@pytest.mark.parametrize("character", ["a", "ä", "€", "😀"])
def test_a_payload_may_have_256_kib_and_no_byte_more(character: str) -> None:
    room = 256 * 1024 - len('{"a":""}')
    width = len(character.encode())
    body = character * (room // width) + "x" * (room % width)
    assert defined(f'{{"task": "noop", "payload": {{"a":"{body}"}}}}').payload is not None
    with pytest.raises(Exception, match="payload has 262145 bytes") as refused:
        defined(f'{{"task": "noop", "payload": {{"a":"{body}x"}}}}')
    assert getattr(refused.value, "code", None) == "payload_too_large"


NUL_IN_JSON = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # an escaped backslash before u0000 is allowed
texts = st.text(st.characters() | st.characters(categories=["Cs", "Cc", "Cf"]), min_size=1, max_size=12)


@given(
    texts, st.sampled_from(["task", "name", "queue", "owner", "description", "idempotency_key", "command", "job_id"])
)
def test_a_text_is_refused_or_can_be_stored(text: str, field: str) -> None:
    fields: dict[str, Any] = {"task": "shell" if field == "command" else "noop", field: text}
    try:
        found = define(JobRequest(**fields), NOW)
    except InvalidInput as refused:
        assert refused.field == field
        refused.detail.encode()
        return
    spec = spec_to_text(found.spec) or ""
    assert not NUL_IN_JSON.search(spec)
    stored = [found.task, found.name or "", found.queue, found.job_id or "", found.idempotency_key or ""]
    for part in [*stored, spec, str(found.spec.command)]:
        assert "\x00" not in part
        part.encode()


@given(texts, texts)
def test_a_label_is_refused_or_can_be_stored(label: str, value: str) -> None:
    try:
        found = define(JobRequest(task="noop", labels={label: value}), NOW)
    except InvalidInput as refused:
        assert refused.field == "labels"
        return
    text = spec_to_text(found.spec)
    assert text is not None and not NUL_IN_JSON.search(text)


@given(st.datetimes(datetime(1900, 1, 2), datetime(9998, 12, 30)), st.sampled_from(["Z", "+01:00", "-11:30", "+00:00"]))
def test_a_time_with_its_zone_is_read_to_the_microsecond(wall: datetime, offset: str) -> None:
    text = wall.isoformat() + offset
    found = parse_time(text, "schedule_time")
    assert found == datetime.fromisoformat(text)
    assert found.tzinfo is UTC


def test_a_local_time_that_does_not_exist_or_comes_twice_is_read_as_the_first() -> None:
    for text, expected in (("2026-03-29T02:30:00", "01:30"), ("2026-10-25T02:30:00", "00:30")):
        assert parse_time(text, "at", "Europe/Berlin").strftime("%H:%M") == expected


@pytest.mark.parametrize("text", ["2026-12-31T23:59:59", "2026-12-31", "20261231T2359"])
def test_a_time_without_a_zone_is_refused_with_a_hint_that_works(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_time(text, "schedule_time")
    assert (refused.value.code, refused.value.field) == ("missing_timezone", "schedule_time")
    assert refused.value.hint is not None
    for example in refused.value.hint.split('"')[1::2]:
        assert parse_time(example, "schedule_time")
