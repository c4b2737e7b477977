"""`mainspring calendar-delete`"""

from __future__ import annotations

from mainspring.cli.calendar import NameArgument
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import show_json, show_line

EXAMPLES = ("mainspring calendar-delete de-business",)


def command(
    name: NameArgument,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Delete a calendar that no job uses."""
    with connect(url, token_file, data) as client:
        view = client.delete_calendar(name)
    if as_json:
        show_json(view)
    else:
        show_line(f"the calendar {view.name} is deleted")
