"""/v1/views: saved views of lists."""

from __future__ import annotations

from typing import Annotated

from mainspring.api.answers import LISTS, Answer
from mainspring.api.handlers import delete, get, put
from mainspring.api.openapi import request_examples as examples
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header
from mainspring.api.routes.versions import IfMatch, etag, version_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import QueryParameter, Request, Response
from mainspring.operations.access.permissions import OPERATORS, READERS
from mainspring.wire.views import ListWord, ViewList, ViewRequest, ViewView

Http = Request
OfList = Annotated[ListWord | None, QueryParameter(name="list")]
_CHANGES = ("changed_meanwhile", "version_mismatch")


@get("/v1/views", summary="List saved views, by name", operation="views.list", roles=READERS,
     problems=LISTS)  # fmt: skip
async def list_views(
    request: Http, of_list: OfList = None, cursor: str | None = None, limit: PageLimit = DEFAULT_PAGE
) -> Response[ViewList]:
    """Filters and columns of lists, saved for all of the tenant."""
    page = await services_of(request).saved_views.views(caller_of(request), of_list, cursor, limit)
    return Response(page, headers=link_header(request, page.next))


@get("/v1/views/{name:str}", summary="Get a saved view", operation="views.read", roles=READERS,
     problems=LISTS)  # fmt: skip
async def get_view(request: Http, name: str) -> Response[ViewView]:
    """The ETag is its version, for If-Match."""
    return await _shown(request, name, 200)


@put(
    "/v1/views/{name:str}", summary="Save a view, or change it", operation="views.put", roles=OPERATORS,
    examples=examples.VIEWS, problems=_CHANGES,
    answers={200: Answer("The view as it is now"), 201: Answer("The new view")},
)  # fmt: skip
async def put_view(request: Http, name: str, data: ViewRequest, if_match: IfMatch = None) -> Response[ViewView]:
    """The body has all of it: what it leaves out is removed. The same again changes nothing."""
    created = await services_of(request).saved_views.put(caller_of(request), name, data, version_of(if_match))
    return await _shown(request, name, 201 if created else 200)


@delete("/v1/views/{name:str}", status_code=200, summary="Delete a saved view", operation="views.delete",
        roles=OPERATORS, problems=_CHANGES)  # fmt: skip
async def delete_view(request: Http, name: str, if_match: IfMatch = None) -> ViewView:
    """Jobs and runs stay as they are. The answer is the view as it was."""
    return await services_of(request).saved_views.delete(caller_of(request), name, version_of(if_match))


async def _shown(request: Http, name: str, status: int) -> Response[ViewView]:
    view = await services_of(request).saved_views.view(caller_of(request), name)
    return Response(view, status_code=status, headers=etag(view.version))


HANDLERS = [list_views, get_view, put_view, delete_view]
