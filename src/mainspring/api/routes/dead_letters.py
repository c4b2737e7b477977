"""/v1/dead-letters: list, read, replay and discard, one by its id or many by a filter."""

from __future__ import annotations

from mainspring.api.answers import REPEATS_A_RUN, SEARCHES, Answer
from mainspring.api.handlers import get, post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.reach import Reach
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header
from mainspring.api.routes.runs import run_id_of
from mainspring.api.routes.versions import IfTag, etag, tag_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request, Response
from mainspring.domain.intake.request import parse_time
from mainspring.operations.access.permissions import OPERATORS, READERS
from mainspring.operations.paging.search import DeadLetterQuery
from mainspring.wire.formats import Moment
from mainspring.wire.jobs import Nothing
from mainspring.wire.runs import (
    DeadLetterChoice,
    DeadLetterList,
    DeadLetterView,
    Discarded,
    Replayed,
    ReplayRequest,
    RunView,
)

Http = Request


@get(
    "/v1/dead-letters",
    summary="List dead letters, newest first",
    operation="dead_letters.list",
    reach=Reach.FILTERED,
    roles=READERS,
    problems=SEARCHES,
)
async def list_dead_letters(
    request: Http,
    job: str | None = None,
    task: str | None = None,
    queue: str | None = None,
    error: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    cursor: str | None = None,
    limit: PageLimit = DEFAULT_PAGE,
) -> Response[DeadLetterList]:
    """Runs that failed for good, with their payloads, page by page. `since` and `until` are compared with `died_at`."""
    query = DeadLetterQuery(
        job,
        task,
        queue,
        error,
        None if since is None else parse_time(since, "since"),
        None if until is None else parse_time(until, "until"),
        cursor,
        limit,
    )
    page = await services_of(request).dead_letter_reader.dead_letters(caller_of(request), query)
    return Response(page, headers=link_header(request, page.next))


@get(
    "/v1/dead-letters/{run_id:str}",
    summary="Get a dead letter",
    operation="dead_letters.read",
    reach=Reach.OBJECT,
    roles=READERS,
)
async def get_dead_letter(request: Http, run_id: str) -> Response[DeadLetterView]:
    """With all attempts and their errors. The ETag is for If-Match."""
    view = await services_of(request).dead_letter_reader.dead_letter(caller_of(request), run_id_of(run_id))
    return Response(view, headers=etag(view.etag))


@post(
    "/v1/dead-letters:replay", status_code=202,
    summary="Replay dead letters by filter", operation="dead_letters.replay", reach=Reach.FILTERED, roles=OPERATORS,
    answers={202: Answer("How many run again, and why others do not.")},
    problems=(*SEARCHES, *REPEATS_A_RUN), examples=examples.CHOICES,
)  # fmt: skip
async def replay_dead_letters(request: Http, data: DeadLetterChoice) -> Replayed:
    """Each becomes a new run for the same fire time. Call again while `more` is true."""
    services, caller = services_of(request), caller_of(request)
    services.quota_guard.check_payload(caller, data.payload)
    return await services.replayer.replay_all(caller, data)


@post(
    "/v1/dead-letters:discard", status_code=200,
    summary="Discard dead letters by filter", operation="dead_letters.discard", reach=Reach.FILTERED, roles=OPERATORS,
    problems=(*SEARCHES, "changed_meanwhile"), examples=examples.CHOICES,
)  # fmt: skip
async def discard_dead_letters(request: Http, data: DeadLetterChoice) -> Discarded:
    """Their payloads are deleted. The runs stay in the history as FAILED. Call again while `more` is true."""
    return await services_of(request).replayer.discard_all(caller_of(request), data)


@post(
    "/v1/dead-letters/{run_id:str}/replay",
    verb="replay",
    status_code=202,
    summary="Replay a dead letter",
    operation="dead_letters.replay",
    reach=Reach.FILTERED,
    roles=OPERATORS,
    answers={202: Answer("The new run.")},
    problems=(*REPEATS_A_RUN, "version_mismatch"),
    examples=examples.REPLAYS,
)
async def replay_dead_letter(
    request: Http, run_id: str, data: ReplayRequest | None = None, if_tag: IfTag = None
) -> Response[RunView]:
    """A new run for the same fire time, with the payload of the old one, or with another if one is given."""
    services, caller, again = services_of(request), caller_of(request), data or ReplayRequest()
    services.quota_guard.check_payload(caller, again.payload)
    replay_id = await services.replayer.replay(caller, run_id_of(run_id), again.payload, tag_of(if_tag))
    view = await services.run_reader.run(caller, replay_id)
    return Response(view, status_code=202, headers=etag(view.etag))


@post(
    "/v1/dead-letters/{run_id:str}/discard",
    verb="discard",
    status_code=200,
    summary="Discard a dead letter",
    operation="dead_letters.discard",
    reach=Reach.FILTERED,
    roles=OPERATORS,
    problems=("replayed", "version_mismatch"),
)
async def discard_dead_letter(
    request: Http, run_id: str, data: Nothing | None = None, if_tag: IfTag = None
) -> Discarded:
    """Its payload is deleted. The run stays in the history as FAILED."""
    return await services_of(request).replayer.discard(caller_of(request), run_id_of(run_id), tag_of(if_tag))


HANDLERS = [
    list_dead_letters, get_dead_letter, replay_dead_letters, discard_dead_letters, replay_dead_letter,
    discard_dead_letter,
]  # fmt: skip
