"""`mainspring pause`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import JOB_HELP, call_for_job
from mainspring.cli.pausing import change_pause
from mainspring.cli.screen import show_json, show_line

EXAMPLES = ("mainspring pause daily_report", "mainspring pause --queue mails", "mainspring pause --all")


def command(
    job_id: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help=JOB_HELP, autocompletion=completing.jobs)
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue", metavar="NAME", help="Pause a queue instead of a job.", autocompletion=completing.queues
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Pause everything of the tenant.")] = False,
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="Pause everything of all tenants; only the operator may.")
    ] = False,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Stop firing a job until `mainspring resume`, or start no run of a queue or at all. Runs that have started
    continue."""
    with connect(url, token_file, data) as client:
        if job_id is None or queue is not None or everything or all_tenants:
            change_pause(
                client, "pause", job_id, queue, everything=everything, all_tenants=all_tenants, as_json=as_json
            )
            return
        job = call_for_job(client, job_id, client.pause)
    if as_json:
        show_json(job)
    else:
        show_line(f"job {job.job_id} is {job.status}")
