"""The quotas of tenants, and how much of them is used."""

from __future__ import annotations

from mainspring.api.answers import LISTS
from mainspring.api.handlers import get, put
from mainspring.api.openapi import request_examples as examples
from mainspring.api.routes.versions import IfMatch, etag, version_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request, Response
from mainspring.operations.access.permissions import ADMINS, READERS
from mainspring.wire.quotas import QuotasRequest, TenantUsage

Http = Request


@put(
    "/v1/tenants/{tenant:str}/quotas", summary="Set the quotas of a tenant", operation="tenants.set_quotas",
    roles=ADMINS, problems=("changed_meanwhile", "instance_admin_only", "unavailable", "version_mismatch"),
    examples=examples.QUOTAS,
)  # fmt: skip
async def put_quotas(
    request: Http, tenant: str, data: QuotasRequest, if_match: IfMatch = None
) -> Response[TenantUsage]:
    """Only an instance administrator can. Fields that are left out stay as they are; null removes a quota. Quotas of
    runs hold when the answer is sent, the others within a second at every server."""
    view = await services_of(request).quotas.put(caller_of(request), tenant, data, version_of(if_match))
    return Response(view, status_code=200, headers=etag(view.version))


@get(
    "/v1/tenants/{tenant:str}/usage", summary="Get the quotas of a tenant, and how much of them is used",
    operation="tenants.usage", roles=READERS, problems=LISTS,
)  # fmt: skip
async def get_usage(request: Http, tenant: str) -> Response[TenantUsage]:
    """Of the own tenant; an instance administrator sees every tenant. The ETag is for If-Match."""
    view = await services_of(request).quotas.usage(caller_of(request), tenant)
    return Response(view, headers=etag(view.version))


HANDLERS = [put_quotas, get_usage]
