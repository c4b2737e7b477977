"""Calls for tenants, tokens and sessions, and whether a server is ready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mainspring.sdk.client.calls.common import verb
from mainspring.sdk.client.core import Call, encode, json_of, segment
from mainspring.wire.access import TenantList, TenantMade, TokenList, TokenMade, TokenView
from mainspring.wire.runs import (
    Health,
    Readiness,
)
from mainspring.wire.sessions import OpenSession, SessionList, SignInLink

_tenant_made = json_of(TenantMade)
_tenant_list = json_of(TenantList)
_token = json_of(TokenView)
_token_made = json_of(TokenMade)
_token_list = json_of(TokenList)
_link = json_of(SignInLink)
_session = json_of(OpenSession)
_session_list = json_of(SessionList)
_health = json_of(Health)
_readiness = json_of(Readiness)


def tenants() -> Call[TenantList]:
    """All tenants for an instance administrator (an admin of the tenant `default`), otherwise the own tenant."""
    return Call("GET", "/v1/tenants", _tenant_list)


def add_tenant(name: str) -> Call[TenantMade]:
    """Create a tenant. The response contains its first admin token, which is not shown again."""
    return Call("POST", "/v1/tenants", _tenant_made, body=encode({"name": name}), repeatable=False)


def tokens() -> Call[TokenList]:
    """The tenant's tokens, without their secrets."""
    return Call("GET", "/v1/tokens", _token_list)


def add_token(
    name: str,
    role: str,
    *,
    tenants: str | None = None,
    tenant: str | None = None,
    expires_in: str | float | None = None,
    queues: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
    labels: Mapping[str, str] | None = None,
    payloads: bool | None = None,
    addresses: Sequence[str] | None = None,
) -> Call[TokenMade]:
    """Create a token with role "admin", "operator", "submitter", "viewer", "metrics" or "worker". tenants="all" is for
    workers that take runs of every tenant. tenant="name" is for another tenant, which only an instance administrator
    can do. `queues`, `tasks` and `labels` narrow it to some of the jobs and runs, `payloads=False` hides their data,
    and `addresses` are the networks from which it is accepted. The response contains the secret, which is not shown
    again."""
    given = {
        "name": name, "role": role, "tenants": tenants, "tenant": tenant, "expires_in": expires_in, "queues": queues,
        "tasks": tasks, "labels": labels, "payloads": payloads, "addresses": addresses,
    }  # fmt: skip
    body = encode({field: value for field, value in given.items() if value is not None})
    return Call("POST", "/v1/tokens", _token_made, body=body, repeatable=False)


def revoke_token(token_id: str, *, if_match: str | None = None) -> Call[TokenView]:
    """Revoke a token. It is rejected from now on. With `if_match`, only if it still has that `etag`."""
    return verb(f"/v1/tokens/{segment(token_id)}:revoke", _token, only_if=if_match)


def sign_in_link() -> Call[SignInLink]:
    """A link that opens the dashboard signed in as this token, once, within five minutes."""
    return Call("POST", "/v1/session/links", _link, repeatable=False)


def sessions() -> Call[SessionList]:
    """The browsers that are signed in with tokens of the tenant, newest first."""
    return Call("GET", "/v1/sessions", _session_list)


def end_session(session_id: str) -> Call[OpenSession]:
    """Sign a browser out, at once. Returns the session as it was. Its token is still valid, and can open another. Not
    repeated after a lost response."""
    return verb(f"/v1/sessions/{segment(session_id)}:end", _session, repeatable=False)


def health() -> Call[Health]:
    """Check whether the server is up."""
    return Call("GET", "/healthz", _health)


def readiness() -> Call[Readiness]:
    """Check whether the server makes progress. Otherwise it answers 503 with the failed checks."""
    return Call("GET", "/readyz", _readiness, also_read=frozenset({503}))
