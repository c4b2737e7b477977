"""Which user a person at a provider is here, and what the groups there make of the user."""

from __future__ import annotations

from uuid import UUID

from mainspring.domain.errors import Conflict, Forbidden
from mainspring.domain.oidc import Identity, ProviderSettings, no_verified_mail, roles_by_tenant
from mainspring.domain.people import full_name, roles_within
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.people.user_sessions import (
    SIGN_IN,
    From,
    SignedInUser,
    begin,
    chosen,
    known_by,
)
from mainspring.operations.signals import Signals
from mainspring.store import attempts, identities, tenants, users
from mainspring.store.pool import Connection, Store
from mainspring.store.users import NEW_PASSWORD, UserRow

FRESH_FOR = 300.0  # seconds for which a proof at the provider counts as a password that is typed again

log = get_logger("people")

Change = tuple[TenantId, str | None, str | None]  # in a tenant: the role before and after


class ProviderPeople:
    def __init__(self, store: Store, signals: Signals) -> None:
        self._store = store
        self._signals = signals

    async def sign_in(
        self, settings: ProviderSettings, identity: Identity, where: From, *, fresh: bool
    ) -> SignedInUser:
        """Begin a session. Raises Forbidden or Conflict if the person may have none."""
        changes: list[Change] = []
        begun = None
        async with self._store.change() as connection:
            user, granted, linked = await self._user(connection, settings, identity)
            roles = await _roles(connection, settings, identity)
            for tenant in sorted(set(granted) - roles.keys()):
                changes += await _leave(connection, user, tenant)
            for tenant, role in roles.items():
                changes += await _have_role(connection, user, tenant, role, full_name(identity.name, user.mail))
            for invitation in await users.invitations_of(connection, user.user_id):
                await users.drop_links(connection, user.user_id, [invitation.tenant_id])
                if invitation.tenant_id not in roles and invitation.role is not None:
                    name = full_name(invitation.name, user.mail)
                    changes += await _have_role(connection, user, invitation.tenant_id, invitation.role, name)
            await users.drop_links(connection, user.user_id, [NEW_PASSWORD])
            await identities.set_granted(connection, settings.issuer, identity.subject, user.user_id, sorted(roles))
            members = await users.members_of(connection, user.user_id)
            if not members and not granted:  # a person who is in no tenant is not stored
                raise _no_tenant(settings)
            if members:
                member = chosen(members, None)
                known = await known_by(connection, user, where)
                after = {"by": settings.key, **({"fresh": True} if fresh else {})}
                begun = await begin(
                    connection, user, member, where, SIGN_IN, after, settings.session, known=known
                )  # fmt: skip
            if begun is not None:
                if fresh:
                    await identities.make_fresh(connection, begun.session_id, FRESH_FOR)
                caller = begun.caller
                if linked:
                    after = {"mail": user.mail, "signs_in_at": settings.issuer}
                    every = {one.tenant_id for one in members}
                    await record(connection, caller, "user", user.user_id, None, after, tenants=every)
                for tenant, old, new in changes:
                    both = (None if role is None else {"mail": user.mail, "role": role} for role in (old, new))
                    await record(connection, caller, "user", user.user_id, *both, tenants={tenant})
        for tenant in {*(tenant for tenant, _, _ in changes), *(one.tenant_id for one in members)}:
            self._signals.tokens.publish(tenant)  # after the commit: what ended must not be found any more
        if begun is None:  # the groups that gave a role are gone, and so is what they gave
            raise _no_tenant(settings)
        return begun.told

    async def _user(
        self, connection: Connection, settings: ProviderSettings, identity: Identity
    ) -> tuple[UserRow, list[TenantId], bool]:
        """The user, locked; the tenants because of groups until now; and whether the provider is new to the user."""
        found = await identities.find(connection, settings.issuer, identity.subject)
        if found is not None and (user := await users.lock(connection, found.user_id)) is not None:
            again = await identities.find(connection, settings.issuer, identity.subject)  # as it is under the lock
            if again is not None and again.user_id == user.user_id:
                if user.disabled_at is not None:
                    raise _disabled()
                return user, again.granted, False
        if found is not None:  # an older server has removed the user without this
            await identities.delete_of(connection, found.user_id)
        if identity.mail is None:
            raise no_verified_mail(settings)
        user = await users.ensure(connection, identity.mail, identity.name)
        if user.disabled_at is not None:
            raise _disabled()
        if await identities.has_some(connection, user.user_id, settings.issuer):
            raise _mail_taken("somebody else at the provider has this mail address here")
        has_members = bool(await users.members_of(connection, user.user_id))
        if has_members or user.password_hash is not None or await identities.has_some(connection, user.user_id):
            if not settings.link_by_mail:
                raise _mail_taken("there is an account with this mail address, which does not sign in at this provider")
            await _take_over(connection, user.user_id)
        if not await identities.insert(connection, settings.issuer, identity.subject, user.user_id):
            raise Conflict("the same person signs in at this moment", code="changed_meanwhile", field="code",
                           hint="sign in again")  # fmt: skip
        return user, [], True


async def _take_over(connection: Connection, user_id: UUID) -> None:
    """Another person may have known the password, or had a session or a token."""
    await users.drop_password(connection, user_id)
    await users.end_sessions(connection, user_id)
    await users.revoke_personal(connection, user_id)
    await attempts.forget_browsers(connection, user_id)


async def _roles(connection: Connection, settings: ProviderSettings, identity: Identity) -> dict[TenantId, str]:
    found = {}
    for name, role in roles_by_tenant(settings, identity.groups).items():
        tenant = await tenants.find(connection, name)
        if tenant is None:
            log.warning("a provider grants a role in a tenant that does not exist", provider=settings.key, tenant=name)
        else:
            found[tenant] = role
    return dict(sorted(found.items()))


async def _leave(connection: Connection, user: UserRow, tenant: TenantId) -> list[Change]:
    member = await users.lock_member(connection, user.user_id, tenant)
    if member is None:
        return []
    await users.end_sessions(connection, user.user_id, [tenant])
    await users.revoke_of(connection, user.user_id, [tenant])
    return [(tenant, member.role, None)]


async def _have_role(connection: Connection, user: UserRow, tenant: TenantId, role: str, name: str) -> list[Change]:
    member = await users.lock_member(connection, user.user_id, tenant)
    if member is None:
        await users.put_member(connection, user.user_id, tenant, role, name)
        return [(tenant, None, role)]
    if not await users.set_member_role(connection, member.token_id, role):
        return []
    await users.revoke_personal(connection, user.user_id, tenant, keep=roles_within(role))
    return [(tenant, member.role, role)]


def _disabled() -> Forbidden:
    return Forbidden(
        "this person was disabled here", code="sign_in_disabled", field="code", hint="an admin can enable the user"
    )


def _mail_taken(detail: str) -> Forbidden:
    return Forbidden(
        detail, code="mail_taken", field="code",
        hint="sign in as before; whoever runs this Mainspring can set link_by_mail, or remove the user",
    )  # fmt: skip


def _no_tenant(settings: ProviderSettings) -> Forbidden:
    return Forbidden(
        f"your groups at {settings.name} give you no role here", code="no_tenant", field="code",
        hint="an admin can invite you, or put you into a group that has a role",
    )  # fmt: skip
