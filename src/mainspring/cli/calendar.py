"""`mainspring calendar`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.calendars import rules_of
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import show_fields, show_json

if TYPE_CHECKING:
    from mainspring.wire.calendars import CalendarView

EXAMPLES = ("mainspring calendar de-business", "mainspring calendar de-business --json")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the calendar.")]


def command(
    name: NameArgument,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Show a calendar: its rules, how many jobs use it, and how many of them follow its last change."""
    with connect(url, token_file, data) as client:
        show_calendar(client.calendar(name), as_json=as_json)


def show_calendar(view: CalendarView, *, as_json: bool) -> None:
    if as_json:
        show_json(view)
    else:
        show_fields(_fields(view))


def _fields(view: CalendarView) -> list[tuple[str, str | None]]:
    rows: list[tuple[str, str | None]] = [
        ("calendar", view.name),
        ("version", str(view.version)),
        ("description", view.description),
        ("zone", view.timezone or "of the job"),
        *rules_of(view),
    ]
    if view.jobs is not None:
        rows.append(("jobs", f"{view.jobs:,}"))
    if view.pending:
        rows.append(("pending", f"{view.pending:,} next fires are not worked out anew yet"))
    if view.recomputed:
        rows.append(("recomputed", f"{view.recomputed:,} next fires follow the last change"))
    return rows
