"""Messages about tenants and tokens."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mainspring.wire.formats import DurationIn, Name
from mainspring.wire.sessions import Secret
from mainspring.wire.states import RoleWord, TenantsWord

ALL_TENANTS = "all"
OWN_TENANT = "own"


class TenantRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/tenants`. token, password: that of the caller, typed again. A session needs one of them."""

    name: Name
    token: Secret | None = None
    password: Secret | None = None


class TenantView(msgspec.Struct):
    tenant_id: int
    name: str
    created_at: datetime


class TenantList(msgspec.Struct):
    tenants: list[TenantView]


class TokenRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/tokens`. role: admin, operator, submitter, viewer, metrics or worker. tenants: "own", or
    "all" for a token of shared workers, which take runs of every tenant. tenant: the name of the tenant, if an instance
    administrator creates the token for another one. expires_in: a duration; without it the token is valid until it
    is revoked. token, password: that of the caller, typed again. A session needs one of them for the role admin, and
    for a token that outlives the session. The others narrow the token: queues, tasks: it reaches jobs and runs of these
    alone. labels: those that have all of these labels. payloads: false hides payloads, results, variables, headers and
    output. addresses: the networks from which it is accepted."""

    role: RoleWord
    name: Name
    tenants: TenantsWord = OWN_TENANT
    tenant: Name | None = None
    expires_in: DurationIn | None = None
    token: Secret | None = None
    password: Secret | None = None
    queues: list[str] | None = None
    tasks: list[str] | None = None
    labels: dict[str, str] | None = None
    payloads: bool = True
    addresses: list[str] | None = None


class TokenView(msgspec.Struct):
    """A token without its secret. tenants: "own" or "all". tenant: the name of its tenant; None if tenants is "all".
    etag: for If-Match. queues, tasks, labels, payloads, addresses: how it is narrowed; null if it is not. user: the
    mail address of the person whose personal token it is."""

    token_id: str
    name: str
    role: RoleWord
    tenants: TenantsWord
    tenant: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    etag: str = ""
    queues: list[str] | None = None
    tasks: list[str] | None = None
    labels: dict[str, str] | None = None
    payloads: bool = True
    addresses: list[str] | None = None
    user: str | None = None


class TokenList(msgspec.Struct):
    tokens: list[TokenView]


class TokenMade(TokenView, kw_only=True):
    """A new token. `token` is the secret, which is not shown again."""

    token: str


class TenantMade(TenantView):
    """A new tenant with its first admin token. The secret is not shown again."""

    admin_token: TokenMade
