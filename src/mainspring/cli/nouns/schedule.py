"""`mainspring schedule`"""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import has_width, show_fields, show_json, show_text, stdout, tell
from mainspring.cli.table import WHOLE_ID, Column
from mainspring.cli.text_formats import in_utc, relative

if TYPE_CHECKING:
    from rich.text import Text

    from mainspring.cli.text_formats import TimeFormat
    from mainspring.domain.schedules.schedule import Schedule
    from mainspring.sdk.client.client import Client
    from mainspring.wire.preview import HeatMap, PileUp, PileUpPart, SchedulePreview, UpcomingFire, UpcomingFires

noun = Noun("schedule", "Schedules: when jobs fire.")
_WEEK = timedelta(days=7)
_QUARTER = timedelta(minutes=15)
_WITHOUT_WIDTH = 80
_NARROW = 60
_MOST = 1000
_RULES = "Schedule"
_COLUMNS = (
    Column("FIRES"),
    Column("JOB", least=WHOLE_ID, ids=True),
    Column("NAME", rank=2, least=10),
    Column("SCHEDULE", rank=1, least=18),
    Column("QUEUE", rank=3, least=7),
)
_HEATMAP_WITHOUT_WIDTH = 80
_MOST_PILE_UPS = 3
_MOST_PARTS = 3


