"""Administration of people: invite, list, roles, disable, remove, and links for a new password.

An admin administers the people of the own tenant. What concerns a person in several tenants (disabling, a new password)
is for instance administrators, because who chooses a password can sign in as that person everywhere.
"""

from __future__ import annotations

from itertools import groupby
from uuid import UUID

import msgspec

from mainspring.domain.errors import Conflict, Forbidden, InvalidInput, NotFound
from mainspring.domain.people import mail_address, person_role, roles_within
from mainspring.domain.texts import check_line, shown
from mainspring.kernel.ids import TenantId, parse_uuid
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.access_admin import instance_admin_only, tenant_named
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.typed_again import TypedAgain, check_typed
from mainspring.operations.paging.search import searching
from mainspring.operations.signals import Signals
from mainspring.store import attempts, identities, sessions, tenants, users
from mainspring.store.pool import Connection, Store
from mainspring.store.users import NEW_PASSWORD, PlaceRow
from mainspring.wire.users import (
    ConfirmRequest,
    InviteRequest,
    RoleRequest,
    UserLink,
    UserList,
    UserTenant,
    UserView,
)

log = get_logger("people")

PAGE = "/ui/"
_MOST_LISTED = 1000
_INVITED_FOR = 7 * 86400.0
_RESET_FOR = 86400.0
_WITHOUT_PASSWORD = {
    "invited": ("only_invited", "invite the person again"),
    "disabled": ("user_disabled", "enable the user first"),
}


