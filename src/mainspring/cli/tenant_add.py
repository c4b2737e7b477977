"""`mainspring tenant-add`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import say, show_json, show_line

EXAMPLES = ("(umask 077; mainspring tenant-add acme > acme-token)",)


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, and . _ -")],
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Create a tenant. Prints its first admin token, which is not shown again.

    Only an admin of the tenant `default` can create tenants.
    """
    with connect(url, token_file, data) as client:
        made = client.add_tenant(name)
    if as_json:
        show_json(made)
        return
    show_line(made.admin_token.token)
    say(f"created tenant {made.name}; this is its admin token, which is not shown again")
