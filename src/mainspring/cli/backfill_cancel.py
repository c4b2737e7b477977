"""`mainspring backfill-cancel`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.backfilling import BACKFILL_HELP, backfill_id, show_backfill
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect

EXAMPLES = ("mainspring backfill-cancel 6f0a8b11", "mainspring backfill-cancel 6f0a8b11 --running")


def command(
    backfill: Annotated[str, typer.Argument(metavar="BACKFILL", help=BACKFILL_HELP)],
    running: Annotated[bool, typer.Option("--running", help="Stop also the runs that a worker has.")] = False,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """End a backfill, and those of its runs that no worker has taken."""
    with connect(url, token_file, data) as client:
        view = client.cancel_backfill(backfill_id(client, backfill), running=running)
    show_backfill(view, as_json=as_json)
