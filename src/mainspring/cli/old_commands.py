"""Earlier commands that did what verbs of several nouns do now. They go on working as before."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.cancel_output import show_cancelled_job, show_cancelled_run
from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.find_id import JOB_HELP, find_id
from mainspring.cli.noun import Noun
from mainspring.cli.pause_changes import (
    pause_everything,
    pause_job,
    pause_queue,
    resume_everything,
    resume_job,
    resume_queue,
)

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.jobs import JobView
    from mainspring.wire.runs import RunView

noun = Noun("", "")
_OptionalJob = Annotated[str | None, typer.Argument(metavar="[JOB]", help=JOB_HELP, autocompletion=completing.jobs)]


@noun.verb("pause", "mainspring job pause daily_report", "mainspring queue pause mails", "mainspring tenant pause")
def pause(
    server: Server,
    job_id: _OptionalJob = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue", metavar="NAME", help="Pause a queue instead of a job.", autocompletion=completing.queues
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Pause everything of the tenant.")] = False,
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="Pause everything of all tenants; for instance administrators.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Stop firing a job until `mainspring job resume`, or start no run of a queue or at all. Runs that have started
    continue."""
    with server.connect() as client:
        _check("pause", job_id, queue, everything=everything or all_tenants)
        if job_id is not None:
            pause_job(client, job_id, as_json=as_json)
        elif queue is not None:
            pause_queue(client, queue, as_json=as_json)
        else:
            pause_everything(client, all_tenants=all_tenants, as_json=as_json)


@noun.verb("resume", "mainspring job resume daily_report", "mainspring queue resume mails", "mainspring tenant resume")
def resume(
    server: Server,
    job_id: _OptionalJob = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue", metavar="NAME", help="Resume a queue instead of a job.", autocompletion=completing.queues
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Resume everything of the tenant.")] = False,
    all_tenants: Annotated[
        bool,
        typer.Option("--all-tenants", help="Resume everything of all tenants; for instance administrators."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Resume a paused job, a queue, or what was paused with --all. Prints the next fire time of the job."""
    with server.connect() as client:
        _check("resume", job_id, queue, everything=everything or all_tenants)
        if job_id is not None:
            resume_job(client, job_id, as_json=as_json)
        elif queue is not None:
            resume_queue(client, queue, as_json=as_json)
        else:
            resume_everything(client, all_tenants=all_tenants, as_json=as_json)


def _check(verb: str, job_id: str | None, queue: str | None, *, everything: bool) -> None:
    from mainspring.domain.errors import InvalidInput

    if [job_id is not None, queue is not None, everything].count(True) != 1:
        raise InvalidInput(
            "name a job, or give --queue or --all, and only one of them",
            hint=f"such as: mainspring queue {verb} mails",
        )


@noun.verb("cancel", "mainspring job cancel daily_report", "mainspring run cancel 6f0a8b11")
def cancel(
    server: Server,
    any_id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The id of a run or of a job. Its end or its beginning is enough.",
            autocompletion=completing.runs_and_jobs,
        ),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Cancel a run, or a job with its live runs and all its future fires. Prints which of the two it cancelled."""
    with server.connect() as client:
        run, job = _cancelled(client, any_id)
        if run is not None:
            show_cancelled_run(run, as_json=as_json)
        elif job is not None:
            show_cancelled_job(client, job, as_json=as_json)


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
