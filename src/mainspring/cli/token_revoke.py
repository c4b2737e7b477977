"""`mainspring token-revoke`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import choose
from mainspring.cli.screen import show_json, show_line

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

EXAMPLES = ("mainspring token-revoke 6f0a8b11",)


def command(
    token: Annotated[
        str,
        typer.Argument(
            metavar="TOKEN_ID",
            help="The token's id, as shown by `mainspring tokens`.",
            autocompletion=completing.tokens,
        ),
    ],
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Revoke a token. It is rejected from now on. The last admin token of a tenant cannot be revoked."""
    with connect(url, token_file, data) as client:
        view = client.revoke_token(_token_id(client, token))
    if as_json:
        show_json(view)
    else:
        show_line(f"token {view.name} ({view.token_id}) is revoked")


def _token_id(client: Client, token: str) -> str:
    from mainspring.kernel.ids import parse_uuid

    if parse_uuid(token) is not None:
        return token
    return choose(token, (one.token_id for one in client.tokens().tokens), "token")
