"""`mainspring calendars`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.calendars import BlackoutIn, CalendarView, DateSpanIn, HolidaysIn, TimeSpanIn

EXAMPLES = ("mainspring calendars", "mainspring calendars --json")
_COLUMNS = (
    Column("CALENDAR", least=12),
    Column("VERSION", rank=3, right=True),
    Column("ZONE", rank=2),
    Column("RULES", rank=1),
)


@with_list_options
def command(
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
            "no calendars; create one with mainspring calendar-set",
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
