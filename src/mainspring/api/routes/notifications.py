"""/v1/notifications."""

from __future__ import annotations

from mainspring.api.answers import LISTS
from mainspring.api.handlers import get, post
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request, Response
from mainspring.operations.access.permissions import OPERATORS, READERS
from mainspring.wire.jobs import Nothing
from mainspring.wire.notifications import NotificationList, NotificationStateWord, NotificationView

Http = Request


@get("/v1/notifications", summary="List notifications, newest first", operation="notifications.list", roles=READERS,
     problems=LISTS)  # fmt: skip
async def list_notifications(
    request: Http,
    cursor: str | None = None,
    limit: PageLimit = DEFAULT_PAGE,
    status: NotificationStateWord | None = None,
    channel: str | None = None,
    rule: str | None = None,
) -> Response[NotificationList]:
    """What was told to whom: messages that are sent (PENDING), were sent (SENT), or were given up (DEAD)."""
    page = await services_of(request).notifications.notifications(
        caller_of(request), cursor, limit, status, channel, rule
    )
    return Response(page, headers=link_header(request, page.next))


@get("/v1/notifications/{notification_id:str}", summary="Get a notification", operation="notifications.read",
     roles=READERS)  # fmt: skip
async def get_notification(request: Http, notification_id: str) -> NotificationView:
    """With the error of its last attempt."""
    return await services_of(request).notifications.notification(caller_of(request), notification_id)


@post(
    "/v1/notifications/{notification_id:str}/send", verb="send", status_code=200, summary="Send a notification again",
    operation="notifications.send", roles=OPERATORS, problems=("not_ended",),
)  # fmt: skip
async def send_notification(request: Http, notification_id: str, data: Nothing | None = None) -> NotificationView:
    """Send a message again that was sent or given up. It keeps its id, so that a receiver can recognize it."""
    return await services_of(request).notifications.send_again(caller_of(request), notification_id)


@post(
    "/v1/notifications/{notification_id:str}/acknowledge", verb="acknowledge", status_code=200,
    summary="Acknowledge a notification", operation="notifications.acknowledge", roles=OPERATORS,
)  # fmt: skip
async def acknowledge_notification(
    request: Http, notification_id: str, data: Nothing | None = None
) -> NotificationView:
    """The caller takes care of what it tells: there are no reminders and no escalation of it any more."""
    return await services_of(request).notifications.acknowledge(caller_of(request), notification_id)


HANDLERS = [list_notifications, get_notification, send_notification, acknowledge_notification]
