"""/v1/ids: find ids by their beginning or their end."""

from __future__ import annotations

from mainspring.api.answers import SEARCHES
from mainspring.api.handlers import get
from mainspring.api.routes.paging import several
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request
from mainspring.operations.access.permissions import READERS
from mainspring.operations.read.ids import IdQuery
from mainspring.wire.ids import IdKind, IdList, IdPart


@get(
    "/v1/ids",
    summary="Find ids of runs, jobs, dead letters and workers by their beginning or their end",
    operation="ids.find",
    roles=READERS,
    problems=SEARCHES,
)
async def find_ids(request: Request, part: IdPart, kind: list[IdKind] | None = None) -> IdList:
    """For people who type. A UUIDv7 begins with its time, so its end is what tells two of them apart."""
    return await services_of(request).id_reader.find(caller_of(request), IdQuery(part, several(kind, "kind")))
