"""/v1/tenant/log-retention: how long the output of runs with certain labels is kept."""

from __future__ import annotations

from mainspring.api.handlers import get, put
from mainspring.api.openapi import request_examples as examples
from mainspring.api.routes.versions import IfMatch, etag, version_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request, Response
from mainspring.operations.access.permissions import ADMINS, READERS
from mainspring.wire.log_retention import LogRetentionRequest, LogRetentionView

Http = Request


@get(
    "/v1/tenant/log-retention", summary="Get how long output is kept by label", operation="tenant.log_retention",
    roles=READERS,
)  # fmt: skip
async def get_log_retention(request: Http) -> Response[LogRetentionView]:
    """The ETag is its version, for If-Match."""
    view = await services_of(request).log_retention.read(caller_of(request))
    return Response(view, headers=etag(view.version))


@put(
    "/v1/tenant/log-retention", summary="Set how long output is kept by label", operation="tenant.set_log_retention",
    roles=ADMINS, problems=("changed_meanwhile", "invalid_duration", "version_mismatch"),
    examples=examples.LOG_RETENTION,
)  # fmt: skip
async def put_log_retention(
    request: Http, data: LogRetentionRequest, if_match: IfMatch = None
) -> Response[LogRetentionView]:
    """All rules, in the place of those that there are. `keep_logs` of a job or task comes first. Of several rules that
    fit a run, the longest time holds. They hold for output that begins afterwards."""
    view = await services_of(request).log_retention.put(caller_of(request), data, version_of(if_match))
    return Response(view, status_code=200, headers=etag(view.version))


HANDLERS = [get_log_retention, put_log_retention]
