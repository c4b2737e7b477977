"""/v1/runs/{id}/logs: the output of a run, complete, followed, in ranges or searched. /v1/exchange/logs: workers send
output there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated

import msgspec

from mainspring.api.answers import SEARCHES, SPEAKS_FOR_A_WORKER, Answer
from mainspring.api.auth import Admission
from mainspring.api.bodies import decode_shipment
from mainspring.api.handlers import get, post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.reach import Reach
from mainspring.api.routes.paging import label_filter, link_header, several, time_filter, worker_filter
from mainspring.api.routes.runs import run_id_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import HeaderParameter, QueryParameter, Request, Response, Stream
from mainspring.domain.errors import NotFound, Unavailable
from mainspring.domain.transitions import UNKNOWN_STATE
from mainspring.kernel.config import MAX_SHIPMENT_BYTES
from mainspring.operations.access.permissions import READERS, WORKERS
from mainspring.operations.logs.log_follower import FollowedEvent, LogFollower, parse_position
from mainspring.operations.logs.log_service import WantedLines
from mainspring.operations.paging.search import LogQuery
from mainspring.store.logs import NOTHING_PRINTED
from mainspring.wire.formats import Moment
from mainspring.wire.logs import LogAttempt, LogEnd, LogHits, LogMatches, LogOutput, LogRange, LogReceipt, LogShipment
from mainspring.wire.states import RunStateFilter

Http = Request
Attempt = Annotated[int | None, QueryParameter(ge=1, le=100_000)]
SearchedText = Annotated[
    str, QueryParameter(min_length=1, max_length=200, pattern=r"^[^\r\n]+$", form="one line of text")
]
MOST_OUTPUT = 2**53  # bytes; as JSON has room for
_encode = msgspec.json.Encoder().encode
_STREAM = """: the log of a run

id: 1:17
event: output
data: {"attempt":1,"text":"resized 3 images\\n"}

id: 1:17
event: end
data: {"status":"SUCCESS"}

