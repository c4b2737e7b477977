"""/v1/search and /v1/nodes."""

from __future__ import annotations

from mainspring.api.answers import LISTS
from mainspring.api.handlers import get
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request
from mainspring.operations.access.permissions import READERS
from mainspring.wire.checks import Matches, NodeList, SearchText

Http = Request


@get(
    "/v1/search",
    summary="Find jobs, queues, tasks, workers and runs by what somebody types",
    operation="search.find",
    roles=READERS,
    problems=LISTS,
)
async def find_matches(request: Http, q: SearchText) -> Matches:
    """Names and ids that begin with the text, in upper or lower case; of runs also ids that end with it. Names of jobs
    are looked for among the newest 10,000."""
    return await services_of(request).finder.find(caller_of(request), q)


@get("/v1/nodes", summary="List the nodes: the processes that schedule", operation="nodes.list", roles=READERS)
async def list_nodes(request: Http) -> NodeList:
    """The live ones, and how many shards each holds."""
    return await services_of(request).node_reader.nodes(caller_of(request))


HANDLERS = [find_matches, list_nodes]
