"""`mainspring backfill-status`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.backfilling import BACKFILL_HELP, backfill_id, show_backfill, watch_backfill
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect

EXAMPLES = ("mainspring backfill-status 6f0a8b11", "mainspring backfill-status 6f0a8b11 --watch")


def command(
    backfill: Annotated[str, typer.Argument(metavar="BACKFILL", help=BACKFILL_HELP)],
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Show the progress until the end. Exit with 0 only if no run failed."),
    ] = False,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Show a backfill and its progress."""
    with connect(url, token_file, data) as client:
        found = backfill_id(client, backfill)
        if watch:
            raise typer.Exit(watch_backfill(client, found, as_json=as_json))
        show_backfill(client.read_backfill(found), as_json=as_json)
