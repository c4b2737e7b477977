"""/v1/rules."""

from __future__ import annotations

from mainspring.api.answers import LISTS, Answer
from mainspring.api.handlers import delete, get, post, put
from mainspring.api.openapi import request_examples as examples
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header
from mainspring.api.routes.versions import IfMatch, etag, version_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request, Response
from mainspring.operations.access.permissions import ADMINS, OPERATORS, READERS
from mainspring.wire.jobs import Nothing
from mainspring.wire.rules import MuteRequest, RuleList, RuleRequest, RuleView

Http = Request


@get("/v1/rules", summary="List rules, by name", operation="rules.list", roles=READERS, problems=LISTS)
async def list_rules(request: Http, cursor: str | None = None, limit: PageLimit = DEFAULT_PAGE) -> Response[RuleList]:
    """Who is told of what. Rules of single jobs are with their jobs (`notify`)."""
    page = await services_of(request).rules.rules(caller_of(request), cursor, limit)
    return Response(page, headers=link_header(request, page.next))


@get("/v1/rules/{name:str}", summary="Get a rule", operation="rules.read", roles=READERS, problems=LISTS)
async def get_rule(request: Http, name: str) -> Response[RuleView]:
    """The ETag is its version, for If-Match."""
    return await _shown(request, name, 200)


@put(
    "/v1/rules/{name:str}", summary="Create or change a rule",
    operation="rules.put", roles=ADMINS, examples=examples.RULES,
    problems=("changed_meanwhile", "invalid_duration", "unknown_channel", "unknown_timezone", "version_mismatch"),
    answers={200: Answer("The rule as it is now"), 201: Answer("The new rule")},
)  # fmt: skip
async def put_rule(request: Http, name: str, data: RuleRequest, if_match: IfMatch = None) -> Response[RuleView]:
    """The body has all settings: those that it leaves out have their defaults. A mute stays."""
    created = await services_of(request).rules.put(caller_of(request), name, data, version_of(if_match))
    return await _shown(request, name, 201 if created else 200)


@delete(
    "/v1/rules/{name:str}",
    status_code=200,
    summary="Delete a rule",
    operation="rules.delete",
    roles=ADMINS,
    problems=("changed_meanwhile", "version_mismatch"),
)
async def delete_rule(request: Http, name: str, if_match: IfMatch = None) -> RuleView:
    """What it has not told yet is not told. Messages that wait to be sent are sent."""
    return await services_of(request).rules.delete(caller_of(request), name, version_of(if_match))


@post(
    "/v1/rules/{name:str}/mute", verb="mute", status_code=200, summary="Mute a rule",
    operation="rules.mute", roles=OPERATORS, examples=examples.MUTES,
    problems=("changed_meanwhile", "invalid_duration"),
)  # fmt: skip
async def mute_rule(request: Http, name: str, data: MuteRequest) -> RuleView:
    """The rule tells nothing for so long. Then it tells what has not recovered."""
    return await services_of(request).rules.mute(caller_of(request), name, data)


@post(
    "/v1/rules/{name:str}/unmute", verb="unmute", status_code=200, summary="End the mute of a rule",
    operation="rules.unmute", roles=OPERATORS, problems=("changed_meanwhile",),
)  # fmt: skip
async def unmute_rule(request: Http, name: str, data: Nothing | None = None) -> RuleView:
    """The rule tells again, also what has happened meanwhile and has not recovered."""
    return await services_of(request).rules.mute(caller_of(request), name, None)


async def _shown(request: Http, name: str, status: int) -> Response[RuleView]:
    view = await services_of(request).rules.rule(caller_of(request), name)
    return Response(view, status_code=status, headers=etag(view.version))


HANDLERS = [list_rules, get_rule, put_rule, delete_rule, mute_rule, unmute_rule]
