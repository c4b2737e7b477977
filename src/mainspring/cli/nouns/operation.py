"""`mainspring operation`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.operation_output import (
    OPERATION_HELP,
    in_words,
    operation_id,
    progress,
    show_operation,
    watch_operation,
)
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

noun = Noun("operation", "Operations: a verb on many jobs or runs. `mainspring act` starts one.", default="show")
_COLUMNS = (
    Column("OPERATION", least=8, ids=True),
    Column("WHAT"),
    Column("FILTER", rank=3, least=10),
    Column("STATE"),
    Column("PROGRESS", least=10),
    Column("BY", rank=2, least=6),
    Column("BEGAN", rank=1),
)


@noun.verb("list", "mainspring operation list", "mainspring operation list --state running --watch")
@with_list_options
def list_(
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


@noun.verb("show", "mainspring operation show 6f0a8b11", "mainspring operation show 6f0a8b11 --watch")
def show(
    server: Server,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help=OPERATION_HELP)],
    watch: Annotated[
        bool, typer.Option("--watch", help="Wait until the end. Exit with 0 only if nothing was refused.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show an operation, its progress, and what was refused."""
    with server.connect() as client:
        view = client.operation(operation_id(client, operation))
        if watch:
            raise typer.Exit(watch_operation(client, view, as_json=as_json))
    show_operation(view, as_json=as_json)


@noun.verb("cancel", "mainspring operation cancel 6f0a8b11")
def cancel(
    server: Server,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help=OPERATION_HELP)],
    as_json: JsonFlag = False,
) -> None:
    """End an operation. What is done stays done, and the rest is left as it is."""
    with server.connect() as client:
        view = client.cancel_operation(operation_id(client, operation))
    show_operation(view, as_json=as_json)
