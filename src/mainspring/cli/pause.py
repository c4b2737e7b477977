"""`mainspring pause`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import JOB_HELP, call_for_job
from mainspring.cli.screen import show_json, show_line

EXAMPLES = ("mainspring pause daily_report",)


def command(
    job_id: Annotated[str, typer.Argument(metavar="JOB", help=JOB_HELP, autocompletion=completing.jobs)],
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Stop firing a job until `mainspring resume`. Runs that have started continue."""
    with connect(url, token_file, data) as client:
        job = call_for_job(client, job_id, client.pause)
    if as_json:
        show_json(job)
    else:
        show_line(f"job {job.job_id} is {job.status}")
