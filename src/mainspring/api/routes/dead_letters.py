"""/v1/dead-letters: list, read, replay and discard, one by its id or many by a filter."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Response, get, post
from litestar.params import QueryParameter

from mainspring.api.bodies import ChoiceBody, ReplayBody
from mainspring.api.routes.paging import DEFAULT_PAGE, MAX_PAGE, link_header
from mainspring.api.routes.runs import refuse_payload, run_id_of
from mainspring.api.services import caller_of, services_of
from mainspring.domain.errors import NotFound
from mainspring.domain.intake.request import parse_time
from mainspring.operations.read.search import DeadLetterQuery
from mainspring.wire.runs import DeadLetterChoice, DeadLetterList, DeadLetterView, Discarded, Replayed, ReplayRequest

Http = Request[Any, Any, Any]
_VERBS = {"replay": "dead_letters.replay", "discard": "dead_letters.discard"}
Limit = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE)]
_TAGS = ["dead letters"]


@get("/v1/dead-letters", summary="List dead letters, newest first", tags=_TAGS, operation="dead_letters.list")
async def list_dead_letters(
    request: Http,
    job: str | None = None,
    task: str | None = None,
    queue: str | None = None,
    error: str | None = None,
    since: str | None = None,
    until: str | None = None,
    cursor: str | None = None,
    limit: Limit = DEFAULT_PAGE,
) -> Response[DeadLetterList]:
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
    summary="Get a dead letter with all attempts and their errors",
    tags=_TAGS,
    operation="dead_letters.read",
)
async def get_dead_letter(request: Http, run_id: str) -> DeadLetterView:
    return await services_of(request).dead_letter_reader.dead_letter(caller_of(request), run_id_of(run_id))


@post(
    "/v1/dead-letters:replay", dto=ChoiceBody, return_dto=None, status_code=202, tags=_TAGS,
    summary="Replay dead letters by filter",
    operation="dead_letters.replay",
)  # fmt: skip
async def replay_dead_letters(request: Http, data: DeadLetterChoice) -> Replayed:
    return await services_of(request).replayer.replay_all(caller_of(request), data)


@post(
    "/v1/dead-letters:discard", dto=ChoiceBody, return_dto=None, status_code=200, tags=_TAGS,
    summary="Discard dead letters by filter",
    operation="dead_letters.discard",
)  # fmt: skip
async def discard_dead_letters(request: Http, data: DeadLetterChoice) -> Discarded:
    return await services_of(request).replayer.discard_all(caller_of(request), data)


@post(
    "/v1/dead-letters/{run_and_verb:str}", dto=ReplayBody, return_dto=None, status_code=200, tags=_TAGS,
    summary="Replay or discard a dead letter: run_id:replay, run_id:discard",
    verbs=_VERBS,
)  # fmt: skip
async def act_on_dead_letter(request: Http, run_and_verb: str, data: ReplayRequest | None = None) -> Response[Any]:
    run_id, _, verb = run_and_verb.rpartition(":")
    return await _act(request, run_id, verb, data or ReplayRequest())


@post(
    "/v1/dead-letters/{run_id:str}/{verb:str}", dto=ReplayBody, return_dto=None, status_code=200, tags=_TAGS,
    summary="Replay or discard a dead letter, with the verb as a path segment",
    verbs=_VERBS,
)  # fmt: skip
async def act_on_dead_letter_by_path(
    request: Http, run_id: str, verb: str, data: ReplayRequest | None = None
) -> Response[Any]:
    return await _act(request, run_id, verb, data or ReplayRequest())


async def _act(request: Http, run_id: str, verb: str, data: ReplayRequest) -> Response[Any]:
    services, caller = services_of(request), caller_of(request)
    match verb:
        case "replay":
            replay_id = await services.replayer.replay(caller, run_id_of(run_id), data.payload)
            return Response(await services.run_reader.run(caller, replay_id), status_code=202)
        case "discard":
            refuse_payload(data, ":discard")
            return Response(await services.replayer.discard(caller, run_id_of(run_id)), status_code=200)
        case _:
            raise NotFound(f"a dead letter has no verb {verb!r}", code="no_such_route", hint="use :replay or :discard")


HANDLERS = [
    list_dead_letters, get_dead_letter, replay_dead_letters, discard_dead_letters, act_on_dead_letter,
    act_on_dead_letter_by_path,
]  # fmt: skip
