"""`mainspring workflow list`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

EXAMPLES = ("mainspring workflow list", "mainspring workflow list --q nightly --watch")
_COLUMNS = (
    Column("WORKFLOW", least=12, ids=True),
    Column("STATUS"),
    Column("STEPS", rank=3, right=True),
    Column("SCHEDULE", rank=2, least=10),
    Column("NEXT FIRE", rank=1),
    Column("LATEST RUN", rank=1),
    Column("OWNER", rank=4, least=6),
)


@with_list_options
def command(
    q: Annotated[
        str | None, typer.Option("--q", metavar="TEXT", help="Text in the name or the id.", show_default=False)
    ] = None,
    status: Annotated[
        str | None, completing.word_option("--status", "scheduled", "paused", "cancelled", "completed")
    ] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List workflows, newest first."""

    def read(client: Client) -> Listing:
        page = client.workflows(q=q, status=status, limit=limit, cursor=cursor)
        return Listing(
            page,
            _COLUMNS,
            lambda times: [
                (
                    one.workflow_id,
                    one.status,
                    f"{one.step_count:,}",
                    one.schedule,
                    "" if one.next_fire_at is None else times.brief(one.next_fire_at),
                    "" if one.latest_run is None else one.latest_run.status,
                    one.owner or "",
                )
                for one in page.workflows
            ],
            "no workflows; to create one: mainspring workflow apply FILE",
            more_pages(page.next),
        )

    show_list(options, read)
