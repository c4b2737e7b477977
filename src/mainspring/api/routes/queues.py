"""/v1/queues, and the limits and pauses of the whole tenant."""

from __future__ import annotations

from mainspring.api.answers import LISTS
from mainspring.api.handlers import get, post, put
from mainspring.api.openapi import request_examples as examples
from mainspring.api.reach import Reach
from mainspring.api.routes.versions import IfMatch, etag, version_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request, Response
from mainspring.operations.access.permissions import ADMINS, OPERATORS, READERS
from mainspring.wire.gates import GateRequest, GateView, PauseRequest, QueuePauseRequest
from mainspring.wire.jobs import Nothing
from mainspring.wire.runs import QueueList, QueueView

Http = Request
_CHANGES = ("changed_meanwhile", "unavailable", "version_mismatch")


@get("/v1/queues", summary="List queues", operation="queues.list", reach=Reach.QUEUE, roles=READERS, problems=LISTS)
async def list_queues(request: Http) -> QueueList:
    """Every queue that has a job or a worker. The largest come first; `left_out` counts those that are not shown."""
    return await services_of(request).queue_reader.queues(caller_of(request))


@get(
    "/v1/queues/{name:str}",
    summary="Get a queue: depth, age of the oldest run, rate",
    operation="queues.read",
    reach=Reach.QUEUE,
    roles=READERS,
    problems=LISTS,
)
async def get_queue(request: Http, name: str) -> Response[QueueView]:
    """A queue exists as soon as it has a job or a worker. The ETag is the version of its limits, for If-Match."""
    view = await services_of(request).queue_reader.queue(caller_of(request), name)
    return Response(view, headers=etag(view.version))


@put(
    "/v1/queues/{name:str}", summary="Set the limits of a queue, or pause it",
    operation="queues.update", reach=Reach.QUEUE,
    roles=OPERATORS, problems=(*_CHANGES, "invalid_rate"), examples=examples.GATES,
)  # fmt: skip
async def put_queue(request: Http, name: str, data: GateRequest, if_match: IfMatch = None) -> Response[GateView]:
    """Fields that are left out stay as they are; null removes a limit. The limits hold when the answer is sent, also
    for runs that wait already. Runs that run go on, and count."""
    changer = services_of(request).gate_changer
    return _shown(await changer.put_queue(caller_of(request), name, data, version_of(if_match)))


@post(
    "/v1/queues/{name:str}/pause", verb="pause", status_code=200, summary="Pause a queue",
    operation="queues.pause", reach=Reach.QUEUE, roles=OPERATORS, problems=_CHANGES, examples=examples.QUEUE_PAUSES,
)  # fmt: skip
async def pause_queue(
    request: Http, name: str, data: QueuePauseRequest | None = None, if_match: IfMatch = None
) -> Response[GateView]:
    """No run of it is given to a worker from now on. Runs that have started go on, and unstarted ones come back from
    their workers within a beat. Jobs can be submitted, and schedules fire. A queue without jobs and workers is paused
    too, with a warning in the answer."""
    changer, version = services_of(request).gate_changer, version_of(if_match)
    reason = None if data is None else data.reason
    return _shown(await changer.pause_queue(caller_of(request), name, paused=True, reason=reason, if_version=version))


@post(
    "/v1/queues/{name:str}/resume", verb="resume", status_code=200,
    summary="Resume a paused queue", operation="queues.resume", reach=Reach.QUEUE, roles=OPERATORS, problems=_CHANGES,
)  # fmt: skip
async def resume_queue(
    request: Http, name: str, data: Nothing | None = None, if_match: IfMatch = None
) -> Response[GateView]:
    """Waiting workers get its runs at once. Resuming a queue that is not paused changes nothing."""
    changer, version = services_of(request).gate_changer, version_of(if_match)
    return _shown(await changer.pause_queue(caller_of(request), name, paused=False, if_version=version))


@get("/v1/tenant/limits", summary="Get the limits of all runs of the tenant", operation="tenant.limits", roles=READERS)
async def get_tenant_limits(request: Http) -> Response[GateView]:
    """They apply in addition to the limits of each queue."""
    return _shown(await services_of(request).queue_reader.tenant_limits(caller_of(request)))


@put(
    "/v1/tenant/limits", summary="Set the limits of all runs of the tenant",
    operation="tenant.update_limits", roles=ADMINS, problems=(*_CHANGES, "invalid_rate"), examples=examples.GATES,
)  # fmt: skip
async def put_tenant_limits(request: Http, data: GateRequest, if_match: IfMatch = None) -> Response[GateView]:
    """Fields that are left out stay as they are; null removes a limit."""
    changer = services_of(request).gate_changer
    return _shown(await changer.put_tenant(caller_of(request), data, version_of(if_match)))


@post(
    "/v1/pause", status_code=200, summary="Pause everything",
    operation="tenant.pause", roles=OPERATORS, problems=(*_CHANGES, "instance_admin_only"), examples=examples.PAUSES,
)  # fmt: skip
async def pause_all(request: Http, data: PauseRequest | None = None, if_match: IfMatch = None) -> Response[GateView]:
    """No run of the tenant is given to a worker from now on, or with `all_tenants`, which only an instance
    administrator may use, no run at all. Jobs can be submitted, and schedules fire."""
    wanted, version = data or PauseRequest(), version_of(if_match)
    changer = services_of(request).gate_changer
    return _shown(
        await changer.pause_all(
            caller_of(request), paused=True, all_tenants=wanted.all_tenants, reason=wanted.reason, if_version=version
        )
    )


@post(
    "/v1/resume", status_code=200, summary="Resume what was paused as a whole",
    operation="tenant.resume", roles=OPERATORS, problems=(*_CHANGES, "instance_admin_only"), examples=examples.PAUSES,
)  # fmt: skip
async def resume_all(request: Http, data: PauseRequest | None = None, if_match: IfMatch = None) -> Response[GateView]:
    """Queues that were paused one by one stay paused."""
    all_tenants = data is not None and data.all_tenants
    changer, version = services_of(request).gate_changer, version_of(if_match)
    return _shown(
        await changer.pause_all(caller_of(request), paused=False, all_tenants=all_tenants, if_version=version)
    )


def _shown(view: GateView) -> Response[GateView]:
    return Response(view, status_code=200, headers=etag(view.version))


HANDLERS = [
    list_queues, get_queue, put_queue, pause_queue, resume_queue, get_tenant_limits, put_tenant_limits, pause_all,
    resume_all,
]  # fmt: skip
