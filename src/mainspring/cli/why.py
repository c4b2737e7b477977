"""`mainspring why`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import show_json, show_line

EXAMPLES = ("mainspring why 0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11",)


def command(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")],
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Say in a sentence why a run is not running."""
    with connect(url, token_file, data) as client:
        answer = client.why(run_id)
    if as_json:
        show_json(answer)
    else:
        show_line(f"{answer.status}: {answer.why}")
