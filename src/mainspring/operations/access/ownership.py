"""Ownership: submitters change only what they have created.

Jobs that have a row are checked under the lock of the change. `ObjectGuard` (operations/object_guard.py) checks
the rest, before the operation begins.
"""

from __future__ import annotations

from uuid import UUID

from mainspring.domain.errors import Forbidden
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.permissions import SUBMITTER


def owns(caller: Caller, *creators: UUID | None) -> bool:
    """Whether the caller may change what one of these tokens has created."""
    return caller.role != SUBMITTER or caller.owner in creators


def check_own(caller: Caller, created_by: UUID | None, what: str) -> None:
    """Raise Forbidden if the caller may only change its own, and this is not."""
    if not owns(caller, created_by):
        raise not_yours(caller, what)


def not_yours(caller: Caller, what: str) -> Forbidden:
    return Forbidden(
        f"{what} was created by another token, and the role {caller.role!r} of the token {caller.name!r} changes only "
        "its own",
        code="not_yours", field="Authorization", hint="use the token that created it, or one of an operator or admin",
    )  # fmt: skip
