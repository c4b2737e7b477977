"""`mainspring workflow check`"""

from __future__ import annotations

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.workflow_file import read_with_lines
from mainspring.cli.workflow_showing import FileArgument

EXAMPLES = ("mainspring workflow check nightly.yaml", "mainspring workflow check nightly.yaml --json")


def command(
    file: FileArgument,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Check the workflows of a file, as `mainspring workflow apply` does. Nothing is stored."""
    workflows = read_with_lines(file)
    with connect(url, token_file, data) as client:
        for body, lines in workflows:
            with lines.named():
                found = client.check_workflow(body)
            if as_json:
                show_json(found)
                continue
            name = body.get("workflow_id") or "the workflow"
            show_line(f"{name} is valid: {found.steps:,} steps, {found.edges:,} edges, {found.layers:,} layers")
