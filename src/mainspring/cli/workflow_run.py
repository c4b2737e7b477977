"""`mainspring workflow run`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import call_for_job
from mainspring.cli.job_options import payload_of
from mainspring.cli.screen import say, show_json, show_line
from mainspring.cli.workflow_showing import WorkflowArgument, watch_workflow_run

EXAMPLES = (
    "mainspring workflow run nightly --watch",
    "mainspring workflow run nightly region=us --idempotency-key us-1",
)


def command(
    workflow: WorkflowArgument,
    parameters: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Values of parameters, for this run.")
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option("--idempotency-key", metavar="K", help="A repeated command with this key starts no second run."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "--wait", help="Show the run until it ends. Exit with 0 only on SUCCESS.")
    ] = False,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Run a workflow once now, in addition to its schedule. Prints the id of the workflow run."""
    with connect(url, token_file, data) as client:
        given = payload_of(None, parameters or [])
        accepted = call_for_job(
            client, workflow, lambda found: client.start_workflow(found, given, idempotency_key=idempotency_key)
        )
        if watch:
            if not as_json:
                say(f"run {accepted.run_id}")
            raise typer.Exit(watch_workflow_run(client, accepted.run_id, as_json=as_json))
    if as_json:
        show_json(accepted)
    else:
        show_line(accepted.run_id)
        if accepted.status == "SKIPPED":
            say(f"SKIPPED: {accepted.reason}")
