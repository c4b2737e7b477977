"""`mainspring workflow cancel`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import call_with_id
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.workflow_showing import WorkflowRunArgument

EXAMPLES = ("mainspring workflow cancel 6f0a8b11", "mainspring workflow cancel 6f0a8b11 --reason 'wrong region'")


def command(
    run: WorkflowRunArgument,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the others.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Cancel a workflow run and all of its steps that have not ended. Steps that run are asked to stop."""
    with connect(url, token_file, data) as client:
        view = call_with_id(client, run, lambda found: client.cancel_workflow_run(found, reason=reason), "run")
    if as_json:
        show_json(view)
    elif view.status == "CANCELLED":
        show_line(f"workflow run {view.run_id} is CANCELLED")
    else:
        show_line(f"workflow run {view.run_id} is {view.status}; it becomes CANCELLED when its last step has ended")
