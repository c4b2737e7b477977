"""/v1/tasks: the tasks that workers offer, and their parameters."""

from __future__ import annotations

from mainspring.api.answers import LISTS
from mainspring.api.handlers import get
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request
from mainspring.operations.access.permissions import READERS
from mainspring.wire.tasks import TaskList


@get(
    "/v1/tasks",
    summary="List tasks that live workers offer, with their parameters",
    operation="tasks.list",
    roles=READERS,
    problems=LISTS,
)
async def list_tasks(request: Request) -> TaskList:
    """What a job can name as its `task`, with the JSON Schema of its payload and the default options of its jobs."""
    return await services_of(request).signatures.offered(caller_of(request))
