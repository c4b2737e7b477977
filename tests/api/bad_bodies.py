"""Bodies that must be refused: what is sent, and the status, code, field and part of the hint of the answer."""

from __future__ import annotations

from typing import Any

KIB_256 = 256 * 1024
Case = tuple[Any, int, str, str | None, str | None]
LONG_NAME = b'"%s"' % (b"x" * 201)
DEEP = b"[" * 100_000 + b"]" * 100_000

NOT_JSON: list[Case] = [
    (b"", 400, "invalid_json", "$", None),
    (b"  \n", 400, "invalid_json", "$", None),
    (b"hello", 400, "invalid_json", "$", None),
    (b"{", 400, "invalid_json", "$", None),
    (b'{"task": "noop"', 400, "invalid_json", "$", None),
    (b'{"task": "noop",}', 400, "invalid_json", "$", None),
    (b"{'task': 'noop'}", 400, "invalid_json", "$", None),
    (b'{"task": "noop"} {}', 400, "invalid_json", "$", None),
    (b'{"task": "noop", "payload": {"a": NaN}}', 400, "invalid_json", "$", None),
    (b'\xef\xbb\xbf{"task": "noop"}', 400, "invalid_json", "$", None),
    (b'{"task": "\xff"}', 400, "invalid_json", "$", None),
    (b'{"task": "noop", "owner": "\xed\xa0\x80"}', 400, "invalid_json", "$", None),
    (b'{"task": "noop", "payload": {"a": "\xff"}}', 400, "invalid_json", "payload", None),
    (b'{"\xff": 1}', 400, "invalid_json", "$", None),
    ("{'task': 'noop'}".encode("utf-16"), 400, "invalid_json", "$", None),
    (b"[]", 422, "invalid_input", "$", None),
    (b'[{"task": "noop"}]', 422, "invalid_input", "$", None),
    (b'"noop"', 422, "invalid_input", "$", None),
    (b"5", 422, "invalid_input", "$", None),
    (b"null", 422, "invalid_input", "$", None),
    (b"true", 422, "invalid_input", "$", None),
]
UNKNOWN: list[Case] = [
    ({"tsk": "noop"}, 422, "unknown_field", "tsk", "'task'"),
    ({"task": "noop", "priorty": "high"}, 422, "unknown_field", "priorty", "'priority'"),
    ({"task": "noop", "max_retrys": 3}, 422, "unknown_field", "max_retrys", "'max_retries'"),
    ({"task": "noop", "cron": "@daily"}, 422, "unknown_field", "cron", "'schedule.cron'"),
    ({"task": "noop", "every": "10m"}, 422, "unknown_field", "every", "'schedule.every'"),
    ({"task": "noop", "max_attempts": 3}, 422, "unknown_field", "max_attempts", "'retry.max_attempts'"),
    ({"task": "noop", "Task": "noop"}, 422, "unknown_field", "Task", "'task'"),
    ({"task": "noop", "zzz": 1}, 422, "unknown_field", "zzz", "known are: "),
    ({"task": "noop", "": 1}, 422, "unknown_field", "", "known are: "),
    ({"task": "noop", "schedule": {"crn": "@daily"}}, 422, "unknown_field", "schedule.crn", "'cron'"),
    ({"task": "noop", "schedule": {"evry": 5}}, 422, "unknown_field", "schedule.evry", "'every'"),
    ({"task": "noop", "retry": {"max_atempts": 3}}, 422, "unknown_field", "retry.max_atempts", "'max_attempts'"),
    ({"task": "noop", "retry": {"retries": 3}}, 422, "unknown_field", "retry.retries", "known are: max_attempts"),
    ({"task": "noop", "misfire": {"police": "all"}}, 422, "unknown_field", "misfire.police", "'policy'"),
    ({"task": "noop", "misfire": {"graze": "1h"}}, 422, "unknown_field", "misfire.graze", "'grace'"),
    ({"task": "noop", "x" * 100_000: 1}, 422, "unknown_field", "x" * 100, "known are: "),
]
WRONG_TYPES: list[Case] = [
    (b'{"task": "noop", "%s": %s}' % (field.encode(), value), 422, "invalid_input", path, None)
    for field, values, path in (
        ("job_id", (b"5", b"true", b"[]", b"{}", b'"a b"', b'"a/b"', b'""', LONG_NAME, b'"\xc3\xa4"'), "job_id"),
        ("name", (b"5", b'""', LONG_NAME, b"[]", b'"a\\u0000"', b'"a\\nb"'), "name"),
        ("job_type", (b"5", b'""', b"{}"), "job_type"),
        ("payload", (b"5", b'"x"', b"[]", b"true", b"1.5"), "payload"),
        ("schedule", (b"5", b"[]", b"true"), "schedule"),
        ("schedule_type", (b"5", b"{}"), "schedule_type"),
        ("schedule_time", (b"1790000000", b"{}"), "schedule_time"),
        ("cron_expression", (b"5", b"[]"), "cron_expression"),
        ("queue", (b"5", b'""', b'"a\\u0000"', b'"a\\u0007"'), "queue"),
        ("priority", (b"true", b"1.5", b"[]", b"4", b"-1", b"99999999999999999999", b'"urgent"'), "priority"),
        ("timeout", (b"true", b"[]", b"{}"), "timeout"),
        ("retry", (b"5", b'"x"', b"[]"), "retry"),
        ("retries", (b'"3"', b"1.5", b"true", b"-1", b"1000", b"9" * 400), "retries"),
        ("max_retries", (b'"3"', b"-1", b"99999999999999999999"), "max_retries"),
        ("misfire", (b"5", b'"once"'), "misfire"),
        ("overlap", (b"5", b'"maybe"'), "overlap"),
        ("delivery", (b"5", b'"exactly_once"'), "delivery"),
        ("idempotency_key", (b"5", b'""', LONG_NAME, b'"a\\u0000"'), "idempotency_key"),
        ("owner", (b"5", b"[]", b'"a\\u0000"'), "owner"),
        ("description", (b"5", b'"a\\u0000"'), "description"),
        ("labels", (b"5", b"[]", b'{"a\\u0000": "b"}', b'{"a": "\\u0000"}', b'{"": "b"}'), "labels"),
        ("labels", (b'{"a": 1}', b'{"a": null}'), "labels[...]"),
    )
    for value in values
]  # fmt: skip
NESTED: list[Case] = [
    ({"task": "noop", "schedule": {"cron": 5}}, 422, "invalid_input", "schedule.cron", None),
    ({"task": "noop", "schedule": {"every": []}}, 422, "invalid_input", "schedule.every", None),
    ({"task": "noop", "schedule": {"after": "x"}}, 422, "invalid_input", "schedule.after", None),
    ({"task": "noop", "schedule": {}}, 422, "invalid_input", "schedule", None),
    ({"task": "noop", "schedule": {"at": "2099-01-01T00:00:00Z", "every": 5}}, 422, "invalid_input", "schedule", None),
    ({"task": "noop", "retry": {"max_attempts": "3"}}, 422, "invalid_input", "retry.max_attempts", None),
    ({"task": "noop", "retry": {"max_attempts": 0}}, 422, "invalid_input", "retry.max_attempts", None),
    ({"task": "noop", "retry": {"max_attempts": 10**30}}, 422, "invalid_input", "retry.max_attempts", None),
    ({"task": "noop", "retry": {"backoff": "quick"}}, 422, "invalid_input", "retry.backoff", None),
    ({"task": "noop", "retry": {"jitter": 2}}, 422, "invalid_input", "retry.jitter", None),
    ({"task": "noop", "retry": {"jitter": "x"}}, 422, "invalid_input", "retry.jitter", None),
    ({"task": "noop", "retry": {"base": -1}}, 422, "invalid_duration", "retry.base", "90s"),
    ({"task": "noop", "retry": {"cap": "soon"}}, 422, "invalid_duration", "retry.cap", "90s"),
    ({"task": "noop", "misfire": {"policy": "perhaps"}}, 422, "invalid_input", "misfire.policy", None),
    ({"task": "noop", "misfire": {"cap": 0}}, 422, "invalid_input", "misfire.cap", None),
    ({"task": "noop", "misfire": {"grace": -5}}, 422, "invalid_duration", "misfire.grace", "90s"),
]
MEANING: list[Case] = [
    ({}, 422, "invalid_input", "task", None),
    ({"payload": {}}, 422, "invalid_input", "task", None),
    ({"task": "a", "job_type": "b"}, 422, "invalid_input", "job_type", "give one"),
    ({"task": "a", "command": "echo"}, 422, "invalid_input", "command", "leave out"),
    ({"command": " "}, 422, "invalid_input", "command", None),
    ({"command": "echo \0"}, 422, "invalid_input", "command", None),
    ({"command": ["echo", "\0"]}, 422, "invalid_input", "command", None),
    ({"command": "x" * 200_000}, 422, "invalid_input", "command", "script"),
    ({"task": "shell"}, 422, "invalid_input", "command", None),
    ({"task": "noop", "timeout": 0}, 422, "invalid_duration", "timeout", "90s"),
    ({"task": "noop", "timeout": -1}, 422, "invalid_duration", "timeout", "90s"),
    ({"task": "noop", "timeout": 10**400}, 422, "invalid_duration", "timeout", "90s"),
    ({"task": "noop", "timeout": "1 fortnight"}, 422, "invalid_duration", "timeout", "90s"),
    ({"task": "noop", "schedule": {"every": 0}}, 422, "invalid_duration", "schedule.every", "90s"),
    ({"task": "noop", "cron_expression": "0 0 30 2 *"}, 422, "cron_never_fires", "cron_expression", "day"),
    ({"task": "noop", "schedule": "0 0 31 4 *"}, 422, "cron_never_fires", "schedule", "day"),
    ({"task": "noop", "schedule": {"cron": "0 0 30 2 *"}}, 422, "cron_never_fires", "schedule.cron", "day"),
    ({"task": "noop", "schedule": "61 * * * *"}, 422, "invalid_cron", "schedule", "@daily"),
    ({"task": "noop", "schedule": "tomorrow"}, 422, "invalid_cron", "schedule", "@daily"),
    ({"task": "noop", "schedule": "@daily", "timezone": "Mars/X"}, 422, "unknown_timezone", "timezone", "Europe"),
    ({"task": "noop", "schedule": "@daily", "timezone": "europe/berlin"}, 422, "unknown_timezone", "timezone",
     "'Europe/Berlin'"),
    ({"task": "noop", "schedule_time": "2026-12-31"}, 422, "missing_timezone", "schedule_time", "Z"),
    ({"task": "noop", "schedule_time": "soon"}, 422, "invalid_time", "schedule_time", "2026"),
    ({"task": "noop", "schedule": "@daily", "schedule_time": "2026-12-31T00:00Z"}, 422, "invalid_input",
     "schedule_time", "one of them"),
    ({"task": "noop", "schedule_type": "WEEKLY"}, 422, "invalid_input", "schedule_type", None),
    ({"task": "noop", "schedule_type": "CRON"}, 422, "invalid_input", "cron_expression", None),
    ({"task": "noop", "retries": 1, "max_retries": 1}, 422, "invalid_input", "max_retries", "one of them"),
    ({"task": "noop", "delivery": "at_most_once", "retries": 1}, 422, "invalid_input", "retries", "leave it out"),
    ({"task": "noop", "labels": {f"{n}": "" for n in range(65)}}, 422, "invalid_input", "labels", None),
    ({"task": "noop", "owner": "x" * 10_001}, 422, "invalid_input", "owner", None),
    *(
        ({"task": "noop", field: ["x"]}, 422, "not_supported_yet", field, "leave it out")
        for field in ("depends_on", "dependencies", "notify", "concurrency", "rate_limit", "circuit_breaker")
    ),
    ({"task": "noop", "schedule": {"rrule": "FREQ=DAILY"}}, 422, "not_supported_yet", "schedule.rrule", "leave"),
    ({"task": "noop", "schedule": {"after": ["a"]}}, 422, "not_supported_yet", "schedule.after", "leave"),
    ({"task": "noop", "schedule": {"every": 5, "calendar": "de"}}, 422, "not_supported_yet", "schedule.calendar",
     "leave"),
    ({"task": "noop", "schedule": {"every": 5, "jitter": "1s"}}, 422, "not_supported_yet", "schedule.jitter", "leave"),
    ({"task": "noop", "schedule": "H * * * *"}, 422, "not_supported_yet", "schedule", None),
    ({"task": "noop", "overlap": "cancel_previous"}, 422, "not_supported_yet", "overlap", "skip or allow"),
]  # fmt: skip
STRANGE: list[Case] = [
    # Half a surrogate pair, wherever it stands.
    *(
        (b'{"task": "noop", %s}' % part, 400, "invalid_json", "$", None)
        for part in (
            rb'"name": "\ud800"', rb'"owner": "a\udc00b"', rb'"labels": {"a": "\ud800"}', rb'"labels": {"\ud800": "a"}',
            rb'"payload": {"a": "\ud800"}', rb'"queue": "\ud800\ud800"', rb'"\ud800": 1',
        )
    ),
    (rb'{"command": "echo \ud800"}', 400, "invalid_json", "$", None),
    (rb'{"command": ["echo", "\udfff"]}', 400, "invalid_json", "$", None),
    # Nested deeper than anybody can mean.
    (b'{"task": "noop", "payload": {"a": ' + DEEP + b"}}", 400, "invalid_json", "$", "flatten"),
    (b'{"task": "a", "payload": ' + b'{"a":' * 9_999 + b"1" + b"}" * 9_999 + b"}", 400, "invalid_json", "$", "flatten"),
    (b'{"task": "noop", "notify": ' + DEEP + b"}", 400, "invalid_json", "$", "flatten"),
    (b"[" * 100_000, 422, "invalid_input", "$", None),
    # Larger than is taken.
    (b'{"task": "a", "payload": {"a":"' + b"x" * (KIB_256 - 7) + b'"}}', 413, "payload_too_large", "payload", "store"),
    (b'{"task": "a", "payload": {"a":"' + "é".encode() * 2**17 + b'"}}', 413, "payload_too_large", "payload", "store"),
    (b'{"task": "noop", "payload": {"a":"' + b"x" * (65 * 2**20) + b'"}}', 413, "payload_too_large", "$", "parts"),
]  # fmt: skip
BATCHES: list[Case] = [
    (b"", 400, "invalid_json", "$", None),
    (b"[", 400, "invalid_json", "$", None),
    (b'[{"task": "noop"}', 400, "invalid_json", "$", None),
    (b"{}", 422, "invalid_input", "$", None),
    (b"5", 422, "invalid_input", "$", None),
    (b'{"jobs": 5}', 422, "invalid_input", "jobs", None),
    (b'{"jobs": {}}', 422, "invalid_input", "jobs", None),
    (b'{"jobs": null}', 422, "invalid_input", "jobs", None),
    (b'{"job": []}', 422, "unknown_field", "job", "'jobs'"),
    (b'{"jobs": [], "task": "noop"}', 422, "unknown_field", "task", "jobs"),
    (b"[5]", 422, "invalid_batch", "jobs[0]", None),
    (b"[null]", 422, "invalid_batch", "jobs[0]", None),
    (b'[{"task": "noop"}, {"task": "\xff"}]', 422, "invalid_batch", "jobs[1]", None),
    (b'[{"task": "noop"}, {"task": "noop", "payload": {"a": "\xff"}}]', 422, "invalid_batch", "jobs[1].payload", None),
    (rb'[{"task": "noop"}, {"task": "\ud800"}]', 400, "invalid_json", "$", None),
    (b'[{"task": "noop", "payload": {"a": ' + DEEP + b"}}]", 400, "invalid_json", "$", "flatten"),
    (b'{"jobs": [{"task": "a"}, {"payload": {"a": ' + DEEP + b"}}]}", 400, "invalid_json", "$", "flatten"),
    ([{"task": "a"}, {"task": "a", "payload": {"a": "x" * KIB_256}}], 422, "invalid_batch", "jobs[1].payload", "store"),
    ([{"task": "a"}, {"schdule": "now"}], 422, "invalid_batch", "jobs[1].schdule", "'schedule'"),
    ([{"task": "a", "retry": {"jiter": 1}}], 422, "invalid_batch", "jobs[0].retry.jiter", "'jitter'"),
    ([{"task": "a", "misfire": {"polcy": 1}}], 422, "invalid_batch", "jobs[0].misfire.polcy", "'policy'"),
]  # fmt: skip
