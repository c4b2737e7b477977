"""Administration of tenants and tokens: create, list and revoke."""

from __future__ import annotations

import re
from uuid import UUID

import msgspec

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import Conflict, Forbidden, InvalidInput, NotFound
from mainspring.domain.narrowing import Narrowing, narrowing_of
from mainspring.domain.quotas import exceeded
from mainspring.domain.tags import check_tag, token_tag
from mainspring.domain.texts import check_line, meant, shown
from mainspring.kernel.ids import DEFAULT_TENANT, EVERY_TENANT, TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.permissions import ADMIN, PURPOSES, WORKER
from mainspring.operations.access.typed_again import TypedAgain, check_typed
from mainspring.operations.paging.search import searching
from mainspring.operations.signals import Signals
from mainspring.store import quotas, sessions, tenants, tokens
from mainspring.store.pool import Connection, Store
from mainspring.store.tenants import TenantRow
from mainspring.store.tokens import TokenRow
from mainspring.wire.access import (
    ALL_TENANTS,
    OWN_TENANT,
    TenantList,
    TenantMade,
    TenantRequest,
    TenantView,
    TokenList,
    TokenMade,
    TokenRequest,
    TokenView,
)
from mainspring.wire.users import PersonalTokenRequest

log = get_logger("access")

_ROLES_IN_WORDS = "admin, operator, submitter, viewer, metrics or worker"
_TENANT_NAME = re.compile(r"[A-Za-z0-9._-]+\Z")
_LEAST_LIFE = 1.0
_MOST_LIFE = 100 * 365 * 86400.0


class AccessAdmin:
    """`asker` is the tenant of the calling admin.

    An instance administrator is an admin of the tenant `default`. It creates tenants, tokens for shared workers, and
    tokens for tenants that have lost theirs. Other admins can manage the tokens of their own tenant only.
    """

    def __init__(self, store: Store, signals: Signals, typed: TypedAgain) -> None:
        self._store = store
        self._signals = signals
        self._typed = typed

    async def tenants(self, caller: Caller) -> TenantList:
        """All tenants for an instance administrator, and the own tenant for others."""
        asker = caller.tenant
        async with searching(self._store, asker, "tenants") as connection:
            if caller.is_instance_admin:
                rows = await tenants.list_tenants(connection)
            else:
                own = await tenants.get(connection, asker)
                rows = [] if own is None else [own]
        return TenantList([_tenant_view(row) for row in rows])

    async def add_tenant(self, caller: Caller, request: TenantRequest) -> TenantMade:
        """Create a tenant and its first admin token. The token is shown only this once."""
        asker = caller.tenant
        instance_admin_only(asker, "only an admin of the tenant default can create tenants", field=None)
        if not _TENANT_NAME.match(request.name):
            raise InvalidInput(
                f"{shown(request.name)} cannot be the name of a tenant", field="name",
                expected="letters, digits, and . _ -",
            )  # fmt: skip
        check_typed(
            caller, await self._typed.is_typed(caller, request.token, request.password), "a session creates no tenant"
        )
        async with self._store.change() as connection:
            await tokens.take_turn(connection)
            row = await tenants.insert(connection, request.name)
            if row is None:
                raise Conflict(
                    f"a tenant called {request.name!r} exists already", field="name", hint="see GET /v1/tenants"
                )
            tenant = _tenant_view(row)
            made = await make_token(connection, TenantId(tenant.tenant_id), ADMIN, "first admin", None)
            after = {"name": tenant.name, "admin_token": made.token_id}
            await record(connection, caller, "tenant", tenant.tenant_id, None, after)
        log.info("tenant created", tenant=tenant.name, tenant_id=tenant.tenant_id)
        return TenantMade(tenant.tenant_id, tenant.name, tenant.created_at, made)

    async def tokens(self, caller: Caller) -> TokenList:
        asker = caller.tenant
        visible = _visible(asker) if caller.role == ADMIN else [asker]
        async with searching(self._store, asker, "tokens") as connection:
            return TokenList([token_view(row) for row in await tokens.list_tokens(connection, visible)])

    async def add_token(self, caller: Caller, request: TokenRequest) -> TokenMade:
        """Create a token. It is shown only this once."""
        asker = caller.tenant
        check_line(request.name, "name")
        role = _role(request.role)
        tenant = _tenant_for(asker, role, request)
        expires_in = life_of(request)
        narrowing = narrowing_for(caller, role, tenant, request)
        typed = await self._typed.is_typed(caller, request.token, request.password)
        async with self._store.change() as connection:
            check_typed(caller, typed, await self._kept_from_a_session(connection, caller, role, expires_in))
            if request.tenant is not None:
                tenant = await tenant_named(connection, request.tenant)
            await check_token_quota(connection, tenant)
            made = await make_token(connection, tenant, role, request.name, expires_in, narrowing)
            after = {"name": made.name, "role": role, "expires_at": made.expires_at, "narrowing": narrowing}
            await record(connection, caller, "token", made.token_id, None, after, tenants={asker, tenant})
        log.info("token created", token=made.token_id, name=made.name, role=role, tenant=made.tenant or ALL_TENANTS)
        return made

    async def _kept_from_a_session(
        self, connection: Connection, caller: Caller, role: str, expires_in: float | None
    ) -> str | None:
        """Why the session of this caller may not make such a token. A session ends; an attacker who had one for a while
        must not keep access for ever. An admin's token could make others."""
        if caller.session is None:
            return None
        if role == ADMIN:
            return "a session makes no token of an admin"
        left = await sessions.seconds_left(connection, caller.session)
        if expires_in is None or expires_in > left:
            return "a session makes no token that outlives it"
        return None

    async def revoke(self, caller: Caller, token_id: UUID, if_match: str | None = None) -> TokenView:
        """Revoke a token. It is invalid from now on; a second call changes nothing. The last admin token of a tenant
        cannot be revoked, because then no token could create another one."""
        asker = caller.tenant
        async with self._store.change() as connection:
            await tokens.take_turn(connection)
            row = await _token(connection, asker, token_id)
            check_tag("token", token_tag(row.revoked_at), if_match)
            tenant = row.tenant_id
            if (
                row.role == ADMIN
                and row.user_mail is None
                and row.revoked_at is None
                and not await tokens.other_admins(connection, tenant, token_id)
            ):
                raise Conflict(
                    f"{row.name!r} is the last admin token of its tenant", code="last_admin", field="token_id",
                    hint="create another one first, with POST /v1/tokens",
                )  # fmt: skip
            changed = await tokens.revoke(connection, token_id)
            before, row = row, await _token(connection, asker, token_id)
            if changed:
                both = ({"name": one.name, "revoked_at": one.revoked_at} for one in (before, row))
                await record(connection, caller, "token", token_id, *both, tenants={asker, tenant})
        self._signals.tokens.publish(tenant)  # after the commit, so that every later lookup finds it revoked
        if changed:
            log.info("token revoked", token=str(token_id), name=row.name)
        return token_view(row)


