"""`mainspring calendar`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import say, show_fields, show_json, show_line
from mainspring.cli.settings_json import settings_in
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from mainspring.sdk.client.client import Client
    from mainspring.wire.calendars import BlackoutIn, CalendarPreview, CalendarView, DateSpanIn, HolidaysIn, TimeSpanIn

noun = Noun("calendar", "Calendars: which days and times schedules may use.", default="show")
_COLUMNS = (
    Column("CALENDAR", least=12),
    Column("VERSION", rank=3, right=True),
    Column("ZONE", rank=2),
    Column("RULES", rank=1),
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the calendar.")]
_DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_RULES = "Rules"


@noun.verb("list", "mainspring calendar list", "mainspring calendar list --json")
@with_list_options
def list_(
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List calendars: which days and times schedules may use."""

    def read(client: Client) -> Listing:
        page = client.calendars(limit=limit, cursor=cursor)
        return Listing(
            page,
            _COLUMNS,
            lambda _: [_row(one) for one in page.calendars],
            "no calendars; create one with mainspring calendar set",
            more_pages(page.next),
        )

    show_list(options, read)


def _row(one: CalendarView) -> tuple[str, ...]:
    return (one.name, str(one.version), one.timezone or "of the job", "; ".join(text for _, text in rules_of(one)))


def rules_of(one: CalendarView) -> list[tuple[str, str]]:
    """The rules in words, by name."""
    rows = [
        ("weekdays", ", ".join(one.weekdays)),
        ("holidays", ", ".join(map(_country, one.holidays))),
        ("dates", _some([day if isinstance(day, str) else _days(day) for day in one.dates])),
        ("hours", _hours(one)),
        ("blackouts", _some([_blackout(span) for span in one.blackouts])),
    ]
    named = {"holidays": "not on holidays of ", "dates": "not on ", "blackouts": "not "}
    return [(name, named.get(name, "") + text) for name, text in rows if text]


def _some(texts: list[str], most: int = 5) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def _country(one: HolidaysIn) -> str:
    return one.country if one.subdivision is None else f"{one.country}-{one.subdivision}"


def _days(one: DateSpanIn) -> str:
    return f"{one.first} to {one.last}"


def _hours(one: CalendarView) -> str:
    from mainspring.wire.calendars import HoursIn

    hours = one.hours
    if hours is None:
        return ""
    if not isinstance(hours, HoursIn):
        return ", ".join(map(_span, hours))
    if hours.start is not None:
        return f"{hours.start}-{hours.end}"
    days = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    found = {day: getattr(hours, day) for day in days}
    return ", ".join(
        f"{day.upper()} {' '.join(map(_span, spans if isinstance(spans, list) else [spans]))}"
        for day, spans in found.items()
        if spans
    )


def _span(one: TimeSpanIn) -> str:
    return f"{one.start}-{one.end}"


def _blackout(one: BlackoutIn) -> str:
    if one.days is None:
        return f"{one.start} to {one.end}"
    return f"{' '.join(one.days)} {one.start}-{one.end}"


@noun.verb("show", "mainspring calendar show de-business", "mainspring calendar show de-business --json")
def show(
    server: Server,
    name: NameArgument,
    as_json: JsonFlag = False,
) -> None:
    """Show a calendar: its rules, how many jobs use it, and how many of them follow its last change."""
    with server.connect() as client:
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


