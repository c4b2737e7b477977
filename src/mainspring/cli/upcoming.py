"""`mainspring upcoming`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.table import Column
from mainspring.cli.wording import in_utc

if TYPE_CHECKING:
    from mainspring.cli.wording import Times
    from mainspring.sdk.client.client import Client
    from mainspring.wire.preview import UpcomingFire, UpcomingFires

EXAMPLES = (
    "mainspring upcoming",
    "mainspring upcoming --from 2030-12-24T00:00:00Z --to 2030-12-27T00:00:00Z --utc",
)
_COLUMNS = (
    Column("FIRES"),
    Column("JOB", least=12, ids=True),
    Column("NAME", rank=2, least=10),
    Column("SCHEDULE", rank=1, least=18),
    Column("QUEUE", rank=3, least=7),
)


@with_list_options
def command(
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
            "no job fires in this time; to see one schedule: mainspring preview",
            _notes(page),
        )

    show_list(options, read)


def _row(fire: UpcomingFire, times: Times) -> tuple[str, ...]:
    name = "" if fire.name == fire.job_id else fire.name
    return times.brief(fire.at), fire.job_id, name, fire.schedule, fire.queue


def _notes(page: UpcomingFires) -> list[str]:
    if page.more and page.next is None:
        return [f"too many jobs fire after {in_utc(page.until)} to list them; to count them: mainspring heatmap"]
    return more_pages(page.next)
