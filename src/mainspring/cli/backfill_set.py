"""`mainspring backfill-set`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.backfilling import BACKFILL_HELP, backfill_id, show_backfill
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect

EXAMPLES = ("mainspring backfill-set 6f0a8b11 --concurrency 8",)


def command(
    backfill: Annotated[str, typer.Argument(metavar="BACKFILL", help=BACKFILL_HELP)],
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, max=1000, help="How many runs are alive at once.")
    ],
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Change how many runs of a backfill are alive at once."""
    with connect(url, token_file, data) as client:
        show_backfill(client.change_backfill(backfill_id(client, backfill), concurrency), as_json=as_json)
