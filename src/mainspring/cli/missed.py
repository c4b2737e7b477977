"""`mainspring missed`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.find_id import job_filter
from mainspring.cli.listing import (
    Listing,
    ListOptions,
    PageCursor,
    PageLimit,
    more_pages,
    search_list,
    show_list,
    with_list_options,
)
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

EXAMPLES = ("mainspring missed", "mainspring missed daily_report", "mainspring missed --reason paused --limit 50")
_COLUMNS = (
    Column("JOB", least=12, ids=True),
    Column("FIRST"),
    Column("LAST", rank=2),
    Column("FIRES", rank=1, right=True),
    Column("REASON", least=12),
    Column("RECORDED", rank=3),
    Column("BACKFILL", rank=4, ids=True),
)


@with_list_options
def command(
    job_id: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="Only those of this job.", autocompletion=completing.jobs),
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Only those with this reason.", show_default=False)
    ] = None,
    search: Annotated[
        str | None,
        typer.Option("--search", metavar="TEXT", help="Part of the name or the id of the job.", show_default=False),
    ] = None,
    limit: PageLimit = 20,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List fires that did not run, with the reason, newest first. `mainspring run why JOB --at T` explains one."""

    def read(client: Client) -> Listing:
        from mainspring.sdk.client import calls

        found = job_filter(client, job_id)
        asked = calls.missed_fires(job=found, reason=reason, q=search, limit=limit, cursor=cursor)
        page = search_list(client, options, asked)
        if found is not None and not page.missed:
            client.job(found)  # it has missed none, or there is no such job
        return Listing(
            page,
            _COLUMNS,
            lambda times: [
                (
                    one.job_id, times.brief(one.first), times.brief(one.last), str(one.count), one.reason,
                    times.brief(one.recorded_at), ", ".join(one.backfills),
                )
                for one in page.missed
            ],
            "no missed fires",
            more_pages(page.next),
        )  # fmt: skip

    show_list(options, read)
