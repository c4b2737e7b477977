"""`mainspring backfills`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.backfilling import done
from mainspring.cli.find_id import job_filter
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.table import Column
from mainspring.cli.wording import in_utc

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

EXAMPLES = ("mainspring backfills --job daily_report", "mainspring backfills --state running --watch")
_COLUMNS = (
    Column("BACKFILL", least=8, ids=True),
    Column("JOB", least=8),
    Column("STATE"),
    Column("DONE", right=True),
    Column("FAILED", rank=1, right=True),
    Column("RUNNING", rank=2, right=True),
    Column("FROM", rank=3),
    Column("TO", rank=3),
    Column("REASON", rank=4, least=10),
)


@with_list_options
def command(
    job: Annotated[
        str | None,
        typer.Option(
            "--job", metavar="JOB", help="Only those of this job.", autocompletion=completing.jobs, show_default=False
        ),
    ] = None,
    state: Annotated[
        str | None, completing.word_option("--state", "running", "paused", "cancelled", "completed")
    ] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List backfills with their progress, newest first."""

    def read(client: Client) -> Listing:
        page = client.backfills(job=job_filter(client, job), state=state, limit=limit, cursor=cursor)
        return Listing(
            page,
            _COLUMNS,
            lambda _times: [
                (
                    view.id,
                    view.job_id,
                    view.state,
                    f"{done(view)} of {view.total}",
                    str(view.failed),
                    str(view.running),
                    in_utc(view.from_),
                    in_utc(view.to),
                    view.reason or "",
                )
                for view in page.backfills
            ],
            "no backfills; to make up for fires of the past: mainspring backfill JOB --from T --to T",
            more_pages(page.next),
        )

    show_list(options, read)
