"""What is said about parameters and headers, by name. Types and bounds come from the handlers."""

from __future__ import annotations

from typing import Any

from mainspring.domain.tags import TAG
from mainspring.wire.formats import ChosenJobId, Name
from mainspring.wire.protocol import LONGEST_SECRET, SECRET_HEADER, WORKER_HEADER

# Name -> description, example. A parameter that is not here cannot be documented.
PARAMETERS: dict[str, tuple[str, Any]] = {
    "job_id": ("The id of the job, chosen by the client or made by the server.", "nightly-report"),
    "workflow_id": ("The id of the workflow, which is also that of its job.", "nightly"),
    "run_id": ("The id of the run.", "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11"),
    "worker_id": ("The id of one incarnation of a worker.", "0197a6c0-6b2f-7d44-8e61-90aa12bc34de"),
    "limit_id": ("The id of the limit, a number.", "7"),
    "breaker_id": ("The id of the circuit breaker, a number.", "8"),
    "fingerprint": ("The fingerprint of the group of failures, as in the list of failures.", "9f2b6c01d4e85a73"),
    "backfill_id": ("The id of the backfill.", "0197a6c0-7c30-7e55-9f72-a1bb23cd45ef"),
    "operation_id": ("The id of the operation.", "0197a6c0-7c30-7e55-9f72-a1bb23cd45ef"),
    "reason": ("Only those with this reason.", "paused"),
    "members": ("Whether to list the members of a mapped step, which `name` names.", False),
    "state": ("Only those in one of these states.", ["running"]),
    "token_id": ("The id of the token, not its secret.", "0197a6c0-8d41-7f66-8083-b2cc34de56f0"),
    "session_id": ("The id of a session.", "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11"),
    "name": ("The name of the queue, the calendar or the step.", "default"),
    "status": ("Only those with one of these statuses.", ["FAILED"]),
    "label": ("Only those with this label, as name:value.", "team:bi"),
    "queue": ("Only those of this queue.", "default"),
    "owner": ("Only those of this owner.", "bi"),
    "q": ("Only those whose id, name or task contains this text; a search finds what begins with it.", "report"),
    "job": ("Only those of this job.", "nightly-report"),
    "task": ("Only those of this task.", "report"),
    "worker": ("Only those whose last attempt this worker has, by its id.", "0199c0de-0000-7000-8000-000000000001"),
    "error": ("Only those whose error message contains this text.", "timeout"),
    "since": ("Only those from this time on.", "2026-07-01T00:00:00Z"),
    "until": ("Only those before this time.", "2026-08-01T00:00:00Z"),
    "scheduled_after": ("Only those that were due from this time on.", "2026-07-01T00:00:00Z"),
    "scheduled_before": ("Only those that were due before this time.", "2026-08-01T00:00:00Z"),
    "created_after": ("Only those that were created from this time on.", "2026-07-01T00:00:00Z"),
    "created_before": ("Only those that were created before this time.", "2026-08-01T00:00:00Z"),
    "next_fire_after": ("Only those whose next fire is at this time or later.", "2026-07-01T00:00:00Z"),
    "next_fire_before": ("Only those whose next fire is before this time.", "2026-08-01T00:00:00Z"),
    "latest_run": ("Only those whose latest run has one of these statuses.", ["FAILED"]),
    "generation": ("Only this generation of the job, counted from 1.", 1),
    "cursor": ("The `next` of the page before. The header Link has the whole address.", None),
    "limit": (
        "The most items per page. A page with large payloads and results has fewer. `next` is set if more follow.", 50,
    ),
    "view": ("`row`: only the fields that a list shows, without payloads and results.", "row"),
    "application": ("The name of the application.", "billing"),
    "schedule_type": ("Only those whose schedule is of one of these types.", ["CRON"]),
    "gauges": (
        "`one`: only one of the servers that schedule shows the state of the database. `yes`: this one does; for a "
        "load balancer. `no`: it does not; for servers without a scheduler.", "yes",
    ),
    "at": ("A time. Without a zone it is by the clocks of the schedule.", "2026-11-17T03:00"),
    "declared_by": ("Only those that this application declares.", "billing"),
    "part": ("The beginning or the end of an id.", "0a8b11"),
    "kind": ("Only ids of these kinds.", ["run"]),
    "n": ("How many.", 20),
    "from": ("From this time on. Without it, from now on.", "2030-07-01T00:00:00Z"),
    "to": ("Before this time.", "2030-07-02T00:00:00Z"),
    "range": ("The next 24 hours, or the next seven days.", "day"),
    "w": ("How far to look back.", "24h"),
    "timezone": ("The time zone of the cells.", "Europe/Berlin"),
    "attempt": ("The number of the attempt, from 1. Without it, the last one.", 1),
    "follow": ("Stay connected, and get the output as it comes, as server-sent events.", False),
    "topics": (
        "What to tell about, separated by commas: jobs, runs, queues, workers, run:ID, job:ID, workflow-run:ID. "
        "At most 16.", "runs,run:0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11",
    ),
    "start": ("From the line with this byte of the output on.", 0),
    "before": ("Lines that end before this byte of the output.", 2048),
    "lines": ("The most lines.", 100),
    "numbered": ("Whether the answer has the number of the first line.", False),
    "text": ("The text to search for, within one line. Upper and lower case are the same.", "timeout"),
    "If-Match": ("The version that it must have, as its ETag has it. Otherwise nothing is changed: 412.", '"3"'),
    "if_tag": ("The tag that it must have, as its `etag` has it. Otherwise nothing is changed: 412.", '"running-1"'),
    "Last-Event-ID": ("With follow=true: the id of the last received event. The stream continues after it.", "1:2048"),
    WORKER_HEADER: ("The worker that the notice is about.", "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11"),
    SECRET_HEADER: ("The secret with which the incarnation was registered, if it has one.", "k3tPq0"),
}  # fmt: skip
# Path parameters are texts to the router.
PATH_TYPES: dict[str, Any] = {
    "job_id": ChosenJobId,
    "workflow_id": ChosenJobId,
    "name": Name,
    "application": ChosenJobId,
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "If-Match": {"type": "string", "pattern": r'^(\*|(W/)?"?[0-9]{1,18}"?)$'},
    "if_tag": {"type": "string", "pattern": rf'^(\*|(W/)?"?{TAG}"?)$'},
    "Last-Event-ID": {"type": "string", "pattern": "^[0-9]{1,9}:[0-9]{1,18}$"},
    "label": {"type": "string", "pattern": "^[^:=]+[:=]", "maxLength": 1000},
    "worker": {"type": "string", "format": "uuid"},
    WORKER_HEADER: {"type": "string", "format": "uuid"},
    SECRET_HEADER: {"type": "string", "maxLength": LONGEST_SECRET},
}
HEADERS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "ETag": ("The version or the tag, for If-Match.", {"type": "string"}, '"3"'),
    "Link": ("The address of the next page, if there is one (rel=next).", {"type": "string"},
             '</v1/runs?limit=50&cursor=eyJ>; rel="next"'),
    "Location": ("The address of what was created.", {"type": "string"}, "/v1/jobs/nightly-report"),
    "Retry-After": ("Seconds after which to try again.", {"type": "integer"}, 1),
    "Set-Cookie": ("The cookie of the session.", {"type": "string"},
                   "mainspring-8700=…; Path=/; Max-Age=604800; HttpOnly; SameSite=Strict"),
    "WWW-Authenticate": ("The scheme of the token.", {"type": "string"}, "Bearer"),
    "Mainspring-Log-Attempt": ("The attempt whose output this is.", {"type": "integer"}, 1),
    "Mainspring-Log-Truncated": ("`true` if the output was cut off at its limit.", {"type": "string"}, "true"),
}  # fmt: skip