def life_of(request: TokenRequest | PersonalTokenRequest) -> float | None:
    """For how many seconds the new token is valid. None: until it is revoked."""
    if request.expires_in is None:
        return None
    return parse_duration(request.expires_in, "expires_in", least=_LEAST_LIFE, most=_MOST_LIFE)


def narrowing_for(
    caller: Caller, role: str, tenant: TenantId, request: TokenRequest | PersonalTokenRequest
) -> Narrowing | None:
    """How the new token is narrowed. It reaches nothing that the token of the caller does not."""
    given = narrowing_of(request.queues, request.tasks, request.labels, request.addresses, payloads=request.payloads)
    if given is not None and role == WORKER and (given.labels is not None or not given.payloads):
        raise InvalidInput(
            "a token of a worker is narrowed by queues, tasks and addresses",
            field="payloads" if given.labels is None else "labels",
            hint="leave it out: a worker takes every run of its queues and tasks, with its payload",
        )
    if caller.narrowing is None:
        return given
    of_another = isinstance(request, TokenRequest) and request.tenant is not None
    if of_another or tenant != caller.tenant or not (given or Narrowing()).is_within(caller.narrowing):
        raise Forbidden(
            "a narrowed token makes none that reaches further than itself", code="outside_token",
            hint="narrow the new token at least as the token of this request is narrowed",
        )  # fmt: skip
    return given


