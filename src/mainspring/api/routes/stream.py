"""/v1/stream: what changes, as server-sent events. One stream serves all that a browser shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from mainspring.api.answers import Answer
from mainspring.api.auth import Admission
from mainspring.api.handlers import get
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import QueryParameter, Request, Stream
from mainspring.domain.errors import Unavailable
from mainspring.kernel import metrics
from mainspring.operations.access.permissions import READERS
from mainspring.operations.live import streams as live
from mainspring.operations.live.streams import Streams
from mainspring.operations.live.topics import Topic, parse_topics
from mainspring.wire.live import Change, StreamEnd, StreamOpen

Http = Request
_encode = msgspec.json.Encoder().encode
_MOST_BEHIND = 64 * 1024  # bytes that a client has not taken; far more than the events of a minute
_MEDIA_TYPE = "text/event-stream"
_HEADERS = {"X-Accel-Buffering": "no"}  # nginx would keep events back
_EXAMPLE = """retry: 2000
id: 0a8b11:1
event: open
data: {"topics":["runs"],"beat":5.0}

id: 0a8b11:2
event: change
data: {"topic":"runs","changes":12}

: beat

"""


@get(
    "/v1/stream",
    summary="Follow what changes",
    operation="stream.read",
    roles=READERS,
    answers={
        200: Answer(
            "Server-sent events, for as long as the connection lasts.",
            content={_MEDIA_TYPE: _EXAMPLE},
            events={"open": StreamOpen, "change": Change, "end": StreamEnd},
        )
    },
    problems=("too_many_streams", "streams_full"),
)
async def get_stream(
    request: Http,
    topics: Annotated[str, QueryParameter(min_length=1, max_length=10_000)],
) -> Stream:
    """Small events that say what to read again. For the lists jobs, runs, queues and workers, `change` has the
    approximate number of changes, at most twice a second. For a single run, job or workflow run, `change` has its
    state; the first event has the present state. Changes while no client is connected are not sent: after `open`, read
    again. An event may be lost, so poll slowly as well. `end` says why no event follows."""
    services, caller, chosen = services_of(request), caller_of(request), parse_topics(topics)
    services.streams.check_room(caller)
    return Stream(_as_text(services.streams, request, chosen), media_type=_MEDIA_TYPE, headers=_HEADERS)


async def _as_text(streams: Streams, request: Http, topics: Sequence[Topic]) -> AsyncGenerator[bytes, None]:
    try:
        with streams.stream(caller_of(request), topics) as stream:
            opened = StreamOpen([topic.name for topic in topics], streams.beat)
            yield b"retry: 2000\n" + _event(streams, "open", opened)
            while not stream.closed:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stream.news.wait(), streams.beat)
                stream.news.clear()
                if not await _may_go_on(request):
                    yield _end(streams, live.SIGNED_OUT)
                    return
                if _is_behind(request):
                    return
                changes = stream.take()
                metrics.stream_events.inc(len(changes))
                yield b"".join(_event(streams, "change", change) for change in changes) or b": beat\n\n"
            yield _end(streams, live.FULL if stream.full else live.SERVER_STOPS)
    except Unavailable:
        yield _end(streams, live.SERVER_STOPS if streams.closed else live.FULL)


async def _may_go_on(request: Http) -> bool:
    """The token or session may have ended since the stream began."""
    admission: Admission = request.app.state.admission
    return await admission.still_admits(request.scope)


def _is_behind(request: Http) -> bool:
    """Whether the client does not read. Its connection is cut then."""
    connection: Any = request.scope.get("connection")
    if connection is None or not connection.cut_if_behind(_MOST_BEHIND):
        return False
    metrics.streams_ended.labels("behind").inc()
    return True


def _end(streams: Streams, reason: str) -> bytes:
    metrics.streams_ended.labels(reason).inc()
    return _event(streams, "end", StreamEnd(reason))


def _event(streams: Streams, name: str, data: StreamOpen | Change | StreamEnd) -> bytes:
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (streams.next_id().encode(), name.encode(), _encode(data))
