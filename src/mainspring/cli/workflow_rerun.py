"""`mainspring workflow rerun`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import call_with_id
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.workflow_showing import WorkflowRunArgument, watch_workflow_run

EXAMPLES = (
    "mainspring workflow rerun 6f0a8b11 --watch",
    "mainspring workflow rerun 6f0a8b11 --from load --definition current",
)


def command(
    run: WorkflowRunArgument,
    from_step: Annotated[
        str | None,
        typer.Option("--from", metavar="STEP", help="This step and all that follows it.", show_default=False),
    ] = None,
    definition: Annotated[
        str,
        typer.Option(
            "--definition",
            help="fired: the steps as they were. current: as the workflow is now.",
            autocompletion=completing.words("fired", "current"),
        ),
    ] = "fired",
    watch: Annotated[
        bool, typer.Option("--watch", "--wait", help="Show the run until it ends. Exit with 0 only on SUCCESS.")
    ] = False,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Run a part of an ended workflow run again, within that run: the steps that did not succeed and what follows
    them, or one step and what follows it."""
    with connect(url, token_file, data) as client:
        view = call_with_id(
            client, run, lambda found: client.rerun_workflow(found, from_step, definition=definition), "run"
        )
        if watch:
            raise typer.Exit(watch_workflow_run(client, view.run_id, as_json=as_json))
    if as_json:
        show_json(view)
    else:
        show_line(f"workflow run {view.run_id} is {view.status}, rerun {view.reruns}")
