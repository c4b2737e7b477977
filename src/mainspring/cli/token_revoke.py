"""`mainspring token-revoke`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import show_json, show_line

EXAMPLES = ("mainspring token-revoke 0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11",)


def command(
    token: Annotated[str, typer.Argument(metavar="TOKEN_ID", help="The token's id, as shown by `mainspring tokens`.")],
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Revoke a token. It is rejected from now on. The last admin token of a tenant cannot be revoked."""
    with connect(url, token_file, data) as client:
        view = client.revoke_token(token)
    if as_json:
        show_json(view)
    else:
        show_line(f"token {view.name} ({view.token_id}) is revoked")
