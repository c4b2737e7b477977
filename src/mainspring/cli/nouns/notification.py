"""`mainspring notification`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import show_fields, show_json, show_line
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.notifications import NotificationView

noun = Noun("notification", "Notifications: what was told to whom.", default="show")
_COLUMNS = (
    Column("NOTIFICATION", least=12),
    Column("CREATED", rank=2),
    Column("STATUS", rank=1),
    Column("CHANNEL", rank=1),
    Column("TITLE", rank=1),
    Column("ERROR", rank=3),
)
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id of the notification.")]


@noun.verb("list", "mainspring notification list", "mainspring notification list --status DEAD")
@with_list_options
def list_(
    status: Annotated[
        str | None, typer.Option("--status", metavar="S", help="Only those that are PENDING, SENT or DEAD.")
    ] = None,
    channel: Annotated[str | None, typer.Option("--channel", metavar="C", help="Only those to this channel.")] = None,
    rule: Annotated[str | None, typer.Option("--rule", metavar="R", help="Only those of this rule.")] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List notifications, newest first: what was told to whom."""

    def read(client: Client) -> Listing:
        found = client.notifications(status=status, channel=channel, rule=rule, limit=limit, cursor=cursor)
        return Listing(
            found,
            _COLUMNS,
            lambda _: [_row(one) for one in found.notifications],
            "no notifications",
            more_pages(found.next),
        )

    show_list(options, read)


def _times(count: int) -> str:
    return f", {count} times" if count > 1 else ""


def _row(one: NotificationView) -> tuple[str, ...]:
    created = one.created_at.isoformat(timespec="seconds")
    return one.notification_id, created, one.status, one.channel, one.title, one.error or ""


@noun.verb("show", "mainspring notification show 0197a6c0-7c30-7e55-9f72-a1bb23cd45ef")
def show(server: Server, notification_id: IdArgument, as_json: JsonFlag = False) -> None:
    """Show a notification: what it tells, and what became of it."""
    with server.connect() as client:
        view = client.notification(notification_id)
    if as_json:
        show_json(view)
        return
    show_fields(
        [
            ("notification", view.notification_id), ("title", view.title), ("status", view.status),
            ("channel", view.channel), ("rule", view.rule), ("created", view.created_at.isoformat()),
            ("attempts", str(view.attempts)), ("error", view.error),
            ("next", None if view.next_at is None else view.next_at.isoformat()),
            ("acknowledged by", view.acknowledged_by),
            *((item.subject, f"{item.event}{_times(item.count)}: {item.reason or ''}") for item in view.items),
        ]
    )  # fmt: skip


@noun.verb("send", "mainspring notification send 0197a6c0-7c30-7e55-9f72-a1bb23cd45ef")
def send(server: Server, notification_id: IdArgument, as_json: JsonFlag = False) -> None:
    """Send a notification again that was sent or given up. It keeps its id."""
    with server.connect() as client:
        view = client.send_notification(notification_id)
    if as_json:
        show_json(view)
    else:
        show_line(f"the notification {view.notification_id} is sent again to {view.channel}")


@noun.verb("acknowledge", "mainspring notification acknowledge 0197a6c0-7c30-7e55-9f72-a1bb23cd45ef")
def acknowledge(server: Server, notification_id: IdArgument, as_json: JsonFlag = False) -> None:
    """Acknowledge a notification: no reminders and no escalation of what it tells."""
    with server.connect() as client:
        view = client.acknowledge_notification(notification_id)
    if as_json:
        show_json(view)
    else:
        show_line(f"the notification {view.notification_id} is acknowledged by {view.acknowledged_by}")
