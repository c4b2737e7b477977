"""`mainspring cancel`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import say, show_json, show_line

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.runs import RunView

EXAMPLES = ("mainspring cancel daily_report", "mainspring cancel 0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11")


def command(
    any_id: Annotated[str, typer.Argument(metavar="ID", help="The id of a run or of a job.")],
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Cancel a run, or a job with its live runs and all its future fires. Prints which of the two it cancelled."""
    with connect(url, token_file, data) as client:
        run = _cancelled_run(client, any_id)
        if run is not None:
            if as_json:
                show_json(run)
            else:
                show_line(_words(run))
            return
        job = client.cancel_job(any_id)
        last = None if as_json else client.job_status(job.job_id).latest_run
    if as_json:
        show_json(job)
        return
    show_line(f"job {job.job_id} is {job.status}")
    if last is not None and last.end_time is None:
        say(_words(last))


def _cancelled_run(client: Client, any_id: str) -> RunView | None:
    """Cancel the run with this id and return it. Return None if there is no such run. Run ids are always UUIDs."""
    from mainspring.domain.errors import NotFound
    from mainspring.kernel.ids import parse_uuid

    if parse_uuid(any_id) is None:
        return None
    try:
        return client.cancel_run(any_id)
    except NotFound:
        return None


def _words(run: RunView) -> str:
    if run.status == "CANCELLED":
        return f"run {run.run_id} is CANCELLED"
    return f"run {run.run_id} was asked to stop ({run.status}); it becomes CANCELLED when its processes have ended"
