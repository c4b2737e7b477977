"""Bodies that clients can send, by name. The tests send each of them."""

from __future__ import annotations

from typing import Any

Examples = dict[str, Any]

_RUN_ID = "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11"
_WORKER_ID = "0197a6c0-6b2f-7d44-8e61-90aa12bc34de"

JOBS: Examples = {
    "now": {"task": "resize", "payload": {"image": "cat.png"}},
    "every weekday": {"task": "report", "schedule": {"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin"}},
    "later": {"task": "remind", "delay": "15m", "idempotency_key": "order-17"},
    "a command": {"command": "pg_dump orders > orders.sql", "timeout": "1h", "retries": 2},
    "a web hook": {"http": {"url": "https://example.com/hook", "body": {"order": 17}}, "queue": "hooks"},
}
BATCHES: Examples = {"two": {"jobs": [{"task": "resize", "payload": {"image": name}} for name in ("a.png", "b.png")]}}
CHANGES: Examples = {
    "another time": {"schedule": {"cron": "30 9 * * MON-FRI", "timezone": "Europe/Berlin"}},
    "back to the default": {"timeout": None, "description": "Sent to the board"},
}
REPLAYS: Examples = {"as it was": {}, "with another payload": {"payload": {"image": "dog.png"}}}
RUNS_NOW: Examples = {"as it is": {}, "with another payload": {"payload": {"month": 5}, "idempotency_key": "may"}}
CHOICES: Examples = {
    "of a job": {"job": "nightly-report", "since": "2026-07-01T00:00:00Z"},
    "by error": {"error": "connection refused", "limit": 1000},
}
DECLARATIONS: Examples = {
    "two schedules": {"job_ids": ["nightly-report", "cleanup"], "fingerprint": "9f86d081", "source": "2c26b46b"}
}
FILES: Examples = {
    "a job and its calendar": {
        "owner": "billing",
        "objects": [
            {"kind": "calendars", "id": "business-days", "body": {"weekdays": ["MON", "TUE", "WED", "THU", "FRI"]}},
            {
                "kind": "jobs",
                "id": "invoices",
                "body": {"schedule": {"cron": "0 9 * * *", "calendar": "business-days"}, "command": "echo invoices"},
                "source": "jobs.yaml:4",
            },
        ],
    }
}
EXPORTS: Examples = {"all jobs": {"kind": "jobs"}, "what these files own": {"kind": "jobs", "owner": "billing"}}
GATES: Examples = {
    "limits": {"concurrency": 50, "rate": "100/m", "max_depth": 100_000},
    "a rate with a burst": {"rate": {"rate": "100/m", "burst": 20}},
    "no limit of concurrency": {"concurrency": None},
}
QUOTAS: Examples = {
    "a small tenant": {"stored_jobs": 1000, "submissions_per_second": 50, "concurrent_runs": 20, "tokens": 25},
    "no quota of stored jobs": {"stored_jobs": None},
}
LOG_RETENTION: Examples = {
    "a year for the audit": {"rules": [{"labels": {"audit": "yes"}, "keep_logs": "1y"}]},
    "as the history": {"rules": []},
}
SECRETS: Examples = {
    "for all jobs": {"value": "correct horse battery staple"},
    "for one queue and task": {"value": "correct horse battery staple", "queues": ["reports"], "tasks": ["shell"]},
}
EVENTS: Examples = {
    "with a payload": {"name": "order.paid", "key": "42", "id": "evt-1", "payload": {"total": 120, "country": "DE"}},
    "the name alone": {"name": "cache.stale"},
}
EVENT_BATCHES: Examples = {
    "two events": {"events": [{"name": "order.paid", "key": "42"}, {"name": "order.paid", "key": "43"}]},
}
EVENT_TESTS: Examples = {
    "large orders": {"event": "order.paid", "if": "payload.total > 100", "limit": 50},
}
CALLBACKS: Examples = {"a result": {"paid": True, "receipt": "r-42"}}
CALENDAR_PREVIEWS: Examples = {
    "the days of the stored rules": {"year": 2027},
    "other rules": {"rules": {"weekdays": ["MON", "TUE", "WED", "THU"]}, "year": 2027},
}
SOURCE_TAKES: Examples = {
    "of a partition": {
        "kind": "kafka", "connector": "host-1", "partition": "orders/0", "after": 41,
        "messages": [{"offset": 42, "event": {"name": "order.paid", "key": "42", "payload": {"total": 120}}}],
    },
    "with ids": {
        "kind": "redis", "connector": "host-1", "settled": ["1700000000000-0"],
        "messages": [
            {"id": "1700000000000-1", "job": {"task": "shop.ship", "payload": {"order": 42}}},
            {"id": "1700000000000-2", "dead": {"reason": "the value is no JSON", "value": "{"}},
        ],
    },
    "where it is": {"kind": "kafka", "connector": "host-1", "partition": "orders/0"},
}  # fmt: skip
CALENDARS: Examples = {
    "business days": {
        "timezone": "Europe/Berlin",
        "holidays": {"country": "DE", "subdivision": "BE"},
        "weekdays": ["MON", "TUE", "WED", "THU", "FRI"],
        "dates": ["2026-12-24", {"from": "2026-12-28", "to": "2026-12-31"}],
    },
    "business hours": {"hours": {"from": "09:00", "to": "17:00"}, "description": "in the zone of each job"},
    "no maintenance": {
        "blackouts": [
            {"days": ["SUN"], "from": "02:00", "to": "04:00"},
            {"from": "2026-12-20T00:00", "to": "2026-12-20T06:00"},
        ]
    },
}
VIEWS: Examples = {
    "jobs that fail": {"list": "jobs", "filter": {"health": "failing", "owner": "bi"}},
    "columns": {"list": "runs", "filter": {"w": "24h"}, "columns": ["state", "job", "error"]},
}
CHANNELS: Examples = {
    "a webhook": {"kind": "webhook", "url": "https://example.com/alerts", "secret": "whsec_c2VjcmV0"},
    "chat": {"kind": "slack", "webhook_url": "https://hooks.slack.com/services/T0/B0/x"},
    "mail": {
        "kind": "mail",
        "host": "smtp.example.com",
        "from": "mainspring@example.com",
        "to": ["oncall@example.com"],
        "user": "mainspring",
        "password": "abc",
    },
}
SINKS: Examples = {
    "a webhook": {"kind": "webhook", "url": "https://example.com/changes", "secret": "whsec_c2VjcmV0", "batch": 100},
    "failures to NATS": {
        "kind": "nats",
        "url": "nats://nats.example.com:4222",
        "topic": "mainspring.failed",
        "on": ["run.failed"],
    },
    "a Redis stream": {"kind": "redis", "url": "rediss://redis.example.com:6379/0", "topic": "mainspring"},
}
RULES: Examples = {
    "failures of a queue": {"on": ["failure", "recovered"], "to": ["oncall"], "queue": "billing"},
    "with an escalation": {
        "on": ["tries_exhausted"],
        "to": ["oncall"],
        "labels": {"team": "bi"},
        "escalate": {"after": "30m", "to": ["boss"]},
        "quiet": {"from": "22:00", "to": "07:00", "timezone": "Europe/Berlin"},
    },
    "a rate": {"on": ["success_rate_below"], "to": ["oncall"], "below": 95, "over": "1h"},
}
MUTES: Examples = {"for two hours": {"for": "2h"}}
PREVIEWS: Examples = {
    "a cron line": {"schedule": "0 9 * * MON-FRI", "timezone": "Europe/Berlin", "n": 5},
    "an interval": {"schedule": {"every": "90m"}, "from": "2030-01-01T00:00:00Z"},
}
EXPLANATIONS: Examples = {
    "a cron line": {"schedule": {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}},
    "with mistakes": {"schedule": {"cron": "61 9 * * *", "timezone": "Europe/Berln"}},
}
PAUSES: Examples = {"of the tenant": {"reason": "the database is moved"}, "of all tenants": {"all_tenants": True}}
QUEUE_PAUSES: Examples = {"a reason": {"reason": "the mail service is down"}}
BACKFILLS: Examples = {
    "a month": {"from": "2025-01-01T00:00:00Z", "to": "2025-02-01T00:00:00Z"},
    "four at once, the newest first": {
        "from": "2025-01-01T00:00:00+01:00", "to": "2025-01-08T00:00:00+01:00", "concurrency": 4, "order": "newest",
    },
}  # fmt: skip
BACKFILL_CHANGES: Examples = {"eight at once": {"concurrency": 8}}
BACKFILL_CANCELS: Examples = {"what has not started": {}, "all of it": {"running": True}}
JOBS_ACTS: Examples = {
    "how many": {"verb": "pause", "filter": {"queue": "mails"}, "dry_run": True},
    "all of them": {"verb": "pause", "filter": {"queue": "mails"}, "expected": 3},
    "these two": {"verb": "run_now", "ids": ["nightly-report", "weekly-report"]},
}
RUNS_ACTS: Examples = {
    "how many": {"verb": "retry", "filter": {"status": ["FAILED"], "task": "mail.send"}, "dry_run": True},
    "this one": {"verb": "cancel", "ids": [_RUN_ID]},
}
LETTERS_ACTS: Examples = {
    "how many": {"verb": "discard", "filter": {"error": "timeout"}, "dry_run": True},
    "this one": {"verb": "replay", "ids": [_RUN_ID]},
}
WORKFLOWS: Examples = {
    "every night": {
        "workflow_id": "nightly", "schedule": {"cron": "0 2 * * *", "timezone": "Europe/Berlin"},
        "parameters": {"region": "eu"},
        "steps": [
            {"name": "extract", "task": "etl.extract", "payload": {"region": {"$parameter": "region"}}},
            {"name": "load", "task": "etl.load", "depends_on": ["extract"],
             "payload": {"rows": {"$from": "extract", "path": "rows"}}},
            {"name": "report", "command": "python report.py", "depends_on": ["load"], "rule": "all_done"},
        ],
    },
    "a map by hand": {
        "steps": [
            {"name": "resize", "task": "img.resize", "map": {"over": ["a.png", "b.png"], "max_parallel": 10},
             "payload": {"image": {"$item": ""}}},
        ],
    },
}  # fmt: skip
WORKFLOW_CHANGES: Examples = {
    "another step": {"steps": [{"name": "extract", "command": "python extract.py"}]},
    "another time": {"schedule": "30 2 * * *"},
}
WORKFLOW_RUNS_NOW: Examples = {"as it is": {}, "with a key": {"idempotency_key": "may"}}
WORKFLOW_RERUNS: Examples = {"what failed": {}, "from a step": {"from": "load", "definition": "current"}}
WORKFLOW_CANCELS: Examples = {"a reason": {"reason": "wrong parameters"}}
TENANTS: Examples = {"a tenant": {"name": "billing"}}
LIMITS: Examples = {
    "at most five at once": {"limit": 5},
    "as declared": {"limit": None},
    "end of strict order": {"limit": 5, "order": "priority"},
}
SIGN_INS: Examples = {
    "by a link": {"code": "dGhlIGNvZGUgb2YgdGhlIGxpbms"},
    "by a token": {"token": "ms_the-secret"},
    "by a password": {"mail": "ada@example.com", "password": "correct horse battery staple"},
}
PROVIDER_CHOICES: Examples = {"company": {"provider": "company"}, "confirm": {"provider": "company", "again": True}}
PROVIDER_ANSWERS: Examples = {
    "as it came": {
        "code": "SplxlOBeZQQYbYS6WxSbIA",
        "state": "af0ifjsldkj-of-this-browser",
        "iss": "https://id.example.com",
    }
}
INVITATIONS: Examples = {
    "an operator": {"mail": "ada@example.com", "name": "Ada Lovelace", "role": "operator"},
    "to another tenant": {"mail": "ada@example.com", "name": "Ada Lovelace", "role": "admin", "tenant": "acme"},
}
ROLES_OF_PEOPLE: Examples = {"viewer": {"role": "viewer"}}
CONFIRMATIONS: Examples = {"with a token": {}, "with a session": {"password": "correct horse battery staple"}}
ACCEPTANCES: Examples = {
    "what it is for": {"code": "dGhlIGNvZGUgb2YgdGhlIGxpbms", "preview": True},
    "with a new password": {"code": "dGhlIGNvZGUgb2YgdGhlIGxpbms", "password": "correct horse battery staple"},
}
PASSWORDS: Examples = {
    "a new one": {"password": "correct horse battery staple", "new_password": "seventeen green umbrellas"}
}
TENANT_CHOICES: Examples = {"acme": {"tenant": "acme"}}
PERSONAL_TOKENS: Examples = {
    "for a laptop": {"name": "laptop", "expires_in": "90d", "password": "correct horse battery staple"}
}
TOKENS: Examples = {"for a worker": {"role": "worker", "name": "worker of host 3", "expires_in": "90d"}}
EXCHANGES: Examples = {
    "hello": {
        "worker_id": _WORKER_ID,
        "seq": 1,
        "free": 4,
        "hello": {"name": "host-3", "queues": ["default"], "tasks": ["resize"], "slots": 4},
    }
}
DEATH_NOTICES: Examples = {"a notice": {"worker_id": _WORKER_ID, "exit": "killed by signal 9"}}
SHIPMENTS: Examples = {
    "a line": {
        "worker_id": _WORKER_ID,
        "chunks": [{"run_id": _RUN_ID, "fence": 1, "attempt": 1, "offset": 0, "data": "aGVsbG8K"}],
    }
}
APPROVES: Examples = {
    "without fields": {},
    "with what is asked for": {"fields": {"version": "1.4.2"}, "reason": "tested on staging"},
}
REJECTS: Examples = {"with a reason": {"reason": "not on a Friday"}}