"""


@get(
    "/v1/runs/{run_id:str}/logs",
    summary="Get the output of an attempt, or follow the run",
    operation="runs.logs",
    reach=Reach.OBJECT,
    shows_payloads=True,
    roles=READERS,
    answers={
        200: Answer(
            "The output as text. With follow=true, server-sent events.",
            headers=("Mainspring-Log-Attempt", "Mainspring-Log-Truncated"),
            content={"text/plain": "resized 3 images\n", "text/event-stream": _STREAM},
            events={"output": LogOutput, "truncated": LogOutput, "attempt": LogAttempt, "end": LogEnd},
        )
    },
    problems=("log_store_down", "too_many_streams", "streams_full"),
)
async def get_logs(
    request: Http,
    run_id: str,
    attempt: Attempt = None,
    follow: bool = False,
    last_event_id: Annotated[str | None, HeaderParameter(name="Last-Event-ID")] = None,
) -> Stream:
    """As text, of the last attempt or of the one that is asked for. With follow=true the answer is a stream of events
    until the run ends: `output` and `truncated` have attempt and text, `attempt` says that the next one begins, and
    `end` has the status of the run. A client that was cut off continues with Last-Event-ID."""
    services, caller, found = services_of(request), caller_of(request), run_id_of(run_id)
    resume = None if last_event_id is None else parse_position(last_event_id)
    state = await services.logs.state(caller, found, attempt)
    if follow:
        if state.state == UNKNOWN_STATE:
            raise NotFound(f"the run {found} is no longer in the history", field="follow", hint="leave it out")
        services.logs.watch.quota.check(caller)
        follower = LogFollower(services.logs, services.clock, caller, found, state, attempt=attempt, resume=resume)
        return Stream(_as_text(follower, request), media_type="text/event-stream")
    number = attempt or state.attempt
    log = state.logs.get(number, NOTHING_PRINTED)
    headers = {"Mainspring-Log-Attempt": str(number)}
    if log.truncated:
        headers["Mainspring-Log-Truncated"] = "true"
    text = services.logs.read(caller, found, log)
    return Stream(text, media_type="text/plain", headers=headers)


@get(
    "/v1/runs/{run_id:str}/logs/range",
    summary="Get some lines of the output of an attempt",
    operation="runs.log_range",
    reach=Reach.OBJECT,
    shows_payloads=True,
    roles=READERS,
    problems=("log_store_down",),
)
async def get_log_range(
    request: Http,
    run_id: str,
    attempt: Attempt = None,
    start: Annotated[int | None, QueryParameter(ge=0, le=MOST_OUTPUT)] = None,
    before: Annotated[int | None, QueryParameter(ge=0, le=MOST_OUTPUT)] = None,
    lines: Annotated[int, QueryParameter(ge=1, le=10_000)] = 500,
    numbered: bool = False,
) -> LogRange:
    """The last lines; or those from the byte `start` on; or the last ones that end before the byte `before`; or, with
    both, those between. At most `lines` of them, and 256 KiB. To read on, ask with `start` = its `end`, or with
    `before` = its `start`. `numbered` asks for the number of the first line."""
    wanted = WantedLines(lines, start, before, numbered)
    return await services_of(request).logs.lines(caller_of(request), run_id_of(run_id), attempt, wanted)


@get(
    "/v1/runs/{run_id:str}/logs/search",
    summary="Search the output of an attempt",
    operation="runs.log_search",
    reach=Reach.OBJECT,
    shows_payloads=True,
    roles=READERS,
    problems=("log_store_down",),
)
async def find_in_log(
    request: Http,
    run_id: str,
    text: SearchedText,
    attempt: Attempt = None,
    start: Annotated[int, QueryParameter(ge=0, le=MOST_OUTPUT)] = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100,
) -> LogMatches:
    """The lines that contain `text`, whatever its case, from the byte `start` on. A request searches at most 16
    MiB. As long as `more` is true, ask again with `start` = `searched_to`."""
    return await services_of(request).logs.search(
        caller_of(request), run_id_of(run_id), attempt, text, start=start, limit=limit
    )


@get(
    "/v1/logs",
    summary="Search the output of many runs, newest first",
    operation="runs.search_logs",
    reach=Reach.FILTERED,
    shows_payloads=True,
    roles=READERS,
    problems=(*SEARCHES, "log_store_down"),
)
async def find_in_logs(
    request: Http,
    text: SearchedText | None = None,
    regex: SearchedText | None = None,
    inside_words: bool = False,
    job: str | None = None,
    task: str | None = None,
    queue: str | None = None,
    worker: str | None = None,
    label: str | None = None,
    status: list[RunStateFilter] | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    lines: Annotated[int, QueryParameter(ge=1, le=100)] = 5,
    limit: Annotated[int, QueryParameter(ge=1, le=100)] = 20,
    cursor: str | None = None,
) -> Response[LogHits]:
    """The logs with a line that contains `text`, whatever its case, as whole words: `refused` is not found in
    `unrefused`, unless `inside_words` is true. Or with a line that matches `regex`, an expression of RE2. At most
    `limit` logs, and the first `lines` lines of each. `since` and `until`: logs that had output in this time. The other
    filters are those of `GET /v1/runs`. A request looks for a quarter of a second: as long as there is `next`, ask
    again with it."""
    query = LogQuery(
        text, regex, inside_words, job, queue, task, label_filter(label), worker_filter(worker), several(status),
        time_filter(since, "since"), time_filter(until, "until"), cursor, limit, lines,
    )  # fmt: skip
    page = await services_of(request).log_finder.find(caller_of(request), query)
    return Response(page, headers=link_header(request, page.next))


@post(
    "/v1/exchange/logs",
    decode=decode_shipment,
    status_code=200,
    summary="Store output that a worker's attempts printed",
    operation="worker.ship_logs",
    reach=Reach.FILTERED,
    roles=WORKERS,
    answers={200: Answer("How many chunks are stored, and which runs have another owner now.")},
    problems=(*SPEAKS_FOR_A_WORKER, "log_store_down"),
    examples=examples.SHIPMENTS,
    request_max_body_size=MAX_SHIPMENT_BYTES,
)
async def ship_logs(request: Http, data: LogShipment) -> Response[LogReceipt]:
    """For worker programs. A chunk that arrives twice has no further effect."""
    receipt = await services_of(request).logs.append(caller_of(request), data)
    return Response(_encode(receipt))


async def _as_text(follower: LogFollower, request: Http) -> AsyncGenerator[bytes, None]:
    admission: Admission = request.app.state.admission
    yield b": the log of a run\n\n"  # sends the headers before the run prints anything
    async for event in _events(follower):
        if not await admission.still_admits(request.scope):  # the token may have been revoked since the stream began
            return
        yield b": keep-alive\n\n" if event is None else _encoded(event)


async def _events(follower: LogFollower) -> AsyncIterator[FollowedEvent | None]:
    """Ends where there is no place for it: many may have been let in together. The client continues later."""
    try:
        async for event in follower.events():
            yield event
    except Unavailable:
        return


def _encoded(event: FollowedEvent) -> bytes:
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (str(event.position).encode(), event.name.encode(), _encode(event.data))


HANDLERS = [get_logs, get_log_range, find_in_log, find_in_logs, ship_logs]
