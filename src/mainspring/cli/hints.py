"""Hints of the server in the language of the command line: `POST /v1/jobs/x:resume` becomes `mainspring job resume x`.

One table says which command does what an operation of the API does. tests/cli/test_hints.py compares it with the table
of permissions, and translates every text of the server that names an operation.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote


@dataclass(frozen=True, slots=True)
class Route:
    """A route of an operation, with {} for an id, and the command that does the same. None: no command does."""

    operation: str
    method: str
    path: str
    command: str | None

    def match(self, method: str, path: str) -> str | None:
        """The id in `path`, "" if the route has none, or None if it is another route."""
        if method != self.method:
            return None
        before, braces, after = self.path.partition("{}")
        if not braces:
            return "" if path == self.path else None
        found = path[len(before) : len(path) - len(after)]
        fits = path.startswith(before) and path.endswith(after) and len(path) > len(before) + len(after)
        return found if fits and not re.search("[/:]", found) else None


ROUTES = (
    Route("jobs.create", "POST", "/v1/jobs", "submit"),
    Route("jobs.create_batch", "POST", "/v1/jobs:batch", None),
    Route("jobs.list", "GET", "/v1/jobs", "job list"),
    Route("jobs.read", "GET", "/v1/jobs/{}", "job show {}"),
    Route("jobs.status", "GET", "/v1/jobs/{}/status", "job show {}"),
    Route("jobs.runs", "GET", "/v1/jobs/{}/runs", "run list --job {}"),
    Route("jobs.upcoming", "GET", "/v1/jobs/{}/upcoming", "job show {}"),
    Route("jobs.missed", "GET", "/v1/jobs/{}/missed", None),
    Route("missed_fires.list", "GET", "/v1/missed-fires", None),
    Route("jobs.act", "POST", "/v1/jobs:act", "act"),
    Route("runs.act", "POST", "/v1/runs:act", "act"),
    Route("dead_letters.act", "POST", "/v1/dead-letters:act", "act"),
    Route("operations.list", "GET", "/v1/operations", "operation list"),
    Route("operations.read", "GET", "/v1/operations/{}", "operation show {}"),
    Route("operations.cancel", "POST", "/v1/operations/{}:cancel", "operation cancel {}"),
    Route("jobs.timeline", "GET", "/v1/jobs/{}/timeline", None),
    Route("jobs.update", "PATCH", "/v1/jobs/{}", "job edit {}"),
    Route("jobs.update", "PUT", "/v1/jobs/{}", "job edit {}"),
    Route("jobs.cancel", "DELETE", "/v1/jobs/{}", "job cancel {}"),
    Route("jobs.pause", "POST", "/v1/jobs/{}:pause", "job pause {}"),
    Route("jobs.resume", "POST", "/v1/jobs/{}:resume", "job resume {}"),
    Route("jobs.run_now", "POST", "/v1/jobs/{}:runNow", "job run {}"),
    Route("jobs.series", "GET", "/v1/jobs/{}/series", None),
    Route("jobs.backfill", "POST", "/v1/jobs/{}:backfill", "backfill create {}"),
    Route("applications.declare", "PUT", "/v1/applications/{}", None),
    Route("runs.list", "GET", "/v1/runs", "run list"),
    Route("runs.read", "GET", "/v1/runs/{}", "run show {}"),
    Route("runs.why", "GET", "/v1/runs/{}/why", "run why {}"),
    Route("runs.timeline", "GET", "/v1/runs/{}/timeline", "run timeline {}"),
    Route("runs.logs", "GET", "/v1/runs/{}/logs", "run logs {}"),
    Route("runs.log_range", "GET", "/v1/runs/{}/logs/range", "run logs {} --tail 100"),
    Route("runs.log_search", "GET", "/v1/runs/{}/logs/search", "run logs {} --grep TEXT"),
    Route("runs.cancel", "POST", "/v1/runs/{}:cancel", "run cancel {}"),
    Route("runs.retry", "POST", "/v1/runs/{}:retry", "run retry {}"),
    Route("dead_letters.list", "GET", "/v1/dead-letters", "dead-letter list"),
    Route("dead_letters.read", "GET", "/v1/dead-letters/{}", "dead-letter show {}"),
    Route("dead_letters.replay", "POST", "/v1/dead-letters/{}:replay", "dead-letter replay {}"),
    Route("dead_letters.replay", "POST", "/v1/dead-letters:replay", "dead-letter replay"),
    Route("dead_letters.discard", "POST", "/v1/dead-letters/{}:discard", "dead-letter discard {}"),
    Route("dead_letters.discard", "POST", "/v1/dead-letters:discard", "dead-letter discard"),
    Route("ids.find", "GET", "/v1/ids", None),
    Route("insights.overview", "GET", "/v1/insights/overview", "status"),
    Route("insights.failures", "GET", "/v1/insights/failures", "failures"),
    Route("insights.upcoming", "GET", "/v1/insights/upcoming", "schedule upcoming"),
    Route("insights.heatmap", "GET", "/v1/insights/heatmap", "schedule heatmap"),
    Route("schedules.preview", "POST", "/v1/schedules:preview", "schedule preview"),
    Route("schedules.explain", "POST", "/v1/schedules:explain", "schedule preview"),
    Route("calendars.list", "GET", "/v1/calendars", "calendar list"),
    Route("calendars.read", "GET", "/v1/calendars/{}", "calendar show {}"),
    Route("calendars.put", "PUT", "/v1/calendars/{}", "calendar set {}"),
    Route("calendars.delete", "DELETE", "/v1/calendars/{}", "calendar delete {}"),
    Route("queues.list", "GET", "/v1/queues", "queue list"),
    Route("queues.read", "GET", "/v1/queues/{}", "queue show {}"),
    Route("queues.update", "PUT", "/v1/queues/{}", "queue set {}"),
    Route("queues.pause", "POST", "/v1/queues/{}:pause", "queue pause {}"),
    Route("queues.resume", "POST", "/v1/queues/{}:resume", "queue resume {}"),
    Route("tenant.limits", "GET", "/v1/tenant/limits", "tenant show"),
    Route("tenant.update_limits", "PUT", "/v1/tenant/limits", "tenant set"),
    Route("tenant.pause", "POST", "/v1/pause", "tenant pause"),
    Route("tenant.resume", "POST", "/v1/resume", "tenant resume"),
    Route("limits.list", "GET", "/v1/limits", "limit list"),
    Route("limits.read", "GET", "/v1/limits/{}", "limit show {}"),
    Route("limits.set", "PUT", "/v1/limits/{}", "limit set {}"),
    Route("tasks.list", "GET", "/v1/tasks", "task list"),
    Route("workers.list", "GET", "/v1/workers", "worker list"),
    Route("workers.read", "GET", "/v1/workers/{}", "worker list"),
    Route("workers.drain", "POST", "/v1/workers/{}:drain", "worker drain {}"),
    Route("breakers.list", "GET", "/v1/breakers", "breaker list"),
    Route("breakers.reset", "POST", "/v1/breakers/{}:reset", "breaker reset {}"),
    Route("backfills.list", "GET", "/v1/backfills", "backfill list"),
    Route("backfills.read", "GET", "/v1/backfills/{}", "backfill show {}"),
    Route("backfills.update", "PATCH", "/v1/backfills/{}", "backfill set {}"),
    Route("backfills.pause", "POST", "/v1/backfills/{}:pause", "backfill pause {}"),
    Route("backfills.resume", "POST", "/v1/backfills/{}:resume", "backfill resume {}"),
    Route("backfills.cancel", "POST", "/v1/backfills/{}:cancel", "backfill cancel {}"),
    Route("workflows.create", "POST", "/v1/workflows", "workflow apply"),
    Route("workflows.validate", "POST", "/v1/workflows:validate", "workflow check"),
    Route("workflows.list", "GET", "/v1/workflows", "workflow list"),
    Route("workflows.read", "GET", "/v1/workflows/{}", "workflow show {}"),
    Route("workflows.update", "PATCH", "/v1/workflows/{}", "workflow apply"),
    Route("workflows.update", "PUT", "/v1/workflows/{}", "workflow apply"),
    Route("workflows.cancel", "DELETE", "/v1/workflows/{}", "workflow delete {}"),
    Route("workflows.pause", "POST", "/v1/workflows/{}:pause", "workflow pause {}"),
    Route("workflows.resume", "POST", "/v1/workflows/{}:resume", "workflow resume {}"),
    Route("workflows.run_now", "POST", "/v1/workflows/{}:runNow", "workflow run {}"),
    Route("workflows.runs", "GET", "/v1/workflows/{}/runs", "workflow runs {}"),
    Route("workflow_runs.read", "GET", "/v1/workflow-runs/{}", "workflow watch {}"),
    Route("workflow_runs.steps", "GET", "/v1/workflow-runs/{}/steps", "workflow steps {}"),
    Route("workflow_runs.cancel", "POST", "/v1/workflow-runs/{}:cancel", "workflow cancel {}"),
    Route("workflow_runs.rerun", "POST", "/v1/workflow-runs/{}:rerun", "workflow rerun {}"),
    Route("tenants.list", "GET", "/v1/tenants", "tenant list"),
    Route("tenants.create", "POST", "/v1/tenants", "tenant add"),
    Route("tokens.list", "GET", "/v1/tokens", "token list"),
    Route("tokens.create", "POST", "/v1/tokens", "token add"),
    Route("tokens.revoke", "POST", "/v1/tokens/{}:revoke", "token revoke {}"),
    Route("jobs.validate", "POST", "/v1/jobs:validate", None),
    Route("search.find", "GET", "/v1/search", None),
    Route("stream.read", "GET", "/v1/stream", None),
    Route("nodes.list", "GET", "/v1/nodes", None),
    Route("session.create", "POST", "/v1/session", None),
    Route("session.read", "GET", "/v1/session", None),
    Route("session.end", "DELETE", "/v1/session", None),
    Route("session.link", "POST", "/v1/session/links", "open"),
    Route("sessions.list", "GET", "/v1/sessions", "session list"),
    Route("sessions.end", "POST", "/v1/sessions/{}:end", "session end {}"),
    Route("metrics.read", "GET", "/metrics", None),
    Route("schema.read", "GET", "/schema/openapi.json", None),
    Route("health.live", "GET", "/healthz", None),
    Route("health.ready", "GET", "/readyz", None),
    Route("worker.exchange", "POST", "/v1/exchange", None),
    Route("worker.ship_logs", "POST", "/v1/runs/{}/logs", None),
    Route("worker.gone", "POST", "/v1/workers/{}:gone", None),
)
TOKEN_HINT = "give --token-file, set MAINSPRING_TOKEN, or run the command in the folder of `mainspring up`"
# What a request or a response calls differently than the command line.
_PHRASES = {
    "take it from `next` or the Link header": "take it from the last line of the list before",
    'set "method": "POST"': "give --method POST",
    "runs that overlap have no order; set the limit to 1 or leave out the order": (
        "runs that overlap have no order; give --concurrency 1, or leave out --strict"
    ),
    'give delay ("delay": "30s") or schedule_time, or use keep or replace': (
        "give --in 30s or --at, or use keep or replace"
    ),
    "false removes the limits of a job": "--concurrency none removes the limits of a job",
    "false removes the rates of a job": "--rate none removes the rates of a job",
    'for a fire now: "schedule": "now", or :runNow': "for a run now: `mainspring job run`",
    "a server elsewhere is named by url= or MAINSPRING_URL": "a server elsewhere is named by --url or MAINSPRING_URL",
    "send 'Authorization: Bearer <token>'; the file admin-token in the data folder contains one": TOKEN_HINT,
}
_WORDS = (
    (re.compile(r"`(job|task|queue|error|since|until|limit|cursor|status|label|owner)`"), r"--\1"),
    (re.compile(r"\bPATCH\b(?! /)"), "`mainspring job edit`"),
    (re.compile(r"\banother job_id\b"), "another --job-id"),
    (re.compile(r'\{"all": true\}'), "--all"),
)
_CALL = re.compile(r"`?\b(GET|POST|PUT|PATCH|DELETE) (/[^\s,;)`']*[^\s,;.)`'])`?")
_VERB = re.compile(r"(?<![\w/}:]):([a-z]+[A-Za-z]*)\b")
# `:pause` alone is about a job, `:cancel` about a run.
_VERBS = {
    route.path.rpartition(":")[2]: route.command.removesuffix(" {}")
    for route in sorted(ROUTES, key=lambda route: route.operation.startswith(("jobs.", "runs.")))
    if ":" in route.path and route.command is not None
}


def in_commands(hint: str) -> str:
    """The hint with commands and options instead of calls and parameters."""
    text = hint
    for phrase, words in _PHRASES.items():
        text = text.replace(phrase, words)
    text = _CALL.sub(lambda found: _command(found[1], found[2]) or found[0], text)
    text = _VERB.sub(lambda found: f"`mainspring {_VERBS[found[1]]}`" if found[1] in _VERBS else found[0], text)
    for pattern, replacement in _WORDS:
        text = pattern.sub(replacement, text)
    return text


def _command(method: str, address: str) -> str | None:
    """The command for a call, None if there is none."""
    path, _, query = address.partition("?")
    for route in ROUTES:
        found = route.match(method, path)
        if found is not None and route.command is not None:
            options = "".join(f" --{name} {shlex.quote(value)}" for name, value in parse_qsl(query))
            return f"`mainspring {route.command.format(_argument(found))}{options}`"
    return None


def _argument(text: str) -> str:
    """The id for a shell. A placeholder such as {job_id} becomes JOB_ID."""
    if re.fullmatch(r"[{<]\w+[}>]", text):
        return text[1:-1].upper()
    return shlex.quote(unquote(text))
