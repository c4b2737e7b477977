"""/v1/tenants and /v1/tokens."""

from __future__ import annotations

from mainspring.api.answers import LISTS
from mainspring.api.handlers import get, post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.reach import Reach
from mainspring.api.routes.versions import IfTag, tag_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request
from mainspring.domain.errors import NotFound
from mainspring.kernel.ids import parse_uuid
from mainspring.operations.access.permissions import ADMINS, READERS
from mainspring.wire.access import (
    TenantList,
    TenantMade,
    TenantRequest,
    TokenList,
    TokenMade,
    TokenRequest,
    TokenView,
)
from mainspring.wire.jobs import Nothing

Http = Request
_TYPED = ("wrong_token", "not_your_password", "user_needed", "passwords_busy", "too_many_attempts")


@get("/v1/tenants", summary="List tenants", operation="tenants.list", roles=READERS, problems=LISTS)
async def list_tenants(request: Http) -> TenantList:
    """The instance administrator sees all tenants, other admins see their own."""
    return await services_of(request).access.tenants(caller_of(request))


@post(
    "/v1/tenants", summary="Create a tenant", operation="tenants.create", roles=ADMINS,
    problems=("conflict", "instance_admin_only", "token_needed", *_TYPED), examples=examples.TENANTS,
)  # fmt: skip
async def create_tenant(request: Http, data: TenantRequest) -> TenantMade:
    """Only an instance administrator can. The answer has its first admin token, whose secret is not shown again. With a
    session the body needs the own token again."""
    return await services_of(request).access.add_tenant(caller_of(request), data)


@get("/v1/tokens", summary="List tokens, without their secrets", operation="tokens.list", roles=READERS, problems=LISTS)
async def list_tokens(request: Http) -> TokenList:
    """The tokens of the tenant, revoked ones included. The instance administrator also sees those of shared workers."""
    return await services_of(request).access.tokens(caller_of(request))


@post(
    "/v1/tokens", summary="Create a token", operation="tokens.create", reach=Reach.NONE, roles=ADMINS,
    problems=("invalid_duration", "not_supported_yet", "instance_admin_only", "quota_exceeded", "token_needed",
              *_TYPED),
    examples=examples.TOKENS,
)  # fmt: skip
async def create_token(request: Http, data: TokenRequest) -> TokenMade:
    """The answer has its secret, which is not shown again. With a session the body needs the own token again, if the
    new one is an admin's or outlives the session."""
    return await services_of(request).access.add_token(caller_of(request), data)


@post(
    "/v1/tokens/{token_id:str}/revoke", verb="revoke", status_code=200,
    summary="Revoke a token", operation="tokens.revoke", roles=ADMINS, problems=("last_admin", "version_mismatch"),
)  # fmt: skip
async def revoke_token(request: Http, token_id: str, data: Nothing | None = None, if_tag: IfTag = None) -> TokenView:
    """It is invalid from now on, at every server. Revoking it again changes nothing."""
    found = parse_uuid(token_id)
    if found is None:
        raise NotFound(f"there is no token {token_id!r}", hint="a token_id is a UUID; see GET /v1/tokens")
    return await services_of(request).access.revoke(caller_of(request), found, tag_of(if_tag))


HANDLERS = [list_tenants, create_tenant, list_tokens, create_token, revoke_token]
