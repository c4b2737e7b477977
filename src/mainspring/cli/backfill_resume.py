"""`mainspring backfill-resume`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.backfilling import BACKFILL_HELP, backfill_id, show_backfill
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect

EXAMPLES = ("mainspring backfill-resume 6f0a8b11",)


def command(
    backfill: Annotated[str, typer.Argument(metavar="BACKFILL", help=BACKFILL_HELP)],
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Let a paused backfill continue."""
    with connect(url, token_file, data) as client:
        show_backfill(client.resume_backfill(backfill_id(client, backfill)), as_json=as_json)
