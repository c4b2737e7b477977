"""`mainspring retry`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.submit import payload_of

EXAMPLES = ("mainspring retry 0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11",)


def command(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The id of a run that ended without success.")],
    payload: Annotated[
        str | None, typer.Option("--payload", metavar="JSON", help="Another payload for it.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Run a failed, cancelled or skipped run again, as a new run for the same fire time. Prints its id."""
    with connect(url, token_file, data) as client:
        run = client.retry_run(run_id, payload_of(payload, []))
    if as_json:
        show_json(run)
    else:
        show_line(run.run_id)
