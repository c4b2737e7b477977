"""`mainspring retry`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.submit import payload_of
from mainspring.cli.which_run import RunOrJob, of_run

EXAMPLES = ("mainspring retry 0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11", "mainspring retry daily_report")


def command(
    run_or_job: RunOrJob,
    payload: Annotated[
        str | None, typer.Option("--payload", metavar="JSON", help="Another payload for it.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Run a failed, cancelled or skipped run again, as a new run for the same fire time. Prints its id."""
    with connect(url, token_file, data) as client:
        changed = payload_of(payload, [])
        run = of_run(client, run_or_job, lambda run_id: client.retry_run(run_id, changed))
    if as_json:
        show_json(run)
    else:
        show_line(run.run_id)
