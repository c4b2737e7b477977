"""Permissions: one table, by the name of the operation. An operation that is not in it cannot be routed.

Roles decide which operations a token may call. A token acts in its own tenant only; an operation that reaches further
(creating tenants) checks that itself.
"""

from __future__ import annotations

from mainspring.domain.errors import Forbidden
from mainspring.kernel.ids import EVERY_TENANT
from mainspring.operations.access.caller import Caller

ADMIN = "admin"
WORKER = "worker"

_PUBLIC: frozenset[str] = frozenset()
_ADMINS = frozenset({ADMIN})
_WORKERS = frozenset({ADMIN, WORKER})

PERMISSIONS: dict[str, frozenset[str]] = {
    "health.live": _PUBLIC,
    "health.ready": _PUBLIC,
    "metrics.read": _ADMINS,
    "schema.read": _ADMINS,
    "insights.overview": _ADMINS,
    "jobs.create": _ADMINS,
    "jobs.create_batch": _ADMINS,
    "jobs.list": _ADMINS,
    "jobs.read": _ADMINS,
    "jobs.status": _ADMINS,
    "jobs.runs": _ADMINS,
    "jobs.upcoming": _ADMINS,
    "jobs.missed": _ADMINS,
    "jobs.timeline": _ADMINS,
    "jobs.update": _ADMINS,
    "jobs.cancel": _ADMINS,
    "jobs.pause": _ADMINS,
    "jobs.resume": _ADMINS,
    "jobs.run_now": _ADMINS,
    "jobs.backfill": _ADMINS,
    "applications.declare": _ADMINS,
    "runs.list": _ADMINS,
    "runs.read": _ADMINS,
    "runs.why": _ADMINS,
    "runs.timeline": _ADMINS,
    "runs.logs": _ADMINS,
    "runs.cancel": _ADMINS,
    "runs.retry": _ADMINS,
    "dead_letters.list": _ADMINS,
    "dead_letters.read": _ADMINS,
    "dead_letters.replay": _ADMINS,
    "dead_letters.discard": _ADMINS,
    "ids.find": _ADMINS,
    "queues.list": _ADMINS,
    "queues.read": _ADMINS,
    "queues.update": _ADMINS,
    "queues.pause": _ADMINS,
    "queues.resume": _ADMINS,
    "tenant.limits": _ADMINS,
    "tenant.update_limits": _ADMINS,
    "tenant.pause": _ADMINS,
    "tenant.resume": _ADMINS,
    "limits.list": _ADMINS,
    "limits.read": _ADMINS,
    "limits.set": _ADMINS,
    "tasks.list": _ADMINS,
    "workers.list": _ADMINS,
    "workers.read": _ADMINS,
    "workers.drain": _ADMINS,
    "breakers.list": _ADMINS,
    "breakers.reset": _ADMINS,
    "backfills.list": _ADMINS,
    "backfills.read": _ADMINS,
    "backfills.update": _ADMINS,
    "backfills.pause": _ADMINS,
    "backfills.resume": _ADMINS,
    "backfills.cancel": _ADMINS,
    "tenants.list": _ADMINS,
    "tenants.create": _ADMINS,
    "tokens.list": _ADMINS,
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
    if caller.role == ADMIN and caller.tenant == EVERY_TENANT:
        raise _refusal(caller)
    if caller.role not in PERMISSIONS[operation]:
        raise _refusal(caller)


def _refusal(caller: Caller) -> Forbidden:
    if caller.role == WORKER:
        return Forbidden(
            f"the token {caller.name!r} is for workers, which may only exchange and ship logs",
            code="worker_token", field="Authorization", hint="use an admin token of your tenant",
        )  # fmt: skip
    return Forbidden(
        f"the role {caller.role!r} of this token does not allow this operation", code="role_not_allowed",
        field="Authorization", hint="use an admin token of your tenant",
    )  # fmt: skip
