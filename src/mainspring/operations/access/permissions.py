"""Permissions: which roles may call an operation. Each route names its roles (api/handlers.py).

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

Roles = frozenset[str]

PUBLIC: Roles = frozenset()
ADMINS: Roles = frozenset({ADMIN})
READERS: Roles = frozenset({ADMIN, VIEWER})
WORKERS: Roles = frozenset({ADMIN, WORKER})


def check_permission(caller: Caller, roles: Roles) -> None:
    """Raise Forbidden unless the caller has one of the roles that may call an operation. What is not allowed is
    denied."""
    if caller.role != WORKER and caller.tenant == EVERY_TENANT:
        raise _refusal(caller)
    if caller.role not in roles:
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
