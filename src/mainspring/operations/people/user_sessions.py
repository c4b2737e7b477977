"""Sessions of people: how one begins, whatever the person has proved."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import msgspec

from mainspring.domain.errors import Forbidden, NotFound
from mainspring.domain.texts import shown
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.store import attempts, sessions
from mainspring.store.pool import Connection
from mainspring.store.users import MemberRow, UserRow

log = get_logger("people")

SIGN_IN = "session.create"
ACCEPT = "user.accept"


class From(msgspec.Struct, frozen=True):
    """Where a request without a caller comes from. known: the secret of a browser in which a user has signed in."""

    address: str | None
    client: str | None
    known: str | None


class SignedInUser(msgspec.Struct, frozen=True):
    """secret: of the session. known: the secret by which the browser is known from now on; None: as before."""

    name: str
    role: str
    tenant: str
    secret: str
    known: str | None


class Began(msgspec.Struct, frozen=True):
    """A session that has begun. caller: who makes changes with it."""

    session_id: UUID
    told: SignedInUser
    caller: Caller


async def begin(
    connection: Connection, user: UserRow, member: MemberRow, where: From, operation: str,
    after: Mapping[str, object], seconds: float = sessions.LONGEST, *, known: str | None = None,
) -> Began | None:  # fmt: skip
    """Begin a session of this member. None if the user is in the tenant no more."""
    secret = sessions.new_secret()
    session_id = await sessions.insert(connection, member.token_id, secret, seconds)
    if session_id is None:
        return None
    caller = Caller(
        member.tenant_id, member.role, member.name, member.token_id, where.address, session=session_id,
        client=where.client, operation=operation, user=user.user_id,
    )  # fmt: skip
    kind, what = ("user", user.user_id) if operation == ACCEPT else ("session", session_id)
    await record(connection, caller, kind, what, None, after)
    log.info("signed in", session=str(session_id), user=str(user.user_id), tenant=member.tenant)
    return Began(session_id, SignedInUser(member.name, member.role, member.tenant, secret, known), caller)


async def known_by(connection: Connection, user: UserRow, where: From) -> str:
    """The secret by which the browser is known to be of the user, from now on or since before."""
    if where.known is not None and await attempts.is_known(connection, where.known, user.user_id):
        return where.known
    made = sessions.new_secret()
    await attempts.make_known(connection, made, user.user_id)
    return made


def chosen(members: list[MemberRow], tenant: str | None) -> MemberRow:
    """What the user is in this tenant, or in the first one."""
    for member in members:
        if tenant is None or member.tenant == tenant:
            return member
    if tenant is None:
        raise Forbidden("the user is in no tenant", code="no_tenant", field="mail", hint="an admin can invite the user")
    raise NotFound(
        f"the user is not in the tenant {shown(tenant)}",
        field="tenant",
        hint="the page Settings lists the tenants of the user",
    )
