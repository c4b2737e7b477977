"""`mainspring backfill-pause`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.backfilling import BACKFILL_HELP, backfill_id, show_backfill
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect

EXAMPLES = ("mainspring backfill-pause 6f0a8b11",)


def command(
    backfill: Annotated[str, typer.Argument(metavar="BACKFILL", help=BACKFILL_HELP)],
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Let a backfill create no more runs. Those that exist continue."""
    with connect(url, token_file, data) as client:
        show_backfill(client.pause_backfill(backfill_id(client, backfill)), as_json=as_json)
