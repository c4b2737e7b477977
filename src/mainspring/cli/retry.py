"""`mainspring retry`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.job_options import payload_of
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.which_run import RunOrJob, call_for_run

EXAMPLES = ("mainspring retry 6f0a8b11", "mainspring retry daily_report")


def command(
    run_or_job: RunOrJob,
    payload: Annotated[
        str | None,
        typer.Option(
            "--payload", metavar="JSON", help="Use this payload instead of the stored one.", show_default=False
        ),
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Repeat an ended run as a new run with the same scheduled time. Prints the new run's id."""
    with connect(url, token_file, data) as client:
        changed = payload_of(payload, [])
        run = call_for_run(client, run_or_job, lambda run_id: client.retry_run(run_id, changed))
    if as_json:
        show_json(run)
    else:
        show_line(run.run_id)
