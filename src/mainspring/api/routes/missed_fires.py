"""/v1/missed-fires: the fires that jobs of the tenant missed."""

from __future__ import annotations

from typing import Annotated

from mainspring.api.answers import LISTS
from mainspring.api.handlers import get
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import QueryParameter, Request, Response
from mainspring.operations.access.permissions import READERS
from mainspring.wire.missed_fires import MissedList

Text = Annotated[str | None, QueryParameter(max_length=1000)]
Part = Annotated[str | None, QueryParameter(max_length=200)]


@get(
    "/v1/missed-fires",
    summary="List missed fires of all jobs as ranges, newest first",
    operation="missed_fires.list",
    roles=READERS,
    problems=LISTS,
)
async def list_all_missed_fires(
    request: Request,
    job: Text = None,
    reason: Text = None,
    q: Part = None,
    cursor: str | None = None,
    limit: PageLimit = DEFAULT_PAGE,
) -> Response[MissedList]:
    """Fires that did not run, with the reason: no scheduler could fire them in time, or the job was paused or
    cancelled. `q`: a part of the name or the id of the job, in upper or lower case. `backfills` make up for some of the
    fires."""
    page = await services_of(request).job_reader.missed_of_all(caller_of(request), job, reason, cursor, limit, q)
    return Response(page, headers=link_header(request, page.next))


HANDLERS = [list_all_missed_fires]
