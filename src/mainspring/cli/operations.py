"""`mainspring operations`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from mainspring.cli import completing
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.operating import in_words, progress
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

EXAMPLES = ("mainspring operations", "mainspring operations --state running --watch")
_COLUMNS = (
    Column("OPERATION", least=8, ids=True),
    Column("WHAT"),
    Column("FILTER", rank=3, least=10),
    Column("STATE"),
    Column("PROGRESS", least=10),
    Column("BY", rank=2, least=6),
    Column("BEGAN", rank=1),
)


@with_list_options
def command(
    state: Annotated[str | None, completing.word_option("--state", "running", "done", "cancelled", "failed")] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List operations with their progress, newest first."""

    def read(client: Client) -> Listing:
        page = client.operations(state=state, limit=limit, cursor=cursor)
        return Listing(
            page,
            _COLUMNS,
            lambda times: [
                (
                    view.id,
                    f"{view.verb} {view.target.replace('_', ' ')}",
                    "" if view.filter is None else in_words(view.filter),
                    view.state,
                    progress(view),
                    view.requested_by,
                    times.brief(view.created_at),
                )
                for view in page.operations
            ],
            "no operations; to act on many jobs at once: mainspring act pause jobs queue=mails",
            more_pages(page.next),
        )

    show_list(options, read)
