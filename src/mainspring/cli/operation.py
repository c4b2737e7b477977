"""`mainspring operation`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.operating import OPERATION_HELP, operation_id, show_operation, watch_operation

EXAMPLES = ("mainspring operation 6f0a8b11", "mainspring operation 6f0a8b11 --watch")


def command(
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help=OPERATION_HELP)],
    watch: Annotated[
        bool, typer.Option("--watch", help="Wait until the end. Exit with 0 only if nothing was refused.")
    ] = False,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Show an operation, its progress, and what was refused."""
    with connect(url, token_file, data) as client:
        view = client.operation(operation_id(client, operation))
        if watch:
            raise typer.Exit(watch_operation(client, view, as_json=as_json))
    show_operation(view, as_json=as_json)
