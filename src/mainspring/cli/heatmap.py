"""`mainspring heatmap`"""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import has_width, show_json, show_text, stdout, tell
from mainspring.cli.wording import relative

if TYPE_CHECKING:
    from rich.text import Text

    from mainspring.wire.preview import HeatMap, PileUp, PileUpPart

EXAMPLES = ("mainspring heatmap", "mainspring heatmap --week --tz Europe/Berlin")
_WITHOUT_WIDTH = 80
_MOST_PILE_UPS = 3
_MOST_PARTS = 3


def command(
    week: Annotated[bool, typer.Option("--week", help="The next seven days instead of 24 hours.")] = False,
    timezone: Annotated[
        str | None, typer.Option("--tz", "--timezone", metavar="Z", help="Show times of this zone. Default: UTC.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="T", help="Begin at this time. Default: now.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Draw when jobs fire, and name the minutes in which they pile up and the command that spreads them."""
    with connect(url, token_file, data) as client:
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
    for line in drawn(seen, console.width if has_width() else _WITHOUT_WIDTH):
        console.print(line, soft_wrap=True)
    sys.stdout.flush()
    named: set[str] = set()
    for pile_up in seen.pile_ups[:_MOST_PILE_UPS]:
        for words in in_words(pile_up, named):
            tell(words)


def drawn(seen: HeatMap, width: int) -> list[Text]:
    """The picture: days with hours, or hours with five minutes."""
    from mainspring.cli import heat

    counts: dict[datetime, int] = {}
    for cell in seen.cells:
        wall = _wall(cell.local)
        counts[wall] = counts.get(wall, 0) + cell.fires
    if seen.range == "day":
        return heat.hours(counts, width)
    return heat.days(counts, min(counts), max(counts) + timedelta(seconds=seen.cell_seconds), width)


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
        return f"mainspring edit {job} --cron {shlex.quote(part.spread.cron)}{zone}"
    return None if part.spread.jitter is None else f"mainspring edit {job} --jitter {part.spread.jitter}"


def _wall(local: str) -> datetime:
    return datetime.fromisoformat(local).replace(tzinfo=None)
