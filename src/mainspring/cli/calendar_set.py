"""`mainspring calendar-set`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mainspring.cli.calendar import NameArgument, show_calendar
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect

EXAMPLES = (
    "mainspring calendar-set de-business --holidays DE-BE --weekdays MON-FRI --timezone Europe/Berlin",
    "mainspring calendar-set office --hours 09:00-12:00 --hours 13:00-17:00 --date 2026-12-24",
    "mainspring calendar-set quiet --blackout 'SUN 02:00-04:00' --blackout 2026-12-20T00:00..2026-12-21T06:00",
    "mainspring calendar-set de-business --file calendar.json",
)
_DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_RULES = "Rules"


def command(
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
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Create a calendar, or replace its rules. The next fires of its jobs follow."""
    from mainspring.domain.errors import InvalidInput

    rules: dict[str, Any] = {
        "timezone": timezone,
        "holidays": [_country(one) for one in holidays or ()] or None,
        "weekdays": None if weekdays is None else _weekdays(weekdays, "weekdays"),
        "dates": [_dates(one) for one in date or ()] or None,
        "hours": [_span(one, "-", "hours") for one in hours or ()] or None,
        "blackouts": [_blackout(one) for one in blackout or ()] or None,
        "description": description,
    }
    given = {name: value for name, value in rules.items() if value is not None}
    if file is not None and given:
        raise InvalidInput(
            f"--file and {next(iter(given))} cannot be combined", field="file", hint="the file has all rules"
        )
    with connect(url, token_file, data) as client:
        view = client.set_calendar(name, given if file is None else _read(file), if_version=if_version)
        show_calendar(view, as_json=as_json)


def _read(file: str) -> dict[str, Any]:
    import msgspec

    from mainspring.domain.errors import InvalidInput

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        return msgspec.json.decode(text, type=dict[str, Any])
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}", field="file", expected="a JSON object") from None


def _country(text: str) -> dict[str, str]:
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
    return _span(text, "..", "date") if ".." in text else text


def _span(text: str, between: str, field: str) -> dict[str, str]:
    from mainspring.domain.errors import InvalidInput

    start, found, end = text.partition(between)
    if not found:
        raise InvalidInput(f"{text!r} has no {between}", field=field, expected=f"FROM{between}TO")
    return {"from": start.strip(), "to": end.strip()}


def _blackout(text: str) -> dict[str, Any]:
    if ".." in text:
        return _span(text, "..", "blackout")
    days, _, times = text.strip().rpartition(" ")
    return {**_span(times, "-", "blackout"), "days": _weekdays(days, "blackout")}
