"""`mainspring cancel`"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import find_id
from mainspring.cli.screen import say, show_json, show_line

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.jobs import JobView
    from mainspring.wire.runs import RunView

EXAMPLES = ("mainspring cancel daily_report", "mainspring cancel 6f0a8b11")


def command(
    any_id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The id of a run or of a job. Its end or its beginning is enough.",
            autocompletion=completing.runs_and_jobs,
        ),
    ],
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Cancel a run, or a job with its live runs and all its future fires. Prints which of the two it cancelled."""
    with connect(url, token_file, data) as client:
        run, job = _cancelled(client, any_id)
        if run is not None:
            if as_json:
                show_json(run)
            else:
                show_line(_words(run))
            return
        assert job is not None
        last = None if as_json else client.job_status(job.job_id).latest_run
    if as_json:
        show_json(job)
        return
    show_line(f"job {job.job_id} is {job.status}")
    if last is not None and last.end_time is None:
        say(_words(last))


def _cancelled(client: Client, any_id: str) -> tuple[RunView | None, JobView | None]:
    """Cancel what the id, or a part of one, belongs to. An exact id counts first."""
    from mainspring.domain.errors import NotFound

    try:
        return _cancelled_exactly(client, any_id)
    except NotFound:
        match = find_id(client, any_id, "run", "job")
        if match is None:
            raise
    return _cancelled_exactly(client, match.id)


def _cancelled_exactly(client: Client, any_id: str) -> tuple[RunView | None, JobView | None]:
    """Cancel the run with this id, or else the job. Run ids are always UUIDs."""
    from mainspring.domain.errors import NotFound
    from mainspring.kernel.ids import parse_uuid

    if parse_uuid(any_id) is not None:
        with contextlib.suppress(NotFound):
            return client.cancel_run(any_id), None
    return None, client.cancel_job(any_id)


def _words(run: RunView) -> str:
    if run.status == "CANCELLED":
        return f"run {run.run_id} is CANCELLED"
    return f"run {run.run_id} was asked to stop ({run.status}); it becomes CANCELLED when its processes have ended"