class UserAdmin:
    def __init__(self, store: Store, signals: Signals, typed: TypedAgain) -> None:
        self._store = store
        self._signals = signals
        self._typed = typed

    async def users(self, caller: Caller) -> UserList:
        """The people of the tenant; an instance administrator sees all."""
        async with searching(self._store, caller.tenant, "users") as connection:
            rows = await users.places(connection, _scope(caller), _MOST_LISTED + 1)
        return UserList(_views(rows[:_MOST_LISTED], caller), more=len(rows) > _MOST_LISTED)

    async def user(self, caller: Caller, who: str) -> UserView:
        async with searching(self._store, caller.tenant, "users") as connection:
            return _view(await _places(connection, caller, who), caller)

    async def invite(self, caller: Caller, request: InviteRequest) -> UserLink:
        """Invite a person to a tenant by a link. It is shown only this once; another invitation takes its place."""
        check_line(request.name, "name")
        mail, role = mail_address(request.mail), person_role(request.role)
        await self._check_may(caller, request, "a session invites nobody")
        code = sessions.new_secret()
        async with self._store.change() as connection:
            tenant = await _tenant(connection, caller, request.tenant)
            user = await users.ensure(connection, mail, request.name)
            if await users.lock_member(connection, user.user_id, tenant) is not None:
                raise Conflict(
                    f"{mail} is in the tenant already", code="already_member", field="mail",
                    hint="change the role with POST /v1/users/{user}:role",
                )  # fmt: skip
            until = await users.put_link(connection, user.user_id, tenant, request.name, role, code, _INVITED_FOR)
            after = {"mail": mail, "name": request.name, "role": role, "link_until": until}
            await record(connection, caller, "user", user.user_id, None, after, tenants={tenant})
            view = _view(await _places(connection, caller, mail), caller)
        log.info("user invited", user=view.user_id, role=role, by=caller.name)
        return UserLink(**msgspec.structs.asdict(view), path=f"{PAGE}#invite={code}", code=code, expires_at=until)

    async def set_role(self, caller: Caller, who: str, request: RoleRequest) -> UserView:
        """Change what a person may do in a tenant, at once. Personal tokens that exceed the new role are revoked."""
        role = person_role(request.role)
        await self._check_may(caller, request, "a session changes no roles")
        async with self._store.change() as connection:
            tenant = await _tenant(connection, caller, request.tenant)
            place = _in_tenant(await _places(connection, caller, who), tenant)
            member = await users.lock_member(connection, place.user_id, tenant)
            if member is None:
                raise Conflict(
                    f"{place.mail} has not accepted the invitation yet", code="only_invited", field="user",
                    hint="invite the person again with the other role",
                )  # fmt: skip
            if await users.set_member_role(connection, member.token_id, role):
                revoked = await users.revoke_personal(connection, place.user_id, tenant, keep=roles_within(role))
                before = {"mail": place.mail, "role": member.role}
                after = {"mail": place.mail, "role": role, "personal_tokens_revoked": revoked}
                await record(connection, caller, "user", place.user_id, before, after, tenants={tenant})
            view = _view(await _places(connection, caller, str(place.user_id)), caller)
        self._signals.tokens.publish(tenant)  # after the commit, so that every later lookup finds the new role
        log.info("role changed", user=view.user_id, role=role, by=caller.name)
        return view

    async def disable(self, caller: Caller, who: str) -> UserView:
        """The person cannot sign in any more. Sessions and personal tokens end at once, in all tenants."""
        return await self._set_disabled(caller, who, disabled=True)

    async def enable(self, caller: Caller, who: str, request: ConfirmRequest) -> UserView:
        """The person can sign in again. Personal tokens stay revoked."""
        await self._check_may(caller, request, "a session enables nobody")
        return await self._set_disabled(caller, who, disabled=False)

    async def _set_disabled(self, caller: Caller, who: str, *, disabled: bool) -> UserView:
        _not_narrowed(caller)
        async with self._store.change() as connection:
            place = (await _places(connection, caller, who))[0]
            await users.lock(connection, place.user_id)
            every = await _whole(connection, caller, place.user_id)
            if await users.set_disabled(connection, place.user_id, disabled):
                if disabled:
                    await users.revoke_personal(connection, place.user_id)
                    await users.end_sessions(connection, place.user_id)
                    await users.drop_links(connection, place.user_id, [NEW_PASSWORD])
                both = ({"mail": place.mail, "disabled": one} for one in (not disabled, disabled))
                await record(connection, caller, "user", place.user_id, *both, tenants=every)
            view = _view(await _places(connection, caller, str(place.user_id)), caller)
        for tenant in every:
            self._signals.tokens.publish(tenant)
        log.info("user disabled" if disabled else "user enabled", user=view.user_id, by=caller.name)
        return view

    async def remove(self, caller: Caller, who: str) -> UserView:
        """Remove a person from the tenant; an instance administrator from all. Sessions and personal tokens there end
        at once. A person in no tenant is deleted. Returns the user as it was."""
        _not_narrowed(caller)
        async with self._store.change() as connection:
            rows = await _places(connection, caller, who)
            user_id = rows[0].user_id
            await users.lock(connection, user_id)
            rows = await _places(connection, caller, str(user_id))
            left = [row.tenant_id for row in rows]
            await users.end_sessions(connection, user_id, left)
            await users.drop_links(connection, user_id, left)
            await users.revoke_of(connection, user_id, left)
            if await users.delete(connection, user_id):
                await users.drop_links(connection, user_id)
                await attempts.forget_browsers(connection, user_id)
                await identities.delete_of(connection, user_id)
            for row in rows:
                was = {"mail": row.mail, "name": row.name, "role": row.role}
                await record(connection, caller, "user", user_id, was, None, tenants={row.tenant_id})
        for tenant in left:
            self._signals.tokens.publish(tenant)
        log.info("user removed", user=str(user_id), by=caller.name)
        return _view(rows, caller)

    async def reset(self, caller: Caller, who: str, request: ConfirmRequest) -> UserLink:
        """A link with which the person chooses a new password. When it is used, all sessions and personal tokens of the
        person end."""
        await self._check_may(caller, request, "a session makes no links for passwords")
        code = sessions.new_secret()
        async with self._store.change() as connection:
            place = (await _places(connection, caller, who))[0]
            user = await users.lock(connection, place.user_id)
            every = await _whole(connection, caller, place.user_id)
            view = _view(await _places(connection, caller, str(place.user_id)), caller)
            if not caller.is_instance_admin and await identities.has_some(connection, place.user_id):
                raise Forbidden(
                    f"{place.mail} signs in at a provider", code="signs_in_elsewhere", field="user",
                    hint="the person changes the password there",
                )  # fmt: skip
            if user is None or view.state != "active":
                code, hint = _WITHOUT_PASSWORD[view.state]
                raise Conflict(f"{place.mail} is {view.state}", code=code, field="user", hint=hint)
            until = await users.put_link(connection, user.user_id, NEW_PASSWORD, user.name, None, code, _RESET_FOR)
            after = {"mail": user.mail, "password_link_until": until}
            await record(connection, caller, "user", user.user_id, None, after, tenants=every)
        log.info("link for a new password", user=view.user_id, by=caller.name)
        return UserLink(**msgspec.structs.asdict(view), path=f"{PAGE}#invite={code}", code=code, expires_at=until)

    async def _check_may(
        self, caller: Caller, request: InviteRequest | RoleRequest | ConfirmRequest, kept: str
    ) -> None:
        _not_narrowed(caller)
        check_typed(caller, await self._typed.is_typed(caller, request.token, request.password), kept)