@noun.verb(
    "preview",
    "mainspring schedule preview '0 9 * * MON-FRI' --tz Europe/Berlin",
    "mainspring schedule preview --every 90m -n 20",
    "mainspring schedule preview '0 9 * * *' --calendar de-business",
)
def preview(
    server: Server,
    line: Annotated[
        str | None,
        typer.Argument(metavar="CRON", help="A cron line: '0 9 * * MON-FRI', @daily.", show_default=False),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option("--tz", "--timezone", metavar="Z", help="Its time zone: Europe/Berlin.", rich_help_panel=_RULES),
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="D", help="An interval: 90s, 15m.", rich_help_panel=_RULES)
    ] = None,
    rrule: Annotated[
        str | None,
        typer.Option("--rrule", metavar="R", help="FREQ=WEEKLY;BYDAY=MO;BYHOUR=9", rich_help_panel=_RULES),
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="T", help="One time: 2030-12-31T23:59:59Z.", rich_help_panel=_RULES)
    ] = None,
    calendar: Annotated[
        str | None,
        typer.Option("--calendar", metavar="C", help="A calendar of the server.", rich_help_panel=_RULES),
    ] = None,
    outside: Annotated[
        str | None,
        typer.Option(
            "--outside", metavar="O", help="Fires outside of the calendar: skip or next.", rich_help_panel=_RULES
        ),
    ] = None,
    jitter: Annotated[
        str | None, typer.Option("--jitter", metavar="D", help="A random delay: 10m.", rich_help_panel=_RULES)
    ] = None,
    begin: Annotated[
        str | None, typer.Option("--start", metavar="T", help="No fire before this time.", rich_help_panel=_RULES)
    ] = None,
    end: Annotated[
        str | None, typer.Option("--end", metavar="T", help="No fire after this time.", rich_help_panel=_RULES)
    ] = None,
    max_runs: Annotated[
        int | None, typer.Option("--max-runs", metavar="N", help="It ends after so many runs.", rich_help_panel=_RULES)
    ] = None,
    exdate: Annotated[
        list[str] | None,
        typer.Option("--exdate", metavar="T", help="A fire of --rrule that is left out.", rich_help_panel=_RULES),
    ] = None,
    dst_gap: Annotated[
        str | None,
        typer.Option("--dst-gap", metavar="P", help="A time that clocks skip: shift or skip.", rich_help_panel=_RULES),
    ] = None,
    dst_overlap: Annotated[
        str | None,
        typer.Option(
            "--dst-overlap", metavar="P", help="A time that occurs twice: first, last or both.", rich_help_panel=_RULES
        ),
    ] = None,
    job_id: Annotated[
        str | None,
        typer.Option("--job-id", metavar="ID", help="The job for which H and jitter are worked out."),
    ] = None,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=_MOST, help="How many fires to list.")] = 10,
    start: Annotated[
        str | None, typer.Option("--from", metavar="T", help="List fires from this time on. Default: now.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show when a schedule fires: in words, the next times, and a picture of its week. Only --calendar asks a
    server."""
    dst = {name: word for name, word in (("gap", dst_gap), ("overlap", dst_overlap)) if word is not None}
    schedule = {
        "cron": line, "every": every, "rrule": rrule, "at": at, "timezone": timezone, "calendar": calendar,
        "outside": outside, "jitter": jitter, "start": begin, "end": end, "max_runs": max_runs,
        "exdates": exdate or None, "dst": dst or None,
    }  # fmt: skip
    given = {name: value for name, value in schedule.items() if value is not None}
    body = {"schedule": given, "n": count, "from": start, "job_id": job_id}
    body = {name: value for name, value in body.items() if value is not None}
    if calendar is None:
        shown, rule = _here(body)
        picture = [] if as_json else _picture_of_rule(shown, rule)
    else:
        with server.connect() as client:
            shown = client.preview(schedule=given, n=count, from_=start, job_id=job_id)
            whole = shown if as_json else client.preview(schedule=given, n=_MOST, from_=start, job_id=job_id)
        picture = [] if as_json else _picture_of_list(whole)
    if as_json:
        show_json(shown)
    else:
        _show(shown, picture)


def _here(body: dict[str, Any]) -> tuple[SchedulePreview, Schedule]:
    """The preview without a server."""
    import msgspec

    from mainspring.domain.preview.preview import asked, listed, previewed
    from mainspring.kernel.ids import DEFAULT_TENANT
    from mainspring.wire.preview import PreviewRequest

    try:
        request = msgspec.convert(body, PreviewRequest)
    except msgspec.ValidationError as error:
        from mainspring.domain.intake.decoding_errors import in_words

        raise in_words(error, PreviewRequest) from None
    plan = asked(request, DEFAULT_TENANT, datetime.now(UTC))
    coming, rule = list(listed(plan)), plan.schedule
    if coming and plan.most < plan.count:  # the last run of max_runs
        rule = msgspec.structs.replace(rule, end=coming[-1])
    return previewed(plan, coming), rule


def _show(shown: SchedulePreview, picture: list[Text]) -> None:
    now = datetime.now(UTC)
    show_fields(
        [
            ("schedule", shown.schedule),
            ("in words", shown.explanation),
            ("fires", _rate(shown.fires_per_day)),
            *(("next" if not index else "", _fire(fire, now)) for index, fire in enumerate(shown.fires)),
        ]
    )
    console = stdout()
    for drawn in picture:
        console.print(drawn, soft_wrap=True)
    sys.stdout.flush()
    for note in shown.notes:
        tell(f"note: {note}")
    if shown.spread is not None:
        tell(f"hint: {shown.spread.reason}; {proposal(shown.spread.cron, shown.spread.jitter)}")


def proposal(cron: str | None, jitter: str | None) -> str:
    """The schedule that would spread the fires."""
    line = None if cron is None else f"'{cron}' gives each job a time of its own"
    delay = None if jitter is None else f"--jitter {jitter} delays each fire at random"
    return ", or ".join(part for part in (line, delay) if part is not None)


def _rate(per_day: float) -> str | None:
    if not per_day:
        return None
    if per_day >= 1:
        return f"{per_day:,.1f} a day".replace(".0 ", " ")
    return f"every {1 / per_day:,.1f} days on average".replace(".0 ", " ")


def _fire(fire: Any, now: datetime) -> str:
    day, _, clock = fire.local.partition("T")
    if clock[5:8] == ":00":
        clock = clock[:5] + clock[8:]
    words = f"{fire.weekday[:3]} {day} {clock}"
    return words if _width() < _NARROW else f"{words} ({relative(fire.at, now)})"


def _width() -> int:
    return stdout().width if has_width() else _WITHOUT_WIDTH


def _picture_of_rule(shown: SchedulePreview, rule: Schedule) -> list[Text]:
    """The next week of the schedule, or the next year if that is empty."""
    from mainspring.cli import heatmap_picture
    from mainspring.domain.schedules.fires import count_fires
    from mainspring.domain.schedules.zones import zone

    if not shown.fires or not rule.recurring:
        return []
    place, instant = zone(shown.timezone), timedelta(microseconds=1)
    start = shown.from_ - instant
    if shown.fires[0].at < start + _WEEK:
        counts: dict[datetime, int] = {}
        moment = start
        while moment < start + _WEEK:
            # Clocks of all zones are moved by whole quarters, so a quarter of an hour is never cut in two.
            following = datetime.fromtimestamp((moment + instant).timestamp() // 900 * 900, UTC) + _QUARTER - instant
            found = count_fires(rule, moment, following)
            wall = (moment + instant).astimezone(place).replace(tzinfo=None)
            wall = wall.replace(minute=wall.minute // 15 * 15, second=0, microsecond=0)
            counts[wall] = counts.get(wall, 0) + found
            moment = following
        return heatmap_picture.days(counts, *_walls(shown, place), _width())
    first = shown.from_.astimezone(place).date()
    weeks = min(52, _width())
    return heatmap_picture.weeks(
        [
            (first + number * _WEEK, count_fires(rule, start + number * _WEEK, start + (number + 1) * _WEEK))
            for number in range(weeks)
        ]
    )


def _picture_of_list(shown: SchedulePreview) -> list[Text]:
    """The next week, as far as the listed fires cover it."""
    from mainspring.cli import heatmap_picture
    from mainspring.domain.schedules.zones import zone

    if not shown.fires:
        return []
    begin, end = _walls(shown, zone(shown.timezone))
    walls = [datetime.fromisoformat(fire.local).replace(tzinfo=None) for fire in shown.fires]
    if len(walls) == _MOST:
        end = min(end, walls[-1])
    counts: dict[datetime, int] = {}
    for wall in walls:
        place = wall.replace(minute=wall.minute // 15 * 15, second=0, microsecond=0)
        counts[place] = counts.get(place, 0) + 1
    return heatmap_picture.days({wall: count for wall, count in counts.items() if wall < end}, begin, end, _width())


def _walls(shown: SchedulePreview, place: Any) -> tuple[datetime, datetime]:
    begin, end = ((shown.from_ + ahead).astimezone(place).replace(tzinfo=None) for ahead in (timedelta(0), _WEEK))
    return begin, end


@noun.verb(
    "upcoming",
    "mainspring schedule upcoming",
    "mainspring schedule upcoming --from 2030-12-24T00:00:00Z --utc",
)
@with_list_options
def upcoming(
    start: Annotated[
        str | None, typer.Option("--from", metavar="T", help="Begin at this time. Default: now.", show_default=False)
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="T", help="End before this time. Default: a year.", show_default=False)
    ] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List the next fires of all jobs, in order of time. A job occurs as often as it fires."""

    def read(client: Client) -> Listing:
        page = client.upcoming_fires(from_=start, to=end, limit=limit, cursor=cursor)
        return Listing(
            page,
            _COLUMNS,
            lambda times: [_row(fire, times) for fire in page.fires],
            "no job fires in this time; to see one schedule: mainspring schedule preview",
            _notes(page),
        )

    show_list(options, read)


def _row(fire: UpcomingFire, times: TimeFormat) -> tuple[str, ...]:
    name = "" if fire.name == fire.job_id else fire.name
    return times.brief(fire.at), fire.job_id, name, fire.schedule, fire.queue


def _notes(page: UpcomingFires) -> list[str]:
    if page.more and page.next is None:
        return [
            f"too many jobs fire after {in_utc(page.until)} to list them; to count them: mainspring schedule heatmap"
        ]
    return more_pages(page.next)


@noun.verb("heatmap", "mainspring schedule heatmap", "mainspring schedule heatmap --week --tz Europe/Berlin")
def heatmap(
    server: Server,
    week: Annotated[bool, typer.Option("--week", help="The next seven days instead of 24 hours.")] = False,
    timezone: Annotated[
        str | None, typer.Option("--tz", "--timezone", metavar="Z", help="Show times of this zone. Default: UTC.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="T", help="Begin at this time. Default: now.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Draw when jobs fire, and name the minutes in which they pile up and the command that spreads them."""
    with server.connect() as client:
        seen = client.heatmap("week" if week else "day", from_=start, timezone=timezone)
    if as_json:
        show_json(seen)
        return
    about = "about " if seen.estimated else ""
    show_text(
        f"{about}{seen.fires:,} fires of {seen.jobs:,} jobs in the next "
        f"{'7 days' if week else '24 hours'}, {seen.timezone}; counted {relative(seen.as_of, datetime.now(UTC))}"
    )
    console = stdout()
    for line in drawn(seen, console.width if has_width() else _HEATMAP_WITHOUT_WIDTH):
        console.print(line, soft_wrap=True)
    sys.stdout.flush()
    named: set[str] = set()
    for pile_up in seen.pile_ups[:_MOST_PILE_UPS]:
        for words in in_words(pile_up, named):
            tell(words)


def drawn(seen: HeatMap, width: int) -> list[Text]:
    """The picture: days with hours, or hours with five minutes."""
    from mainspring.cli import heatmap_picture

    counts: dict[datetime, int] = {}
    for cell in seen.cells:
        wall = _wall(cell.local)
        counts[wall] = counts.get(wall, 0) + cell.fires
    if seen.range == "day":
        return heatmap_picture.hours(counts, width)
    return heatmap_picture.days(counts, min(counts), max(counts) + timedelta(seconds=seen.cell_seconds), width)


def in_words(pile_up: PileUp, named: set[str]) -> list[str]:
    """The pile-up, its largest schedules, and how to spread each that was not `named` before."""
    lines = [f"pile-up: {pile_up.fires:,} fires in the minute {pile_up.local.replace('T', ' ')[:16]}"]
    for part in pile_up.by[:_MOST_PARTS]:
        some = ", ".join(part.job_ids)
        lines.append(
            f"  {part.fires:,} of {part.jobs:,} job{'' if part.jobs == 1 else 's'}: {part.schedule} ({some}"
            + (", ...)" if part.jobs > len(part.job_ids) else ")")
        )
        if part.schedule not in named and (advice := _command(part)) is not None:
            named.add(part.schedule)
            lines.append(f"    spread them: {advice}")
    return lines


def _command(part: PileUpPart) -> str | None:
    """What to type for one of the jobs."""
    if part.spread is None or not part.job_ids:
        return None
    job = shlex.quote(part.job_ids[0])
    if part.spread.cron is not None:
        zone = "" if part.timezone in (None, "UTC") else f" --timezone {part.timezone}"
        return f"mainspring job edit {job} --cron {shlex.quote(part.spread.cron)}{zone}"
    return None if part.spread.jitter is None else f"mainspring job edit {job} --jitter {part.spread.jitter}"


def _wall(local: str) -> datetime:
    return datetime.fromisoformat(local).replace(tzinfo=None)
