"""Sessions of browsers: sign in by a one-time link or a token, say who is signed in, sign out, end those of others.

A session has the rights of the token that opened it, and ends with it, after 12 hours without a request, or after seven
days. A link is made with a token, never with a session: otherwise a session could go on for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from mainspring.domain.errors import Conflict, Forbidden, InvalidInput, NotFound, Unauthorized
from mainspring.kernel.ids import EVERY_TENANT
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.permissions import PROGRAMS, WORKER
from mainspring.operations.signals import Signals
from mainspring.store import sessions, tenants, tokens
from mainspring.store.pool import Connection, Store
from mainspring.store.sessions import OpenSessionRow
from mainspring.store.tokens import Principal
from mainspring.wire.sessions import OpenSession, SessionList, SessionView, SignInLink, SignInRequest

if TYPE_CHECKING:  # it loads the library of the metrics, which `up` does not need
    from mainspring.operations.access.failed_sign_ins import FailedSignIns

log = get_logger("sessions")

PAGE = "/ui/"
_MOST_LISTED = 1000
_SIGN_IN = "session.create"  # the operation; the request has no caller before


class Begun(msgspec.Struct, frozen=True):
    """The token with which a browser has signed in, or would. secret: the secret of the new session; None in a
    preview."""

    name: str
    role: str
    tenant: str
    secret: str | None


class Sessions:
    def __init__(self, store: Store, signals: Signals, failed: FailedSignIns) -> None:
        self._store = store
        self._signals = signals
        self._failed = failed

    async def sign_in(
        self, request: SignInRequest, *, current: str | None = None, address: str | None = None,
        client: str | None = None,
    ) -> Begun:  # fmt: skip
        """Begin a session. Raises Unauthorized if the code or the token is not valid.

        `current`: the secret of the session that the browser has. A link that a stranger has sent must not replace it,
        so a code then needs `replace`. The code is still valid after a refusal.
        """
        if (request.code is None) == (request.token is None):
            raise InvalidInput(
                "the body needs a code, a token, or mail and password", field="code", hint="give one of them"
            )
        secret = None if request.preview else sessions.new_secret()
        try:
            async with self._store.change() as connection:
                if not request.preview and request.code is not None and not request.replace:
                    await _refuse_to_replace(connection, current)
                principal = await _principal(connection, request)
                tenant = await tenants.get(connection, principal.tenant)
                if secret is not None:
                    session_id = await sessions.insert(connection, principal.token_id, secret)
                    if session_id is None:  # it was revoked since
                        raise _invalid_token()
                    caller = Caller(
                        principal.tenant, principal.role, principal.name, principal.token_id, address,
                        session=session_id, client=client, operation=_SIGN_IN,
                    )  # fmt: skip
                    by = "token" if request.code is None else "link"
                    await record(connection, caller, "session", session_id, None, {"by": by})
        except (Unauthorized, Forbidden) as error:
            self._failed.note(error.code, address)
            raise
        if secret is not None:
            log.info("signed in", session=str(session_id), token=str(principal.token_id), name=principal.name)
        return Begun(principal.name, principal.role, "" if tenant is None else tenant.name, secret)

    async def session(self, caller: Caller) -> SessionView:
        """Who calls, and until when."""
        async with self._store.for_short_reads().acquire() as connection:
            tenant = await tenants.get(connection, caller.tenant)
            row = None if caller.session is None else await sessions.get(connection, caller.session)
        name = "" if tenant is None else tenant.name
        user = None if caller.user is None else str(caller.user)
        if row is None:
            return SessionView(caller.name, caller.role, name, token_id=str(caller.owner), user_id=user)
        return SessionView(
            caller.name, caller.role, name, str(row.session_id), signed_in_at=row.created_at, expires_at=row.expires_at,
            token_id=str(caller.owner), user_id=user,
        )  # fmt: skip

    async def sign_out(self, caller: Caller) -> SessionView:
        """End the session of the caller, at every server."""
        if caller.session is None:
            raise Forbidden(
                "a token does not sign out", code="session_needed", field="Authorization",
                hint="send the cookie of the session; a token ends with POST /v1/tokens/{token_id}:revoke",
            )  # fmt: skip
        view = await self.session(caller)
        async with self._store.change() as connection:
            await sessions.end(connection, caller.session)
            await record(connection, caller, "session", caller.session, {"name": caller.name}, None)
        self._signals.tokens.publish(caller.tenant)  # after the commit: servers that remember the session look again
        log.info("signed out", session=str(caller.session), name=caller.name)
        return view

    async def open_sessions(self, caller: Caller) -> SessionList:
        """The sessions of the tenant that have not ended, newest first."""
        async with self._store.reads.acquire() as connection:
            rows = await sessions.open_of(connection, caller.tenant, _MOST_LISTED + 1)
        shown = [_open_session(row, caller) for row in rows[:_MOST_LISTED]]
        return SessionList(shown, more=len(rows) > _MOST_LISTED)

    async def end(self, caller: Caller, session_id: UUID) -> OpenSession:
        """End a session of the tenant, at every server. Returns it as it was."""
        async with self._store.change() as connection:
            row = await sessions.end_of(connection, caller.tenant, session_id)
            if row is not None:
                await record(connection, caller, "session", session_id, {"name": row.name}, None)
        if row is None:
            raise NotFound(f"there is no session {session_id}", hint="it may have ended")
        self._signals.tokens.publish(caller.tenant)  # after the commit: servers that remember the session look again
        log.info("session ended", session=str(session_id), name=row.name, by=caller.name)
        return _open_session(row, caller)

    async def link(self, caller: Caller) -> SignInLink:
        """A new link that signs in once, as this token."""
        if caller.session is not None:
            raise Forbidden(
                "a session makes no links", code="token_needed", field="Authorization",
                hint="use a token: mainspring open",
            )  # fmt: skip
        async with self._store.change() as connection:
            link = await make_link(connection, caller.credential)
            await record(connection, caller, "token", caller.credential, None, {"link_until": link.expires_at})
            return link


def _open_session(row: OpenSessionRow, caller: Caller) -> OpenSession:
    return OpenSession(
        str(row.session_id),
        str(row.token_id),
        row.name,
        row.role,
        row.created_at,
        row.seen_at,
        row.ends_at,
        current=row.session_id == caller.session,
    )


async def make_link(connection: Connection, token_id: UUID) -> SignInLink:
    code = sessions.new_secret()
    until = await sessions.insert_link(connection, token_id, code)
    return SignInLink(code, f"{PAGE}#code={code}", until)


async def _refuse_to_replace(connection: Connection, current: str | None) -> None:
    if current is not None and await sessions.find(connection, tokens.hash_token(current)) is not None:
        raise Conflict(
            "this browser is signed in", code="signed_in", field="replace",
            hint="ask as whom the code signs in with preview, and send replace: true if that is wanted",
        )  # fmt: skip


async def _principal(connection: Connection, request: SignInRequest) -> Principal:
    if request.token is not None:
        found = await tokens.find(connection, tokens.hash_token(request.token))
        principal = None if found is None else found.principal
        if principal is None:
            raise _invalid_token()
    else:
        assert request.code is not None
        principal = await sessions.use_link(connection, request.code, preview=request.preview)
        if principal is None:
            raise Unauthorized(
                "this link was used before, or has expired", code="invalid_link", field="code",
                hint="mainspring open makes another one",
            )  # fmt: skip
    if principal.role in PROGRAMS or principal.tenant == EVERY_TENANT:
        whose = "workers" if principal.role == WORKER else "programs that read metrics"
        raise Forbidden(
            f"the token {principal.name!r} is for {whose}, which do not sign in", code="worker_token",
            field="token", hint="use an admin, operator or viewer token of your tenant",
        )  # fmt: skip
    return principal


def _invalid_token() -> Unauthorized:
    return Unauthorized("this token is not valid", code="invalid_token", field="token")
