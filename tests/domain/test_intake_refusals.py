"""Invalid input is refused with a stable code and the name of the field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainspring.domain.errors import InvalidInput, MainspringError, NotSupportedYet, PayloadTooLarge
from tests.domain.requests_as_sent import defined

LONG = "x" * 10_001

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    # what
    ({}, "invalid_input", "task"),
    ({"payload": {"a": 1}}, "invalid_input", "task"),
    ({"task": "a", "job_type": "b"}, "invalid_input", "job_type"),
    ({"task": "a", "command": "echo"}, "invalid_input", "command"),
    ({"command": ""}, "invalid_input", "command"),
    ({"command": " \n"}, "invalid_input", "command"),
    ({"command": []}, "invalid_input", "command"),
    ({"command": [""]}, "invalid_input", "command"),
    ({"command": "echo \x00"}, "invalid_input", "command"),
    ({"command": ["echo", "\x00"]}, "invalid_input", "command"),
    ({"command": "x" * 200_000}, "invalid_input", "command"),
    ({"task": "shell"}, "invalid_input", "command"),
    ({"task": "shell", "payload": {"a": 1}}, "invalid_input", "command"),
    ({"task": "shell", "payload": {"command": 5}}, "invalid_input", "payload.command"),
    ({"task": "shell", "payload": {"command": ["a", 5]}}, "invalid_input", "payload.command"),
    ({"task": "shell", "payload": {"command": " "}}, "invalid_input", "payload.command"),
    ({"task": "shell", "payload": {"argv": "echo"}}, "invalid_input", "payload.argv"),
    ({"task": "shell", "payload": {"argv": []}}, "invalid_input", "payload.argv"),
    # text
    ({"task": "a\x00"}, "invalid_input", "task"),
    ({"job_type": "a\x1b[31m"}, "invalid_input", "job_type"),
    ({"name": "a\x00"}, "invalid_input", "name"),
    ({"task": "a", "name": "a\nb"}, "invalid_input", "name"),
    ({"task": "a", "name": "a\x9b"}, "invalid_input", "name"),
    ({"task": "a", "queue": "a\x00"}, "invalid_input", "queue"),
    ({"task": "a", "queue": "a\x7f"}, "invalid_input", "queue"),
    ({"task": "a", "job_id": "a\n"}, "invalid_input", "job_id"),
    ({"task": "a", "job_id": "."}, "invalid_input", "job_id"),
    ({"task": "a", "job_id": ".."}, "invalid_input", "job_id"),
    ({"task": "a", "idempotency_key": "a\x00"}, "invalid_input", "idempotency_key"),
    ({"task": "a", "owner": "a\r"}, "invalid_input", "owner"),
    ({"task": "a", "owner": LONG}, "invalid_input", "owner"),
    ({"task": "a", "description": "a\x00"}, "invalid_input", "description"),
    ({"task": "a", "description": LONG}, "invalid_input", "description"),
    ({"task": "a", "labels": {"a": "\x00"}}, "invalid_input", "labels"),
    ({"task": "a", "labels": {"a\x00": "b"}}, "invalid_input", "labels"),
    ({"task": "a", "labels": {"": "b"}}, "invalid_input", "labels"),
    ({"task": "a", "labels": {"a": LONG}}, "invalid_input", "labels"),
    ({"task": "a", "labels": {str(n): "" for n in range(65)}}, "invalid_input", "labels"),
    # payload
    ({"task": "a", "payload": [1]}, "invalid_input", "payload"),
    ({"task": "a", "payload": "text"}, "invalid_input", "payload"),
    ({"task": "a", "payload": 5}, "invalid_input", "payload"),
    ({"task": "a", "payload": True}, "invalid_input", "payload"),
    ({"task": "a", "payload": {"a": "x" * 262_144}}, "payload_too_large", "payload"),
    ({"command": "true", "payload": {"a": "x" * 122_880}}, "payload_too_large", "payload"),
    ({"task": "shell", "payload": {"command": "true", "a": "x" * 122_880}}, "payload_too_large", "payload"),
    # when
    ({"task": "a", "schedule_time": "tomorrow"}, "invalid_time", "schedule_time"),
    ({"task": "a", "schedule_time": ""}, "invalid_time", "schedule_time"),
    ({"task": "a", "schedule_time": "2026-02-30T00:00:00Z"}, "invalid_time", "schedule_time"),
    ({"task": "a", "schedule_time": "2026-12-31T23:59:60Z"}, "invalid_time", "schedule_time"),
    ({"task": "a", "schedule_time": "1790000000"}, "invalid_time", "schedule_time"),
    ({"task": "a", "schedule_time": "9999-12-31T23:59:59.999999Z"}, "invalid_time", "schedule_time"),
    ({"task": "a", "schedule_time": "0001-01-01T00:00:00+01:00"}, "invalid_time", "schedule_time"),
    ({"task": "a", "schedule_time": "x" * 5000}, "invalid_time", "schedule_time"),
    ({"task": "a", "schedule_time": "2026-12-31T23:59:59"}, "missing_timezone", "schedule_time"),
    ({"task": "a", "schedule": {"at": "2026-12-31T23:59:59"}}, "missing_timezone", "schedule.at"),
    ({"task": "a", "schedule": {"at": "soon"}}, "invalid_time", "schedule.at"),
    ({"task": "a", "schedule": {"every": 60, "anchor": "2026-12-31T00:00"}}, "missing_timezone", "schedule.anchor"),
    ({"task": "a", "schedule": {"cron": "@daily", "anchor": "2026-12-31T00:00Z"}}, "invalid_input", "schedule.anchor"),
    ({"task": "a", "schedule": "0 0 * * *", "timezone": "Mars/Olympus"}, "unknown_timezone", "timezone"),
    ({"task": "a", "schedule": {"cron": "@daily", "timezone": "Mars"}}, "unknown_timezone", "schedule.timezone"),
    ({"task": "a", "schedule": {"cron": "@daily", "timezone": ""}}, "unknown_timezone", "schedule.timezone"),
    ({"task": "a", "schedule_time": "2026-12-31T23:59:59", "timezone": "Mars"}, "unknown_timezone", "timezone"),
    ({"task": "a", "schedule_time": "2026-12-31T23:59:59Z", "timezone": "Mars"}, "unknown_timezone", "timezone"),
    ({"task": "a", "schedule_time": "2026-12-31T23:59:59Z", "timezone": "Asia/Tokyo"}, "invalid_input", "timezone"),
    ({"task": "a", "schedule": {"cron": "@daily", "timezone": "UTC"}, "timezone": "Asia/Tokyo"},
     "invalid_input", "timezone"),
    ({"task": "a", "timezone": "Europe/Berlin"}, "invalid_input", "timezone"),
    ({"task": "a", "schedule": "now", "timezone": "Europe/Berlin"}, "invalid_input", "timezone"),
    ({"task": "a", "schedule": "manual", "timezone": "Europe/Berlin"}, "invalid_input", "timezone"),
    ({"task": "a", "schedule": {"every": "10m", "timezone": "UTC"}}, "invalid_input", "schedule.timezone"),
    ({"task": "a", "schedule": {}}, "invalid_input", "schedule"),
    ({"task": "a", "schedule": {"at": "2026-12-31T00:00Z", "every": "1h"}}, "invalid_input", "schedule"),
    ({"task": "a", "schedule": {"cron": "@daily", "every": "1h"}}, "invalid_input", "schedule"),
    ({"task": "a", "schedule": "@daily", "cron_expression": "@daily"}, "invalid_input", "cron_expression"),
    ({"task": "a", "schedule": "@daily", "schedule_time": "2026-12-31T00:00Z"}, "invalid_input", "schedule_time"),
    ({"task": "a", "schedule": {"every": "999ms"}}, "invalid_duration", "schedule.every"),
    ({"task": "a", "schedule": {"every": 0}}, "invalid_duration", "schedule.every"),
    ({"task": "a", "schedule": {"every": "often"}}, "invalid_duration", "schedule.every"),
    ({"task": "a", "schedule": {"every": 1e300}}, "invalid_duration", "schedule.every"),
    ({"task": "a", "schedule": ""}, "invalid_cron", "schedule"),
    ({"task": "a", "schedule": "every day"}, "invalid_cron", "schedule"),
    ({"task": "a", "schedule": "@fortnightly"}, "invalid_cron", "schedule"),
    ({"task": "a", "schedule": {"cron": "61 * * * *"}}, "invalid_cron", "schedule.cron"),
    ({"task": "a", "cron_expression": "0 0 * *"}, "invalid_cron", "cron_expression"),
    ({"task": "a", "cron_expression": "0 0 30 2 *"}, "cron_never_fires", "cron_expression"),
    ({"task": "a", "schedule_type": "WEEKLY"}, "invalid_input", "schedule_type"),
    ({"task": "a", "schedule_type": ""}, "invalid_input", "schedule_type"),
    ({"task": "a", "schedule_type": "FUTURE"}, "invalid_input", "schedule_time"),
    ({"task": "a", "schedule_type": "CRON"}, "invalid_input", "cron_expression"),
    ({"task": "a", "schedule_type": "INTERVAL"}, "invalid_input", "schedule"),
    ({"task": "a", "schedule_type": "CRON", "schedule": {"every": "1h"}}, "invalid_input", "schedule_type"),
    ({"task": "a", "schedule_type": "IMMEDIATE", "schedule": "@daily"}, "invalid_input", "schedule_type"),
    # how
    ({"task": "a", "priority": "urgent"}, "invalid_input", "priority"),
    ({"task": "a", "priority": "²"}, "invalid_input", "priority"),
    ({"task": "a", "priority": 4}, "invalid_input", "priority"),
    ({"task": "a", "priority": -1}, "invalid_input", "priority"),
    ({"task": "a", "timeout": "soon"}, "invalid_duration", "timeout"),
    ({"task": "a", "timeout": 0}, "invalid_duration", "timeout"),
    ({"task": "a", "timeout": -5}, "invalid_duration", "timeout"),
    ({"task": "a", "timeout": "31d"}, "invalid_duration", "timeout"),
    ({"task": "a", "retries": -1}, "invalid_input", "retries"),
    ({"task": "a", "retries": 1000}, "invalid_input", "retries"),
    ({"task": "a", "max_retries": -1}, "invalid_input", "max_retries"),
    ({"task": "a", "retries": 1, "max_retries": 1}, "invalid_input", "max_retries"),
    ({"task": "a", "max_retries": 1, "retry": {"max_attempts": 2}}, "invalid_input", "retry.max_attempts"),
    ({"task": "a", "retry": {"max_attempts": 0}}, "invalid_input", "retry.max_attempts"),
    ({"task": "a", "retry": {"max_attempts": 1001}}, "invalid_input", "retry.max_attempts"),
    ({"task": "a", "retry": {"backoff": "quadratic"}}, "invalid_input", "retry.backoff"),
    ({"task": "a", "retry": {"backoff": ""}}, "invalid_input", "retry.backoff"),
    ({"task": "a", "retry": {"base": "x"}}, "invalid_duration", "retry.base"),
    ({"task": "a", "retry": {"cap": -1}}, "invalid_duration", "retry.cap"),
    ({"task": "a", "retry": {"jitter": 1.5}}, "invalid_input", "retry.jitter"),
    ({"task": "a", "retry": {"jitter": -0.1}}, "invalid_input", "retry.jitter"),
    ({"task": "a", "misfire": {"policy": "maybe"}}, "invalid_input", "misfire.policy"),
    ({"task": "a", "misfire": {"grace": "x"}}, "invalid_duration", "misfire.grace"),
    ({"task": "a", "misfire": {"cap": 0}}, "invalid_input", "misfire.cap"),
    ({"task": "a", "misfire": {"cap": 1001}}, "invalid_input", "misfire.cap"),
    ({"task": "a", "overlap": "maybe"}, "invalid_input", "overlap"),
    ({"task": "a", "delivery": "exactly_once"}, "invalid_input", "delivery"),
    ({"task": "a", "delivery": "at_most_once", "retries": 1}, "invalid_input", "retries"),
    ({"task": "a", "delivery": "at_most_once", "retry": {"max_attempts": 2}}, "invalid_input", "retry.max_attempts"),
    # not yet
    ({"task": "a", "schedule": {"rrule": "FREQ=SECONDLY"}}, "invalid_rrule", "schedule.rrule"),
    ({"task": "a", "schedule": {"after": []}}, "invalid_input", "schedule.after"),
    ({"task": "a", "schedule": {"after": ["b", "b"]}}, "invalid_input", "schedule.after[1]"),
    ({"task": "a", "schedule": {"after": ["b"], "max_runs": 3}}, "invalid_input", "schedule.max_runs"),
    ({"task": "a", "schedule": {"after": ["b"], "every": 5}}, "invalid_input", "schedule"),
    ({"task": "a", "depends_on": [str(number) for number in range(101)]}, "invalid_input", "depends_on"),
    ({"task": "a", "schedule": {"at": "2030-01-01T00:00:00Z", "calendar": "de"}}, "invalid_input", "schedule.calendar"),
    ({"task": "a", "schedule": {"every": "1h", "calendar": "d e"}}, "invalid_input", "schedule.calendar"),
    ({"task": "a", "schedule": {"every": "1h", "outside": "next"}}, "invalid_input", "schedule.outside"),
    (
        {"task": "a", "schedule": {"every": "1h", "calendar": "de", "outside": "later"}},
        "invalid_input",
        "schedule.outside",
    ),
    ({"task": "a", "schedule": {"every": "1h", "jitter": "61m"}}, "invalid_input", "schedule.jitter"),
    # H, and what happens when clocks are moved
    ({"task": "a", "schedule": "H(5-2) * * * *"}, "invalid_cron", "schedule"),
    ({"task": "a", "cron": "H(0-99) * * * *"}, "invalid_cron", "cron"),
    ({"task": "a", "schedule": {"cron": "H/0 * * * *"}}, "invalid_cron", "schedule.cron"),
    ({"task": "a", "schedule": {"cron": "0 0 31 H *"}}, "cron_never_fires", "schedule.cron"),
    ({"task": "a", "schedule": {"cron": "@daily", "dst": {"gap": "skip"}}}, "invalid_input", "schedule.dst"),
    ({"task": "a", "schedule": {"cron": "@daily", "timezone": "Etc/UTC", "dst": {}}}, "invalid_input", "schedule.dst"),
    ({"task": "a", "timezone": "Europe/Berlin", "schedule": {"cron": "@daily", "dst": {"gap": "first"}}},
     "invalid_input", "schedule.dst.gap"),
    ({"task": "a", "timezone": "Europe/Berlin", "schedule": {"cron": "@daily", "dst": {"overlap": "skip"}}},
     "invalid_input", "schedule.dst.overlap"),
    ({"task": "a", "schedule": {"every": "1h", "dst": {"gap": "skip"}}}, "invalid_input", "schedule.dst"),
    ({"task": "a", "schedule": {"at": "2026-12-31T00:00Z", "dst": {"gap": "skip"}}}, "invalid_input", "schedule.dst"),
    ({"task": "a", "timezone": "Europe/Berlin",
      "schedule": {"cron": "30 2 25-31 3 */7", "dst": {"gap": "skip"}}}, "cron_never_fires", "schedule.cron"),
    ({"task": "a", "overlap": "wait"}, "invalid_input", "overlap"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "code", "field"), REFUSED, ids=lambda value: str(value)[:60])
def test_bad_input_names_its_code_and_its_field(body: dict[str, Any], code: str, field: str) -> None:
    with pytest.raises(MainspringError) as refused:
        defined(body)
    error = refused.value
    assert (error.code, error.field) == (code, field)
    assert 0 < len(error.detail) < 250, "the detail is a sentence, not the input"
    kinds = {"not_supported_yet": NotSupportedYet, "payload_too_large": PayloadTooLarge}
    assert type(error) is kinds.get(code, InvalidInput)
    problem = error.as_field_problem(3)
    assert (problem.field, problem.code, problem.index) == (f"jobs[3].{field}", code, 3)


HUGE = {
    "priority": ("9" * 30, "invalid_input", "priority"),
    "retries": ("9" * 30, "invalid_input", "retries"),
    "timeout": ("9" * 400, "invalid_duration", "timeout"),
    "retry": ('{"max_attempts": ' + "9" * 400 + "}", "invalid_input", "retry.max_attempts"),
    "misfire": ('{"cap": ' + "9" * 400 + "}", "invalid_input", "misfire.cap"),
    "schedule": ('{"every": ' + "9" * 400 + "}", "invalid_duration", "schedule.every"),
}


@pytest.mark.parametrize("name", HUGE)
def test_a_huge_number_is_out_of_range_like_any_other(name: str) -> None:
    number, code, field = HUGE[name]
    with pytest.raises(InvalidInput) as refused:
        defined(f'{{"task": "a", "{name}": {number}}}')
    assert (refused.value.code, refused.value.field) == (code, field)
    assert len(refused.value.detail) < 120


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ('{"task": 5}', "$.task"),
        ('{"task": ""}', "$.task"),
        ('{"name": "' + "x" * 201 + '"}', "$.name"),
        ('{"job_id": "a b"}', "$.job_id"),
        ('{"job_id": "a/b"}', "$.job_id"),
        ('{"priority": true}', "$.priority"),
        ('{"priority": 1.5}', "$.priority"),
        ('{"timeout": true}', "$.timeout"),
        ('{"timeout": 1e400}', "$.timeout"),
        ('{"retries": "3"}', "$.retries"),
        ('{"retries": 1.5}', "$.retries"),
        ('{"retry": {"jitter": "much"}}', "$.retry.jitter"),
        ('{"command": {"a": 1}}', "$.command"),
        ('{"labels": {"a": 1}}', "$.labels"),
        ('{"schedule": 5}', "$.schedule"),
        ('{"schedule": {"cron": 5}}', "$.schedule.cron"),
        ('{"taks": "a"}', "taks"),
        ('{"schedule": {"crone": "@daily"}}', "$.schedule"),
    ],
)
def test_what_the_wire_refuses_names_its_path(body: str, path: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=path.replace("$", r"\$")):
        defined(body)


@pytest.mark.parametrize(
    "body",
    [
        rb'{"name": "\ud800"}',
        rb'{"name": "a\udc00b"}',
        rb'{"task": "a", "labels": {"a": "\ud800"}}',
        rb'{"task": "a", "payload": {"a": "\ud800"}}',
        rb'{"task": "a", "payload": {"a": "\ud800 \udc00"}}',
        b'{"task": "a", "payload": {"a": "\n"}}',
        b'{"task": "a", "payload": {"a": NaN}}',
        b'{"task": "a", "payload": {"a": 1,}}',
        b'{"task": "a", "payload": {"a": 1}',
        b'{"task": "a"',
        b"",
        b"{}{}",
    ],
)
def test_half_a_surrogate_pair_and_broken_json_never_get_in(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        defined(body)


@pytest.mark.parametrize("raw", [b"\xff", b"\xed\xa0\x80", b"\xc0\x80"])
def test_a_payload_that_is_not_utf8_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidInput) as refused:
        defined(b'{"task": "a", "payload": {"a": "' + raw + b'"}}')
    assert (refused.value.code, refused.value.field) == ("invalid_json", "payload")


def test_a_shell_payload_that_cannot_be_read_is_refused_and_no_accident() -> None:
    with pytest.raises(InvalidInput) as refused:
        defined('{"task": "shell", "payload": {"command": 1e999}}')
    assert refused.value.field == "payload"
