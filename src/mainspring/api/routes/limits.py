"""/v1/limits."""

from __future__ import annotations

from mainspring.api.answers import LISTS
from mainspring.api.handlers import get, put
from mainspring.api.openapi import request_examples as examples
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header
from mainspring.api.routes.versions import IfTag, etag, tag_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request, Response
from mainspring.operations.access.permissions import OPERATORS, READERS
from mainspring.operations.lookup import no_limit
from mainspring.wire.limits import LimitDetails, LimitList, LimitRequest

Http = Request
_LARGEST_ID = 2**31 - 1


@get("/v1/limits", summary="List limits, by name", operation="limits.list", roles=READERS, problems=LISTS)
async def list_limits(
    request: Http, q: str | None = None, cursor: str | None = None, limit: PageLimit = DEFAULT_PAGE
) -> Response[LimitList]:
    """Every limit that a job or a task has declared, with the runs that have a slot and those that wait. `q`: a part of
    the name."""
    page = await services_of(request).limit_reader.limits(caller_of(request), q, cursor, limit)
    return Response(page, headers=link_header(request, page.next))


@get(
    "/v1/limits/{limit_id:str}",
    summary="Get a limit and its lines",
    operation="limits.read",
    roles=READERS,
    problems=LISTS,
)
async def get_limit(request: Http, limit_id: str) -> Response[LimitDetails]:
    """Each value of its key has a line. Those with most runs that wait come first. The ETag is for If-Match."""
    return _shown(await services_of(request).limit_reader.limit(caller_of(request), _id_of(limit_id)))


@put(
    "/v1/limits/{limit_id:str}", summary="Set a limit, or return to what is declared",
    operation="limits.set", roles=OPERATORS,
    problems=(*LISTS, "overlap_rule", "not_a_number_of_runs", "admissions_open", "version_mismatch"),
    examples=examples.LIMITS,
)  # fmt: skip
async def put_limit(request: Http, limit_id: str, data: LimitRequest, if_tag: IfTag = None) -> Response[LimitDetails]:
    """The number counts from the answer on, and stays whatever jobs and tasks declare, until it is set to null. If more
    runs have a slot than it allows, no run is admitted until fewer have one. Strict order is ended with
    `"order": "priority"`; until then a job that declares the limit without it is refused."""
    services, caller, found = services_of(request), caller_of(request), _id_of(limit_id)
    await services.limit_setter.change(caller, found, data.limit, data.order, tag_of(if_tag))
    return _shown(await services.limit_reader.limit(caller, found))


def _shown(details: LimitDetails) -> Response[LimitDetails]:
    return Response(details, status_code=200, headers=etag(details.limit.etag))


def _id_of(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > _LARGEST_ID:
        raise no_limit(text)
    return int(text)


HANDLERS = [list_limits, get_limit, put_limit]
