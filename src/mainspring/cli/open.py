"""`mainspring open`"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.screen import say, show_json, show_line
from mainspring.cli.text_formats import local

EXAMPLES = (
    "mainspring open",
    "mainspring open --url http://127.0.0.1:8700 --token-file viewer-token",
    "mainspring open --print | wl-copy",
)

PrintFlag = Annotated[
    bool,
    typer.Option(
        "--print", help="Print the link also if stdout is no terminal, but a file or a pipe.", show_default=False
    ),
]


def command(
    server: Server,
    anyway: PrintFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Print a link that opens the dashboard signed in. It works once, within five minutes.

    The session has the rights of your token. Give somebody who only looks a link of a token with the role viewer.
    """
    if not (anyway or sys.stdout.isatty()):
        from mainspring.domain.errors import InvalidInput

        raise InvalidInput(
            "stdout is no terminal, and whoever reads the link there can sign in as you",
            code="not_a_terminal",
            field="print",
            hint="give --print if that is what you want",
        )
    with server.connect() as client:
        made = client.sign_in_link()
        address = client.connection.addresses[0]
    if as_json:
        show_json({"url": f"{address}{made.path}", "expires_at": made.expires_at})
        return
    show_line(f"{address}{made.path}")
    say(f"open it in a browser; it signs in once, until {local(made.expires_at)}")