async def make_token(
    connection: Connection,
    tenant: TenantId,
    role: str,
    name: str,
    expires_in: float | None,
    narrowing: Narrowing | None = None,
    *,
    user_id: UUID | None = None,
    member_id: UUID | None = None,
) -> TokenMade:
    """A new token; with `user_id` and `member_id` a personal one."""
    secret = tokens.new_token()
    token_id = await tokens.insert(
        connection, tenant, secret, role, name, expires_in=expires_in, narrowing=narrowing, user_id=user_id,
        member_id=member_id,
    )  # fmt: skip
    row = await tokens.get(connection, [tenant], token_id)
    assert row is not None
    return TokenMade(**msgspec.structs.asdict(token_view(row)), token=secret)


async def _token(connection: Connection, asker: TenantId, token_id: UUID) -> TokenRow:
    row = await tokens.get(connection, _visible(asker), token_id)
    if row is None:
        raise NotFound(f"there is no token {token_id}", hint="see GET /v1/tokens")
    return row


def _visible(asker: TenantId) -> list[TenantId]:
    """The tenants whose tokens this admin sees."""
    return [asker, EVERY_TENANT] if asker == DEFAULT_TENANT else [asker]


def _role(role: str) -> str:
    if role in PURPOSES:
        return role
    raise InvalidInput(
        f"there is no role {shown(role)}", field="role", expected=_ROLES_IN_WORDS,
        hint=meant(role, PURPOSES, "; ".join(f"{one}: {purpose}" for one, purpose in PURPOSES.items())),
    )  # fmt: skip


async def check_token_quota(connection: Connection, tenant: TenantId) -> None:
    """Raise QuotaExceeded if the tenant has as many tokens as it may have."""
    most = (await quotas.get(connection, tenant)).tokens
    if most is None:
        return
    await tokens.take_turn(connection)
    count = await quotas.count_tokens(connection, tenant)
    if count >= most:
        raise exceeded("tokens", most, count + 1, hint="revoke tokens that are not needed")


async def tenant_named(connection: Connection, name: str) -> TenantId:
    tenant = await tenants.find(connection, name)
    if tenant is None:
        raise InvalidInput(f"there is no tenant {shown(name)}", field="tenant", hint="see GET /v1/tenants")
    return tenant


def _tenant_for(asker: TenantId, role: str, request: TokenRequest) -> TenantId:
    """The tenant of the new token, unless the request names one. Only an instance administrator may name one, which
    is checked here."""
    wanted = request.tenants
    if request.tenant is not None:
        check_line(request.tenant, "tenant")
        # This check comes before the lookup, so that a refused caller does not learn which tenants exist.
        instance_admin_only(
            asker, "only an admin of the tenant default can create tokens for other tenants", field="tenant"
        )
        if wanted == ALL_TENANTS:
            raise InvalidInput(
                "a token is for one tenant or for all", field="tenant", hint='leave out tenant, or tenants "all"'
            )
    if wanted == OWN_TENANT:
        return asker
    if wanted != ALL_TENANTS:
        raise InvalidInput(f"tenants cannot be {shown(wanted)}", field="tenants", expected='"own" or "all"')
    if role != WORKER:
        raise InvalidInput(
            f"a token of role {role} belongs to one tenant", field="tenants", expected='"own"',
            hint="only workers can be shared: use the role worker, or leave out tenants",
        )  # fmt: skip
    instance_admin_only(
        asker, "only an admin of the tenant default can create tokens of shared workers", field="tenants"
    )
    return EVERY_TENANT


def instance_admin_only(asker: TenantId, detail: str, *, field: str | None) -> None:
    if asker != DEFAULT_TENANT:
        raise Forbidden(
            detail, code="instance_admin_only", field=field, hint="ask the administrator of this Mainspring"
        )


def _tenant_view(row: TenantRow) -> TenantView:
    return TenantView(row.tenant_id, row.name, row.created_at)


def token_view(row: TokenRow) -> TokenView:
    narrowed = row.narrowing or Narrowing()
    return TokenView(
        str(row.token_id),
        row.name,
        row.role,
        ALL_TENANTS if row.tenant_id == EVERY_TENANT else OWN_TENANT,
        row.tenant,
        row.created_at,
        row.expires_at,
        row.revoked_at,
        token_tag(row.revoked_at),
        None if narrowed.queues is None else list(narrowed.queues),
        None if narrowed.tasks is None else list(narrowed.tasks),
        narrowed.labels,
        narrowed.payloads,
        None if narrowed.addresses is None else list(narrowed.addresses),
        row.user_mail,
    )
