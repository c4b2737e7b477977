"""/v1/calendars."""

from __future__ import annotations

from mainspring.api.answers import LISTS, Answer
from mainspring.api.handlers import delete, get, post, put
from mainspring.api.openapi import request_examples as examples
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header
from mainspring.api.routes.versions import IfMatch, etag, version_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request, Response
from mainspring.operations.access.permissions import ADMINS, READERS
from mainspring.wire.calendars import (
    CalendarList,
    CalendarPreview,
    CalendarPreviewRequest,
    CalendarRequest,
    CalendarView,
)

Http = Request
_CHANGES = ("changed_meanwhile",)


@get("/v1/calendars", summary="List calendars, by name", operation="calendars.list", roles=READERS,
     problems=LISTS)  # fmt: skip
async def list_calendars(
    request: Http, cursor: str | None = None, limit: PageLimit = DEFAULT_PAGE
) -> Response[CalendarList]:
    """The list has the rules of each calendar, but not the number of jobs that use it."""
    page = await services_of(request).calendar_reader.calendars(caller_of(request), cursor, limit)
    return Response(page, headers=link_header(request, page.next))


@get(
    "/v1/calendars/{name:str}",
    summary="Get a calendar, and how far its jobs follow it",
    operation="calendars.read",
    roles=READERS,
    problems=LISTS,
)
async def get_calendar(request: Http, name: str) -> Response[CalendarView]:
    """The ETag is its version, for If-Match."""
    return await _shown(request, name, 200)


@put(
    "/v1/calendars/{name:str}", summary="Create or change a calendar",
    operation="calendars.put", roles=ADMINS, examples=examples.CALENDARS,
    problems=(*_CHANGES, "calendar_allows_nothing", "unknown_country", "unknown_timezone", "version_mismatch"),
    answers={200: Answer("The calendar as it is now"), 201: Answer("The new calendar")},
)  # fmt: skip
async def put_calendar(
    request: Http, name: str, data: CalendarRequest, if_match: IfMatch = None
) -> Response[CalendarView]:
    """The body has all rules: those that it leaves out are removed. The next fires of the jobs that use the calendar
    are worked out anew soon after the answer; `pending` counts those that are not yet. What is due fires by the old
    rules. The same rules again change nothing."""
    created = await services_of(request).calendar_changer.put(caller_of(request), name, data, version_of(if_match))
    return await _shown(request, name, 201 if created else 200)


@post(
    "/v1/calendars/{name:str}/preview", verb="preview", status_code=200,
    summary="See the days of a calendar, and what other rules would change",
    operation="calendars.preview", roles=READERS, examples=examples.CALENDAR_PREVIEWS,
    problems=("calendar_allows_nothing", "unknown_country", "unknown_timezone"),
)  # fmt: skip
async def preview_calendar(request: Http, name: str, data: CalendarPreviewRequest | None = None) -> CalendarPreview:
    """The closed days of a year, and the fires of the next 366 days that would go or come if the calendar had these
    rules. Without rules it is about those that the calendar has. There need be no calendar of this name yet. At most
    1,000 jobs are compared, and fewer if that takes too long: `compared` says how many. Nothing is stored."""
    previewer = services_of(request).calendar_previewer
    return await previewer.preview(caller_of(request), name, data or CalendarPreviewRequest())


@delete(
    "/v1/calendars/{name:str}",
    status_code=200,
    summary="Delete a calendar",
    operation="calendars.delete",
    roles=ADMINS,
    problems=(*_CHANGES, "calendar_in_use", "version_mismatch"),
)
async def delete_calendar(request: Http, name: str, if_match: IfMatch = None) -> CalendarView:
    """A calendar can be deleted if no scheduled or paused job uses it. The answer is the calendar as it was."""
    return await services_of(request).calendar_changer.delete(caller_of(request), name, version_of(if_match))


async def _shown(request: Http, name: str, status: int) -> Response[CalendarView]:
    view = await services_of(request).calendar_reader.calendar(caller_of(request), name)
    return Response(view, status_code=status, headers=etag(view.version))


HANDLERS = [list_calendars, get_calendar, put_calendar, preview_calendar, delete_calendar]
