"""What people do for themselves: change their password, and make and revoke personal tokens."""

from __future__ import annotations

from uuid import UUID

from mainspring.domain.errors import Conflict, Forbidden, NotFound
from mainspring.domain.people import check_new_password, roles_within
from mainspring.domain.texts import check_line, shown
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.access_admin import check_token_quota, life_of, make_token, narrowing_for, token_view
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.typed_again import TypedAgain
from mainspring.operations.people.passwords import Passwords
from mainspring.operations.people.sign_in import PasswordSignIn
from mainspring.operations.signals import Signals
from mainspring.store import attempts, users
from mainspring.store.pool import Connection, Store
from mainspring.store.tokens import TokenRow
from mainspring.store.users import UserRow
from mainspring.wire.access import TokenMade, TokenView
from mainspring.wire.users import OwnUser, PasswordRequest, PersonalTokenRequest, UserTenant

log = get_logger("people")


class OwnAccount:
    def __init__(
        self, store: Store, signals: Signals, passwords: Passwords, sign_in: PasswordSignIn, typed: TypedAgain
    ) -> None:
        self._typed = typed
        self._store = store
        self._signals = signals
        self._passwords = passwords
        self._sign_in = sign_in

    async def user(self, caller: Caller) -> OwnUser:
        """The person who calls, the tenants, and the personal tokens of this tenant."""
        async with self._store.reads.acquire() as connection:
            user = await _person(connection, caller)
            members = await users.members_of(connection, user.user_id)
            rows = await users.own_tokens(connection, caller.owner, user.user_id)
        here = next((member.tenant for member in members if member.tenant_id == caller.tenant), "")
        return OwnUser(
            str(user.user_id), user.mail, user.name, here, [UserTenant(one.tenant, one.role) for one in members],
            [token_view(row) for row in rows], user.password_at,
        )  # fmt: skip

    async def change_password(self, caller: Caller, request: PasswordRequest, known: str | None) -> OwnUser:
        """The other sessions of the person end, and browsers other than that with the secret `known` are forgotten."""
        async with self._store.reads.acquire() as connection:
            user = await _person(connection, caller)
        check_new_password(request.new_password, user.mail, user.name, "new_password")
        await self._sign_in.confirm(caller, request.password)
        with self._passwords.turn():
            made = await self._passwords.hash(request.new_password)
        async with self._store.change() as connection:
            locked = await users.lock(connection, user.user_id)
            if locked is None or not await users.set_password(connection, user.user_id, made, user.password_hash):
                raise Conflict("the password was changed meanwhile", code="changed_meanwhile", field="password")
            members = await users.members_of(connection, user.user_id)
            ended = await users.end_sessions(connection, user.user_id, but=caller.session)
            await attempts.forget_browsers(connection, user.user_id, but=known)
            after = {"password": "new", "sessions_ended": ended}
            await record(connection, caller, "user", user.user_id, None, after)
        for member in members:
            self._signals.tokens.publish(member.tenant_id)
        log.info("password changed", user=str(user.user_id))
        return await self.user(caller)

    async def add_token(self, caller: Caller, request: PersonalTokenRequest) -> TokenMade:
        """Create a personal token. It ends with the person, and never exceeds the role of the person."""
        check_line(request.name, "name")
        expires_in = life_of(request)
        async with self._store.reads.acquire() as connection:
            user = await _person(connection, caller)
        if request.password is not None:
            await self._sign_in.confirm(caller, request.password)
        elif not await self._typed.is_fresh(caller):
            raise Forbidden(
                "a personal token needs the password of the person again", code="token_needed", field="password",
                hint="who signs in at a provider does so again on the page Settings, and has five minutes",
            )  # fmt: skip
        async with self._store.change() as connection:
            locked = await users.lock(connection, user.user_id)
            if locked is None or locked.disabled_at is not None or locked.password_hash != user.password_hash:
                raise _no_person()  # disabled, removed, or with another password since
            await check_token_quota(connection, caller.tenant)
            member = await users.lock_member(connection, user.user_id, caller.tenant)
            if member is None:
                raise _no_person()
            role = member.role if request.role is None else request.role
            if role not in roles_within(member.role) or role not in roles_within(caller.role):
                raise Forbidden(
                    f"a personal token of the role {shown(role)} would exceed {caller.role!r}", code="outside_token",
                    field="role", hint=f"use one of {', '.join(roles_within(caller.role))}",
                )  # fmt: skip
            narrowing = narrowing_for(caller, role, caller.tenant, request)
            made = await make_token(
                connection, caller.tenant, role, request.name, expires_in, narrowing, user_id=user.user_id,
                member_id=member.token_id,
            )  # fmt: skip
            after = {"name": made.name, "role": role, "user": user.mail, "expires_at": made.expires_at,
                     "narrowing": narrowing}  # fmt: skip
            await record(connection, caller, "token", made.token_id, None, after)
        log.info("personal token created", token=made.token_id, user=str(user.user_id), role=role)
        return made

    async def revoke_token(self, caller: Caller, token_id: UUID) -> TokenView:
        """Revoke an own token. It is invalid from now on; a second call changes nothing."""
        async with self._store.change() as connection:
            row = await _own_token(connection, caller, token_id)
            if await users.revoke_own(connection, token_id, caller.owner):
                before, row = row, await _own_token(connection, caller, token_id)
                both = ({"name": one.name, "revoked_at": one.revoked_at} for one in (before, row))
                await record(connection, caller, "token", token_id, *both)
        self._signals.tokens.publish(caller.tenant)
        return token_view(row)


async def _own_token(connection: Connection, caller: Caller, token_id: UUID) -> TokenRow:
    """A caller that is no person has none."""
    found = [] if caller.user is None else await users.own_tokens(connection, caller.owner, caller.user)
    for row in found:
        if row.token_id == token_id:
            return row
    raise NotFound(f"you have no token {token_id} in this tenant", hint="the page Settings lists them")


async def _person(connection: Connection, caller: Caller) -> UserRow:
    user = None if caller.user is None else await users.get(connection, caller.user)
    if user is None:
        raise _no_person()
    return user


def _no_person() -> Forbidden:
    return Forbidden(
        "the caller is no person, but a token", code="user_needed", field="Authorization",
        hint="sign in with mail address and password, or use a personal token",
    )  # fmt: skip
