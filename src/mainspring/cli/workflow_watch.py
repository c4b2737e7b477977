"""`mainspring workflow watch`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import call_with_id
from mainspring.cli.screen import show_json
from mainspring.cli.watching import parse_interval
from mainspring.cli.workflow_showing import WorkflowRunArgument, print_tree, watch_workflow_run

EXAMPLES = ("mainspring workflow watch 6f0a8b11", "mainspring workflow watch 6f0a8b11 --once")


def command(
    run: WorkflowRunArgument,
    once: Annotated[bool, typer.Option("--once", help="Print it once, as it is now.")] = False,
    interval: Annotated[str, typer.Option("--interval", metavar="D", help="How often it is refreshed.")] = "1s",
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Show a workflow run as a tree of its steps, live until it ends. Exit with 0 only on SUCCESS."""
    seconds = parse_interval(interval)
    with connect(url, token_file, data) as client:
        view = call_with_id(client, run, client.workflow_run, "run")
        if not once:
            raise typer.Exit(watch_workflow_run(client, view.run_id, as_json=as_json, interval=seconds))
    if as_json:
        show_json(view)
    else:
        print_tree(view)
