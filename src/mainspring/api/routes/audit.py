"""/v1/audit: who changed what, and the chain of hashes over it."""

from __future__ import annotations

from typing import Annotated

from mainspring.api.answers import LISTS
from mainspring.api.handlers import get, permissions_of
from mainspring.api.routes.paging import DEFAULT_PAGE, MAX_PAGE, PageLimit, link_header, time_filter
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import QueryParameter, Request, Response
from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import meant, shown
from mainspring.operations.access.permissions import ADMINS
from mainspring.operations.audit.reader import AuditQuery
from mainspring.wire.audit import OF_THE_SYSTEM, AuditChain, AuditList
from mainspring.wire.formats import Moment

Http = Request
Text = Annotated[str | None, QueryParameter(max_length=1000)]
Kind = Annotated[str | None, QueryParameter(name="kind", max_length=1000)]
Id = Annotated[str | None, QueryParameter(name="id", max_length=1000)]
First = Annotated[int, QueryParameter(name="from", ge=1, le=2**62)]


@get(
    "/v1/audit",
    summary="List changes: who changed what, newest first",
    operation="audit.list",
    roles=ADMINS,
    problems=(*LISTS, "invalid_time", "missing_timezone"),
)
async def list_audit(
    request: Http,
    who: Text = None,
    operation: Text = None,
    changed_kind: Kind = None,
    changed_id: Id = None,
    since: Moment | None = None,
    until: Moment | None = None,
    cursor: str | None = None,
    limit: PageLimit = DEFAULT_PAGE,
) -> Response[AuditList]:
    """`who`: the name or the id of a token, or `mainspring` for what the system decided. `operation`: such as
    `queues.pause`. `kind` and `id`: what was changed, such as `job` and its id. `since`, `until`: the time of the
    change."""
    if operation is not None:
        _check_operation(operation, {*permissions_of(request.app), *OF_THE_SYSTEM})
    query = AuditQuery(
        who,
        operation,
        changed_kind,
        changed_id,
        time_filter(since, "since"),
        time_filter(until, "until"),
        cursor,
        limit,
    )
    page = await services_of(request).audit_reader.entries(caller_of(request), query)
    return Response(page, headers=link_header(request, page.next))


def _check_operation(name: str, known: set[str]) -> None:
    if name not in known:
        raise InvalidInput(
            f"{shown(name)} is not an operation", code="invalid_parameter", field="operation",
            expected="such as queues.pause", hint=meant(name, known, "") or None,
        )  # fmt: skip


@get(
    "/v1/audit/chain",
    summary="Read the chain of hashes over the changes",
    operation="audit.chain",
    roles=ADMINS,
    problems=(*LISTS, "instance_admin_only"),
)
async def get_audit_chain(
    request: Http, first: First = 1, all_tenants: bool = False, limit: PageLimit = MAX_PAGE
) -> AuditChain:
    """The links from `from` on, each with its entry. `mainspring audit verify` computes the hashes and compares them.
    `all_tenants`: the chain of what concerns all tenants, for an admin of the tenant default."""
    return await services_of(request).audit_reader.chain(caller_of(request), first, limit, all_tenants=all_tenants)


HANDLERS = [list_audit, get_audit_chain]
