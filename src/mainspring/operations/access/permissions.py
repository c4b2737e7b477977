"""Permissions: which roles may call an operation. Each route names its roles (api/handlers.py).

Roles decide which operations a token may call. A token acts in its own tenant only; an operation that reaches further
(creating tenants) checks that itself.
"""

from __future__ import annotations

from mainspring.domain.errors import Forbidden
from mainspring.kernel.ids import EVERY_TENANT
from mainspring.operations.access.caller import Caller

ADMIN = "admin"
OPERATOR = "operator"
SUBMITTER = "submitter"
VIEWER = "viewer"
METRICS = "metrics"
WORKER = "worker"

Roles = frozenset[str]

PUBLIC: Roles = frozenset()
ADMINS: Roles = frozenset({ADMIN})
OPERATORS: Roles = frozenset({ADMIN, OPERATOR})
# Submitters create jobs, and change only their own ones (operations/access/ownership.py).
SUBMITTERS: Roles = frozenset({ADMIN, SUBMITTER})
OWNERS: Roles = OPERATORS | {SUBMITTER}
READERS: Roles = OWNERS | {VIEWER}
METRICS_READERS: Roles = READERS | {METRICS}
WORKERS: Roles = frozenset({ADMIN, WORKER})

# What a role is for, in words: of tokens, in messages and on the page.
PURPOSES = {
    ADMIN: "everything in its tenant",
    OPERATOR: "read everything in its tenant but the audit, and pause, resume, cancel, run, retry, replay, backfill, "
    "drain, mute, acknowledge and set limits",
    SUBMITTER: "read everything in its tenant but the audit, create jobs and workflows, and change, pause, resume, "
    "run, cancel and delete those that it has created",
    VIEWER: "read everything in its tenant but the audit",
    METRICS: "read /metrics and the scaling signal",
    WORKER: "what worker processes do",
}
# Tokens of these roles are for programs: they do not sign in.
PROGRAMS = frozenset({METRICS, WORKER})


def check_permission(caller: Caller, roles: Roles) -> None:
    """Raise Forbidden unless the caller has one of the roles that may call an operation. What is not allowed is
    denied."""
    if caller.role != WORKER and caller.tenant == EVERY_TENANT:
        raise _refusal(caller, roles)
    if caller.role not in roles:
        raise _refusal(caller, roles)


def _refusal(caller: Caller, roles: Roles) -> Forbidden:
    if caller.role == WORKER:
        return Forbidden(
            f"the token {caller.name!r} is for workers, which may only exchange and ship logs",
            code="worker_token", field="Authorization", hint="use an admin token of your tenant",
        )  # fmt: skip
    allowed = " or ".join(role for role in PURPOSES if role in roles and role != WORKER) or ADMIN
    purpose = PURPOSES.get(caller.role)
    why = "does not allow this operation" if purpose is None else f"may {purpose}, and nothing else"
    return Forbidden(
        f"the role {caller.role!r} of the token {caller.name!r} {why}", code="role_not_allowed",
        field="Authorization", hint=f"use a token of your tenant with the role {allowed}",
    )  # fmt: skip
