"""Administration of tenants and tokens: create, list and revoke."""

from __future__ import annotations

import re
from uuid import UUID

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import Conflict, Forbidden, InvalidInput, NotFound, NotSupportedYet
from mainspring.domain.tags import check_tag, token_tag
from mainspring.domain.texts import check_line, shown
from mainspring.kernel.ids import DEFAULT_TENANT, EVERY_TENANT, TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.failed_sign_ins import FailedSignIns
from mainspring.operations.access.permissions import ADMIN, PURPOSES, WORKER
from mainspring.operations.paging.search import searching
from mainspring.operations.signals import Signals
from mainspring.store import sessions, tenants, tokens
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

log = get_logger("access")

_ROLES_IN_WORDS = "admin, operator, viewer, metrics or worker"
_LATER = ("submitter",)
_TENANT_NAME = re.compile(r"[A-Za-z0-9._-]+\Z")
_LEAST_LIFE = 1.0
_MOST_LIFE = 100 * 365 * 86400.0


class AccessAdmin:
    """`asker` is the tenant of the calling admin.

    An instance administrator is an admin of the tenant `default`. It creates tenants, tokens for shared workers, and
    tokens for tenants that have lost theirs. Other admins can manage the tokens of their own tenant only.
    """

    def __init__(self, store: Store, signals: Signals, failed: FailedSignIns) -> None:
        self._store = store
        self._signals = signals
        self._failed = failed

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
        _instance_admin_only(asker, "only an admin of the tenant default can create tenants", field=None)
        if not _TENANT_NAME.match(request.name):
            raise InvalidInput(
                f"{shown(request.name)} cannot be the name of a tenant", field="name",
                expected="letters, digits, and . _ -",
            )  # fmt: skip
        async with self._store.change() as connection:
            await self._check_typed(connection, caller, request.token, "a session creates no tenant")
            await tokens.take_turn(connection)
            row = await tenants.insert(connection, request.name)
            if row is None:
                raise Conflict(
                    f"a tenant called {request.name!r} exists already", field="name", hint="see GET /v1/tenants"
                )
            tenant = _tenant_view(row)
            made = await _make(connection, TenantId(tenant.tenant_id), ADMIN, "first admin", None)
        log.info("tenant created", tenant=tenant.name, tenant_id=tenant.tenant_id)
        return TenantMade(tenant.tenant_id, tenant.name, tenant.created_at, made)

    async def tokens(self, caller: Caller) -> TokenList:
        asker = caller.tenant
        visible = _visible(asker) if caller.role == ADMIN else [asker]
        async with searching(self._store, asker, "tokens") as connection:
            return TokenList([_token_view(row) for row in await tokens.list_tokens(connection, visible)])

    async def add_token(self, caller: Caller, request: TokenRequest) -> TokenMade:
        """Create a token. It is shown only this once."""
        asker = caller.tenant
        check_line(request.name, "name")
        role = _role(request.role)
        tenant = _tenant_for(asker, role, request)
        expires_in = None
        if request.expires_in is not None:
            expires_in = parse_duration(request.expires_in, "expires_in", least=_LEAST_LIFE, most=_MOST_LIFE)
        async with self._store.reads.acquire() as connection:
            kept = await self._kept_from_a_session(connection, caller, role, expires_in)
            await self._check_typed(connection, caller, request.token, kept)
            if request.tenant is not None:
                tenant = await _named(connection, request.tenant)
            made = await _make(connection, tenant, role, request.name, expires_in)
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

    async def _check_typed(self, connection: Connection, caller: Caller, typed: str | None, kept: str | None) -> None:
        """Raise Forbidden unless the token of the caller was typed again, if a session needs that. `kept`: why it
        does."""
        if typed is not None:
            found = await tokens.find(connection, tokens.hash_token(typed))
            if found is None or found.principal.token_id != caller.credential:
                self._failed.note("wrong_token", caller.address)
                raise Forbidden(
                    "this is not the token that you signed in with", code="wrong_token", field="token",
                    hint="type the token whose name the page shows",
                )  # fmt: skip
        elif caller.session is not None and kept is not None:
            raise Forbidden(
                f"{kept}, unless its own token is typed again", code="token_needed", field="token",
                hint="send the token that you signed in with in the field token, or use it instead of a session",
            )  # fmt: skip

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
                and row.revoked_at is None
                and not await tokens.other_admins(connection, tenant, token_id)
            ):
                raise Conflict(
                    f"{row.name!r} is the last admin token of its tenant", code="last_admin", field="token_id",
                    hint="create another one first, with POST /v1/tokens",
                )  # fmt: skip
            changed = await tokens.revoke(connection, token_id)
            row = await _token(connection, asker, token_id)
        self._signals.tokens.publish(tenant)  # after the commit, so that every later lookup finds it revoked
        if changed:
            log.info("token revoked", token=str(token_id), name=row.name)
        return _token_view(row)


async def _make(connection: Connection, tenant: TenantId, role: str, name: str, expires_in: float | None) -> TokenMade:
    secret = tokens.new_token()
    token_id = await tokens.insert(connection, tenant, secret, role, name, expires_in=expires_in)
    row = await tokens.get(connection, [tenant], token_id)
    assert row is not None
    view = _token_view(row)
    return TokenMade(
        view.token_id, view.name, view.role, view.tenants, view.tenant, view.created_at, view.expires_at,
        view.revoked_at, view.etag, token=secret,
    )  # fmt: skip


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
    if role in _LATER:
        raise NotSupportedYet(
            f"the role {role!r} is not supported yet", field="role", expected=_ROLES_IN_WORDS,
            hint="; ".join(f"{role}: {purpose}" for role, purpose in PURPOSES.items()),
        )  # fmt: skip
    raise InvalidInput(f"there is no role {shown(role)}", field="role", expected=_ROLES_IN_WORDS)


async def _named(connection: Connection, name: str) -> TenantId:
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
        _instance_admin_only(
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
    _instance_admin_only(
        asker, "only an admin of the tenant default can create tokens of shared workers", field="tenants"
    )
    return EVERY_TENANT


def _instance_admin_only(asker: TenantId, detail: str, *, field: str | None) -> None:
    if asker != DEFAULT_TENANT:
        raise Forbidden(
            detail, code="instance_admin_only", field=field, hint="ask the administrator of this Mainspring"
        )


def _tenant_view(row: TenantRow) -> TenantView:
    return TenantView(row.tenant_id, row.name, row.created_at)


def _token_view(row: TokenRow) -> TokenView:
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
    )
