"""`mainspring resume`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import JOB_HELP, call_for_job
from mainspring.cli.pausing import change_pause
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.wording import Times

EXAMPLES = ("mainspring resume daily_report", "mainspring resume --queue mails", "mainspring resume --all")


def command(
    job_id: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help=JOB_HELP, autocompletion=completing.jobs)
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue", metavar="NAME", help="Resume a queue instead of a job.", autocompletion=completing.queues
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Resume everything of the tenant.")] = False,
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="Resume everything of all tenants; only the operator may.")
    ] = False,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Resume a paused job, a queue, or what was paused with --all. Prints the next fire time of the job."""
    with connect(url, token_file, data) as client:
        if job_id is None or queue is not None or everything or all_tenants:
            change_pause(
                client, "resume", job_id, queue, everything=everything, all_tenants=all_tenants, as_json=as_json
            )
            return
        job = call_for_job(client, job_id, client.resume)
    if as_json:
        show_json(job)
    else:
        coming = (
            f", next fire {Times(datetime.now(UTC)).full(job.next_fire_at)}" if job.next_fire_at is not None else ""
        )
        show_line(f"job {job.job_id} is {job.status}{coming}")