@noun.verb(
    "set",
    "mainspring calendar set de-business --holidays DE-BE --weekdays MON-FRI",
    "mainspring calendar set office --hours 09:00-12:00 --hours 13:00-17:00",
    "mainspring calendar set quiet --blackout 'SUN 02:00-04:00'",
    "mainspring calendar set quiet --blackout 2026-12-20T00:00..2026-12-21T06:00",
    "mainspring calendar set office --date 2026-12-24 --timezone Europe/Berlin",
    "mainspring calendar set de-business --file calendar.json",
    "mainspring calendar set de-business --weekdays MON-SAT --preview",
)
def set_(
    server: Server,
    name: NameArgument,
    file: Annotated[
        str | None, typer.Option("--file", metavar="F", help="All rules as JSON, as in PUT /v1/calendars; - is stdin.")
    ] = None,
    holidays: Annotated[
        list[str] | None,
        typer.Option("--holidays", metavar="C", help="No fire on holidays of DE or DE-BE.", rich_help_panel=_RULES),
    ] = None,
    weekdays: Annotated[
        str | None,
        typer.Option("--weekdays", metavar="D", help="Only on these: MON-FRI or MON,WED,FRI.", rich_help_panel=_RULES),
    ] = None,
    date: Annotated[
        list[str] | None,
        typer.Option(
            "--date", metavar="D", help="No fire on 2026-12-24 or 2026-12-24..2027-01-01.", rich_help_panel=_RULES
        ),
    ] = None,
    hours: Annotated[
        list[str] | None,
        typer.Option("--hours", metavar="H", help="Only from 09:00-17:00.", rich_help_panel=_RULES),
    ] = None,
    blackout: Annotated[
        list[str] | None,
        typer.Option(
            "--blackout",
            metavar="B",
            help="No fire in 'SUN 02:00-04:00' of every week, or in 2026-12-20T00:00..2026-12-21T06:00.",
            rich_help_panel=_RULES,
        ),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="Z", help="By default that of each job.", rich_help_panel=_RULES)
    ] = None,
    description: Annotated[str | None, typer.Option("--description", metavar="TEXT", help="For people.")] = None,
    if_version: Annotated[
        int | None, typer.Option("--if-version", metavar="N", help="Only if the calendar has this version.")
    ] = None,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show which fires would move, and change nothing.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Create a calendar, or replace its rules. The next fires of its jobs follow."""
    from mainspring.domain.errors import InvalidInput

    rules: dict[str, Any] = {
        "timezone": timezone,
        "holidays": [_set_country(one) for one in holidays or ()] or None,
        "weekdays": None if weekdays is None else _weekdays(weekdays, "weekdays"),
        "dates": [_dates(one) for one in date or ()] or None,
        "hours": [_set_span(one, "-", "hours") for one in hours or ()] or None,
        "blackouts": [_set_blackout(one) for one in blackout or ()] or None,
        "description": description,
    }
    given = {name: value for name, value in rules.items() if value is not None}
    if file is not None and given:
        raise InvalidInput(
            f"--file and {next(iter(given))} cannot be combined", field="file", hint="the file has all rules"
        )
    wanted = given if file is None else settings_in(file)
    with server.connect() as client:
        if preview:
            _show_preview(client.preview_calendar(name, wanted), as_json=as_json)
        else:
            stored = client.set_calendar(name, wanted, if_version=if_version)
            show_calendar(stored, as_json=as_json)
            if not rules_of(stored):
                say(f"warning: calendar {name} has no rules and holds back no fire; give --holidays or --weekdays")


def _show_preview(found: CalendarPreview, *, as_json: bool) -> None:
    if as_json:
        show_json(found)
        return
    holidays = [f"{one.date} {one.name}" for one in found.closed if one.name is not None]
    rows: list[tuple[str, str | None]] = [
        ("calendar", found.name),
        ("open days", f"{found.open_days} of {found.year}"),
        ("holidays", _some(holidays, 20) or None),
        ("jobs", f"{found.jobs:,}, of which {found.compared:,} were compared, and {found.changed:,} would change"),
    ]
    rows += [(one.job_id, f"{_fires(one.going, one.go, 'go')}, {_fires(one.coming, one.come, 'come')}")
             for one in found.moved if one.go or one.come]  # fmt: skip
    show_fields(rows)


def _fires(shown: Sequence[datetime], number: int, verb: str) -> str:
    first = f": {shown[0]:%Y-%m-%dT%H:%M:%SZ}{' ...' if number > 1 else ''}" if shown else ""
    return f"{number:,} {'fire' if number == 1 else 'fires'} {verb}{first}"


def _set_country(text: str) -> dict[str, str]:
    country, _, part = text.partition("-")
    return {"country": country, "subdivision": part} if part else {"country": country}


def _weekdays(text: str, field: str) -> list[str]:
    """MON-FRI, or names with commas between them. What is not a weekday is refused by the server."""
    found: list[str] = []
    for part in text.replace(" ", "").upper().split(","):
        first, dash, last = part.partition("-")
        if dash and first in _DAYS and last in _DAYS:
            begin, end = _DAYS.index(first), _DAYS.index(last)
            found += _DAYS[begin : end + 1] if begin <= end else (*_DAYS[begin:], *_DAYS[: end + 1])
        else:
            found.append(part)
    return found


def _dates(text: str) -> Any:
    return _set_span(text, "..", "date") if ".." in text else text


def _set_span(text: str, between: str, field: str) -> dict[str, str]:
    from mainspring.domain.errors import InvalidInput

    start, found, end = text.partition(between)
    if not found:
        raise InvalidInput(f"{text!r} has no {between}", field=field, expected=f"FROM{between}TO")
    return {"from": start.strip(), "to": end.strip()}


def _set_blackout(text: str) -> dict[str, Any]:
    if ".." in text:
        return _set_span(text, "..", "blackout")
    days, _, times = text.strip().rpartition(" ")
    return {**_set_span(times, "-", "blackout"), "days": _weekdays(days, "blackout")}


@noun.verb("delete", "mainspring calendar delete de-business")
def delete(
    server: Server,
    name: NameArgument,
    as_json: JsonFlag = False,
) -> None:
    """Delete a calendar that no job uses."""
    with server.connect() as client:
        view = client.delete_calendar(name)
    if as_json:
        show_json(view)
    else:
        show_line(f"the calendar {view.name} is deleted")
