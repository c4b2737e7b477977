"""/v1/channels."""

from __future__ import annotations

from mainspring.api.answers import LISTS, Answer
from mainspring.api.handlers import delete, get, post, put
from mainspring.api.openapi import request_examples as examples
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header
from mainspring.api.routes.versions import IfMatch, etag, version_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request, Response
from mainspring.operations.access.permissions import ADMINS, READERS
from mainspring.wire.channels import ChannelList, ChannelRequest, ChannelTested, ChannelView
from mainspring.wire.jobs import Nothing

Http = Request


@get("/v1/channels", summary="List channels, by name", operation="channels.list", roles=READERS, problems=LISTS)
async def list_channels(
    request: Http, cursor: str | None = None, limit: PageLimit = DEFAULT_PAGE
) -> Response[ChannelList]:
    """Where the tenant is told what has happened. Values of secret fields are not shown."""
    page = await services_of(request).channels.channels(caller_of(request), cursor, limit)
    return Response(page, headers=link_header(request, page.next))


@get("/v1/channels/{name:str}", summary="Get a channel", operation="channels.read", roles=READERS, problems=LISTS)
async def get_channel(request: Http, name: str) -> Response[ChannelView]:
    """The ETag is its version, for If-Match."""
    return await _shown(request, name, 200)


@put(
    "/v1/channels/{name:str}", summary="Create or change a channel",
    operation="channels.put", roles=ADMINS, examples=examples.CHANNELS,
    problems=("changed_meanwhile", "version_mismatch"),
    answers={200: Answer("The channel as it is now"), 201: Answer("The new channel")},
)  # fmt: skip
async def put_channel(
    request: Http, name: str, data: ChannelRequest, if_match: IfMatch = None
) -> Response[ChannelView]:
    """The body has all settings: those that it leaves out are removed. A secret that it leaves out keeps its value, if
    the kind and the place to which it is sent stay the same."""
    created = await services_of(request).channels.put(caller_of(request), name, data, version_of(if_match))
    return await _shown(request, name, 201 if created else 200)


@delete(
    "/v1/channels/{name:str}",
    status_code=200,
    summary="Delete a channel",
    operation="channels.delete",
    roles=ADMINS,
    problems=("changed_meanwhile", "channel_in_use", "version_mismatch"),
)
async def delete_channel(request: Http, name: str, if_match: IfMatch = None) -> ChannelView:
    """A channel can be deleted if no rule uses it. Messages that wait for it are given up."""
    return await services_of(request).channels.delete(caller_of(request), name, version_of(if_match))


@post(
    "/v1/channels/{name:str}/test", verb="test", status_code=200,
    summary="Send a test message", operation="channels.test", roles=ADMINS,
)  # fmt: skip
async def test_channel(request: Http, name: str, data: Nothing | None = None) -> ChannelTested:
    """Send a test message to the channel now, once. The answer says whether the receiver took it, and otherwise why
    not. It takes 30 seconds at most."""
    return await services_of(request).channels.test(caller_of(request), name)


async def _shown(request: Http, name: str, status: int) -> Response[ChannelView]:
    view = await services_of(request).channels.channel(caller_of(request), name)
    return Response(view, status_code=status, headers=etag(view.version))


HANDLERS = [list_channels, get_channel, put_channel, delete_channel, test_channel]
