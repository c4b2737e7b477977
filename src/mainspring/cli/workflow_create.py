"""`mainspring workflow create`"""

from __future__ import annotations

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.workflow_showing import FileArgument

EXAMPLES = ("mainspring workflow create nightly.yaml", "cat nightly.json | mainspring workflow create -")


def command(
    file: FileArgument,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Create the workflows of a file. One that exists is refused: `mainspring workflow apply` changes it. Prints their
    ids."""
    from mainspring.cli.workflow_file import read_with_lines

    workflows = read_with_lines(file)
    with connect(url, token_file, data) as client:
        for body, lines in workflows:
            with lines.named():
                client.check_workflow(body)  # nothing is created if one of them is wrong
        for body, _ in workflows:
            made = client.create_workflow(body)
            if as_json:
                show_json(made)
            else:
                show_line(made.workflow_id)
