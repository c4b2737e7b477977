"""`mainspring operation-cancel`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.operating import OPERATION_HELP, operation_id, show_operation

EXAMPLES = ("mainspring operation-cancel 6f0a8b11",)


def command(
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help=OPERATION_HELP)],
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """End an operation. What is done stays done, and the rest is left as it is."""
    with connect(url, token_file, data) as client:
        view = client.cancel_operation(operation_id(client, operation))
    show_operation(view, as_json=as_json)
