"""/v1/tenants and /v1/tokens."""

from __future__ import annotations

from typing import Any

from litestar import Request, get, post

from mainspring.api.bodies import TenantBody, TokenBody
from mainspring.api.services import caller_of, services_of
from mainspring.domain.errors import NotFound
from mainspring.kernel.ids import parse_uuid
from mainspring.wire.access import (
    TenantList,
    TenantMade,
    TenantRequest,
    TokenList,
    TokenMade,
    TokenRequest,
    TokenView,
)

Http = Request[Any, Any, Any]
_VERBS = {"revoke": "tokens.revoke"}
_TAGS = ["access"]


@get(
    "/v1/tenants", summary="List tenants: the operator sees all, others their own", tags=_TAGS, operation="tenants.list"
)
async def list_tenants(request: Http) -> TenantList:
    return await services_of(request).access.tenants(caller_of(request))


@post(
    "/v1/tenants", dto=TenantBody, return_dto=None, tags=_TAGS,
    summary="Create a tenant; its first admin token is shown only once",
    operation="tenants.create",
)  # fmt: skip
async def add_tenant(request: Http, data: TenantRequest) -> TenantMade:
    return await services_of(request).access.add_tenant(caller_of(request), data)


@get("/v1/tokens", summary="List tokens, without their secrets", tags=_TAGS, operation="tokens.list")
async def list_tokens(request: Http) -> TokenList:
    return await services_of(request).access.tokens(caller_of(request))


@post(
    "/v1/tokens", dto=TokenBody, return_dto=None, tags=_TAGS,
    summary="Create a token; its secret is shown only once",
    operation="tokens.create",
)  # fmt: skip
async def add_token(request: Http, data: TokenRequest) -> TokenMade:
    return await services_of(request).access.add_token(caller_of(request), data)


@post(
    "/v1/tokens/{token_and_verb:str}",
    status_code=200,
    summary="Revoke a token: token_id:revoke",
    tags=_TAGS,
    verbs=_VERBS,
)
async def act_on_token(request: Http, token_and_verb: str) -> TokenView:
    text, _, verb = token_and_verb.rpartition(":")
    if verb != "revoke":
        raise NotFound(f"a token has no verb {verb!r}", code="no_such_route", hint="use :revoke")
    token_id = parse_uuid(text)
    if token_id is None:
        raise NotFound(f"there is no token {text!r}", hint="a token_id is a UUID; see GET /v1/tokens")
    return await services_of(request).access.revoke(caller_of(request), token_id)


HANDLERS = [list_tenants, add_tenant, list_tokens, add_token, act_on_token]
