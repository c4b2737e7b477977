"""`mainspring open`"""

from __future__ import annotations

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import say, show_json, show_line
from mainspring.cli.wording import local

EXAMPLES = ("mainspring open", "mainspring open --token-file viewer-token")


def command(
    as_json: JsonFlag = False, url: UrlOption = None, token_file: TokenFileOption = None, data: DataOption = None
) -> None:
    """Print a link that opens the dashboard signed in. It works once, within five minutes.

    The session has the rights of your token. Give somebody who only looks a link of a token with the role viewer.
    """
    with connect(url, token_file, data) as client:
        made = client.sign_in_link()
        address = client.connection.addresses[0]
    if as_json:
        show_json({"url": f"{address}{made.path}", "expires_at": made.expires_at})
        return
    show_line(f"{address}{made.path}")
    say(f"open it in a browser; it signs in once, until {local(made.expires_at)}")
