"""Permissions: one table, by the name of the operation. An operation that is not in it cannot be routed.

Roles decide which operations a token may call. A token acts in its own tenant only; an operation that reaches further
(creating tenants) checks that itself.
"""

from __future__ import annotations

from mainspring.domain.errors import Forbidden
from mainspring.kernel.ids import EVERY_TENANT
from mainspring.operations.access.caller import Caller

ADMIN = "admin"
VIEWER = "viewer"
WORKER = "worker"

_PUBLIC: frozenset[str] = frozenset()
_ADMINS = frozenset({ADMIN})
_READERS = frozenset({ADMIN, VIEWER})
_WORKERS = frozenset({ADMIN, WORKER})

PERMISSIONS: dict[str, frozenset[str]] = {
    "health.live": _PUBLIC,
    "health.ready": _PUBLIC,
    "metrics.read": _READERS,
    "schema.read": _READERS,
    "insights.overview": _READERS,
    "insights.failures": _READERS,
    "insights.upcoming": _READERS,
    "insights.heatmap": _READERS,
    "stream.read": _READERS,
    "schedules.preview": _READERS,
    "schedules.explain": _READERS,
    "jobs.create": _ADMINS,
    "jobs.create_batch": _ADMINS,
    "jobs.validate": _READERS,
    "jobs.list": _READERS,
    "jobs.read": _READERS,
    "jobs.status": _READERS,
    "jobs.runs": _READERS,
    "jobs.upcoming": _READERS,
    "jobs.missed": _READERS,
    "missed_fires.list": _READERS,
    "jobs.timeline": _READERS,
    "jobs.series": _READERS,
    "jobs.update": _ADMINS,
    "jobs.cancel": _ADMINS,
    "jobs.pause": _ADMINS,
    "jobs.resume": _ADMINS,
    "jobs.run_now": _ADMINS,
    "jobs.backfill": _ADMINS,
    "jobs.act": _ADMINS,
    "applications.declare": _ADMINS,
    "runs.list": _READERS,
    "runs.read": _READERS,
    "runs.why": _READERS,
    "runs.timeline": _READERS,
    "runs.logs": _READERS,
    "runs.log_range": _READERS,
    "runs.log_search": _READERS,
    "runs.cancel": _ADMINS,
    "runs.retry": _ADMINS,
    "runs.act": _ADMINS,
    "dead_letters.list": _READERS,
    "dead_letters.read": _READERS,
    "dead_letters.replay": _ADMINS,
    "dead_letters.discard": _ADMINS,
    "dead_letters.act": _ADMINS,
    "operations.list": _READERS,
    "operations.read": _READERS,
    "operations.cancel": _ADMINS,
    "ids.find": _READERS,
    "search.find": _READERS,
    "nodes.list": _READERS,
    "queues.list": _READERS,
    "queues.read": _READERS,
    "queues.update": _ADMINS,
    "queues.pause": _ADMINS,
    "queues.resume": _ADMINS,
    "tenant.limits": _READERS,
    "tenant.update_limits": _ADMINS,
    "tenant.pause": _ADMINS,
    "tenant.resume": _ADMINS,
    "limits.list": _READERS,
    "limits.read": _READERS,
    "limits.set": _ADMINS,
    "calendars.list": _READERS,
    "calendars.read": _READERS,
    "calendars.put": _ADMINS,
    "calendars.delete": _ADMINS,
    "tasks.list": _READERS,
    "workers.list": _READERS,
    "workers.read": _READERS,
    "workers.drain": _ADMINS,
    "breakers.list": _READERS,
    "breakers.reset": _ADMINS,
    "backfills.list": _READERS,
    "backfills.read": _READERS,
    "backfills.update": _ADMINS,
    "backfills.pause": _ADMINS,
    "backfills.resume": _ADMINS,
    "backfills.cancel": _ADMINS,
    "workflows.create": _ADMINS,
    "workflows.validate": _READERS,
    "workflows.list": _READERS,
    "workflows.read": _READERS,
    "workflows.update": _ADMINS,
    "workflows.cancel": _ADMINS,
    "workflows.pause": _ADMINS,
    "workflows.resume": _ADMINS,
    "workflows.run_now": _ADMINS,
    "workflows.runs": _READERS,
    "workflow_runs.read": _READERS,
    "workflow_runs.steps": _READERS,
    "workflow_runs.cancel": _ADMINS,
    "workflow_runs.rerun": _ADMINS,
    "session.create": _PUBLIC,  # the code or token in its body is checked instead
    "session.read": _READERS,
    "session.end": _READERS,
    "session.link": _READERS,
    "sessions.list": _READERS,
    "sessions.end": _ADMINS,
    "tenants.list": _READERS,
    "tenants.create": _ADMINS,
    "tokens.list": _READERS,
    "tokens.create": _ADMINS,
    "tokens.revoke": _ADMINS,
    "worker.exchange": _WORKERS,
    "worker.ship_logs": _WORKERS,
    "worker.gone": _PUBLIC,  # the secret of the incarnation is checked instead of a token
}


def is_public(operation: str) -> bool:
    """Whether this operation needs no token."""
    return PERMISSIONS[operation] is _PUBLIC


def check_permission(caller: Caller, operation: str) -> None:
    """Raise Forbidden unless the caller's role may call the operation. What is not allowed is denied."""
    if caller.role != WORKER and caller.tenant == EVERY_TENANT:
        raise _refusal(caller)
    if caller.role not in PERMISSIONS[operation]:
        raise _refusal(caller)


def _refusal(caller: Caller) -> Forbidden:
    if caller.role == WORKER:
        return Forbidden(
            f"the token {caller.name!r} is for workers, which may only exchange and ship logs",
            code="worker_token", field="Authorization", hint="use an admin token of your tenant",
        )  # fmt: skip
    if caller.role == VIEWER:
        return Forbidden(
            f"the token {caller.name!r} is for viewers, who may read and change nothing",
            code="role_not_allowed", field="Authorization", hint="use an admin token of your tenant",
        )  # fmt: skip
    return Forbidden(
        f"the role {caller.role!r} of this token does not allow this operation", code="role_not_allowed",
        field="Authorization", hint="use an admin token of your tenant",
    )  # fmt: skip