def _not_narrowed(caller: Caller) -> None:
    if caller.narrowing is not None:
        raise Forbidden(
            "a narrowed token administers no people, who reach further than itself", code="outside_token",
            hint="use a token that is not narrowed",
        )  # fmt: skip


def _scope(caller: Caller) -> list[TenantId] | None:
    """The tenants whose people this admin sees. None: all."""
    return None if caller.is_instance_admin else [caller.tenant]


async def _tenant(connection: Connection, caller: Caller, name: str | None) -> TenantId:
    """The tenant that the request is about. Only an instance administrator may name another one than the own."""
    if name is None:
        return caller.tenant
    check_line(name, "tenant")
    if await tenants.find(connection, name) == caller.tenant:
        return caller.tenant
    instance_admin_only(
        caller.tenant, "only an admin of the tenant default administers people of other tenants", field="tenant"
    )
    return await tenant_named(connection, name)


async def _places(connection: Connection, caller: Caller, who: str) -> list[PlaceRow]:
    """The tenants of a user, by id or mail address, as far as the caller administers them."""
    user_id = parse_uuid(who)
    mail = None if user_id is not None else who.strip().lower()
    found = await users.places(connection, _scope(caller), _MOST_LISTED, user_id=user_id, mail=mail)
    if not found:
        raise NotFound(f"there is no user {shown(who)}", field="user", hint="see GET /v1/users")
    return found


def _in_tenant(rows: list[PlaceRow], tenant: TenantId) -> PlaceRow:
    for row in rows:
        if row.tenant_id == tenant:
            return row
    raise InvalidInput(f"{rows[0].mail} is not in the tenant", field="tenant", hint="invite the person to it")


async def _whole(connection: Connection, caller: Caller, user_id: UUID) -> set[TenantId]:
    """All tenants of the user. Raises Forbidden if the caller does not administer all of them."""
    found = {row.tenant_id for row in await users.places(connection, None, _MOST_LISTED, user_id=user_id)}
    if not caller.is_instance_admin and found != {caller.tenant}:
        raise Forbidden(
            "the user is in other tenants, too", code="instance_admin_only", field="user",
            hint="remove the user from your tenant, or ask the administrator of this Mainspring",
        )  # fmt: skip
    return found


def _views(rows: list[PlaceRow], caller: Caller) -> list[UserView]:
    return [_view(list(of_user), caller) for _, of_user in groupby(rows, key=lambda row: row.user_id)]


def _view(rows: list[PlaceRow], caller: Caller) -> UserView:
    first = next((row for row in rows if row.token_id is not None), rows[0])
    if first.token_id is None and not (caller.is_instance_admin and first.disabled_at is not None):
        state = "invited"  # whether the person is disabled elsewhere is not for this tenant
    else:
        state = "active" if first.disabled_at is None else "disabled"
    here = next((row.token_id for row in rows if row.tenant_id == caller.tenant), None)
    return UserView(
        str(first.user_id), first.mail, first.name, state,
        [UserTenant(row.tenant, row.role, row.invited_until) for row in rows], first.created_at,
        None if here is None else str(here),
    )  # fmt: skip
