"""`mainspring session-end`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import choose
from mainspring.cli.screen import show_json, show_line

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

EXAMPLES = ("mainspring session-end 6f0a8b11",)


def command(
    session: Annotated[
        str, typer.Argument(metavar="SESSION_ID", help="The session's id, as shown by `mainspring sessions`.")
    ],
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Sign a browser out, at once. Its token is still valid; `mainspring token-revoke` keeps its owner out."""
    with connect(url, token_file, data) as client:
        view = client.end_session(_session_id(client, session))
    if as_json:
        show_json(view)
    else:
        show_line(f"session {view.session_id} of {view.name} has ended")


def _session_id(client: Client, session: str) -> str:
    from mainspring.kernel.ids import parse_uuid

    if parse_uuid(session) is not None:
        return session
    return choose(session, (one.session_id for one in client.sessions().sessions), "session")
